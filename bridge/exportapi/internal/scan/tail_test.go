package scan

import "testing"

// TestTailCursor has layouts that end with the cursor. For these the fetch must not wait
// for the parse.
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
		if got, ok := TailCursor([]byte(body), "nextCursor", nil); !ok || string(got) != want {
			t.Errorf("%s: found %q %v, want %q", body, got, ok, want)
		}
	}
	for _, body := range []string{
		"", "}", `"}`, `{"items":[],"nextCursor":"\\"x"}`, `{"items":[],"nextCursor":17}`,
		`{"items":[],"nextCursor":"a\ud800"}`, "{\"items\":[],\"nextCursor\":\"\xff\"}",
		`{"items":[],"nextcursor":"abc"}`, `{"items":[],"x":"nextCursor"}`, `{"nextCursor":"abc","items":[]}`,
		`["nextCursor":"abc"]`,
		`{"items":[],"nextCursor":"abc"}}`, `{"items":[],"nextCursor" "abc"}`, `{"items":[] "nextCursor":"abc"}`,
	} {
		if got, ok := TailCursor([]byte(body), "nextCursor", nil); ok {
			t.Errorf("%s: found %q, want nothing", body, got)
		}
	}
}
