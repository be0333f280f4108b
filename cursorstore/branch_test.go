package cursorstore_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestAround: the entries around an instant are of the current branch, Find searches
// all branches.
func TestAround(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		_, _, err := w.store.Around(t.Context(), time.UnixMilli(0), time.UnixMilli(0))
		must.Be(t, err, bridge.ErrNoCheckpoint)
		page := func() {
			w.commit(10_000, func(c *bridge.Checkpoint) {
				c.Pages++
				c.PositionTime = c.Pages * 1000
				c.Cursor = c.Version.String()
			})
		}
		for range 5 { // up to 1, 2, 3, 4 and 5 seconds
			page()
		}
		left := w.now
		target := w.entry(bridge.Version{Seq: 1})
		rewound := w.reset(10_000, target.Target()) // to 2 seconds
		page()
		page()
		v := func(epoch, seq int64) *bridge.Version { return &bridge.Version{Epoch: epoch, Seq: seq} }
		for _, c := range []struct {
			t, late       int64
			before, later *bridge.Version
		}{
			{500, 500, nil, v(0, 0)}, {1000, 1001, nil, v(0, 1)}, {1001, 2500, v(0, 0), v(1, 1)},
			{2500, 3000, &rewound, v(1, 1)},
			{3000, 4000, &rewound, v(1, 2)}, {4000, 4001, v(1, 1), nil}, {9000, 9000, v(1, 2), nil},
		} {
			before, later, err := w.store.Around(t.Context(), time.UnixMilli(c.t), time.UnixMilli(c.late))
			if err != nil {
				t.Fatal(err)
			}
			for side, pair := range map[string][2]*bridge.Version{"before": {versionOf(before), c.before},
				"later": {versionOf(later), c.later}} {
				if got, want := pair[0], pair[1]; (got == nil) != (want == nil) || got != nil && *got != *want {
					t.Errorf("%d and %d: %s is %v, want %v", c.t, c.late, side, got, want)
				}
			}
		}
		for cursor, want := range map[string]bridge.Version{left.Cursor: left.Version, target.Cursor: rewound, "0.0": {}} {
			e, err := w.store.Find(t.Context(), func(c *bridge.Checkpoint) bool { return c.Cursor == cursor })
			if err != nil || e.Version != want {
				t.Errorf("cursor %q: found %s, want %s: %v", cursor, e.Version, want, err)
			}
		}
		_, err = w.store.Find(t.Context(), func(*bridge.Checkpoint) bool { return false })
		must.Be(t, err, bridge.ErrNoEntry)
	})
}

// TestAroundAStart: a branch that begins at a time is not before that time.
func TestAroundAStart(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		w.commit(10_000, func(c *bridge.Checkpoint) { c.Events, c.PositionTime, c.Cursor = 10, 5000, "next" })
		root := w.reset(10_000, bridge.Target{Start: 3000})
		for at, found := range map[int64]bool{2000: false, 3000: false, 3001: true} {
			before, _, err := w.store.Around(t.Context(), time.UnixMilli(at), time.UnixMilli(at))
			if err != nil || (before != nil) != found || found && before.Version != root {
				t.Errorf("before %d: %v, %v", at, versionOf(before), err)
			}
		}
	})
}

// TestAroundUnknownPositions: entries without a position, as after an accepted change of
// settings, are passed over: the search finds what lies on both sides of them.
func TestAroundUnknownPositions(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		page := func() {
			w.commit(10_000, func(c *bridge.Checkpoint) {
				c.Pages++
				c.Events += 10
				c.PositionTime = c.Pages * 1000
				c.Cursor = c.Version.String()
			})
		}
		w.kind(0, bridge.KindStart)
		for range 20 { // up to 20 seconds
			page()
		}
		now := w.now
		now.Origin.Events = []string{"click"}
		next := bridge.Reset(w.now, now.Origin, bridge.Command{ID: "filter", Kind: bridge.KindReset, Target: bridge.Target{
			Cursor: now.Cursor, Tail: now.Tail, Events: now.Events, Pages: now.Pages, Entry: &now.Version,
		}})
		next.Owner, next.Session, next.WrittenAt = now.Owner, now.Session, now.WrittenAt+1000
		mustAdvance(t, w.store, w.now, next)
		w.now = next
		if next.PositionTime != 0 {
			t.Fatalf("the position is %d, want it unknown", next.PositionTime)
		}
		around(t, w)
		for range 5 { // binary searches that meet the unknown position early and late
			for range 7 {
				page()
			}
			around(t, w)
		}
	})
}

// around checks the search for each second of a stream with a page a second.
func around(t *testing.T, w *writer) {
	t.Helper()
	for seconds := int64(1); seconds <= w.now.Pages+1; seconds++ {
		before, later, err := w.store.Around(t.Context(), time.UnixMilli(seconds*1000), time.UnixMilli(seconds*1000))
		if err != nil || before == nil || before.Pages != seconds-1 {
			t.Fatalf("before second %d: %v, %v", seconds, versionOf(before), err)
		}
		if (later != nil) != (seconds <= w.now.Pages) || later != nil && later.Pages != seconds {
			t.Errorf("at second %d: %v", seconds, versionOf(later))
		}
	}
}

func versionOf(c *bridge.Checkpoint) *bridge.Version {
	if c == nil {
		return nil
	}
	return &c.Version
}
