package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func compiled(t *testing.T, text string) *Schema {
	t.Helper()
	return must.Get(Compile(text))(t)
}

// differences are POINTER TEXT, sorted.
func differences(s *Schema, event string) []string {
	lines := []string{}
	for _, d := range s.Compare([]byte(event)) {
		lines = append(lines, d.Pointer+" "+d.Text)
	}
	slices.Sort(lines)
	return lines
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const order = `{"type": "object", "required": ["id"], "properties": {
	  "id": {"type": "string"}, "a/b": {"type": ["integer", "null"]}, "kind": {"enum": ["x", "y"]},
	  "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
	  "free": {"type": "object"}, "open": {"properties": {"n": {}, "in": {"properties": {"n": {}}}}, "additionalProperties": true},
	  "byID": {"additionalProperties": {"properties": {"n": {"type": "number"}}}},
	  "either": {"anyOf": [{"properties": {"p": {"type": "string"}}}, {"properties": {"q": {"type": "string"}}}]},
	  "shut": {"properties": {"n": {}}, "additionalProperties": false},
	  "pair": {"prefixItems": [{"properties": {"n": {}}}], "items": {"properties": {"m": {}}}}},
	  "$defs": {"line": {"properties": {"sku": {"type": "string", "minLength": 2}}, "required": ["sku"]}}}`
	for event, want := range map[string][]string{
		`{"id": "1"}`: {},
		`{"id": "1", "a/b": null, "kind": "x", "lines": [{"sku": "ab"}], "free": {"z": 1}, "open": {"z": 1}}`: {},
		`{"id": "1", "byID": {"u1": {"n": 1}, "u2": {"n": 2.5}}, "either": {"p": "a", "q": "b"}}`:             {},
		`17`:                            {" is number, want object"},
		`{"id":`:                        {" is not JSON"},
		`{"id":1} 2`:                    {" is not JSON"},
		`{}`:                            {"/id is missing"},
		`{"id": true}`:                  {"/id is boolean, want string"},
		`{"id": "1", "a/b": "secret"}`:  {"/a~1b is string, want null or integer"},
		`{"id": "1", "kind": "secret"}`: {"/kind breaks enum"},
		`{"id": "1", "lines": [{}, {"sku": "a"}, {"sku": "abc", "n": 1}, {}]}`: {
			"/lines/*/n is not in the schema", "/lines/*/sku breaks minLength", "/lines/*/sku is missing"},
		`{"id": "1", "byID": {"secret": {"n": "x", "o": 1}}}`: {
			"/byID/*/n is string, want number", "/byID/*/o is not in the schema"},
		`{"id": "1", "either": {"p": 1, "q": 1, "r": 1}}`:       {"/either breaks anyOf", "/either/r is not in the schema"},
		`{"id": "1", "shut": {"z": 1}}`:                         {"/shut/z is not in the schema"},
		`{"id": "1", "open": {"z": 1, "in": {"n": 1, "z": 1}}}`: {"/open/in/z is not in the schema"},
		`{"id": "1", "new": {"deep": 1}, "~": 1}`:               {"/new is not in the schema", "/~0 is not in the schema"},
		`{"id": "1", "pair": [{"n": 1}, {"n": 1}]}`:             {"/pair/*/n is not in the schema"},
		`{"id": "1", "free": {"n": 1e308, "m": -1e-324}}`:       {},
		`{"id": "1", "free": {"n": 1e1000001}, "lines": [{"n": -1E-999999}]}`: {
			"/free/n is a number out of range", "/lines/*/n is a number out of range"},
		`{"id": "1", "byID": {"secret": {"n": 1e+99999999999999999999}}}`: {"/byID/*/n is a number out of range"},
	} {
		if diff := gocmp.Diff(want, differences(compiled(t, order), event)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", event, diff)
		}
	}
	const patterns = `{"properties": {"a": {"properties": {"x": {}}}}, "patternProperties": {"^a": {"properties": {"y": {}}}},
	  "additionalProperties": {"properties": {"z": {}}}}`
	if got := differences(compiled(t, patterns), `{"a": {"x": 1, "y": 1}, "ab": {"y": 1, "z": 1}, "c": {"z": 1}}`); len(
		got) != 1 || got[0] != "/*/z is not in the schema" {
		t.Errorf("members by pattern: %v", got)
	}
	if got := differences(compiled(t, "true"), `{"a": [1, {"b": 2}]}`); len(got) != 0 {
		t.Errorf("the schema true: %v", got)
	}
	if got := differences(compiled(t, `{"properties": {"a": {"$ref": "#"}}}`), `{"a": {"a": {"b": 1}}}`); len(got) != 1 ||
		got[0] != "/a/a/b is not in the schema" {
		t.Errorf("a schema that contains itself: %v", got)
	}
}

