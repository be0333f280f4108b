package guess

import (
	"slices"
	"testing"
)

// A member with the name of a time comes first, one with the name of a later change last.
// Implausible times are left out.
func TestTimes(t *testing.T) {
	t.Parallel()
	for item, want := range map[string][]string{
		`{"id":1,"timestamp":1700000000000}`:                            {"/timestamp ms"},
		`{"updatedAt":1700000000,"time":1700000000}`:                    {"/time s", "/updatedAt s"},
		`{"a":{"published":"2026-01-02T03:04:05Z"},"count":1700000000}`: {"/a/published rfc3339"},
		`{"label":"2026-01-02T03:04:05"}`:                               {"/label rfc3339-utc"},
		`{"a":{"b":{"time":1700000000}}}`:                               {"/a/b/time s"},
		`{"a":{"b":{"c":{"time":1700000000}}}}`:                         nil,
		`{"time":17,"date,x":1700000000}`:                               nil,
		`{"a,b":{"time":1700000000}}`:                                   nil,
		`[1700000000]`:                                                  nil,
	} {
		var got []string
		for _, found := range Times(Decode([]byte(item))) {
			got = append(got, found.Pointer+" "+found.Format.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", item, got, want)
		}
	}
}
