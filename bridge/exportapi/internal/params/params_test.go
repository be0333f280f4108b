package params

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/exportapi/jsonpointer"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := func(name, value string) Param { return Param{Name: name, Value: value} }
	typed := func(name, value string) Param { return Param{Name: name, Value: value, JSON: true} }
	for in, want := range map[string][]Param{
		"":                                     nil,
		" , \n":                                nil,
		"a=1,b=x=y\nc=%2C%25":                  {text("a", "1"), text("b", "x=y"), text("c", ",%")},
		"phrase=created:>=2026,a=":             {text("phrase", "created:>=2026"), text("a", "")},
		"url=a:=b":                             {text("url", "a:=b")},
		"a%3A=b":                               {text("a:", "b")},
		"/filter/x=1":                          {text("/filter/x", "1")},
		"on:=true,n:=7,x=y":                    {typed("on", "true"), typed("n", "7"), text("x", "y")},
		"ids:=[7,8],x=y":                       {typed("ids", "[7,8]"), text("x", "y")},
		`f:={"a":[1,"],}\",=x"],"b":null},c=d`: {typed("f", `{"a":[1,"],}\",=x"],"b":null}`), text("c", "d")},
		"f:={\n \"a\": 1,\n \"b\": 2\n}\nx=1":  {typed("f", "{\n \"a\": 1,\n \"b\": 2\n}"), text("x", "1")},
		`q := "50%25, x"`:                      {typed("q", `"50%, x"`)},
		"a=[1,b=2":                             {text("a", "[1"), text("b", "2")},
		"q=a%3E{start}":                        {{Name: "q", Value: "a>{start}", Template: "a%3E{start}"}},
		"q=%7Bstart}":                          {text("q", "{start}")},
		`f:={"gte":{start}},x=y`: {
			{Name: "f", Value: `{"gte":{start}}`, JSON: true, Template: `{"gte":{start}}`}, text("x", "y")},
	} {
		got, err := Parse(in)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", in, err, diff)
		}
	}
	for in, want := range map[string]string{
		"s3cret":             "parameter 1",
		"a=1,=s3cret":        "parameter 2",
		"a=%s3cret":          "parameter 1",
		"on:=s3cret":         `has "on" with := and no JSON value`,
		"ids:=[7,8,s3cret=1": `has "ids" with :=`,
		"ids:=[7]],s3cret=1": `has "ids" with :=`,
		"on:=":               `has "on" with :=`,
		`f:={"s3cret":1}{}`:  `has "f" with :=`,
		"on:=true false":     `has "on" with :=`,
		":=true":             "parameter 1",
		"q={s3cret}":         `placeholder in "q"`,
	} {
		if _, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	got := Param{Value: `{"tenant":["acme",7.50]}`, JSON: true}.Texts()
	if diff := cmp.Diff([]string{`{"tenant":["acme",7.50]}`, "acme", "7.50"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"created_at asc": "created_at%20asc", "a+b": "a%2Bb", " + ": "%20%2B%20",
		"%20": "%2520", "ü&=": "%C3%BC%26%3D"} {
		if got := Escape(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		if got := Encode(url.Values{in: {in}}); got != want+"="+want {
			t.Errorf("%q: got %s, want %s twice", in, got, want)
		}
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()
	for want, set := range map[string][][2]any{
		`{}`:              nil,
		`{"a":1,"b":"x"}`: {{"a", 1}, {"b", "x"}},
		`{"a/b":1}`:       {{"a/b", 1}},
		`{"a/b":{"~":1}}`: {{"/a~1b/~0", 1}},
		`{"page":{"cursor":"c","limit":100},"sort":"t"}`: {{"/page/limit", 100}, {"sort", "t"}, {"/page/cursor", "c"}},
		`{"q":[{"from":1,"to":2},"x"]}`:                  {{"/q/1", "x"}, {"/q/0/to", 2}, {"/q/0/from", 1}},
		`{"q":["x"]}`:                                    {{"/q/1", "x"}},
		`{"q":{"0":1,"x":2}}`:                            {{"/q/0", 1}, {"/q/x", 2}},
		`{"q":{"00":1}}`:                                 {{"/q/00", 1}},
		`{"0":1}`:                                        {{"0", 1}},
		`{"q":[[1],[2]]}`:                                {{"/q/0/0", 1}, {"/q/1/0", 2}},
		`{"f":{"0":1}}`:                                  {{"f", json.RawMessage(`{"0":1}`)}},
	} {
		body := make(map[string]any)
		for _, s := range set {
			jsonpointer.Set(body, s[0].(string), s[1])
		}
		if got, err := Marshal(body); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for names, want := range map[[2]string]bool{
		{"a", "a"}: true, {"a", "/a"}: true, {"/a", "/a/b"}: true, {"/a/b/c", "a"}: true, {"/a/b", "/a/c"}: false,
		{"a", "ab"}: false, {"/a~1b", "a/b"}: true, {"a/b", "/a/b"}: false, {"/a/0", "/a/1"}: false,
	} {
		if got := Collide(names[0], names[1]); got != want || got != Collide(names[1], names[0]) {
			t.Errorf("%v: %t, want %t", names, got, want)
		}
	}
	for name, want := range map[string][2]string{ // escaped in a query and in a body
		"a": {}, "a/b": {}, "/a/b": {"EXPORT_METHOD=GET", ""}, "/a~2": {"EXPORT_METHOD=GET", "must escape ~"},
		"/": {"EXPORT_METHOD=GET", "without a name"}, "/a/": {"EXPORT_METHOD=GET", "without a name"},
	} {
		for i, body := range []bool{false, true} {
			if err := CheckName(name, body); (err == nil) != (want[i] == "") || err != nil &&
				!strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s, body %t: %v, want %q", name, body, err, want[i])
			}
		}
	}
}
