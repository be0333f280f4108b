package cursorstore_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// writer advances a stream and remembers where it is.
type writer struct {
	t     *testing.T
	store *cursorstore.Store
	now   bridge.Checkpoint
}

func newWriter(t *testing.T, s *cursorstore.Store) *writer { return &writer{t: t, store: s} }

// commit advances by one seq, after so many milliseconds; alter changes the checkpoint.
func (w *writer) commit(after int64, alter func(*bridge.Checkpoint)) bridge.Version {
	w.t.Helper()
	next := w.now
	if next.Zero() {
		next = at(0, 0)
	} else {
		next.Seq++
		next.WrittenAt += after
	}
	next.Kind = bridge.KindData
	alter(&next)
	mustAdvance(w.t, w.store, w.now, next)
	w.now = next
	return next.Version
}

// page commits a page of a thousand events.
func (w *writer) page(after int64) bridge.Version {
	w.t.Helper()
	return w.commit(after, func(c *bridge.Checkpoint) {
		c.Pages++
		c.Events += 1000
		c.Cursor = fmt.Sprintf("%d after %s", c.Pages, c.Version)
		c.Tail = nil
	})
}

// grow commits more items of the same page.
func (w *writer) grow(after int64) bridge.Version {
	w.t.Helper()
	return w.commit(after, func(c *bridge.Checkpoint) {
		c.Events++
		c.Tail = append(slices.Clip(c.Tail), bridge.Identity{byte(len(c.Tail)), byte(c.Seq)})
	})
}

func (w *writer) kind(after int64, k bridge.Kind) bridge.Version {
	w.t.Helper()
	return w.commit(after, func(c *bridge.Checkpoint) {
		c.Kind = k
		if k == bridge.KindStart {
			c.Cursor = ""
		}
	})
}

// reset moves the stream as the engine does.
func (w *writer) reset(after int64, target bridge.Target) bridge.Version {
	w.t.Helper()
	next := bridge.Reset(w.now, w.now.Origin, bridge.Command{ID: fmt.Sprint("r", w.now.Epoch), Kind: bridge.KindReset,
		Who: "ann", Reason: "why", Target: target})
	next.Owner, next.Session, next.WrittenAt = w.now.Owner, w.now.Session, w.now.WrittenAt+after
	mustAdvance(w.t, w.store, w.now, next)
	w.now = next
	return next.Version
}

func (w *writer) entry(p bridge.Version) bridge.Entry {
	w.t.Helper()
	return must.Get(w.store.Entry(w.t.Context(), p))(w.t)
}

func TestHistoryRecords(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		w := newWriter(t, sp.open(stream))
		const data, growth, kept, no = "", "~", "!", "none"
		var want []string
		expect := func(p bridge.Version, mark string) {
			if mark != no {
				want = append(want, p.String()+mark)
			}
		}
		expect(w.kind(0, bridge.KindStart), kept)
		expect(w.page(999), no)
		expect(w.page(1), data) // one a second
		expect(w.kind(30_000, bridge.KindHeartbeat), no)
		expect(w.page(1), data)
		expect(w.grow(2000), no)
		expect(w.grow(7000), no)
		expect(w.grow(1000), growth) // one in ten seconds
		expect(w.grow(9999), no)
		expect(w.page(1), data)
		expect(w.page(-5000), data) // the clock went back
		expect(w.kind(1, bridge.KindPause), kept)
		expect(w.kind(1, bridge.KindResume), kept)
		expect(w.page(1), kept) // within a second, but left behind by ...
		expect(w.reset(1, bridge.Target{Cursor: "elsewhere"}), kept)
		expect(w.page(1), data) // too soon, but the last before a pause
		expect(w.page(1000), data)
		expect(w.grow(1), kept) // left too
		expect(w.reset(1, bridge.Target{Cursor: "back"}), kept)
		expect(w.page(1000), data)
		expect(w.grow(10_000), kept) // an entry already
		expect(w.reset(1, bridge.Target{Cursor: "forth"}), kept)
		got := members(t, sp)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("history differs (-want +got):\n%s", diff)
		}
		entries, err := w.store.History(t.Context(), bridge.HistoryQuery{})
		if err != nil || len(entries) != len(want) {
			t.Fatalf("history has %d entries, want %d: %v", len(entries), len(want), err)
		}
		if diff := cmp.Diff(w.now, entries[0].Checkpoint); diff != "" {
			t.Errorf("the newest entry is not the checkpoint (-want +got):\n%s", diff)
		}
	})
}

