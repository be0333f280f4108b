package control_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// exports checks that what was exported is read back whole or not at all.
func exports(t *testing.T, c bridge.Checkpoint) {
	t.Helper()
	out := must.Get(control.NewExport(&c))(t)
	document := func(change func(e *control.Export)) []byte {
		e := out
		change(&e)
		return must.Get(json.MarshalIndent(e, "", "  "))(t)
	}
	whole := document(func(*control.Export) {})
	got, err := control.ReadExport(bytes.NewReader(whole))
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Errorf("read back: %v\n%s", err, diff)
	}
	for want, data := range map[string][]byte{
		"it is empty":                  nil,
		"larger than 8 MiB":            bytes.Repeat([]byte(" "), 8<<20+1),
		"not a complete JSON document": whole[:len(whole)/2],
		"its format":                   document(func(e *control.Export) { e.Format = "exportbridge.cursor/2" }),
		"it was changed":               bytes.Replace(whole, []byte(`"events": 200`), []byte(`"events": 201`), 1),
		"its checkpoint":               document(func(e *control.Export) { e.Checkpoint = nil }),
	} {
		must.Fail(control.ReadExport(bytes.NewReader(data)))(t, nil, want)
	}
}

// TestFormattedExport: an exported cursor can be read back after another program, such as jq, has
// formatted it without escapes.
func TestFormattedExport(t *testing.T) {
	t.Parallel()
	c := bridge.Checkpoint{Format: 1, Stream: "events", Cursor: "/events?after=<7>&limit=5"}
	whole := must.Get(json.Marshal(must.Get(control.NewExport(&c))(t)))(t)
	for escaped, char := range map[string]string{`\u0026`: "&", `\u003c`: "<", `\u003e`: ">"} {
		whole = bytes.ReplaceAll(whole, []byte(escaped), []byte(char))
	}
	if got := must.Get(control.ReadExport(bytes.NewReader(whole)))(t); got.Cursor != c.Cursor {
		t.Errorf("cursor %q, want %q", got.Cursor, c.Cursor)
	}
}
