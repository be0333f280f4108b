package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/seal"
)

func line(id string, b byte) string {
	return id + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"
}

func master(t testing.TB, text string) *seal.Master {
	t.Helper()
	return must.Get(seal.ParseMaster(text))(t)
}

// made returns the records that a master key makes of a new data key.
func made(t testing.TB, m *seal.Master, subject string) (key, value []byte, r *seal.Record) {
	t.Helper()
	key, value = m.Make(m.Name(subject))
	r, err := m.Read(key, value)
	if err != nil || r.Name != m.Name(subject) || r.Secret == nil {
		t.Fatalf("%s: %+v, %v", value, r, err)
	}
	return key, value, r
}

// TestSeal: a value is read with its key and pointer only, equal values become equal texts,
// and no nonce is used for two texts.
func TestSeal(t *testing.T) {
	t.Parallel()
	m := master(t, line("m1", 1))
	_, _, r := made(t, m, "anna")
	key := seal.NewKey(r.ID, r.Secret, r.Secret.Nonces())
	const plain = `{"email":"anna@example.com"}`
	text := string(key.Append(nil, "/payload", []byte(plain)))
	if again := string(seal.NewKey(r.ID, r.Secret, r.Secret.Nonces()).Append(nil, "/payload", []byte(plain))); again != text {
		t.Errorf("%s, then %s", text, again)
	}
	v, err := seal.Parse(strings.Trim(text, `"`))
	if err != nil || v.Key != r.ID {
		t.Fatalf("%s: %+v, %v", text, v, err)
	}
	if got, err := v.Open("/payload", r.Secret); err != nil || string(got) != plain {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := v.Open("/context", r.Secret); err == nil {
		t.Errorf("another pointer opens %s", got)
	}
	_, _, other := made(t, m, "anna")
	if got, err := v.Open("/payload", other.Secret); err == nil {
		t.Errorf("another key opens %s", got)
	}
	changed := []byte(strings.Trim(text, `"`))
	changed[len(changed)-8] ^= 1
	if v, err = seal.Parse(string(changed)); err == nil {
		if got, err := v.Open("/payload", r.Secret); err == nil {
			t.Errorf("a changed value opens %s", got)
		}
	}
	nonces := make(map[string]string)
	for _, of := range []struct{ pointer, plain string }{{"/a1", "2"}, {"/a", "12"}, {"/a", "2"}, {"/a12", ""}} {
		sealed := string(key.Append(nil, of.pointer, []byte(of.plain)))
		nonce := strings.Split(sealed, ":")[2][:16]
		if was, again := nonces[nonce]; again {
			t.Errorf("%v has the nonce of %s", of, was)
		}
		nonces[nonce] = of.pointer + of.plain
	}
}

// BenchmarkNewKey: a key with and without the nonces that a caller has kept.
func BenchmarkNewKey(b *testing.B) {
	secret := new(seal.Secret)
	for name, kept := range map[string]*seal.Secret{"derived": nil, "kept": secret.Nonces()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				nonces := kept
				if nonces == nil {
					nonces = secret.Nonces()
				}
				seal.NewKey(seal.KeyID{}, secret, nonces)
			}
		})
	}
}

// TestParse: what is no encrypted value is told from a forgotten one. A plain value can be the word forgotten.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, key := range []*seal.Key{seal.Forgotten, seal.Withheld} {
		text := strings.Trim(string(key.Append(nil, "/a", []byte("1"))), `"`)
		if _, err := seal.Parse(text); key == seal.Forgotten && !errors.Is(err, seal.ErrForgotten) || err == nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "eb1", "eb1:", "eb1:AAAA:AAAA", "eb2:AAAAAAAAAAAA:AAAA", "eb1:AAAAAAAAAAAA:A",
		"a@b", "forgotten"} {
		if _, err := seal.Parse(text); !errors.Is(err, seal.ErrNotSealed) {
			t.Errorf("%q: %v", text, err)
		}
	}
	short, err := seal.Parse("eb1:AAAAAAAAAAAA:AAAA")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = short.Open("/a", new(seal.Secret)); err == nil {
		t.Error("a value without a nonce is opened")
	}
}

