package control_test

import (
	"encoding/json"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// TestHistoryJSON: the entries have no cursor, their times as numbers and as texts, and
// their origin.
func TestHistoryJSON(t *testing.T) {
	t.Parallel()
	first := control.HistoryEntry{}
	first.Checkpoint = bridge.Checkpoint{
		Format: 1, Stream: "events", Version: bridge.Version{Seq: 4}, Mode: bridge.ExactlyOnce, Kind: bridge.KindData,
		Cursor: "secret", Tail: bridge.Tail{{1}, {2}}, Events: 7, Pages: 1, PositionTime: 1_700_000_000_000,
		WrittenAt: 1_700_000_001_000,
	}
	newest := control.HistoryEntry{OtherBranch: true}
	newest.Checkpoint = bridge.Checkpoint{
		Format: 1, Stream: "events", Version: bridge.Version{Epoch: 1}, Kind: bridge.KindReset, WrittenAt: 1_700_000_002_000,
		Change: &bridge.Change{ID: "a", Kind: bridge.KindRewind},
	}
	newest.Parent = &first.Version
	const entries = `[` +
		`{"entry":"1.0","v":1,"stream":"events","epoch":1,"seq":0,"mode":"","kind":"reset",` +
		`"origin":{"resource":""},"source":{},"events":0,"pages":0,` +
		`"written_at":1700000002000,"cursor_hash":"","parent":"0.4","other_branch":true,"at":"2023-11-14T22:13:22Z",` +
		`"change":{"id":"a","kind":"rewind","from":{"epoch":0,"seq":0},"at":0}},` +
		`{"entry":"0.4","v":1,"stream":"events","epoch":0,"seq":4,"mode":"exactly-once","kind":"data",` +
		`"origin":{"resource":""},"source":{},"events":7,"pages":1,` +
		`"position_time":1700000000000,"written_at":1700000001000,"cursor_hash":"2bb80d537b1d","tail_items":2,` +
		`"at":"2023-11-14T22:13:21Z","position":"2023-11-14T22:13:20Z","change":null}]`
	for want, h := range map[string]control.History{
		`{"source":"redis","entries":[]}`: {},
		`{"source":"redis","note":"the last entry is from the checkpoint topic","entries":` + entries + `}`: {
			Entries: []control.HistoryEntry{newest, first}, Stored: 1, Note: "the last entry is from the checkpoint topic",
		},
		`{"source":"kafka","entries":` + entries + `}`: {Entries: []control.HistoryEntry{newest, first}},
	} {
		got, err := json.Marshal(h)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// TestShortCursor: a shortened next URL has no value of its query.
func TestShortCursor(t *testing.T) {
	t.Parallel()
	for cursor, want := range map[string]string{
		"/v1/e?q=alice": "/v1/e?q=...", "/e?alice": "/e?...", "/v1/items?email=alice%40example.org&after=alice": "/v1/items?...er=...",
		"opaque?email=alice": "opaque?email=alice", "abcdefghijklmnopqrstuvwxyz": "abcdefghij...uvwxyz",
	} {
		if got := control.ShortCursor(cursor); got != want {
			t.Errorf("%s is shown as %s, want %s", cursor, got, want)
		}
	}
}
