//go:build browser

package ui_test

import (
	"testing"

	"exportbridge/bridge"
)

// TestSchema: the page shows how events differ from their schema, and nothing while none does.
func TestSchema(t *testing.T) {
	f := newFakeBridge(t, idle("events"))
	f.reports[0].Live.Schema, f.reports[0].Live.BorderRepeats = &bridge.SchemaCheck{}, 3
	p := open(t, f, 1280)
	p.sees("#cause", "3 items listed again")
	if read[bool](p, `document.getElementById('cause').innerText.includes('EVENT_SCHEMA')`) {
		t.Error("the page shows a schema that all events fit")
	}
	f.set(func() {
		f.reports[0].Live.Schema = &bridge.SchemaCheck{Mismatches: 1_234, More: true, Differences: []bridge.Difference{
			{Pointer: "/a/*/b", Text: "is string, want integer"}, {Text: "is not JSON"}}}
	})
	p.sees("#cause", "1,234 events unlike EVENT_SCHEMA")
	p.sees("#cause", "/a/*/b is string, want integer")
	p.sees("#cause", "the event is not JSON")
	p.sees("#cause", "further differences")
}
