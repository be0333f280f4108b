package redact_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/redact"
	"exportbridge/bridge/seal"
)

// Two keys of 32 bytes each.
var (
	first  = "k1 " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	second = "k2 " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32))
)

func redactor(t testing.TB, c redact.Config) *redact.Redactor {
	t.Helper()
	if c.Keys == "" {
		c.Keys = bridge.Secret(first)
	}
	if c.Encrypts() {
		c.Master = bridge.Secret(first)
	}
	rules := must.Get(c.Compile())(t)
	return redact.NewRedactor(rules)
}

// hashOf is the hash of a text with the first key.
func hashOf(text string) string {
	h := hmac.New(sha256.New, bytes.Repeat([]byte{1}, 32))
	h.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// TestApply: a rule changes its value, and nothing else changes, white space included.
func TestApply(t *testing.T) {
	t.Parallel()
	drop := func(at ...string) redact.Config { return redact.Config{Drop: at} }
	hash := func(at ...string) redact.Config { return redact.Config{Hash: at} }
	mask := func(at ...string) redact.Config { return redact.Config{Mask: at} }
	for name, tc := range map[string]struct {
		rules      redact.Config
		item, want string
	}{
		"first":         {drop("/a"), `{ "a" : 1 , "b" : 2 }`, `{ "b" : 2 }`},
		"middle":        {drop("/b"), `{"a":1, "b" :2 ,"c":3}`, `{"a":1 ,"c":3}`},
		"last":          {drop("/b"), "{\"a\":1,\n\"b\":2\n}", "{\"a\":1\n}"},
		"only":          {drop("/a"), `{ "a":1 }`, `{  }`},
		"all":           {drop("/a", "/b"), `{"a":1,"b":2}`, `{}`},
		"outer":         {drop("/a", "/c"), `{"a":1,"b":2,"c":3}`, `{"b":2}`},
		"inner":         {drop("/a/b"), `{"x":0,"a":{"b":{"c":[1,{}]},"d":1.50},"y":"\u0041"}`, `{"x":0,"a":{"d":1.50},"y":"\u0041"}`},
		"in both":       {drop("/a", "/b/c"), `{"a":1,"b":{"c":1,"d":2}}`, `{"b":{"d":2}}`},
		"digits":        {drop("/1/a", "/b/1"), `{"1":{"a":1},"b":{"1":1}}`, `{"1":{},"b":{}}`},
		"absent":        {drop("/a/b", "/c"), `{"d": 1}`, `{"d": 1}`},
		"null":          {drop("/a/b"), `{"a":null}`, `{"a":null}`},
		"empty":         {drop("/a/b", "/c/d", "/e/*/f"), `{"a":"","c":[ ],"e":{}}`, `{"a":"","c":[ ],"e":{}}`},
		"escaped name":  {drop("/a~1b/~0c"), `{"\u0061/b":{"\u007ec":1,"c":2}}`, `{"\u0061/b":{"c":2}}`},
		"empty name":    {drop("/a/"), `{"a":{"":1,"b":2}}`, `{"a":{"b":2}}`},
		"elements":      {drop("/a/*/b"), `{"a":[{"b":1},{"c":2,"b":3},null]}`, `{"a":[{},{"c":2},null]}`},
		"nested arrays": {hash("/a/*/*"), `{"a":[["x"],[]]}`, `{"a":[["` + hashOf("x") + `"],[]]}`},
		"hash":          {hash("/a", "/b"), `{"a":"x","b":12.0}`, `{"a":"` + hashOf("x") + `","b":"` + hashOf("12.0") + `"}`},
		"hash escaped":  {hash("/a"), `{"a":"\u0078\n"}`, `{"a":"` + hashOf("x\n") + `"}`},
		"hash nothing":  {hash("/a", "/b"), `{"a":null,"b":""}`, `{"a":null,"b":""}`},
		"last 4":        {mask("/a:last4"), `{"a":"4111111111111234"}`, `{"a":"************1234"}`},
		"half":          {mask("/a:last4"), `{"a":"12345"}`, `{"a":"***45"}`},
		"none":          {mask("/a:last4"), `{"a":"1"}`, `{"a":"*"}`},
		"mask all":      {mask("/a"), `{"a":"1234567890"}`, `{"a":"**********"}`},
		"mask number":   {mask("/a:last4"), `{"a":12345678}`, `{"a":"****5678"}`},
		"mask escaped":  {mask("/a:last4"), `{"a":"öäüß\"\\\u0001\n"}`, `{"a":"****\"\\\u0001\u000a"}`},
	} {
		got, err := redactor(t, tc.rules).Apply([]byte("before"), []byte(tc.item))
		if err != nil || string(got) != "before"+tc.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tc.want)
		}
	}
}

