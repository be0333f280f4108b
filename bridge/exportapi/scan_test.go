package exportapi

import (
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestDepth nests values up to the limit and beyond it, in values that are skipped and that
// are read.
func TestDepth(t *testing.T) {
	t.Parallel()
	const limit = 10_000 // the limit of jsontext
	decoder := func(key string) *pageDecoder {
		return testDecoder("events", key)
	}
	for key, openers := range map[string][]string{
		"none":                      {`[`, `{"b":`, `{"a":[{"a":`, `[{"":[`},
		"/a/a/0/a":                  {`[`, `{"b":`, `{"a":[{"a":`, `[{"":[`},
		strings.Repeat("/a", limit): {`{"a":`},
	} {
		d := decoder(key)
		for _, opener := range openers {
			// The closers are the openers in reverse.
			closers := strings.NewReplacer(`"b":`, "", `"a":`, "", `"":`, "", "{", "}", "[", "]").Replace(opener)
			for levels := limit - 8; levels < limit+3; levels += len(closers) {
				n := levels / len(closers)
				depth := 3 + n*len(closers) // the page, items and item count too
				body := `{"items":[{"timestamp":1,"a":` + strings.Repeat(opener, n) + "1" + strings.Repeat(closers, n) + `}]}`
				if err := d.decode([]byte(body), nil); (err != nil) != (depth > limit) {
					t.Errorf("%.10s: %s to depth %d: %v", key, opener, depth, err)
				}
			}
		}
		// Depth does not accumulate: a value that has ended does not count.
		many := `{"items":[` + strings.Repeat(`{"payload":{"a":[{}]},"a":{"a":[[],{"a":{}}]}},`, maxItems-1) + `1]}`
		if err := d.decode([]byte(many), nil); err != nil || len(d.events) != maxItems {
			t.Errorf("%.10s: %d events, %v", key, len(d.events), err)
		}
	}
}

// TestRefusal has the errors of bodies that are no page. They show none of the content.
func TestRefusal(t *testing.T) {
	t.Parallel()
	d := testDecoder("events", "")
	for body, want := range map[string]string{
		`{"items":[{"a":"SECRET`:                      "is truncated after 22 bytes",
		`{"items":[SECRET]}`:                          "not JSON at byte 10 of 18",
		`{"items":[{"a":"SECRET` + "\xff" + `"}`:      "is truncated",
		`{"items":[{"a":"SECRET` + "\xff" + `" 1}]}`:  "invalid UTF-8",
		`{"items":{"SECRET":1},"a":"` + "\xff" + `"}`: "invalid UTF-8",
		`"SECRET"`:                                 "it is a string, not an object",
		`[{"SECRET":1}]`:                           "it is an array, not an object",
		`SECRET`:                                   "not JSON at byte 0 of 6",
		`{"items":{"SECRET":1}}`:                   `member "items" is an object, not an array`,
		`{"items":SECRET}`:                         "not JSON at byte 9 of 16",
		`{"items":[],"nextCursor":17e1}`:           `member "nextCursor" is a number with a fraction`,
		`{"items":[],"nextCursor":false}`:          `member "nextCursor" is a boolean, not a string, an integer or null`,
		`{"items":[],"nextCursor":"SECRET\ud800"}`: `member "nextCursor" does not decode exactly`,
		`{"items":["SECRET"],"x":1,"items":[]}`:    `member "items" occurs twice`,
		`{"items":[]} SECRET`:                      "unexpected data after the object at byte 13",
	} {
		err := d.decode([]byte(body), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

// TestSimulatedPagesAllocateNothing is TestDecodeAllocatesNothing for each schema and
// resource.
func TestSimulatedPagesAllocateNothing(t *testing.T) {
	for _, schema := range []exportsim.Schema{exportsim.Schema08, exportsim.Schema07, exportsim.Schema05} {
		for resource, preset := range presets {
			body := simulatorPage(t, schema, preset.path, 200)
			d := testDecoder(resource, "")
			must.Do(t, d.decode(body, nil))
			d.identity.identity()
			events := d.events
			if len(events) != 200 {
				t.Fatalf("%d events, want 200", len(events))
			}
			allocs := testing.AllocsPerRun(10, func() {
				must.Do(t, d.decode(body, events[:0]))
				d.identity.identity()
			})
			if allocs > 0 {
				t.Errorf("%s of schema %s: %v allocations a page, want 0", resource, schema, allocs)
			}
		}
	}
}
