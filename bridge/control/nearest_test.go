package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// onStores runs a test with Redis, without its history, and without Redis.
func onStores(t *testing.T, test func(t *testing.T, r *harness, lose func())) {
	t.Helper()
	for name, lose := range map[string]func(*harness){
		"redis": func(*harness) {}, "redis lost it": func(r *harness) { r.redis.Wipe() },
		"redis is away": func(r *harness) { r.redis.away() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) { test(t, r, func() { lose(r) }) })
		})
	}
}

// sparsely leaves every fifth page in Redis.
func sparsely(c *bridge.Checkpoint) bool { return c.Kind == bridge.KindData && c.Pages%5 != 0 }

// must executes a move.
func (r *harness) must(to control.Target) bridge.Version {
	r.t.Helper()
	done, err := r.Move(r.t.Context(), r.plan(to), why)
	if err != nil {
		r.t.Fatalf("%T: %v", to, err)
	}
	return done.Answer.Version
}

// Redis has some commits, the checkpoint topic all: a rewind finds the newest match, whichever
// store has it.
func TestNearest(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		r.redis.lacks = sparsely
		now, back, early := r.now(), r.entryOf(12), r.entryOf(7)
		published := now.Events
		lose()
		for _, to := range []control.Target{control.RewindToTime{Time: time.UnixMilli(back.WrittenAt)},
			control.RewindPages{Pages: now.Pages - 12}} {
			m := r.plan(to)
			if *m.To.Version != back.Version || !strings.Contains(m.To.Text, "(the newest commit at ") ||
				m.Max != control.Count(now.Events-back.Events) {
				t.Errorf("%T: planned to %s, %+v, want entry %s", to, m.To.Text, m.Repeats, back.Version)
			}
		}
		// The branch continues below that commit, which Redis lacks.
		rewound := r.must(control.RewindToEntry{Entry: back.Version})
		if m := r.plan(control.RewindPages{Pages: 5}); rewound.Epoch != 1 || *m.To.Version != early.Version ||
			m.Min != control.Count(published-early.Events) {
			t.Errorf("after a rewind: planned to %s, %+v, want entry %s", m.To.Text, m.Repeats, early.Version)
		}
	})
}

// Without the checkpoint topic, the plan says which entries it knows.
func TestNearestInRedisAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.redis.lacks = sparsely
		back, in, next := r.entryOf(12), r.entryOf(10), r.entryOf(15)
		pages := r.now().Pages - 12
		r.kafka.dark = errors.New("no leader")
		for _, to := range []control.Target{control.RewindToTime{Time: time.UnixMilli(back.WrittenAt)},
			control.RewindPages{Pages: pages}} {
			m := r.plan(to)
			if *m.To.Version != in.Version || !strings.Contains(m.To.Text,
				"(the newest entry of the current branch in Redis at ") || !strings.Contains(m.To.Text, "; the next one is 0.") ||
				len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "no leader") {
				t.Errorf("%T: planned to %s, notes %q, want entry %s before %s", to, m.To.Text, m.Notes, in.Version, next.Version)
			}
		}
	})
}

// A rewind by time follows the current branch, and names a newer commit on another.
func TestNearestOnTheBranch(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		r.redis.lacks = sparsely
		left, back := r.entryOf(19), r.entryOf(12)
		at := time.UnixMilli(r.now().WrittenAt)
		r.must(control.RewindToEntry{Entry: back.Version})
		lose()
		m := r.plan(control.RewindToTime{Time: at})
		if *m.To.Version != back.Version || !strings.Contains(m.To.Text,
			"(the newest commit of the current branch at or before ") ||
			!strings.Contains(strings.Join(m.Notes, "\n"), "entry "+left.Version.String()+" of ") {
			t.Errorf("planned to %s, notes %q, want entry %s and a note of %s", m.To.Text, m.Notes, back.Version, left.Version)
		}
	})
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		left := r.entryOf(19)
		at := time.UnixMilli(r.now().WrittenAt)
		r.must(control.ResetToLatest{})
		lose()
		m := r.plan(control.RewindToTime{Time: at})
		if m.To.Epoch != 0 || m.To.CursorHash != bridge.CursorHash(left.Cursor) ||
			!strings.Contains(m.To.Text, "(the newest commit at or before ") ||
			!strings.Contains(m.To.Text, ", on another branch: the current one begins later)") {
			t.Errorf("planned to %s, want entry %s", m.To.Text, left.Version)
		}
	})
}

