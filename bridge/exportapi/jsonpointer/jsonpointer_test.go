package jsonpointer

import (
	"encoding/json"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// At follows names and pointers through objects and arrays.
func TestAt(t *testing.T) {
	t.Parallel()
	var item any
	must.Do(t, json.Unmarshal([]byte(`{"a":[{"b":"c"}],"d/e":"f"}`), &item))
	for field, want := range map[string]any{
		"/a/0/b": "c", "/a/1/b": nil, "/a/-1": nil, "/a/x": nil, "/a/0/b/d": nil, "/z": nil, "d/e": "f", "/d~1e": "f",
		"/a~": nil,
	} {
		if got := At(item, field); got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
}

// Set makes the objects above a field, also in the place of another value.
func TestSet(t *testing.T) {
	t.Parallel()
	object := map[string]any{"a": "x"}
	for _, field := range []string{"/a/b", "c", "/d~1e/~0", "/invalid~"} {
		Set(object, field, 1)
	}
	if got, err := json.Marshal(object); err != nil || string(got) != `{"a":{"b":1},"c":1,"d/e":{"~":1}}` {
		t.Errorf("got %s, %v", got, err)
	}
}