func TestHistoryQuery(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		if got, err := w.store.History(t.Context(), bridge.HistoryQuery{}); err != nil || len(got) != 0 {
			t.Errorf("history of nothing is %v, %v", got, err)
		}
		var want []bridge.Version
		for range 450 { // more than are read at once
			want = append([]bridge.Version{w.page(1000)}, want...)
		}
		for name, c := range map[string]struct {
			query bridge.HistoryQuery
			want  []bridge.Version
		}{
			"all":    {bridge.HistoryQuery{}, want},
			"limit":  {bridge.HistoryQuery{Limit: 3}, want[:3]},
			"since":  {bridge.HistoryQuery{Since: time.UnixMilli(w.now.WrittenAt - 4000)}, want[:5]},
			"both":   {bridge.HistoryQuery{Since: time.UnixMilli(w.now.WrittenAt - 4000), Limit: 2}, want[:2]},
			"before": {bridge.HistoryQuery{Before: time.UnixMilli(w.now.WrittenAt), Limit: 2}, want[1:3]},
			"part": {bridge.HistoryQuery{Since: time.UnixMilli(w.now.WrittenAt - 4000),
				Before: time.UnixMilli(w.now.WrittenAt - 2000)}, want[3:5]},
			"none": {bridge.HistoryQuery{Since: time.UnixMilli(w.now.WrittenAt + 1)}, nil},
		} {
			entries, err := w.store.History(t.Context(), c.query)
			var got []bridge.Version
			for _, e := range entries {
				got = append(got, e.Version)
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, differs (-want +got):\n%s", name, err, diff)
			}
		}
		must.Fail(w.store.Entry(t.Context(), bridge.Version{Epoch: 9}))(t, bridge.ErrNoEntry)
	})
}

// TestHistoryIsATree: rewind twice, undo, and walk back along each branch.
func TestHistoryIsATree(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		w.kind(0, bridge.KindStart)
		var first []bridge.Version
		for range 10 {
			first = append(first, w.page(1000)) // pages 1 to 10
		}
		left := w.page(1) // page 11, not an entry yet

		target := w.entry(first[3]) // page 4
		rewound := w.reset(1000, target.Target())
		wantParent(t, w.entry(rewound), &first[3])
		wantBack(t, w, 1, first[2])
		wantBack(t, w, 0, rewound)
		second := []bridge.Version{w.page(1000), w.page(1000)} // pages 5 and 6 again
		wantParent(t, w.entry(second[0]), &rewound)
		wantParent(t, w.entry(second[1]), &second[0])
		wantBack(t, w, 1, second[0])
		wantBack(t, w, 2, rewound)
		wantBack(t, w, 3, first[2])

		undone := w.entry(left)
		back := w.reset(1000, undone.Target())
		wantParent(t, w.entry(back), &left)
		wantBack(t, w, 1, first[9])
		wantBack(t, w, 11, bridge.Version{})
		if _, _, err := w.store.Back(t.Context(), w.now.Pages, 12); !errors.Is(err, bridge.ErrNoEntry) ||
			!strings.Contains(err.Error(), "11 pages") {
			t.Errorf("too far back: %v, want ErrNoEntry and how far it goes", err)
		}

		nowhere := w.reset(1000, bridge.Target{Cursor: "from another system"})
		wantParent(t, w.entry(nowhere), nil)
		if _, _, err := w.store.Back(t.Context(), w.now.Pages, 1); !errors.Is(err, bridge.ErrNoEntry) {
			t.Errorf("back before a root: %v, want ErrNoEntry", err)
		}
		start := w.reset(1000, bridge.Target{})
		wantParent(t, w.entry(start), &bridge.Version{})
	})
}

// TestHistoryOfACommitBetween: a rewind to a commit of the checkpoint topic that is no entry
// continues the branch.
func TestHistoryOfACommitBetween(t *testing.T) {
	t.Parallel()
	w := newWriter(t, embedded(t).space(t).open(stream))
	w.page(0)
	before := w.page(1000)
	between := w.page(1)
	target := bridge.Entry{Checkpoint: w.now}
	w.page(1)
	w.page(1000)
	must.Fail(w.store.Entry(t.Context(), between))(t, bridge.ErrNoEntry)
	rewound := w.reset(1000, target.Target())
	wantParent(t, w.entry(rewound), &between)
	wantBack(t, w, 0, rewound)
	wantBack(t, w, 1, before)
	if _, next, err := w.store.Back(t.Context(), w.now.Pages, 1); err != nil || next == nil || next.Version != rewound {
		t.Errorf("the entry after %s is %+v, %v, want %s", before, next, err, rewound)
	}
	if _, next, err := w.store.EntryAt(t.Context(), time.UnixMilli(w.now.WrittenAt)); err != nil || next != nil {
		t.Errorf("the entry after the newest is %+v, %v", next, err)
	}
}