// TestApplyHashesAgain: equal texts have equal hashes and others have others, whatever was hashed
// before.
func TestApplyHashesAgain(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Hash: []string{"/a"}})
	for i := range 5000 {
		text := strings.Repeat(strconv.Itoa(i*i%1000), 1+i%30)
		got, err := r.Apply(nil, []byte(`{"a":"`+text+`"}`))
		if want := `{"a":"` + hashOf(text) + `"}`; err != nil || string(got) != want {
			t.Fatalf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// TestPointers: a colon belongs to a name, unless it begins how much a mask shows.
func TestPointers(t *testing.T) {
	t.Parallel()
	c := redact.Config{Drop: []string{"/foaf:name/x", "/e:last4"}, Mask: []string{"/a:b/c:last4", "/d"}}
	if got := c.Pointers(); !slices.Equal(got, []string{"/foaf:name/x", "/e:last4", "/a:b/c", "/d"}) {
		t.Errorf("%q", got)
	}
}

// TestKnownOnce: what is known of an item is not taken for known of the next.
func TestKnownOnce(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Drop: []string{"/a"}})
	long := []byte(`{"z":"` + strings.Repeat("l", 80) + `"}`)
	r.Known = extents(t, long, 0)
	if got, err := r.Apply(nil, long); err != nil || !bytes.Equal(got, long) {
		t.Fatalf("%s, %v", got, err)
	}
	const begun = `{"z":1,"a":"secret`
	next := begun + strings.Repeat("t", len(long)-len(begun)-2) + `"}`
	if got, err := r.Apply(nil, []byte(next)); err != nil || string(got) != `{"z":1}` {
		t.Errorf("%s became %s, %v", next, got, err)
	}
}

// TestUncertain: an item in which a rule may have missed something is refused, and appends
// nothing.
func TestUncertain(t *testing.T) {
	t.Parallel()
	rules := redact.Config{Drop: []string{"/a", "/c/d", "/l/*/x"}, Hash: []string{"/h"}, Mask: []string{"/m"}}
	for _, item := range []string{
		`{"a":1,"a":2}`, `{"\u0061":1,"b":3,"a":2}`, // twice
		`{"c":{"d":1},"c":{}}`,
		`{"c":"{\"d\":1}"}`, `{"c":1}`, `{"c":false}`, `{"c":[{"d":1}]}`, // no object
		`{"l":{"x":1}}`, `{"l":"x"}`, `{"l":[1]}`, `{"l":[["x"]]}`, // no array of objects
		`{"h":{}}`, `{"h":[1]}`, `{"m":{}}`, `{"m":true}`, // no text
		`{"h":"\ud800"}`, `{"m":"\ud800x"}`, `{"\udc00a":1}`, `{"c":{"d\ud800":1}}`, // inexact
		`[1]`, `"x"`,
	} {
		got, err := redactor(t, rules).Apply([]byte("before"), []byte(item))
		if err == nil || string(got) != "before" {
			t.Errorf("%s: %s, %v; want an error", item, got, err)
		}
	}
}

