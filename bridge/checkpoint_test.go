package bridge_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

var update = flag.Bool("update", false, "rewrite golden files")

// full has every field set: the format that Redis and Kafka hold for years.
func full() bridge.Checkpoint {
	return bridge.Checkpoint{
		Format: 1, Stream: "events", Version: bridge.Version{Epoch: 3, Seq: 9007199254740993},
		Mode: bridge.AtLeastOnce, Kind: bridge.KindData,
		Cursor: "a+b/c=d%2Be&#? \u00e9\u2028<>\x00", Tail: bridge.Tail{{1, 2, 3}, {255}}, Carried: 7,
		Origin: bridge.Origin{Resource: "events", Events: []string{"orderPlaced", "a b"}, Start: 1700000000000,
			End: 1800000000000},
		Source: bridge.SourceIdentity{Organization: "acme", Workspace: "main", Application: "web"},
		Events: 1234567, Pages: 1235, LastEventTime: 1700000000123, PositionTime: 1700000000456, AdvanceTime: 1700000000789,
		Drained: true, EndedEmpty: 3, PausedUntil: bridge.Forever,
		Change: &bridge.Change{ID: "6b1e", Kind: bridge.KindReset, Who: "operator", Reason: "bad deploy",
			From: bridge.Version{Epoch: 2, Seq: 41}, At: 1700000000001, After: "6b1d"},
		RewindEnd: &bridge.RewindEnd{CursorHash: "9f3c21aabbcc", EventTime: 1700000000002,
			Source: bridge.SourceIdentity{Organization: "acme"}},
		Topic: "export.events", KnownFrom: 1690000000000,
		Overlap: &bridge.Overlap{From: 1690000000001, Until: 1690000000002, Dropped: 3, Done: true},
		Owner:   "host-1", Session: "ABCDEF", WrittenAt: 1700000000003,
	}
}

func TestCheckpointGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]bridge.Checkpoint{
		"full": full(),
		"trail": {
			Format: 1, Stream: "events", Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
			Origin: bridge.Origin{Resource: "events"}, WrittenAt: 1,
			MarksEnd: true, RecentCursors: bridge.RecentCursors{1, 0x0102030405060708},
		},
		"topics": {
			Format: 1, Stream: "events", Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
			Origin: bridge.Origin{Resource: "events"}, Topic: "export.events",
			Topics: []bridge.TopicState{
				{Name: "export.events", ID: "6Wb5DnRaMGIC-M6GPOJz5g", Partitions: 12, GrewFrom: 6, GrewAt: 1700000000000,
					End: 1234600, Start: 7, KeepsAll: true},
				{Name: "dlq.export.events", ID: "LwNxvR6lWLUDba07ESLR3Q", DeadLetters: true, Partitions: 6},
			},
			Events: 1234567, Pages: 1235, WrittenAt: 1700000000003,
		},
		"ids": {
			Format: 1, Stream: "events", Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
			Origin: bridge.Origin{Resource: "events", ItemID: "/id"}, WrittenAt: 1,
		},
		"border": {
			Format: 1, Stream: "events", Mode: bridge.ExactlyOnce, Kind: bridge.KindData, Cursor: "c2",
			Origin: bridge.Origin{Resource: "events"}, WrittenAt: 1,
			Border: bridge.Border{
				Items: bridge.BorderItems{bridge.NewBorderItem(&bridge.Event{ID: []byte("e1"), Raw: []byte(`{"id":"e1"}`)}),
					{255}}, Of: 100, Hold: 40,
				FirstNext: bridge.DigestCursor("c1"), TailFrom: 1700000000000,
			},
		},
		"outside": {
			Format: 1, Stream: "events.aaaaaa.w0.1-2", Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
			Origin: bridge.Origin{Resource: "events", Start: 1, End: 2},
			Events: 617, Pages: 7, Outside: 417, WrittenAt: 1,
		},
		"earlier": {
			Format: 1, Stream: "events", Version: bridge.Version{Epoch: 2}, Mode: bridge.ExactlyOnce, Kind: bridge.KindReset,
			Origin:    bridge.Origin{Resource: "events", Start: 1700000000000},
			Earlier:   []bridge.TimeRange{{From: 0, To: 1690000000001}, {From: 1700000000000, To: 1710000000001}},
			WrittenAt: 1,
		},
		"routes": {
			Format: 1, Stream: "events", Mode: bridge.ExactlyOnce, Kind: bridge.KindRoutes, Cursor: "c2",
			Origin: bridge.Origin{Resource: "events"}, Topic: "export.events",
			Topics: []bridge.TopicState{{Name: "export.events", ID: "a", Partitions: 6, End: 7},
				{Name: "export.orders", ID: "b", Partitions: 6, End: 3, Former: true}},
			Routes: "page*=export.pages,*.debug=drop", RoutesChanged: 1700000000000, Events: 9, Dropped: 2, WrittenAt: 1,
		},
		"minimal": {Format: 1, Stream: "events", Mode: bridge.AtLeastOnce, Kind: bridge.KindStart,
			Origin: bridge.Origin{Resource: "events"}, WrittenAt: 1},
		"listing": {
			Format: bridge.ListingFormat, Stream: "audit", Version: bridge.Version{Epoch: 2, Seq: 9}, Mode: bridge.ExactlyOnce,
			Kind:   bridge.KindData,
			Cursor: bridge.Watermark{At: 1795687201000, Part: 2}.Cursor(),
			Origin: bridge.Origin{Resource: "events", Follow: bridge.FollowWindows},
			Listing: &bridge.Listing{
				Floor: 1795680000000, Reach: 180000, Marks: []bridge.ListingMark{{At: 1795687000000, Topics: topicsTo(77)}},
				Again: 1795687100000, Behind: topicsTo(80),
			},
			WrittenAt: 1795687300000,
		},
		"gap": {
			Format: bridge.ListingFormat, Stream: "audit", Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
			Cursor: bridge.Watermark{At: 1795687201000}.Cursor(),
			Origin: bridge.Origin{Resource: "events", Follow: bridge.FollowWindows},
			Listing: &bridge.Listing{Floor: 1795680000000, Marks: []bridge.ListingMark{{At: 1795687000000}},
				Gap: 1795687000000},
			WrittenAt: 1795687300000,
		},
	} {
		got := must.Get(c.Encode())(t)
		file := fmt.Sprintf("testdata/checkpoint_%s.v%d.json", name, c.Format)
		if *update {
			must.Do(t, os.WriteFile(file, append(got, '\n'), 0o644))
		}
		want := must.Get(os.ReadFile(file))(t)
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s: the checkpoint format is frozen (-want +got):\n%s", name, diff)
		}
		back := must.Get(bridge.DecodeCheckpoint(want))(t)
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s does not survive encoding (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeCheckpointRefuses(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing":        ``,
		"not JSON":       `hello`,
		"another thing":  `{"foo":1}`,
		"an array":       `[1]`,
		"newer version":  `{"v":3,"stream":"events"}`,
		"no mark":        `{"v":2,"stream":"events","listing":{"floor":0,"marks":[]}}`,
		"forged mark":    `{"v":2,"stream":"events","listing":{"floor":0,"marks":[{"at":9223372036854775807}]}}`,
		"no version":     `{"stream":"events"}`,
		"no stream":      `{"v":1}`,
		"negative seq":   `{"v":1,"stream":"s","seq":-1}`,
		"epoch wraps":    `{"v":1,"stream":"s","epoch":9223372036854775807}`,
		"epoch too big":  `{"v":1,"stream":"s","epoch":72057594037927937}`,
		"seq wraps":      `{"v":1,"stream":"s","seq":9223372036854775807}`,
		"events wrap":    `{"v":1,"stream":"s","events":9223372036854775807}`,
		"pages wrap":     `{"v":1,"stream":"s","pages":9223372036854775807}`,
		"carried wraps":  `{"v":1,"stream":"s","carried":9223372036854775807}`,
		"negative pages": `{"v":1,"stream":"s","pages":-1}`,
		"outside wraps":  `{"v":1,"stream":"s","outside_range":9223372036854775807}`,
		"unreadable":     `{"v":1,"stream":"s","unreadable":9223372036854775807}`,
		"topic's end":    `{"v":1,"stream":"s","topics":[{"name":"t","partitions":1,"end":9223372036854775807}]}`,
		"topic's growth": `{"v":1,"stream":"s","topics":[{"name":"t","partitions":1,"end":1,` +
			`"grew_at":-9223372036854775808}]}`,
		"change wraps": `{"v":1,"stream":"s","change":{"id":"a","kind":"reset","from":{"epoch":9223372036854775807,` +
			`"seq":0},"at":1}}`,
		"dropped wraps":  `{"v":1,"stream":"s","overlap":{"from":1,"until":2,"dropped":9223372036854775807}}`,
		"pause wraps":    `{"v":1,"stream":"s","paused_until":9223372036854775807}`,
		"written wraps":  `{"v":1,"stream":"s","written_at":-9223372036854775808}`,
		"half a tail":    `{"v":1,"stream":"s","tail":"AAAA"}`,
		"tail no base64": `{"v":1,"stream":"s","tail":"%%"}`,
		"half a trail":   `{"v":1,"stream":"s","trail":"AAAA"}`,
		"not UTF-8":      "{\"v\":1,\"stream\":\"s\",\"cursor\":\"\xff\"}",
		"wrong type":     `{"v":1,"stream":"s","cursor":5}`,
		"two values":     `{"v":1,"stream":"s"}{}`,
	} {
		if c, err := bridge.DecodeCheckpoint([]byte(in)); !errors.Is(err, bridge.ErrForeign) {
			t.Errorf("%s: got %+v, %v, want ErrForeign", name, c, err)
		}
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	c := full()
	seed := must.Get(c.Encode())(f)
	f.Add(seed)
	f.Add([]byte(`{"v":1,"stream":"s","tail":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := bridge.DecodeCheckpoint(b)
		if err != nil {
			if !errors.Is(err, bridge.ErrForeign) {
				t.Fatalf("error is not ErrForeign: %v", err)
			}
			return
		}
		// What was read must survive being written and read again.
		out := must.Get(c.Encode())(t)
		again := must.Get(bridge.DecodeCheckpoint(out))(t)
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPlaceOrder(t *testing.T) {
	t.Parallel()
	order := []bridge.Version{{}, {Seq: 1}, {Seq: 2}, {Epoch: 1}, {Epoch: 1, Seq: 9}, {Epoch: 2, Seq: 1}}
	for i, a := range order {
		for j, b := range order {
			want := min(1, max(-1, i-j))
			if got := a.Compare(b); got != want {
				t.Errorf("%v against %v = %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestDecodeClampsEventTimes: clients' clocks lie, so a time that the export
// gave is bounded, not refused.
func TestDecodeClampsEventTimes(t *testing.T) {
	t.Parallel()
	c, err := bridge.DecodeCheckpoint([]byte(`{"v":1,"stream":"s","last_event_time":9223372036854775807,` +
		`"news_after":{"event_time":-9223372036854775808}}`))
	if err != nil || c.LastEventTime != bridge.MaxNumber || c.RewindEnd.EventTime != -bridge.MaxNumber {
		t.Errorf("read %+v, %v", c, err)
	}
}

// TestOriginOutside: only a known time is outside of a window, and a window from the earliest
// event on has no event before it.
func TestOriginOutside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		origin bridge.Origin
		event  bridge.Event
		want   bool
	}{
		"first":        {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: 10}, false},
		"last":         {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: 19}, false},
		"before":       {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: 9}, true},
		"at the end":   {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: 20}, true},
		"earliest":     {bridge.Origin{End: 20}, bridge.Event{Time: -5}, false},
		"live stream":  {bridge.Origin{Start: 10}, bridge.Event{Time: 9}, false},
		"without time": {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: bridge.NoTime}, false},
		"unreadable":   {bridge.Origin{Start: 10, End: 20}, bridge.Event{Time: 9, Defect: bridge.DefectTime}, false},
	} {
		if got := c.origin.Outside(&c.event); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
