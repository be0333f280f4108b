package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestIn finds a secret in whatever form, and nothing else.
func TestIn(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"sk-test/Key+93=%41", "s3cret-token-0123456789", "pass word?&ü", "12345678"} {
		f := NewFinder([]Secret{{"short", "s3"}, {"empty", ""}, {"it", secret}})
		quoted, _ := json.Marshal(secret)
		texts := map[string]string{
			"alone": secret, "inside": "a=" + secret + "&b", "query": "/v1?t=" + url.QueryEscape(secret) + "&x", "path": "/v1/" + url.PathEscape(secret) + "/x",
			"query, blanks as %20": strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
			"twice":                url.QueryEscape("token=" + url.QueryEscape(secret)), "four times": url.QueryEscape(url.QueryEscape(url.QueryEscape(url.QueryEscape(secret)))),
			"hex": "a" + hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte("x" + secret))),
			"JSON": string(quoted), "JSON, slash": strings.ReplaceAll(string(quoted), "/", `\/`), "beside what is no escape": "%zz%" + `\` + url.QueryEscape(secret) + "%",
		}
		var each, units strings.Builder
		for _, c := range []byte(secret) {
			each.WriteString("%" + hex.EncodeToString([]byte{c}))
		}
		for _, c := range secret {
			units.WriteString(`\u00` + hex.EncodeToString([]byte{byte(c)}))
		}
		texts["each byte escaped"], texts["each character escaped"], texts["%u"] = each.String(), units.String(), strings.ReplaceAll(units.String(), `\`, "%")
		for _, before := range []string{"", "a", "ab", "abc", "user:", `{"token":"`, `{"k": "`} {
			for name, encoding := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.RawURLEncoding} {
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
		for _, text := range []string{"", "s3", "a=" + secret[1:], secret[:len(secret)-1], "/v1/events?after=12345677", "%", `\`, `\u00`, "%4", "%u004", `a\/b`, base64.StdEncoding.EncodeToString([]byte("user:other"))} {
			if got := f.In(text); got != "" {
				t.Errorf("%s in %q", got, text)
			}
		}
	}
}

// TestInAllocatesNothing: each page's cursor is searched.
func TestInAllocatesNothing(t *testing.T) {
	f := NewFinder([]Secret{{"key", "s3cret-token-0123456789"}})
	if n := testing.AllocsPerRun(100, func() { f.In("eyJjIjoi%2BMTIzNDU2Nzg5MA%3D%3D" + `\u0041`) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
