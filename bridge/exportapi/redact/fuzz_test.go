package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/internal/pick"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/redact"
	"exportbridge/bridge/seal"
)

// value is a JSON value: a literal or a string as written, or its members or elements.
type value struct {
	text    string // "" for an object and an array
	object  bool
	names   []string // of the members, as written
	members []value
}

// parse reads a value with encoding/json, level by level.
func parse(raw json.RawMessage) (v value, err error) {
	raw = bytes.TrimSpace(raw)
	if raw[0] != '{' && raw[0] != '[' {
		return value{text: string(raw)}, nil
	}
	v.object = raw[0] == '{'
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if _, err = d.Token(); err != nil {
		return v, err
	}
	for d.More() {
		if v.object {
			from := d.InputOffset()
			if _, err = d.Token(); err != nil {
				return v, err
			}
			name := strings.TrimLeft(string(raw[from:d.InputOffset()]), ", \t\r\n")
			v.names = append(v.names, name)
		}
		var m json.RawMessage
		if err = d.Decode(&m); err != nil {
			return v, err
		}
		member, err := parse(m)
		if err != nil {
			return v, err
		}
		v.members = append(v.members, member)
	}
	return v, nil
}

func (v value) String() string {
	if v.text != "" {
		return v.text
	}
	var parts []string
	for i, m := range v.members {
		if v.object {
			parts = append(parts, v.names[i]+":"+m.String())
		} else {
			parts = append(parts, m.String())
		}
	}
	if v.object {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// decoded returns the text of a string, and whether it decodes exactly.
func decoded(text string) (string, bool) {
	var s string
	_ = json.Unmarshal([]byte(text), &s)
	return s, strings.Count(s, "\ufffd") == strings.Count(text, "\ufffd")+strings.Count(strings.ToLower(text), `\ufffd`)
}

// oracle applies one rule by rebuilding the value. ok is false if it cannot.
func oracle(v value, names []string, do string) (_ value, ok bool) {
	if len(names) == 0 {
		return replaced(v, do)
	}
	switch {
	case v.text == "null" || v.text == `""` || v.text == "" && len(v.members) == 0:
		return v, true
	case v.text != "" || v.object == (names[0] == "*"):
		return v, false
	}
	out := value{object: v.object}
	found := 0
	for i, m := range v.members {
		if v.object {
			name, exact := decoded(v.names[i])
			if !exact {
				return v, false
			}
			if name != names[0] {
				out.names, out.members = append(out.names, v.names[i]), append(out.members, m)
				continue
			}
			if found++; found > 1 {
				return v, false
			}
			if len(names) == 1 && do == "drop" {
				continue
			}
			out.names = append(out.names, v.names[i])
		}
		if m, ok = oracle(m, names[1:], do); !ok {
			return v, false
		}
		out.members = append(out.members, m)
	}
	return out, true
}

func replaced(v value, do string) (value, bool) {
	if do == "encrypt" { // the splicer takes the text as it is written: see opened
		return v, true
	}
	switch v.text {
	case "":
		return v, false
	case "null", `""`:
		return v, true
	case "true", "false":
		if do == "mask" {
			return v, false
		}
	}
	text, exact := v.text, true
	if v.text[0] == '"' {
		text, exact = decoded(v.text)
	}
	if do == "hash" {
		return value{text: `"` + hashOf(text) + `"`}, exact
	}
	runes := []rune(text)
	keep := min(4, len(runes)/2)
	shown := strings.Repeat("*", len(runes)-keep) + string(runes[len(runes)-keep:])
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(shown)
	return value{text: strings.TrimSpace(b.String())}, exact
}

// long is a text that has an extent.
var long = strings.Repeat("long ", 20)

// extents returns those of the item at start, as a reader of other values than the rules notes
// them. The reader also notes runs of members if it knows what is read again.
func extents(t *testing.T, body []byte, start int, again ...string) scan.Known {
	t.Helper()
	var x scan.Extents
	var s scan.Scanner
	var values pick.Reader
	values.Want("/a/x", "/d/0/e", "/x/a", "/h")
	values.Reread(again...)
	s.Reset(body)
	s.Note(&x)
	x.Item(start)
	if _, ok := values.Read(&s, start); !ok {
		t.Fatalf("%s: refused", body)
	}
	return x.Of(body, body[start:], 0)
}

// FuzzApply compares the splicer with the oracle: the same items are refused, and the others
// have the same members, names and values, each as written.
func FuzzApply(f *testing.F) {
	for _, item := range []string{
		`{"a":{"b":"x","c":1},"d":[{"e":"y"},{"e":"z","f":null}],"g":"4111111111111234"}`,
		` { "a" : { "b" : 1 } , "g" : "\u00e9\"\\" , "h":true} `,
		`{"a":{"b":1,"b":2}}`, `{"a":"{\"b\":1}"}`, `{"a":[],"d":{},"g":""}`, `{"\u0061":{"\u0062":1}}`,
		`{"d":[{"e":"\ud83d\ude00"},{"e":"\ud83d"}],"\ud800":1}`, `{"u":"anna","s":{"mail":"a@b","x":[1, 2]}}`,
		`{"d":[{"x":["` + long + `"],"e":"y"}],"a":{"c":{"` + long + `":[{}]},"b":"` + long + `"},"x":{"a":["` + long + `"]}}`,
		` {"h":{"x":"` + long + `","h":1},"x":{"h":{"` + long + `":1}},"a":{"x":{"b":"` + long + `"},"b":{"b":"` + long + `"}}}`,
		`{"a":"` + long + `"}`, `{"x":{"a":"` + long + `"},"a":1}`, `{"s":{"x":"` + long + `"},"u":"` + long + `"}`,
		`{"d":[{"x":"` + long + `","e":"y"}],"z":"` + long + `","h":1,"\u0061":{"b":1},"y":1,"z":2,"s":1}`,
		`{"h":1,"z":"` + long + `","y":1,"h":2}`, `{"z":1,"y":"` + long + `"}`, `{"z":"` + long + `","\ud800":1}`,
		`{"s":1,"s":2}`, `{"\u0073":""}`, `{"s":"eb1:AAAAAAAAAAAA:AAAA"}`, `{"g":1e400,"h":-0.0}`, `{"h":{},"a":{"c":2,"b":3}}`,
	} {
		f.Add([]byte(item))
	}
	rules := redact.Config{Drop: []string{"/a/b", "/h"}, Hash: []string{"/d/*/e"}, Mask: []string{"/g:last4"},
		Encrypt: []string{"/s"}, Subject: "/u"}
	r := redactor(f, rules)
	// An element of /d is read again too, which must not hide a rule on each.
	again := append(rules.Pointers(), rules.Subject, "/d/0/u")
	f.Fuzz(func(t *testing.T, item []byte) {
		if !json.Valid(item) || !utf8.Valid(item) || bytes.TrimSpace(item)[0] != '{' {
			t.Skip()
		}
		want, err := parse(item)
		if err != nil {
			t.Skip()
		}
		ok := true
		for _, rule := range []string{"a/b drop", "h drop", "d/*/e hash", "g mask", "s encrypt"} {
			var at, do string
			_, _ = fmt.Sscan(rule, &at, &do)
			var applied bool
			want, applied = oracle(want, strings.Split(at, "/"), do)
			ok = ok && applied
		}
		r.Key = dataKey()
		got, err := r.Apply(nil, item)
		switch {
		case (err == nil) != ok:
			t.Fatalf("%s: error %v, the oracle finds %v", item, err, ok)
		case !ok:
			start := scan.SkipSpace(item, 0)
			for _, again := range [][]string{nil, again} {
				r.Known = extents(t, item, start, again...)
				if _, err := r.Apply(nil, item[start:]); err == nil {
					t.Fatalf("%s: applied with its extents, %q read again", item, again)
				}
			}
			return
		}
		got = opened(t, got)
		read, err := parse(got)
		if err != nil || !json.Valid(got) {
			t.Fatalf("%s: %s is no JSON: %v", item, got, err)
		}
		// Escapes of masked texts may be written in two ways.
		if a, b := canonical(read), canonical(want); a != b {
			t.Fatalf("%s: got %s, want %s", item, a, b)
		}
		start := scan.SkipSpace(item, 0)
		for _, again := range [][]string{nil, again} {
			r.Known = extents(t, item, start, again...)
			known, err := r.Apply(bytes.Clone(item[:start]), item[start:])
			if err != nil || !bytes.Equal(opened(t, known), got) {
				t.Fatalf("%s: %s, but with its extents, %q read again, %s, %v", item, got, again, known, err)
			}
		}
		if again, err := r.Apply(nil, item); err != nil || !bytes.Equal(opened(t, again), got) {
			t.Fatalf("%s: %s, then %s", item, got, again)
		}
	})
}

// canonical is a value in which the masked member is decoded.
func canonical(v value) string {
	if i := slices.IndexFunc(v.names, func(n string) bool { s, _ := decoded(n); return s == "g" }); i >= 0 {
		text, _ := decoded(v.members[i].text)
		v.members[i].text += "=" + text
		if v.members[i].text[0] == '"' {
			v.members[i].text = text
		}
	}
	return v.String()
}

// opened is an item with its encrypted value decrypted.
func opened(t *testing.T, item []byte) []byte {
	t.Helper()
	v, err := parse(item)
	if err != nil {
		t.Fatalf("%s: %v", item, err)
	}
	i := slices.IndexFunc(v.names, func(n string) bool { s, _ := decoded(n); return s == "s" })
	if i < 0 || v.members[i].text == "null" || v.members[i].text == `""` {
		return item
	}
	text, _ := decoded(v.members[i].text)
	sealed, err := seal.Parse(text)
	if err != nil {
		t.Fatalf("%s: %q is not encrypted: %v", item, text, err)
	}
	plain := must.Get(sealed.Open("/s", &dataSecret))(t)
	return bytes.Replace(item, []byte(`"`+text+`"`), plain, 1)
}
