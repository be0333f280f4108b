package command

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// TestRecordsOnATerminal: no form of a record misleads the reader of a terminal, and
// JSON stays the same document.
func TestRecordsOnATerminal(t *testing.T) {
	t.Parallel()
	const evil = "a\u009b2J\u202e\u2066\x7fb"
	r := &kgo.Record{
		Topic: "export.events", Key: []byte(evil), Value: []byte(`{"a":"` + evil + `"}`),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(evil)}, {Key: evil, Value: []byte("\x1b[31m")}},
	}
	for name, o := range map[string]*tailOptions{
		"lines": {}, "with headers": {meta: true}, "json": {json: true}, "format json": {format: "json"},
		"format": {format: "%k %v %h{%k=%v}\n"},
	} {
		var texts [2][]byte
		for i, terminal := range []bool{false, true} {
			show, err := newRecordPrinter(o, 0, terminal)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = show(nil, r)
		}
		if shown := bytes.TrimSuffix(texts[1], []byte("\n")); bytes.ContainsFunc(shown, bridge.Misleads) || len(shown) == 0 {
			t.Errorf("%s: %q", name, shown)
		}
		if name != "json" {
			continue
		}
		var docs [2]any
		for i := range docs {
			if err := json.Unmarshal(texts[i], &docs[i]); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(docs[0], docs[1]); diff != "" {
			t.Error(diff)
		}
	}
}