func TestCompileRejects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`: "JSON", `{"type": "strin"}`: "type", `{} {}`: "JSON", `[]`: "object", `3`: "object",
		`{"$schema": "https://a.example/draft"}`: "https://a.example/draft",
		`{"$ref": "file:///etc/passwd"}`:         "$defs", `{"$ref": "other.json"}`: "/other.json",
		`{"$ref": "https://a.example/b"}`:               "https://a.example/b",
		`{"properties": {"n": {"minimum": 1e9999999}}}`: "/properties/n/minimum is a number out of range",
	} {
		if _, err := Compile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var r Report
	s := compiled(t, `{"required": ["id"], "properties": {"id": {}}}`)
	for i, event := range []string{`{"id": 1}`, `{"id": 1, "b": 1}`, `{}`, `{"id": 2, "b": 1}`} {
		fresh := r.Add(fmt.Sprintf("0@%d", i), s.Compare([]byte(event)))
		if want := map[int]int{1: 1, 2: 1}[i]; len(fresh) != want {
			t.Errorf("%s: %d new differences, want %d", event, len(fresh), want)
		}
	}
	want := []Row{{bridge.Difference{Pointer: "/b", Text: unknown}, 2, "0@1"}, {bridge.Difference{Pointer: "/id", Text: "is missing"}, 1, "0@2"}}
	if diff := gocmp.Diff(want, r.Sorted()); diff != "" || r.Records != 4 || r.Differing != 3 {
		t.Errorf("%+v (-want +got)\n%s", r, diff)
	}
	for i := range 2 * maxRows {
		r.Add("0@9", []bridge.Difference{{Pointer: fmt.Sprint("/", i), Text: unknown}})
	}
	if len(r.Rows) != maxRows || r.Unlisted != maxRows+2 {
		t.Errorf("%d rows, %d unlisted", len(r.Rows), r.Unlisted)
	}
}

func inferred(t rapid.TB, events ...string) string {
	t.Helper()
	var f Inference
	for _, event := range events {
		if err := f.Add([]byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(f.Schema("", ""))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInfer(t *testing.T) {
	t.Parallel()
	got := inferred(t, `{"id": "1", "n": 1, "tags": [], "deep": {"a": null},
	  "lines": [{"sku": "a"}, {"sku": "b", "n": 1.5}]}`,
		`{"id": "2", "n": 2.5, "tags": ["x"], "deep": {"a": true, "b": 1}, "extra": {}}`)
	want := `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
	  "id": {"type": "string"}, "n": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}},
	  "deep": {"type": "object", "properties": {"a": {"type": ["boolean", "null"]},
	    "b": {"type": "integer"}}, "required": ["a"]},
	  "lines": {"type": "array", "items": {"type": "object",
	    "properties": {"n": {"type": "number"}, "sku": {"type": "string"}},
	    "required": ["sku"]}},
	  "extra": {"type": "object"}}, "required": ["deep", "id", "n", "tags"]}`
	var a, b any
	must.Do(t, cmp.Or(json.Unmarshal([]byte(want), &a), json.Unmarshal([]byte(got), &b)))
	if diff := gocmp.Diff(a, b); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An object with many names is a map: the schema has none of its names, whichever way they came.
func TestInferMap(t *testing.T) {
	t.Parallel()
	member := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, `,"user-%d": {"n": %d}`, i, i)
		}
		return `{"by": {` + strings.TrimPrefix(b.String(), ",") + `}}`
	}
	for name, events := range map[string][]string{
		"one event": {member(0, maxMembers+1)}, "two events": {member(0, maxMembers), member(maxMembers, maxMembers+9)},
	} {
		got := inferred(t, events...)
		if strings.Contains(got, "user-") || len(got) > 1000 {
			t.Errorf("%s: %.1000s", name, got)
		}
		if lines := differences(compiled(t, got), member(5000, 5001)); len(lines) != 0 {
			t.Errorf("%s: another name differs: %v", name, lines)
		}
		if lines := differences(compiled(t, got), `{"by": {"user-1": {"n": "x"}}}`); len(lines) != 1 ||
			lines[0] != "/by/*/n is string, want integer" {
			t.Errorf("%s: %v", name, lines)
		}
	}
	// Names come in random order: maps within maps are merged either way.
	for range 3 {
		var wide strings.Builder
		for i := range maxMembers + 5 {
			fmt.Fprintf(&wide, `,"m%d": %s`, i, member(0, 3+i%2*maxMembers))
		}
		if got := inferred(t, `{`+wide.String()[1:]+`}`); strings.Contains(got, "user-") || strings.Contains(got, `"m1"`) {
			t.Fatalf("%.2000s", got)
		}
	}
}

// Whatever the events are, they fit the schema that is inferred from them.
func TestInferredFits(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"a", "b", "c", "a/b", "~", "", "$ref", "type", "properties"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		kinds := []*rapid.Generator[any]{
			rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.IntRange(-9, 9).AsAny(), rapid.Float64Range(-9, 9).AsAny(),
			rapid.StringN(0, 3, 9).AsAny(),
		}
		if depth < 3 {
			inner := rapid.Deferred(func() *rapid.Generator[any] { return value(depth + 1) })
			kinds = append(kinds, rapid.SliceOfN(inner, 0, 3).AsAny(), rapid.MapOfN(names, inner, 0, 4).AsAny())
		}
		return rapid.OneOf(kinds...)
	}
	rapid.Check(t, func(t *rapid.T) {
		var events []string
		for _, v := range rapid.SliceOfN(value(0), 1, 4).Draw(t, "events") {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, string(text))
		}
		schema := inferred(t, events...)
		s, err := Compile(schema)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for _, event := range events {
			if lines := differences(s, event); len(lines) > 0 {
				t.Fatalf("%s differs from %s: %v", event, schema, lines)
			}
		}
	})
}