// TestCompile: rules that overlap, that cannot be read or that lack a key are refused.
func TestCompile(t *testing.T) {
	t.Parallel()
	keys := func(text string) redact.Config { return redact.Config{Drop: []string{"/a"}, Keys: bridge.Secret(text)} }
	rules := func(c redact.Config) redact.Config { c.Keys = bridge.Secret(first); return c }
	for want, c := range map[string]redact.Config{
		"EVENT_HASH_KEY is required":           {Drop: []string{"/a"}},
		"EVENT_HASH_KEY line 1 is not an id":   keys("k1"),
		"EVENT_HASH_KEY line 2 is not an id":   keys(first + "\nk2 !"),
		"the key has 3 bytes, fewer than 32":   keys("k1 AAAA"),
		"another line has the same id":         keys(first + "\n" + first),
		`EVENT_DROP "a": a JSON pointer must`:  rules(redact.Config{Drop: []string{"a"}}),
		`EVENT_DROP "": a rule cannot select`:  rules(redact.Config{Drop: []string{""}}),
		`"/*": an item is an object`:           rules(redact.Config{Drop: []string{"/*"}}),
		"drop the array itself":                rules(redact.Config{Drop: []string{"/a/*"}}),
		"overlaps with /a of EVENT_DROP":       rules(redact.Config{Drop: []string{"/a"}, Hash: []string{"/a/b"}}),
		"overlaps with /a/*/b of EVENT_HASH":   rules(redact.Config{Hash: []string{"/a/*/b"}, Mask: []string{"/a"}}),
		"for an array, or for an object":       rules(redact.Config{Drop: []string{"/a/*/b"}, Hash: []string{"/a/b/c"}}),
		"EVENT_MASK \"/a:last5\": only :last4": rules(redact.Config{Mask: []string{"/a:last5"}}),
		`EVENT_DROP "/a:last4": only EVENT_M`:  rules(redact.Config{Drop: []string{"/a:last4"}}),
		`EVENT_HASH "/a:last4": only EVENT_M`:  rules(redact.Config{Hash: []string{"/a:last4"}}),
		`EVENT_ENCRYPT "/a:last4": only EVENT`: rules(redact.Config{Encrypt: []string{"/a:last4"}}),
	} {
		if _, err := c.Compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if r, err := new(redact.Config).Compile(); r != nil || err != nil {
		t.Errorf("no settings: %v, %v; want neither rules nor an error", r, err)
	}
}

// TestNames: the label changes with rules and with the key of hashes, the key of identities
// with the first line and the stream.
func TestNames(t *testing.T) {
	t.Parallel()
	names := func(keys string, c redact.Config) (label, identity string) {
		c.Keys = bridge.Secret(keys)
		r := redactor(t, c)
		return r.Label, r.IdentityKeyID
	}
	hash := redact.Config{Hash: []string{"/b", "/a"}}
	label, identity := names(first, hash)
	if again, _ := names(first, redact.Config{Hash: []string{"/a", "/b"}}); again != label {
		t.Errorf("the order of the rules changes the label: %s, %s", label, again)
	}
	if rotated, same := names(first+"\n"+second, hash); rotated == label || same != identity {
		t.Errorf("a new key: label %s, identity %s; want another label than %s, and %s", rotated, same, label, identity)
	}
	if _, other := names(second+"\n"+first, hash); other == identity {
		t.Error("another first key has the same name")
	}
	if _, other := names(first, redact.Config{Stream: "x", Hash: hash.Hash}); other == identity {
		t.Error("another stream has the same key of identities")
	}
	dropped, _ := names(first, redact.Config{Drop: []string{"/a"}})
	if same, _ := names(second, redact.Config{Drop: []string{"/a"}}); same != dropped {
		t.Error("without hashes the key changes the label")
	}
	if masked, _ := names(first, redact.Config{Mask: []string{"/a"}}); masked == dropped {
		t.Error("drop and mask have one label")
	}
	if none, id := names(first, redact.Config{}); none != "" || id != identity {
		t.Errorf("a key alone: label %q, identity %s; want none and %s", none, id, identity)
	}
}

// sums has all sums of an item in hexadecimal, in the order of its methods.
func sums(s bridge.Sums) (all [7]string) {
	keyed, plain, name, was := s.Keyed(), s.Plain(), s.Identity(), s.WasIdentity()
	record, border, wasBorder := s.WasRecord(), s.Border(), s.WasBorder()
	for i, sum := range [][]byte{keyed[:], plain[:], name[:], was[:], record[:], border[:], wasBorder[:]} {
		all[i] = hex.EncodeToString(sum)
	}
	return all
}

// TestSumsStay: checkpoints, records and marks hold sums, so their values never change.
func TestSumsStay(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Stream: "events", Drop: []string{"/ip"}})
	const (
		keyed = "0e83b7def9a684f5657b921fa267f69c8d4d22137a3b9b8c6d7d381c890d5d32"
		plain = "ea8953970077aa2ef7c5c26bc55c3b77d778b79c448d8c73f3eaaa2426d13380"
		named = "7692c3ad3540bb803c020b3aee66cd88"
		was   = "2a94b2e9e27f146cf105035df066e4cd"
	)
	id := []byte("one")
	for _, c := range []struct {
		id     []byte
		secret bool
		want   []string
	}{
		{nil, false, []string{keyed, plain, keyed[:24], plain[:24], "0702994c7463f5689aec451972eb6929"}},
		{id, false, []string{keyed, plain, named[:24], named[:24], named, "2a94b2e9ca2e5e66d2f34222f35affcb", was}},
		{id, true, []string{
			keyed, plain, "1d8088619b2963ae6b0185c1", named[:24], named, "2b7c27e7d8e7455f7fddae243ead9987", was,
		}},
	} {
		got := sums(bridge.NewSums(r.Identify, []byte(`{"id":"one","ip":"10.0.0.1"}`), c.id, c.secret))
		if !slices.Equal(got[:len(c.want)], c.want) {
			t.Errorf("id %q, secret %v: %v, want %v", c.id, c.secret, got, c.want)
		}
	}
}

