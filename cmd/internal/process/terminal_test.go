package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// poison would disguise what a terminal shows.
const poison = "\x1b]0;evil\a\u009b31m\u202e\u2066\u200f\u2028\u2029\x7f\r\n\xed\xa0\x80\xff"

func TestPrintable(t *testing.T) {
	t.Parallel()
	got := Printable("a" + poison + "é世\t")
	if strings.ContainsFunc(got, bridge.Misleads) || !utf8.ValidString(got) || !strings.Contains(got, "evil") ||
		!strings.Contains(got, "é世") {
		t.Errorf("%q", got)
	}
}

// Text is for people, Exact for programs.
func TestText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	text := Text{To: &b}
	if n, err := text.Write([]byte("a\tb\n" + poison)); n != 4+len(poison) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := b.String(); !strings.HasPrefix(got, "a\tb\n ]0;evil ") ||
		strings.ContainsAny(got, "\x1b\a\r\u202e\u2028") || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
	if Exact(text) != &b || Exact(&b) != &b {
		t.Error("Exact is not the writer beneath")
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"é", 1, "é"}, {"世界", 4, "世界"}, {"世界", 3, "世…"},
		{"世界", 2, "…"}, {"e\u0301e\u0301", 2, "e\u0301e\u0301"}, {"", 1, ""}, {"ab", 1, "…"},
	} {
		if got := Cut(test.text, test.n); got != test.want || Width(got) > test.n {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

// TestPrintableJSON: the same document, without what misleads.
func TestPrintableJSON(t *testing.T) {
	t.Parallel()
	want := "a" + poison + "\u0085\u009b\u202e\u2066\u200f\u2028\x7f é世"
	doc := must.Get(json.Marshal(map[string]string{want: want}))(t)
	var exact, got map[string]string
	text := PrintableJSON("{\n\t" + string(doc[1:]))
	if err := errors.Join(json.Unmarshal(doc, &exact), json.Unmarshal([]byte(text), &got)); err != nil ||
		!maps.Equal(got, exact) {
		t.Errorf("%q: %v", text, err)
	}
	if shown := strings.NewReplacer("\n", "", "\t", "").Replace(text); strings.ContainsFunc(shown, bridge.Misleads) ||
		!strings.Contains(shown, "é世") {
		t.Errorf("%q misleads", text)
	}
	if got := PrintableJSON("\"a\x9bb\""); got != `"a\ufffdb"` {
		t.Errorf("no UTF-8: %q", got)
	}
}