// The events after a rewind's own commit were published before the rewind.
func TestFirstPublished(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		back := r.entryOf(12)
		rewound := r.must(control.RewindToEntry{Entry: back.Version})
		for _, at := range []bridge.Version{back.Version, rewound} {
			if m := r.plan(control.RewindToEntry{Entry: at}); m.FirstPublished.UnixMilli() != back.WrittenAt {
				t.Errorf("entry %s: first published since %s, want %s", at, m.FirstPublished, time.UnixMilli(back.WrittenAt).UTC())
			}
		}
	})
}

// The entry offered in place of a rejected cursor has a cursor that the API has returned, even
// after pauses.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		last := r.entryOf(19)
		for range 2 {
			r.must(control.ResetToCursor{Cursor: "garbage"})
			must.Get(r.Pause(t.Context(), why, 0))(t)
			must.Get(r.Resume(t.Context(), why))(t)
			_, err := r.Plan(t.Context(), control.RewindPages{Pages: 1})
			if missing := want[*control.NoEntryError](t, err); missing.Left == nil || *missing.Left != last.Version {
				t.Errorf("left behind: %v, want %s", missing.Left, last.Version)
			}
		}
		now := r.now()
		m := r.plan(control.RewindToEntry{Entry: now.Change.From})
		if len(m.Notes) != 1 || m.Notes[0] != "the stream is at this position already" {
			t.Errorf("to the pause: notes %q", m.Notes)
		}
	})
}

// If Redis covers the requested time, the history has entries from Redis only.
func TestHistorySince(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.redis.lacks = sparsely
		q := bridge.HistoryQuery{Since: time.UnixMilli(r.entryOf(12).WrittenAt)}
		h, err := r.History(t.Context(), q)
		if err != nil || h.Note != "" || len(h.Entries) == 0 || h.Stored != len(h.Entries) {
			t.Errorf("%d entries, %d in Redis, %q, %v", len(h.Entries), h.Stored, h.Note, err)
		}
		if want := []bridge.HistoryQuery{q, {Before: q.Since, Limit: 1}}; !slices.Equal(r.redis.asked, want) {
			t.Errorf("asked Redis for %+v, want %+v", r.redis.asked, want)
		}
		last := r.entryOf(19)
		r.redis.lacks = func(c *bridge.Checkpoint) bool { return c.Version.Compare(last.Version) < 0 }
		h, err = r.History(t.Context(), bridge.HistoryQuery{Limit: 2})
		if err != nil || h.Note != "the last entry is from the checkpoint topic; Redis has none before" ||
			h.Stored != 1 || len(h.Entries) != 2 {
			t.Errorf("%d entries, %d in Redis, %q, %v", len(h.Entries), h.Stored, h.Note, err)
		}
	})
}

// A history marks the entries that a move left, from Redis and from the checkpoint topic.
func TestHistoryMarksBranches(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		back := r.entryOf(12)
		r.must(control.RewindToEntry{Entry: back.Version})
		must.Get(r.Pause(t.Context(), why, 0))(t)
		lose()
		h, err := r.History(t.Context(), bridge.HistoryQuery{})
		if err != nil || len(h.Entries) < 20 {
			t.Fatalf("%d entries, %v", len(h.Entries), err)
		}
		for i := range h.Entries {
			e := &h.Entries[i]
			if left := e.Epoch == 0 && e.Version.Compare(back.Version) > 0; e.OtherBranch != left {
				t.Errorf("entry %s: on another branch %v, want %v", e.Version, e.OtherBranch, left)
			}
		}
	})
}

// goesOn is Redis with a running stream, which commits between the requests of a plan.
type goesOn struct {
	*redis
	commit func()
}

func (s goesOn) Back(ctx context.Context, from, pages int64) (bridge.Entry, *bridge.Entry, error) {
	s.commit()
	return s.redis.Back(ctx, from, pages)
}

// A rewind by pages counts from the same checkpoint as the rest of the plan.
func TestPagesBackOfRunningStream(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		from := r.now()
		r.ports.Entries = goesOn{r.redis, func() {
			stop := r.run()
			r.source.Grow(50)
			time.Sleep(time.Minute) //nolint:forbidigo // virtual
			stop()
		}}
		r.control()
		m := r.plan(control.RewindPages{Pages: 10})
		if r.now().Pages <= from.Pages || m.Pages != 10 || m.Min != 100 || m.Max != 100 {
			t.Errorf("planned at page %d, now %d: to %s, %+v", from.Pages, r.now().Pages, m.To.Text, m.Repeats)
		}
	})
}
