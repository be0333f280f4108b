package records

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
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
			show := must.Get(newRecordPrinter(o, 0, terminal))(t)
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
			must.Do(t, json.Unmarshal(texts[i], &docs[i]))
		}
		if diff := cmp.Diff(docs[0], docs[1]); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRecordLine(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 3, 11, 123e6, time.UTC)
	text := func(pairs ...string) (headers []kgo.RecordHeader) {
		for pair := range slices.Chunk(pairs, 2) {
			headers = append(headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
		}
		return headers
	}
	for _, test := range []struct {
		record kgo.Record
		meta   bool
		want   string
	}{
		{kgo.Record{Partition: 3, Offset: 7, Value: []byte(`{"a":1}`)}, false, `3@7  -  -  -  {"a":1}`},
		{kgo.Record{Key: []byte("u"), Headers: text("ce_type", "com.croct.event.orderPlaced", "eb-origin", "rewind"),
			Value: []byte("{\n \"a\": 1.0\n}")}, false, `0@0  u  orderPlaced  rewind  {"a":1.0}`},
		{kgo.Record{Value: []byte(`{"payload":{"type":"tabOpened"}}`)}, false,
			`0@0  -  tabOpened  -  {"payload":{"type":"tabOpened"}}`},
		{kgo.Record{Value: []byte(`{"payload":{"@type":"tabOpened"}}`)}, false,
			`0@0  -  tabOpened  -  {"payload":{"@type":"tabOpened"}}`},
		{kgo.Record{Headers: text("eb-reason", "time", "__dlq.errors.message", "the item has no readable time"),
			Value: []byte("\x1b[2Jx\ny")}, false, "0@0  -  -  -  [time: the item has no readable time]   [2Jx y"},
		{kgo.Record{Headers: text("a", "b", "c", "d"), Value: []byte("v")}, true, "0@0  -  -  -  a=b  c=d  v"},
		{kgo.Record{}, false, "0@0  -  -  -  (tombstone)"},
	} {
		test.record.Timestamp = at.In(time.FixedZone("east", 3600))
		if got, want := recordLine(&test.record, test.meta, false), "2026-11-20T14:03:11.123Z  "+test.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestRecordJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 3, 11, 123e6, time.UTC)
	for value, want := range map[string]string{
		`{"big":12345678901234567890.10, "b":"<&>","b":1}`: `"value":{"big":12345678901234567890.10,"b":"<&>","b":1}`,
		"plain <text>": `"value":"plain \u003ctext\u003e"`,
		"\xff\xfe":     `"value_base64":"//4="`,
	} {
		r := &kgo.Record{
			Topic: "t", Partition: 1, Offset: 2, Timestamp: at, Key: []byte("k"), Value: []byte(value),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}},
		}
		got := string(appendRecordJSON(nil, r))
		want = `{"topic":"t","partition":1,"offset":2,"time":"2026-11-20T14:03:11.123Z","key":"k","headers":{"h":"v"},` +
			want + "}\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("not JSON: %s", got)
		}
	}
	if got := string(appendRecordJSON([]byte("x"), &kgo.Record{})); !strings.HasPrefix(got, `x{"topic":"",`) ||
		!strings.Contains(got, `"key":null,"headers":{},"value":null}`) {
		t.Errorf("a tombstone: %s", got)
	}
}
