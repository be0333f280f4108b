package exportapi_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/seal"
)

// testKeys are keys in memory. They note what they are asked for.
type testKeys struct {
	forgotten string
	err       error
	asked     [][]string
}

func (k *testKeys) Of(subjects []string) ([]*seal.Key, error) {
	k.asked = append(k.asked, subjects)
	var keys []*seal.Key
	for _, s := range subjects {
		secret := &seal.Secret{s[0]}
		key := seal.NewKey(seal.KeyID{s[0]}, secret, secret.Nonces())
		if s == k.forgotten {
			key = seal.Forgotten
		}
		keys = append(keys, key)
	}
	return keys, k.err
}

func (k *testKeys) Close() {}

func sealing(t *testing.T, vars map[string]string) exportapi.Config {
	t.Helper()
	vars = withKeys(vars)
	vars["EVENT_ENCRYPT_KEY"] = strings.Split(privateKeys, "\n")[0]
	return config(t, vars)
}

const sealedPage = `{"items":[{"eventId":"1","userId":"a","timestamp":1,"payload":{"type":"t","mail":"secret"}},
	{"eventId":"2","userId":"b","timestamp":1,"payload":{"type":"t","mail":"secret"}},
	{"eventId":"3","userId":"a","timestamp":1,"payload":{"type":"t","mail":"secret"}},
	{"eventId":"4","timestamp":1,"payload":{"type":"t","mail":"secret"}},
	{"eventId":"5","timestamp":1,"payload":{"type":"t"}}]}`

// TestSealedFingerprint: with encryption too, a request names the key of identities and the rules.
func TestSealedFingerprint(t *testing.T) {
	t.Parallel()
	preset := func(string) bool { return false }
	hashed := config(t, withKeys(map[string]string{"EVENT_HASH": "/userId"}))
	sealed := sealing(t, map[string]string{"EVENT_HASH": "/userId", "EVENT_ENCRYPT": "/payload/mail"}) // of KAFKA_KEY
	was, now := hashed.Fingerprint(preset), sealed.Fingerprint(preset)
	if c := was.Changed(now, "c"); len(c.Other)+len(c.Unproven) > 0 || !c.Rules {
		t.Errorf("encryption: %+v, want other rules only", c)
	}
	lines := strings.Split(privateKeys, "\n")
	sealed.Private.Keys = bridge.Secret(lines[1] + "\n" + lines[0])
	if c := now.Changed(sealed.Fingerprint(preset), "c"); len(c.Other) == 0 {
		t.Errorf("another first key: %+v", c)
	}
}

// TestSealed: a page asks once for its subjects, also those of hashed members. Identities do not
// depend on keys. An item without a subject is withheld if it has something to encrypt.
func TestSealed(t *testing.T) {
	t.Parallel()
	read := func(keys *testKeys) []bridge.Event {
		t.Helper()
		cfg := sealing(t, map[string]string{"EVENT_ENCRYPT": "/payload/mail", "EVENT_HASH": "/userId"})
		cfg.Keys = func() seal.Keys { return keys }
		p := must.Get(fetchAll(t, serveWith(t, answer(sealedPage), cfg), bridge.Position{}))(t)
		if len(keys.asked) == 0 || !slices.Equal(keys.asked[0], []string{"a", "b"}) {
			t.Errorf("asked for %v", keys.asked)
		}
		return p.Events
	}
	all, after := read(&testKeys{}), read(&testKeys{forgotten: "b"})
	for i, want := range []bridge.Defect{"", "", "", bridge.DefectPrivate, ""} {
		e, now := &all[i], &after[i]
		if e.Defect != want || bytes.Contains(e.Raw, []byte("secret")) || e.Withheld() != (want != "") {
			t.Errorf("item %d: %q, defect %q", i, e.Raw, e.Defect)
		}
		if forgotten := i == 1; e.Sums.Replaced || now.Sums.Replaced != forgotten ||
			bytes.Equal(e.Raw, now.Raw) == forgotten {
			t.Errorf("item %d: %s, then %s, replaced %t", i, e.Raw, now.Raw, now.Sums.Replaced)
		}
		if e.Identity() != now.Identity() || !bytes.Equal(e.Form(), now.Form()) || e.Sums.Border() != now.Sums.Border() {
			t.Errorf("item %d has another identity once its subject is forgotten", i)
		}
	}
}

// TestSealedSubject: a subject is found among members that no rule is for, whichever setting names
// it.
func TestSealedSubject(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 20)
	page := `{"items":[{"eventId":"1","x":"` + long + `","person":"p","y":"` + long + `","userId":"u","z":"` + long +
		`","timestamp":1,"payload":{"mail":"secret"}}]}`
	for subject, vars := range map[string]map[string]string{
		"p": {"EVENT_SUBJECT": "/person"}, "u": {"KAFKA_KEY": "/userId"},
	} {
		vars["EVENT_ENCRYPT"] = "/payload/mail"
		keys, cfg := &testKeys{}, sealing(t, vars)
		cfg.Keys = func() seal.Keys { return keys }
		p := must.Get(fetchAll(t, serveWith(t, answer(page), cfg), bridge.Position{}))(t)
		if len(keys.asked) == 0 || !slices.Equal(keys.asked[0], []string{subject}) || p.Events[0].Withheld() {
			t.Errorf("%v: asked for %v, defect %q", vars, keys.asked, p.Events[0].Defect)
		}
	}
}

// TestSealedFails: without keys nothing of a page is decoded, and a client without a port to keys
// is refused.
func TestSealedFails(t *testing.T) {
	t.Parallel()
	cfg := sealing(t, map[string]string{"EVENT_ENCRYPT": "/payload/mail"})
	if _, err := exportapi.New(cfg); err == nil {
		t.Error("a client without keys is made")
	}
	keys := &testKeys{err: errors.New("no keys")}
	cfg.Keys = func() seal.Keys { return keys }
	c := serveWith(t, answer(sealedPage), cfg)
	page, err := c.Fetch(t.Context(), bridge.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Release()
	if err = c.Decode(page); !errors.Is(err, keys.err) || len(page.Events) != 0 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
	if got, err := c.DecodeItem([]byte(`{"userId":"a","timestamp":1,"payload":{"mail":"x"}}`)); !errors.Is(err, keys.err) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.DecodeItem([]byte(`no item`)); err == nil || errors.As(err, new(*bridge.Fault)) {
		t.Errorf("bytes that are no item: %v, want an error that is no fault", err)
	}
	for variable, vars := range map[string]map[string]string{
		"/userId, from which the key":                         {"EVENT_ENCRYPT": "/userId"},
		"/payload changes /payload/type, from which the type": {"EVENT_ENCRYPT": "/payload"},
		"which identifies":                                    {"EVENT_ENCRYPT": "/eventId"}, "knows its position": {"EVENT_ENCRYPT": "/timestamp"},
	} {
		if _, err := exportapi.New(sealing(t, vars)); err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%v: %v, want %s", vars, err, variable)
		}
	}
}