// TestSums: no stored sum is made with SHA-256 alone, and no change of the rules changes one.
func TestSums(t *testing.T) {
	t.Parallel()
	item, id := []byte(`{"ip":"10.0.0.1"}`), []byte("id")
	r := redactor(t, redact.Config{Drop: []string{"/ip"}})
	plain := sha256.Sum256(item)
	for _, id := range [][]byte{nil, id} {
		s := bridge.NewSums(r.Identify, item, id, true)
		if s.Identity() == s.WasIdentity() || s.Keyed() == s.Plain() || s.Border() == s.WasBorder() && id != nil ||
			s.Plain() != plain {
			t.Errorf("id %q: %v, want other sums than without a key", id, sums(s))
		}
		e := bridge.Event{Raw: item, ID: id}
		if s.WasIdentity() != e.Identity() || id != nil && s.WasBorder() != bridge.NewBorderItem(&e) {
			t.Errorf("id %q: %v, want the sums from before in Was", id, sums(s))
		}
		record := sha256.Sum256(e.AppendRecordID(nil))
		if s.WasRecord() != [16]byte(record[:16]) {
			t.Errorf("id %q: record %x, want %x", id, s.WasRecord(), record[:16])
		}
		rotated := redactor(t, redact.Config{Hash: []string{"/ip"}, Keys: bridge.Secret(first + "\n" + second)})
		again := sums(bridge.NewSums(rotated.Identify, item, id, true))
		if again != sums(s) {
			t.Errorf("id %q: other rules and a new key make %v of %v", id, again, sums(s))
		}
		if own := s.Detach(); sums(*own) != again {
			t.Errorf("id %q: detached %v, want %v", id, sums(*own), again)
		}
	}
	e := bridge.Event{Raw: []byte(`{}`)}
	s := bridge.NewSums(r.Identify, item, nil, false)
	e.Sums = &s
	if read := bridge.SumsOfRecord(e.AppendRecordID(nil)); read == nil || read.Identity() != s.Identity() {
		t.Errorf("%+v of the record's id, want the identity %x", read, s.Identity())
	}
	if s := bridge.SumsOfRecord([]byte("not a sum")); s != nil {
		t.Errorf("%+v of another id, want none", s)
	}
	keyed := s.Keyed()
	if e.Sum() != hex.EncodeToString(keyed[:]) || !e.HasSum(hex.EncodeToString(plain[:])) {
		t.Error("the sum of an item is not the one with the key, or that from before is not its own")
	}
}

// TestIdentityKeyIsSecret: no value of an item has the key of identities as its hash, which
// every consumer reads.
func TestIdentityKeyIsSecret(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Stream: "s", Hash: []string{"/a"}})
	item := []byte(`{"a":"exportbridge identity\u0000s"}`)
	out := must.Get(r.Apply(nil, item))(t)
	hash := must.Get(base64.RawURLEncoding.DecodeString(string(out[len(`{"a":"`) : len(out)-len(`"}`)])))(t)
	h := hmac.New(sha256.New, hash)
	h.Write(item)
	if s := bridge.NewSums(r.Identify, item, nil, false); [sha256.Size]byte(h.Sum(nil)) == s.Keyed() {
		t.Error("a hash in an item is the key of identities")
	}
}

// dataKey is a data key, with its secret.
var dataSecret = seal.Secret{7}

func dataKey() *seal.Key { return seal.NewKey(seal.KeyID{1}, &dataSecret, dataSecret.Nonces()) }