// TestHistoryOfANewCount: a reset to the stream's own cursor counts from 0 again and begins a
// branch. A reset that keeps the count continues the branch.
func TestHistoryOfANewCount(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		w.kind(0, bridge.KindStart)
		for range 20 {
			w.page(1000)
		}
		last := w.now
		wantParent(t, w.entry(w.reset(1000, bridge.Target{Cursor: last.Cursor})), nil)
		for range 10 {
			w.page(1000)
		}
		wantBack(t, w, 1, bridge.Version{Epoch: 1, Seq: 9})
		wantBack(t, w, 5, bridge.Version{Epoch: 1, Seq: 5})
		if e, _, err := w.store.Back(t.Context(), w.now.Pages, 11); !errors.Is(err, bridge.ErrNoEntry) {
			t.Errorf("11 pages back is %s, %v, want ErrNoEntry", e.Version, err)
		}
		imported := bridge.Target{Cursor: last.Cursor, Events: last.Events, Pages: last.Pages}
		wantParent(t, w.entry(w.reset(1000, imported)), &last.Version)
		wantBack(t, w, 1, bridge.Version{Seq: 19})
		imported.Events++
		wantParent(t, w.entry(w.reset(1000, imported)), nil)
	})
}

// TestHistoryOfARejectedCursor: the walk back from a rejected cursor keeps the count of
// events, which is ahead until the overlap was read again, and continues the branch.
func TestHistoryOfARejectedCursor(t *testing.T) {
	t.Parallel()
	w := newWriter(t, embedded(t).space(t).open(stream))
	w.kind(0, bridge.KindStart)
	previous := w.page(1000)
	w.page(1000)
	before := w.entry(previous)
	next := w.commit(1000, func(c *bridge.Checkpoint) {
		c.Version, c.Kind = bridge.Version{Epoch: 1}, bridge.KindReset
		c.Cursor, c.Pages, c.Overlap = before.Cursor, before.Pages, &bridge.Overlap{From: 1}
	})
	wantParent(t, w.entry(next), &previous)
}

// TestHistoryNewEpochInPlace: an epoch that begins at the position of the previous epoch
// continues it, whatever began the epoch.
func TestHistoryNewEpochInPlace(t *testing.T) {
	t.Parallel()
	w := newWriter(t, embedded(t).space(t).open(stream))
	w.page(0)
	last := w.grow(1)
	next := w.commit(1, func(c *bridge.Checkpoint) {
		c.Version, c.Kind = bridge.Version{Epoch: 7}, bridge.KindHeartbeat
	})
	wantParent(t, w.entry(next), &last)
}

func wantParent(t *testing.T, e bridge.Entry, want *bridge.Version) {
	t.Helper()
	if diff := cmp.Diff(want, e.Parent); diff != "" {
		t.Errorf("parent of %s differs (-want +got):\n%s", e.Version, diff)
	}
}

func wantBack(t *testing.T, w *writer, pages int64, want bridge.Version) {
	t.Helper()
	e, _, err := w.store.Back(t.Context(), w.now.Pages, pages)
	if err != nil || e.Version != want {
		t.Errorf("%d pages back from %s is %s, want %s: %v", pages, w.now.Version, e.Version, want, err)
	}
}

func TestEntryAt(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		for range 5 {
			w.page(10_000) // at 0, 10, 20, 30 and 40 seconds
		}
		target := w.entry(bridge.Version{Seq: 1})
		rewound := w.reset(10_000, target.Target()) // at 50 seconds to 10
		w.page(10_000)
		begin := at(0, 0).WrittenAt
		for seconds, want := range map[int64]bridge.Version{
			0: {}, 9: {}, 10: {Seq: 1}, 15: {Seq: 1},
			35: {Seq: 1}, // the abandoned branch does not count
			50: rewound, 59: rewound, 60: {Epoch: 1, Seq: 1}, 1 << 40: {Epoch: 1, Seq: 1},
		} {
			e, _, err := w.store.EntryAt(t.Context(), time.UnixMilli(begin+seconds*1000))
			if err != nil || e.Version != want {
				t.Errorf("after %d s: %s, want %s: %v", seconds, e.Version, want, err)
			}
		}
		_, _, err := w.store.EntryAt(t.Context(), time.UnixMilli(begin-1))
		if !errors.Is(err, bridge.ErrNoEntry) || !strings.Contains(err.Error(), "2023-11-14T22:13:20Z") {
			t.Errorf("before the history: %v, want ErrNoEntry and when it begins", err)
		}
	})
}

