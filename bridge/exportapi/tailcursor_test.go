package exportapi

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTailCursor covers layouts that end in the cursor: in them the fetch must
// not wait for the parse.
func TestTailCursor(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"items":[],"nextCursor":"abc"}`:                                  "abc",
		"{\"items\":[] ,\n \"nextCursor\" :\t\"abc\" }\r\n":                "abc",
		`{"nextCursor":"abc"}`:                                             "abc",
		`{"items":[],"nextCursor":""}`:                                     "",
		`{"items":[],"nextCursor":null}`:                                   "",
		`{"items":[],"nextCursor":"a\"\\\u003d\/\ud83d\ude00ü"}`:           "a\"\\=/\U0001F600ü",
		`{"items":[],"nextCursor":"a\\\""}`:                                "a\\\"",
		`{"items":[],"next\u0043ursor":"abc"}`:                             "abc",
		`{"items":[{"x":"\",\"nextCursor\":\"no\"}"}],"nextCursor":"abc"}`: "abc",
	} {
		if got, ok := tailCursor([]byte(body), "nextCursor", nil); !ok || string(got) != want {
			t.Errorf("%s: found %q %v, want %q", body, got, ok, want)
		}
	}
	for _, body := range []string{
		"", "}", `"}`, `{"items":[],"nextCursor":"\\"x"}`, `{"items":[],"nextCursor":17}`, `{"items":[],"nextCursor":"a\ud800"}`, "{\"items\":[],\"nextCursor\":\"\xff\"}",
		`{"items":[],"nextcursor":"abc"}`, `{"items":[],"x":"nextCursor"}`, `{"nextCursor":"abc","items":[]}`, `["nextCursor":"abc"]`,
		`{"items":[],"nextCursor":"abc"}}`, `{"items":[],"nextCursor" "abc"}`, `{"items":[] "nextCursor":"abc"}`,
	} {
		if got, ok := tailCursor([]byte(body), "nextCursor", nil); ok {
			t.Errorf("%s: found %q, want nothing", body, got)
		}
	}
}

// TestHeadCursor covers layouts that begin with the cursor, and those that
// only look so.
func TestHeadCursor(t *testing.T) {
	t.Parallel()
	const none = "<none>"
	for head, want := range map[string]string{
		`{"nextCursor":"abc","items":[{"a":`:                                 "abc",
		" \n{ \"nextCursor\"\t:\r\n\"abc\" ,":                                "abc",
		`{"nextCursor":"","items":[`:                                         "",
		`{"nextCursor":null,"items":[`:                                       "",
		`{"nextCursor":"a\"\\\u003d\/\ud83d\ude00","items":[`:                "a\"\\=/\U0001F600",
		`{"next\u0043ursor":"abc",`:                                          "abc",
		`{"a":1,"b":[{"nextCursor":"no"},"]"],"c":{},"nextCursor":"abc",`:    "abc",
		`{"a":"nextCursor","nextCursor":"abc",`:                              "abc",
		`{"nextcursor":"no","nextCursor":"abc",`:                             "abc",
		`{"metadata":{"nextCursor":"no"},"x":"\",\"nextCursor\":\"no\"","y"`: none,
		`{"a":{"nextCursor":"no","b":1},"items":[`:                           none,
		`{"a":[1,"nextCursor","no",`:                                         none,
		`{"nextCursor":"abc"`:                                                none, // the string could be all there is
		`{"nextCursor":"abc"}`:                                               none,
		`{"nextCursor":"ab`:                                                  none,
		`{"nextCursor":"abc\`:                                                none,
		`{"nextCursor":"abc\",`:                                              none,
		`{"nextCursor"`:                                                      none,
		`{"nextCursor":`:                                                     none,
		`{"nextCursor":nul`:                                                  none,
		`{"nextCursor":17,`:                                                  none,
		`{"nextCursor":true,`:                                                none,
		`{"nextCursor":{"nextCursor":"no"},`:                                 none,
		`{"nextCursor":["no"],`:                                              none,
		`{"nextCursor":"a" "b",`:                                             none,
		`{"nextCursor" "abc",`:                                               none,
		`{nextCursor:"abc",`:                                                 none,
		`["nextCursor","abc",`:                                               none,
		`["nextCursor":"abc",`:                                               none,
		`[{"nextCursor":"abc",`:                                              none,
		`"nextCursor":"abc",`:                                                none,
		"\ufeff" + `{"nextCursor":"abc",`:                                    none,
		`{"a":1},"nextCursor":"no",`:                                         none,
		`{"a":]},"nextCursor":"no",`:                                         none,
		`{"nextCursor":"a\ud800",`:                                           none,
		"{\"nextCursor\":\"a\xff\",":                                         none,
		"{\"nextCursor\":\"a\x01\",":                                         none,
		`{"nextCursor":"\x41",`:                                              none,
		"":                                                                   none,
		"{":                                                                  none,
		" ":                                                                  none,
	} {
		got, ok := headCursor([]byte(head), "nextCursor", nil)
		if !ok {
			got = []byte(none)
		}
		if string(got) != want {
			t.Errorf("%s: found %q, want %q", head, got, want)
		}
	}
}

// TestHeadCursorOfMutatedPages holds what the beginning of a page names, cut
// anywhere, against the parse of the whole.
func TestHeadCursorOfMutatedPages(t *testing.T) {
	t.Parallel()
	d, err := newPageDecoder(&Config{ItemsField: "items", CursorField: "nextCursor"}, presets["events"])
	if err != nil {
		t.Fatal(err)
	}
	seeds := []string{
		`{"nextCursor":"abc","items":[{"timestamp":1,"nextCursor":"no"}],"metadata":{"nextCursor":"no"}}`,
		`{"metadata":{"x":"\",\"nextCursor\":\"no\"","y":[{"}":"]"}]},"nextCursor":"a\"\\\u003d","items":[{"a":{}},{"b":"\\"}]}`,
		`{ "a" : [ ] , "next\u0043ursor" : "x" , "b" : { "nextCursor" : "no" } , "items" : [ ] }`,
		`{"x":"nextCursor","y":{"items":[]},"nextCursor":null,"items":[1,"nextCursor"],"z":-1.5e3}`,
	}
	pieces := []string{`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, `\"`, `\\`, `"nextCursor":"no",`, `"nextCursor"`, `null`, ` `, "\xff", `\u0043`, `{}`, `"items":[],`}
	r := rand.New(rand.NewPCG(5, 25))
	agreed, found := 0, 0
	for range 200_000 {
		body := []byte(seeds[r.IntN(len(seeds))])
		for range r.IntN(4) {
			at := r.IntN(len(body) + 1)
			upTo := min(at+r.IntN(6), len(body))
			body = bytes.Join([][]byte{body[:at], []byte(pieces[r.IntN(len(pieces))]), body[upTo:]}, nil)
			if r.IntN(2) == 0 {
				body = append(body[:at:at], body[min(at+r.IntN(20), len(body)):]...)
			}
			if len(body) == 0 {
				break
			}
		}
		cursor, ok := headCursor(body[:r.IntN(len(body)+1)], "nextCursor", nil)
		if !ok {
			continue
		}
		found++
		if d.decode(body, nil) != nil {
			continue
		}
		agreed++
		if string(cursor) != string(d.cursor.text) {
			t.Fatalf("%s: the beginning names %q, the whole %q", body, cursor, d.cursor.text)
		}
	}
	if agreed < 5000 || found-agreed < 5000 {
		t.Errorf("only %d pages to agree on, and %d that the parse refuses", agreed, found-agreed)
	}
}

func BenchmarkHeadCursor(b *testing.B) {
	head := []byte(`{"nextCursor":"` + strings.Repeat("x", 40) + `","items":[` + strings.Repeat(`{"a":1},`, 600))[:headSize]
	scratch := make([]byte, 0, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := headCursor(head, "nextCursor", scratch); !ok {
			b.Fatal("not found")
		}
	}
}