// TestRotation: keys of an earlier line are read, names stay, and another first line, a missing
// line and another key with the id of a line are faults that block the stream.
func TestRotation(t *testing.T) {
	t.Parallel()
	first := master(t, line("m1", 1))
	key, value, was := made(t, first, "anna")
	if strings.Contains(string(key)+string(value), "anna") {
		t.Errorf("%s %s: the subject is in it", key, value)
	}
	rotated := master(t, line("m1", 1)+line("m2", 2))
	if r, err := rotated.Read(key, value); err != nil || *r.Secret != *was.Secret || rotated.Name("anna") != was.Name {
		t.Errorf("after the rotation: %+v, %v", r, err)
	}
	key2, value2, _ := made(t, rotated, "anna")
	if !bytes.Contains(value2, []byte(`"master":"m2"`)) {
		t.Errorf("%s: want the last key", value2)
	}
	for name, tc := range map[string]struct{ lines, want string }{
		"a missing line":     {line("m1", 1), "add the line of master key m2 to EVENT_ENCRYPT_KEY and restart"},
		"another key":        {line("m1", 1) + line("m2", 3), "restore the line of master key m2"},
		"another first line": {line("m2", 2) + line("m1", 1), "first"},
	} {
		_, err := master(t, tc.lines).Read(key2, value2)
		f := bridge.FaultOf(err)
		if err == nil || f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
			!strings.Contains(f.Hint, tc.want) {
			t.Errorf("%s: %v, hint %q", name, err, f.Hint)
		}
	}
	// A wrapped key under the name of another subject is not its own.
	moved := append([]byte(nil), seal.RecordKey(first.Name("bert"), was.ID)...)
	if r, err := first.Read(moved, value); err == nil {
		t.Errorf("a moved key is read: %+v", r)
	}
}

// TestRecords: marks, deleted keys and records without meaning.
func TestRecords(t *testing.T) {
	t.Parallel()
	m := master(t, line("m1", 1))
	at := time.Date(2026, 11, 28, 12, 0, 0, 5, time.UTC)
	key, value := m.Forget(m.Name("anna"), at)
	r, err := m.Read(key, value)
	if err != nil || r.Forgotten == nil || !r.Forgotten.Equal(at.Truncate(time.Second)) || r.Name != m.Name("anna") {
		t.Errorf("a mark: %+v, %v", r, err)
	}
	key, _, was := made(t, m, "anna")
	if r, err = m.Read(key, nil); err != nil || r.Secret != nil || r.ID != was.ID || r.Name != was.Name {
		t.Errorf("a deleted key: %+v, %v", r, err)
	}
	if r, err = m.Read([]byte(seal.Roll), []byte("{}")); err != nil || r != nil {
		t.Errorf("a record without meaning: %+v, %v", r, err)
	}
	for _, key := range []string{"", "x", "x/y", string(key) + "A"} {
		if _, err = m.Read([]byte(key), []byte("{}")); err == nil {
			t.Errorf("%q is read", key)
		}
	}
	if _, err = m.Read(key, []byte(`{"v":2}`)); err == nil || !strings.Contains(bridge.FaultOf(err).Hint, "upgrade") {
		t.Errorf("a later version: %v", err)
	}
}

// TestParseMaster: no error quotes a key.
func TestParseMaster(t *testing.T) {
	t.Parallel()
	secret := strings.Fields(line("m1", 1))[1]
	for _, text := range []string{"", "m1", secret, "m1 " + secret[:10], line("m1", 1) + line("m1", 2),
		"m1 " + base64.StdEncoding.EncodeToString(make([]byte, 33)),
		"m1 " + base64.StdEncoding.EncodeToString(make([]byte, 31))} {
		if _, err := seal.ParseMaster(text); err == nil || strings.Contains(err.Error(), secret[:10]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