// elsewhere matches the checkpoints with another cursor than c.
func elsewhere(c bridge.Checkpoint) func(*bridge.Checkpoint) bool {
	return func(p *bridge.Checkpoint) bool { return p.Cursor != c.Cursor }
}

// Before walks back along the branch, across a reset, to the end of the history.
func TestBefore(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		w := newWriter(t, s.space(t).open(stream))
		w.kind(0, bridge.KindStart)
		first := w.page(2000)
		second := w.page(2000)
		w.grow(20_000) // the same cursor
		third := w.page(2000)
		before := func(want bridge.Version) {
			t.Helper()
			c, err := w.store.Before(t.Context(), w.now, elsewhere(w.now))
			if err != nil || c.Version != want || c.Cursor == w.now.Cursor {
				t.Errorf("before %s is %s at %q, %v; want %s", w.now.Version, c.Version, c.Cursor, err, want)
			}
		}
		grown := w.entry(bridge.Version{Seq: third.Seq - 1})
		before(grown.Version)
		e := w.entry(second)
		w.reset(1000, e.Target())
		before(first)
		e = w.entry(first)
		w.reset(1000, e.Target())
		start, err := w.store.Before(t.Context(), w.now, elsewhere(w.now))
		if err != nil || start.Cursor != "" {
			t.Errorf("before the first page is %s at %q, %v; want the start", start.Version, start.Cursor, err)
		}
		w.reset(1000, bridge.Target{})
		if c, err := w.store.Before(t.Context(), w.now, elsewhere(w.now)); !errors.Is(err, bridge.ErrNoCheckpoint) &&
			c.Cursor == "" {
			t.Errorf("before the start is %s at %q, %v", c.Version, c.Cursor, err)
		}
		ahead := w.now
		ahead.Epoch++ // whose branch the store has lost, or not been told of yet
		if c, err := w.store.Before(t.Context(), ahead, elsewhere(ahead)); err == nil ||
			errors.Is(err, bridge.ErrNoCheckpoint) {
			t.Errorf("before %s, which the store does not know, is %s, %v", ahead.Version, c.Version, err)
		}
	})
}

// A brief history lacks nothing but the tails.
func TestBriefHistory(t *testing.T) {
	t.Parallel()
	w := newWriter(t, embedded(t).space(t).open(stream))
	for range 60 { // more than one read has
		w.page(2000)
		w.grow(20_000)
	}
	whole, err := w.store.History(t.Context(), bridge.HistoryQuery{})
	brief, err2 := w.store.History(t.Context(), bridge.HistoryQuery{Brief: true})
	if err != nil || err2 != nil || len(whole) < 100 || len(whole[0].Tail) == 0 {
		t.Fatal(len(whole), err, err2)
	}
	for i := range whole {
		whole[i].Tail = nil
	}
	if diff := cmp.Diff(whole, brief); diff != "" {
		t.Error(diff)
	}
}

// TestForgedHistory: impossible names and times are foreign.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"9223372036854775807.0", "0.9223372036854775807", "72057594037927937.1", "-1.0", "1"} {
		if p, err := bridge.ParseVersion(name); err == nil {
			t.Errorf("%s is read as %v", name, p)
		}
	}
	onServers(t, func(t *testing.T, s *server) {
		for _, member := range []redis.Z{{Score: math.Inf(1), Member: "0.6"}, {Score: 1e300, Member: "0.6"},
			{Score: 1, Member: "9223372036854775807.0"}} {
			sp := s.space(t)
			store := sp.open(stream)
			mustAdvance(t, store, bridge.Checkpoint{}, at(0, 5))
			must.Do(t, sp.raw.ZAdd(t.Context(), sp.key("history:index"), member).Err())
			_, err := store.History(t.Context(), bridge.HistoryQuery{})
			_, _, err2 := store.Back(t.Context(), 5, 1)
			for _, err := range []error{err, err2} {
				if fault, ok := errors.AsType[*bridge.Fault](err); !ok || !errors.Is(err, bridge.ErrForeign) ||
					!strings.Contains(fault.Hint, "redis-cli DEL") {
					t.Errorf("%v: %v, want ErrForeign with a hint", member, err)
				}
			}
		}
	})
}