// TestEncrypt: a value of any kind becomes a string that opens as the value's bytes. Nothing else
// changes. Null and an empty string stay, and a forgotten subject has a constant.
func TestEncrypt(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Encrypt: []string{"/a", "/l/*/x"}, Subject: "/u"})
	for _, plain := range []string{`"x"`, `12.50`, `true`, `{ "b" : [1, {"c":null}] }`, `[]`, `"\u00e9\ud800"`} {
		r.Key = dataKey()
		got, err := r.Apply([]byte("before"), []byte(`{ "a" : `+plain+` , "l":[{"x":null},{"x":""}]}`))
		if err != nil || r.Replaced {
			t.Errorf("%s: %v, replaced %t", plain, err, r.Replaced)
			continue
		}
		text, ok := bytes.CutSuffix(got, []byte(`" , "l":[{"x":null},{"x":""}]}`))
		text, begins := bytes.CutPrefix(text, []byte(`before{ "a" : "`))
		v, err := seal.Parse(string(text))
		if !ok || !begins || err != nil {
			t.Errorf("%s becomes %s, %v", plain, got, err)
			continue
		}
		if opened, err := v.Open("/a", &dataSecret); err != nil || string(opened) != plain {
			t.Errorf("%s opens as %s, %v", plain, opened, err)
		}
	}
	r.Key = seal.Forgotten
	if got, err := r.Apply(nil, []byte(`{"a":1,"l":[{"x":2}]}`)); err != nil || !r.Replaced ||
		string(got) != `{"a":"eb1:forgotten","l":[{"x":"eb1:forgotten"}]}` {
		t.Errorf("%s, %v, replaced %t", got, err, r.Replaced)
	}
	if _, err := r.Apply(nil, []byte(`{"b":1}`)); err != nil || r.Replaced {
		t.Errorf("nothing to encrypt: %v, replaced %t", err, r.Replaced)
	}
	r.Key = nil
	for item, fails := range map[string]bool{`{"a":1}`: true, `{"a":null}`: false, `{"l":[{"x":"s"}]}`: true, `{}`: false} {
		if _, err := r.Apply(nil, []byte(item)); (err != nil) != fails {
			t.Errorf("%s without a subject: %v", item, err)
		}
	}
}

// TestSubject: an item with two subjects, or with one that does not decode exactly, has none.
func TestSubject(t *testing.T) {
	t.Parallel()
	r := redactor(t, redact.Config{Encrypt: []string{"/a"}, Subject: "/u/id", Hash: []string{"/u/id"}})
	for item, want := range map[string]string{
		`{"u":{"id":"anna"}}`: "anna", `{ "x":1, "u" : { "id" : "\u0061nna" } }`: "anna", `{"u":{"id":17}}`: "17",
		`{"u":{"id":"a","id":"b"}}`: "", `{"u":{"id":"a"},"u":{"id":"b"}}`: "", `{"u":{"id":"\ud800"}}`: "",
		`{"u":{"id":""}}`: "", `{"u":{"id":null}}`: "", `{"u":{"id":true}}`: "", `{"u":{"id":{}}}`: "", `{"u":null}`: "",
		`{}`: "", `[]`: "",
	} {
		if got := r.Subject([]byte(item)); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%s: %q, want %q", item, got, want)
		}
	}
}

// TestEncryptSettings: all problems of the settings of encryption are named.
func TestEncryptSettings(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]redact.Config{
		"EVENT_ENCRYPT_KEY":                      {Encrypt: []string{"/a"}, Subject: "/u"},
		"EVENT_HASH_KEY":                         {Encrypt: []string{"/a"}, Subject: "/u", Master: bridge.Secret(first)},
		"EVENT_SUBJECT":                          {Encrypt: []string{"/a"}, Master: bridge.Secret(first), Keys: bridge.Secret(first)},
		"overlaps with /a of EVENT_DROP":         {Encrypt: []string{"/a/b"}, Drop: []string{"/a"}, Subject: "/u"},
		`"/*/u" is no JSON pointer to one value`: {Encrypt: []string{"/a"}, Subject: "/*/u"},
		"set EVENT_SUBJECT to a pointer without": {Encrypt: []string{"/a"}, Subject: "/u/0/id"},
	} {
		if _, err := c.Compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
	with := redact.Config{Drop: []string{"/b"}, Encrypt: []string{"/a"}, Subject: "/u"}
	without := redact.Config{Drop: []string{"/b"}}
	a, b := redactor(t, with).Label, redactor(t, without).Label
	if !strings.Contains(a, bridge.ValuesEncrypted) || strings.Contains(b, bridge.ValuesEncrypted) ||
		strings.HasPrefix(a, b) {
		t.Errorf("labels %s with, %s without encryption", a, b)
	}
	with.Subject, without.Subject = "/v", "/v"
	if other, same := redactor(t, with).Label, redactor(t, without).Label; other == a || same != b {
		t.Errorf("labels %s, %s of another subject; want another label than %s, and %s", other, same, a, b)
	}
}
