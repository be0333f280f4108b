package secrets

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestIn finds a secret in each form, and nothing else.
func TestIn(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"sk-test/Key+93=%41", "s3cret-token-0123456789", "pass word?&ü", "12345678"} {
		f := NewFinder([]Secret{{"short", "s3"}, {"empty", ""}, {"it", secret}})
		quoted, _ := json.Marshal(secret)
		texts := map[string]string{
			"alone": secret, "inside": "a=" + secret + "&b", "query": "/v1?t=" + url.QueryEscape(secret) + "&x",
			"path":                 "/v1/" + url.PathEscape(secret) + "/x",
			"query, blanks as %20": strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
			"twice":                url.QueryEscape("token=" + url.QueryEscape(secret)),
			"four times":           url.QueryEscape(url.QueryEscape(url.QueryEscape(url.QueryEscape(secret)))),
			"hex":                  "a" + hex.EncodeToString([]byte(secret)),
			"HEX":                  strings.ToUpper(hex.EncodeToString([]byte("x" + secret))),
			"JSON":                 string(quoted), "JSON, slash": strings.ReplaceAll(string(quoted), "/", `\/`),
			"beside what is no escape": "%zz%" + `\` + url.QueryEscape(secret) + "%",
		}
		var each, units strings.Builder
		for _, c := range []byte(secret) {
			each.WriteString("%" + hex.EncodeToString([]byte{c}))
		}
		for _, c := range secret {
			units.WriteString(`\u00` + hex.EncodeToString([]byte{byte(c)}))
		}
		texts["each byte escaped"], texts["each character escaped"], texts["%u"] = each.String(), units.String(),
			strings.ReplaceAll(units.String(), `\`, "%")
		for _, before := range []string{"", "a", "ab", "abc", "user:", `{"token":"`, `{"k": "`} {
			for name, encoding := range map[string]*base64.Encoding{"base64": base64.StdEncoding,
				"base64url": base64.RawURLEncoding} {
				texts[name+" behind "+before] = "x." + encoding.EncodeToString([]byte(before+secret+`"}`))
				texts[name+" alone behind "+before] = encoding.EncodeToString([]byte(before + secret))
				texts[name+" escaped behind "+before] = url.QueryEscape(encoding.EncodeToString([]byte(before + secret)))
			}
		}
		for name, text := range texts {
			if got := f.In(text); got != "it" {
				t.Errorf("%s: nothing in %s", name, text)
			}
		}
		for _, text := range []string{"", "s3", "a=" + secret[1:], secret[:len(secret)-1], "/v1/events?after=12345677", "%",
			`\`, `\u00`, "%4", "%u004", `a\/b`, base64.StdEncoding.EncodeToString([]byte("user:other"))} {
			if got := f.In(text); got != "" {
				t.Errorf("%s in %q", got, text)
			}
		}
	}
}

// Each page's cursor is searched, so a search must not allocate.
func TestInAllocatesNothing(t *testing.T) {
	f := NewFinder([]Secret{{"key", "s3cret-token-0123456789"}})
	if n := testing.AllocsPerRun(100, func() { f.In("eyJjIjoi%2BMTIzNDU2Nzg5MA%3D%3D" + `\u0041`) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestInWhatIsEncodedTwice finds a secret that is encoded twice, spaced, folded or listed
// byte by byte.
func TestInWhatIsEncodedTwice(t *testing.T) {
	t.Parallel()
	const secret = "Sk-test/Key+93=%41-0123"
	f := NewFinder([]Secret{{"it", secret}})
	base := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	list := func(format, between string) string {
		var bytes []string
		for _, b := range []byte(secret) {
			bytes = append(bytes, fmt.Sprintf(format, b))
		}
		return strings.Join(bytes, between)
	}
	for name, text := range map[string]string{
		"base64 twice": base(base(secret)), "base64 twice, inside": base(`{"k":"` + base("user:"+secret) + `"}`),
		"base64 of escaped": base("t=" + url.QueryEscape(secret)),
		"base64 of hex":     base(hex.EncodeToString([]byte(secret))),
		"hex of base64":     hex.EncodeToString([]byte(base(secret))),
		"base64 of JSON":    base(strings.ReplaceAll(`{"k":"`+secret+`"}`, "/", `\/`)),
		"base32":            base32.StdEncoding.EncodeToString([]byte("a" + secret)), "upper case": strings.ToUpper(secret),
		"lower case": strings.ToLower(secret),
		"spaced":     strings.Join(strings.Split(secret, ""), " "), "with dots": strings.Join(strings.Split(secret, ""), "."),
		"bytes": list("%02x", ":"), "0x": list("0x%02x", ", "), `\x`: list(`\x%02x`, ""), "decimal": list("%d", " "),
		"octal": list(`\%03o`, ""),
		"HTML":  list("&#%d;", ""), "HTML, hex": list("&#x%02x;", ""), "quoted-printable": list("=%02X", ""),
		"%u": list("%%u%04x", ""), `\u twice`: list(`\\u%04x`, ""),
	} {
		if f.In("x "+text+" y") == "" {
			t.Errorf("%s: nothing in %s", name, text)
		}
	}
	short := NewFinder([]Secret{{"it", "pw12"}, {"empty", ""}})
	if text := `the key \\u0070\\u0077\\u0031\\u0032`; short.In(text) != "it" || short.In("pw12 pw12") != "" {
		t.Errorf("a short secret: %q in %s, %q alone", short.In(text), text, short.In("pw12 pw12"))
	}
	for _, text := range []string{base(base("Sk-test/Key+93=%41-9999")), "sktestkey",
		"0123456789abcdefghijklmnopqrstuvwxyz", strings.Repeat("93410123", 40)} {
		if got := f.In(text); got != "" {
			t.Errorf("%s in %q", got, text)
		}
	}
}

// BenchmarkIn measures the search in a page's cursor.
func BenchmarkIn(b *testing.B) {
	f := NewFinder([]Secret{{"key", "sk-0123456789abcdefghijklmnopqrstuv"}, {"token", strings.Repeat("t0k3n", 60)}})
	for name, cursor := range map[string]string{"short": "eyJhZnRlciI6MTcwMDAwMDAwMDAwMH0=",
		"long": strings.Repeat("eyJhZnRlciI6", 40)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f.In(cursor)
			}
		})
	}
}
