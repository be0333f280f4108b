package bridge_test

import (
	"fmt"
	"reflect"
	"testing"

	"exportbridge/bridge"
)

// TestResetKeepsTheRewindEnd: a stream that is moved again before a rewind is over
// marks events up to where the first rewind began.
func TestResetKeepsTheRewindEnd(t *testing.T) {
	t.Parallel()
	from := bridge.Checkpoint{Cursor: "c9", Source: bridge.SourceIdentity{Organization: "acme"}}
	cmd := bridge.Command{ID: "r", Kind: bridge.KindReset, Target: bridge.Target{Cursor: "c1"}}
	first := bridge.Reset(from, from.Origin, cmd)
	if end := first.RewindEnd; end == nil || end.CursorHash != bridge.CursorHash("c9") || end.Source != from.Source {
		t.Fatalf("a rewind ends at %+v, want the cursor and source before it", end)
	}
	if again := bridge.Reset(first, from.Origin, cmd); again.RewindEnd == nil || *again.RewindEnd != *first.RewindEnd {
		t.Errorf("a second one ends at %+v, want %+v", again.RewindEnd, first.RewindEnd)
	}
}

// TestGoBackKeepsWhatWasPublished: a stream that goes back in its own list and drops what
// the topic holds has still published it, and its overlap includes one that is not done.
func TestGoBackKeepsWhatWasPublished(t *testing.T) {
	t.Parallel()
	from := bridge.Checkpoint{
		Format: 1, Stream: "s", Version: bridge.Version{Epoch: 3, Seq: 7}, Cursor: "c9", Tail: bridge.Tail{{1}},
		Drained: true, MarksEnd: true,
		Origin: bridge.Origin{Resource: "events", Start: 5}, Source: bridge.SourceIdentity{Workspace: "w"}, Topic: "t",
		Topics: []bridge.TopicState{{Name: "t", ID: "1"}},
		Events: 90, Pages: 9, Outside: 7, Dropped: 40, Unreadable: 2, LastEventTime: 900, AdvanceTime: 950, PositionTime: 940,
		PausedUntil:   bridge.Forever,
		RecentCursors: bridge.RecentCursors{1}, Overlap: &bridge.Overlap{From: 100, Until: 800, Dropped: 4},
	}
	got := bridge.GoBack(from, bridge.Target{Cursor: "c4", Pages: 4, Start: 3, PositionTime: 400}, 300,
		[]bridge.TopicState{{Name: "t", ID: "1"}})
	got.Change = nil
	origin := from.Origin
	origin.Start = 3
	want := bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: "s", Kind: bridge.KindReset, Version: bridge.Version{Epoch: 4},
		Cursor: "c4", MarksEnd: true,
		Origin: origin, Source: from.Source, Topic: "t", Topics: from.Topics,
		Events: 90, Pages: 4, Outside: 7, Dropped: 40, Unreadable: 2, LastEventTime: 900, AdvanceTime: 950, PositionTime: 400,
		PausedUntil: bridge.Forever,
		RewindEnd:   &bridge.RewindEnd{CursorHash: bridge.CursorHash("c9"), Source: from.Source},
		Overlap:     &bridge.Overlap{From: 100, Until: 900, Dropped: 4}, OverlapTopics: got.OverlapTopics,
		Earlier: []bridge.TimeRange{{From: 5, To: 941}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestResetKeepsTheCounts: a reset to an entry of the history keeps the events outside the
// range and those dropped by routes beside the count of all events.
func TestResetKeepsTheCounts(t *testing.T) {
	t.Parallel()
	at := bridge.Checkpoint{
		Version: bridge.Version{Epoch: 2, Seq: 7}, Cursor: "c9", Origin: bridge.Origin{Resource: "events"},
		Events: 90, Pages: 9, Outside: 7, Dropped: 40,
	}
	entry := bridge.Entry{Checkpoint: at}
	for _, to := range []bridge.Target{at.CurrentTarget(), entry.Target()} {
		got := bridge.Reset(at, at.Origin, bridge.Command{ID: "r", Kind: bridge.KindReset, Target: to})
		if got.Events != 90 || got.Pages != 9 || got.Outside != 7 || got.Dropped != 40 {
			t.Errorf("%d events on %d pages, of which %d outside the range and %d dropped; want 90, 9, 7, 40",
				got.Events, got.Pages, got.Outside, got.Dropped)
		}
	}
}

// TestResetKeepsTheTimes: after a rewind into an overlap, the cursor is before the last event.
func TestResetKeepsTheTimes(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		overlap *bridge.Overlap
		last    int64
	}{{nil, 50}, {&bridge.Overlap{From: 20}, 20}, {&bridge.Overlap{From: 20, Done: true}, 50}} {
		var e bridge.Entry
		e.LastEventTime, e.PositionTime, e.AdvanceTime, e.Overlap = 50, 70, 60, x.overlap
		from := bridge.Checkpoint{Cursor: "c9"}
		c := bridge.Reset(from, from.Origin, bridge.Command{Kind: bridge.KindReset, Target: e.Target()})
		if c.LastEventTime != x.last || c.PositionTime != 70 || c.AdvanceTime != 60 {
			t.Errorf("overlap %+v: after a reset %+v", x.overlap, c)
		}
	}
}

// TestStay: a reset that keeps the position leads to where the stream is by then. A commit
// that is before the planned one is of another history, and does not count.
func TestStay(t *testing.T) {
	t.Parallel()
	at := func(epoch, seq int64) bridge.Checkpoint {
		return bridge.Checkpoint{
			Stream: "events", Kind: bridge.KindData, Version: bridge.Version{Epoch: epoch, Seq: seq},
			Cursor: fmt.Sprint("c", seq), Events: 10 * seq, Pages: seq, PositionTime: 1000 * seq,
		}
	}
	planned := at(1, 4)
	for name, test := range map[string]struct {
		from bridge.Checkpoint
		want int64 // seq of the position
	}{
		"the same":      {at(1, 4), 4},
		"a later one":   {at(1, 9), 9},
		"an older one":  {at(1, 2), 4},
		"another epoch": {at(2, 9), 4},
	} {
		cmd := bridge.Command{ID: "r", Kind: bridge.KindReset, Target: planned.CurrentTarget()}
		got, want := bridge.Reset(test.from, test.from.Origin, cmd), at(0, test.want)
		if !got.SamePosition(&want) || got.Events != want.Events || got.PositionTime != want.PositionTime {
			t.Errorf("%s: %+v, want the position of seq %d", name, got, test.want)
		}
	}
}

// TestResetKeepsEarlierRanges: resets keep the ranges that all epochs before have published of the
// same list. The ranges are merged, and few.
func TestResetKeepsEarlierRanges(t *testing.T) {
	t.Parallel()
	at := bridge.Checkpoint{Origin: bridge.Origin{Resource: "events", Start: 100}, PositionTime: 200}
	reset := func(start, position int64) {
		at = bridge.Reset(at, at.Origin, bridge.Command{Kind: bridge.KindReset, Target: bridge.Target{Start: start}})
		at.PositionTime = position
	}
	reset(150, 300)
	reset(1000, 0) // nothing is read
	reset(50, 60)
	reset(2000, 2500)
	want := []bridge.TimeRange{{From: 50, To: 61}, {From: 100, To: 301}}
	if !reflect.DeepEqual(at.Earlier, want) {
		t.Errorf("%+v, want %+v", at.Earlier, want)
	}
	for i := range int64(100) {
		reset(10_000+1_000*i*i, 10_100+1_000*i*i)
	}
	if n := len(at.Earlier); n != 32 || at.Earlier[0].From != 50 || at.Earlier[31].To != 10_101+1_000*98*98 {
		t.Errorf("%d ranges: %+v", n, at.Earlier)
	}
	other := at.Origin
	other.Resource = "sessions"
	next := bridge.Reset(at, other, bridge.Command{Kind: bridge.KindReset, Target: bridge.Target{Start: 1}})
	if next.Earlier != nil {
		t.Errorf("another list: %+v", next.Earlier)
	}
}
