package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// entryOf returns the newest commit that had passed so many pages.
func (r *harness) entryOf(pages int64) bridge.Checkpoint {
	r.t.Helper()
	for _, c := range slices.Backward(r.redis.Store.History()) {
		if c.Pages == pages && c.Kind == bridge.KindData {
			return c
		}
	}
	r.t.Fatalf("no commit has passed %d pages", pages)
	return bridge.Checkpoint{}
}

// Each target is planned from Redis, or from the checkpoint topic if Redis was emptied or is
// unreachable. After the move, the stream is at the planned target.
func TestTargets(t *testing.T) {
	t.Parallel()
	onStores(t, targets)
}

func targets(t *testing.T, r *harness, lose func()) {
	now, back := r.now(), r.entryOf(12)
	at := time.UnixMilli(back.WrittenAt).Add(time.Millisecond)
	other := bridge.Checkpoint{Format: 1, Stream: "events", Cursor: "elsewhere", Origin: r.engine.Origin, Events: 70,
		Pages: 7, PositionTime: 1000}
	r.engine.Overlap = time.Minute
	r.control()
	anew := func(tail int) control.Repeats {
		n := control.Count(now.Events - back.Events + int64(tail))
		return control.Repeats{Min: n, Max: n, Pages: control.Count(now.Pages - 12)}
	}
	exactly := anew(0)
	lose()
	for _, c := range []struct {
		to     control.Target
		text   string
		again  control.Repeats
		cursor string
		note   string
	}{
		{control.RewindPages{Pages: now.Pages - 12}, "(the newest commit at least ", exactly, back.Cursor, ""},
		{control.RewindToTime{Time: at}, "(the newest commit at or before " + at.UTC().Format("2006-01-02"), exactly,
			back.Cursor, ""},
		{control.RewindToEntry{Entry: back.Version}, "entry " + back.Version.String(), exactly, back.Cursor, ""},
		{control.ResetToEarliest{}, "the earliest event", between(now.Events, now.Events), "", ""},
		{control.ResetToTime{Time: time.UnixMilli(1000)}, "events from 1970-01-01T00:00:01Z on",
			between(now.Events-10, now.Events), "", "EXPORT_OVERLAP (1m0s)"},
		{control.ResetToLatest{}, "events from now on", control.Repeats{}, "", "are skipped"},
		{control.ResetToCurrent{}, "the same position", control.Repeats{}, now.Cursor, "accepted as they are now"},
		{control.ResetToCursor{Cursor: "elsewhere"}, "cursor elsewhere  (sha256 ", notKnown, "elsewhere", ""},
		{control.ResetToCursor{Cursor: back.Cursor}, "(as in entry ", anew(len(back.Tail)), back.Cursor, ""},
		{control.Import{Checkpoint: other}, "1970-01-01 00:00:01Z", notKnown, "elsewhere", ""},
		{control.Import{Checkpoint: back}, "(as in entry ", exactly, back.Cursor, ""},
	} {
		m := r.plan(c.to)
		if !strings.Contains(m.To.Text, c.text) || m.Repeats != c.again || m.To.CursorHash != bridge.CursorHash(c.cursor) {
			t.Errorf("%T: planned to %q, repeats %+v, want %+v", c.to, m.To.Text, m.Repeats, c.again)
		}
		if m.Stream != "events" || m.BaseEpoch != 0 || m.Guarantee != "exactly-once" || m.From.Version == nil ||
			*m.From.Version != now.Version || m.From.Events != now.Events {
			t.Errorf("%T: the plan is %+v", c.to, m.Plan)
		}
		notes := strings.Join(m.Notes, "\n")
		if !strings.Contains(notes, c.note) || strings.Contains(notes, "Redis does not answer") != (r.redis.check() != nil) {
			t.Errorf("%T: notes %q, want %q", c.to, notes, c.note)
		}
		if got := r.now(); got.Version != now.Version {
			t.Fatalf("%T: a plan has moved the stream to %s", c.to, got.Version)
		}
	}
	m := r.plan(control.RewindToEntry{Entry: back.Version})
	done, err := r.Move(t.Context(), m, why)
	if err != nil || done.Answer.Version != (bridge.Version{Epoch: 1}) ||
		done.Answer.By != "this command (no bridge runs the stream)" {
		t.Fatalf("moved: %+v, %v", done, err)
	}
	got, err := bridge.Newest(t.Context(), r.kafka)
	if ch := got.Change; err != nil || got.Cursor != back.Cursor || got.Events != back.Events || ch == nil ||
		ch.ID != done.ID || ch.Who != "ann" || ch.Reason != "bad deploy" || ch.From != now.Version {
		t.Errorf("the stream is at %+v, %v", got, err)
	}
}

// between is a number of repeated events with bounds.
func between(least, most int64) control.Repeats {
	return control.Repeats{Min: control.Count(least), Max: control.Count(most), Pages: control.Unknown}
}

// notKnown is the number for a cursor that is not in the history.
var notKnown = control.Repeats{Min: control.Unknown, Max: control.Unknown, Pages: control.Unknown,
	Why: "this cursor is not in the history"}

// TestRepeatsAcrossBranches: the number of repeated events is known across branches, and exact
// if the branches count from one root.
func TestRepeatsAcrossBranches(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		early, back, ahead, last := r.entryOf(5), r.entryOf(12), r.entryOf(15), r.entryOf(19)
		move := func(to control.Target) {
			t.Helper()
			must.Get(r.Move(t.Context(), r.plan(to), why))(t)
		}
		atBack := control.ResetToTime{Time: time.UnixMilli(back.PositionTime)}
		before := r.entryOf(11)
		r.repeats(atBack, between(0, last.Events-before.Events))
		move(control.RewindToEntry{Entry: back.Version})
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
		r.repeats(control.RewindToEntry{Entry: last.Version}, control.Repeats{})
		r.repeats(control.RewindToEntry{Entry: ahead.Version}, exactly(last, ahead))
		r.repeats(control.Import{Checkpoint: early}, exactly(last, early))
		r.repeats(atBack, between(0, last.Events-before.Events))
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		must.Get(r.Pause(t.Context(), why, 0))(t)
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
		r.repeats(control.RewindToTime{Time: time.UnixMilli(early.WrittenAt)}, exactly(last, early))
		heal := r.redis.away()
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		r.repeats(atBack, between(0, last.Events-before.Events))
		r.repeats(control.RewindPages{Pages: 0}, exactly(last, back))
		r.repeats(control.ResetToCurrent{}, exactly(last, back))
		heal()
		move(control.ResetToLatest{})
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		imported := early
		imported.Cursor, imported.Events = "elsewhere", 1000
		move(control.Import{Checkpoint: imported})
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		r.engine.Origin.Events = []string{"click"}
		r.control()
		r.repeats(control.ResetToEarliest{}, between(0, last.Events))
	})
}

// In JSON, an unknown number is null, with the reason.
func TestUnknownIsNull(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]control.Repeats{
		`{"repeats_min":null,"repeats_max":null,"repeats_pages":null,` +
			`"repeats_unknown":"this cursor is not in the history"}`: notKnown,
		`{"repeats_min":5,"repeats_max":null,"repeats_pages":null}`: between(5, -1),
		`{"repeats_min":0,"repeats_max":0,"repeats_pages":0}`:       {},
	} {
		got, err := json.Marshal(r)
		if err != nil || string(got) != want {
			t.Errorf("%+v is %s, %v, want %s", r, got, err, want)
		}
		var back control.Repeats
		if err := json.Unmarshal(got, &back); err != nil || back != r {
			t.Errorf("%s is read as %+v, %v", got, back, err)
		}
	}
}

// The error of an impossible plan says what is missing.
func TestNoTarget(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		before := time.UnixMilli(r.redis.Store.History()[0].WrittenAt).Add(-time.Hour)
		for _, to := range []control.Target{
			control.RewindPages{Pages: 999}, control.RewindToEntry{Entry: bridge.Version{Epoch: 9}},
			control.RewindToTime{Time: before},
		} {
			_, err := r.Plan(t.Context(), to)
			missing := want[*control.NoEntryError](t, err)
			_, byTime := to.(control.RewindToTime)
			if !errors.Is(err, bridge.ErrNoEntry) || missing.Left != nil || missing.Time.IsZero() == byTime ||
				!strings.Contains(err.Error(), "nor in the checkpoint topic") {
				t.Errorf("%T: %+v", to, missing)
			}
		}
		now := r.now()
		must.Get(r.Move(t.Context(), r.plan(control.ResetToEarliest{}), why))(t)
		_, err := r.Plan(t.Context(), control.RewindPages{Pages: 999})
		if missing := want[*control.NoEntryError](t, err); missing.Left == nil || *missing.Left != r.entryOf(19).Version {
			t.Errorf("after a reset from %s: %+v", now.Version, missing)
		}
		r.kafka.unreadable = errors.New("no leader")
		must.Fail(r.Plan(t.Context(), control.RewindPages{Pages: 999}))(t, nil, "no leader")
		for name, cursor := range map[string]string{"long": strings.Repeat("x", bridge.MaxCursor+1), "no UTF-8": "\xff",
			"lines": "a\nb"} {
			if m, err := r.Plan(t.Context(), control.ResetToCursor{Cursor: cursor}); err == nil {
				t.Errorf("a cursor that is %s: planned to %+v", name, m.To)
			}
		}
	})
}

// TestFollowOtherwise: after a change of EXPORT_FOLLOW, the current position becomes a time.
// Events after it that the topic holds are dropped.
func TestFollowOtherwise(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		now := r.now()
		since := min(now.LastEventTime, now.AdvanceTime)
		r.engine.Origin.Follow = bridge.FollowWindows
		r.control()
		m := r.plan(control.ResetToCurrent{})
		if want := "by windows, events from " + time.UnixMilli(since).UTC().Format(time.RFC3339) +
			" on"; m.To.Text != want || m.Repeats != (control.Repeats{}) {
			t.Errorf("planned to %q, repeats %+v, want %q", m.To.Text, m.Repeats, want)
		}
		if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, "must have been caught up") ||
			!strings.Contains(notes, "is not published again") {
			t.Errorf("notes %q", notes)
		}
		must.Get(r.Move(t.Context(), m, why))(t)
		got := r.now()
		mark := bridge.Listing{Floor: got.Origin.Start - r.engine.LookBack.Milliseconds(),
			Marks: []bridge.ListingMark{{At: got.Origin.Start - r.engine.LookBack.Milliseconds()}}}
		if got.Cursor != "" || got.Origin.Start != since || got.Events != now.Events ||
			!reflect.DeepEqual(got.Listing, &mark) {
			t.Errorf("the stream is at %+v, listing %+v, want %+v", got, got.Listing, mark)
		}
	})
}

func TestNoPosition(t *testing.T) {
	t.Parallel()
	r := newHarness(t, bridge.ExactlyOnce)
	must.Fail(r.Plan(t.Context(), control.ResetToCurrent{}))(t, control.ErrNoPosition)
	if m := r.plan(control.ResetToEarliest{}); m.From.Text != "no checkpoint" || len(m.Notes) > 0 {
		t.Errorf("a stream that has not begun is planned from %q, %q", m.From.Text, m.Notes)
	}
}

// An imported cursor is of the same stream, export and application.
func TestForeignCursor(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		same := r.now()
		same.Cursor, same.Events = "elsewhere", same.Events+100
		if m := r.plan(control.Import{Checkpoint: same}); len(m.Notes) != 1 ||
			!strings.Contains(m.Notes[0], "ahead of the stream") {
			t.Errorf("ahead of the stream: notes %q", m.Notes)
		}
		for what, change := range map[string]func(c *bridge.Checkpoint){
			"stream": func(c *bridge.Checkpoint) { c.Stream = "users" },
			"export": func(c *bridge.Checkpoint) { c.Origin.Resource = "user" },
		} {
			other := r.now()
			change(&other)
			_, err := r.Plan(t.Context(), control.Import{Checkpoint: other})
			if foreign := want[*control.ForeignCursorError](t, err); len(foreign.Differences) != 1 ||
				!strings.Contains(err.Error(), "its "+what+" is ") {
				t.Errorf("%s: %v", what, err)
			}
			if m := r.plan(control.Import{Checkpoint: other, AcceptOther: true}); len(m.Notes) == 0 ||
				!strings.Contains(m.Notes[0], "its "+what+" is ") {
				t.Errorf("%s: accepted with the notes %q", what, m.Notes)
			}
		}
	})
}

// The plan of a move ahead of the stream says what is skipped. The plan of a move under other
// settings says that the settings change.
func TestNotes(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		at := time.UnixMilli(r.now().PositionTime)
		for ahead, notes := range map[time.Duration]int{-time.Second: 0, 0: 0, time.Second: 1} {
			if m := r.plan(control.ResetToTime{Time: at.Add(ahead)}); len(m.Notes) != notes {
				t.Errorf("%s ahead: notes %q", ahead, m.Notes)
			}
		}
		r.engine.Origin.Events = []string{"click"}
		r.control()
		if m := r.plan(control.ResetToEarliest{}); len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "the settings change") {
			t.Errorf("another filter: notes %q", m.Notes)
		}
		if m := r.plan(control.RewindPages{Pages: 1}); len(m.Notes) != 1 || !strings.Contains(m.Notes[0],
			"which a rewind keeps") {
			t.Errorf("a rewind under another filter: notes %q", m.Notes)
		}
		r.engine.Origin.Events, r.engine.Origin.ItemID = nil, "/id"
		r.control()
		for name, to := range map[string]control.Target{"to here": control.ResetToCurrent{},
			"back": control.RewindPages{Pages: 1}} {
			if m := r.plan(to); !strings.Contains(m.Why, "ids change") ||
				strings.Contains(strings.Join(m.Notes, "; "), "ids change") {
				t.Errorf("other ids, %s: %q, notes %q", name, m.Why, m.Notes)
			}
		}
	})
	r := newHarness(t, bridge.ExactlyOnce)
	if m := r.plan(control.ResetToTime{Time: time.Now()}); len(m.Notes) > 0 {
		t.Errorf("a stream that has not begun: notes %q", m.Notes)
	}
}

// TestDroppedAreNoted: the bounds of a plan include events that routes drop, and the plan says so.
func TestDroppedAreNoted(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		at := r.now()
		at.Dropped = 40
		r.must(control.Import{Checkpoint: at})
		for to, notes := range map[control.Target]int{control.ResetToEarliest{}: 1, control.ResetToCurrent{}: 0} {
			m := r.plan(to)
			if got := strings.Count(strings.Join(m.Notes, "; "), "routes have dropped 40 of"); got != notes {
				t.Errorf("%T: notes %q", to, m.Notes)
			}
		}
	})
}

func TestPosition(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		p, err := r.Position(t.Context())
		if err != nil || p.Note != "" || p.Events != 200 {
			t.Fatalf("position %+v, %v", p, err)
		}
		heal := r.redis.away()
		away, err := r.Position(t.Context())
		if err != nil || away.Version != p.Version || !strings.Contains(away.Note, "from the checkpoint topic") {
			t.Errorf("while Redis is away: %+v, %v", away, err)
		}
		r.kafka.unreadable = errors.New("no leader")
		must.Fail(r.Position(t.Context()))(t, bridgetest.ErrDown, "no leader")
		must.Fail(r.Plan(t.Context(), control.ResetToEarliest{}))(t, bridgetest.ErrDown, "no leader")
		heal()
		r.redis.Wipe()
		must.Fail(r.Plan(t.Context(), control.ResetToEarliest{}))(t, nil, "no leader")
		r.kafka.unreadable = nil
		if lost, err := r.Position(t.Context()); err != nil || lost.Version != p.Version ||
			!strings.Contains(lost.Note, "no checkpoint of stream events in Redis") {
			t.Errorf("Redis lost it: %+v, %v", lost, err)
		}
		r.redis.Put([]byte("{}"))
		if _, err := r.Position(t.Context()); err == nil {
			t.Error("a foreign value is passed over")
		}
	})
}

func TestNoCheckpoint(t *testing.T) {
	t.Parallel()
	r := newHarness(t, bridge.ExactlyOnce)
	r.redis.known = []string{"users", "events", "sessions"}
	_, err := r.Position(t.Context())
	if e := want[*control.NoCheckpointError](t,
		err); err.Error() != "no checkpoint of stream events in Redis; known streams: users, sessions" || e.Live != nil ||
		!errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Errorf("%v, %+v", err, e)
	}
	r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateBlocked, Reason: bridge.ReasonAuth, Error: "401",
		Hint: "check the key"})
	_, err = r.Position(t.Context())
	if e := want[*control.NoCheckpointError](t, err); e.Live == nil || e.Live.Hint != "check the key" ||
		!strings.HasSuffix(err.Error(), "; pod-1 is blocked (auth): 401") {
		t.Errorf("%v, %+v", err, e)
	}
	r.redis.away()
	if _, err := r.Plan(t.Context(), control.ResetToEarliest{}); !errors.Is(err, bridgetest.ErrDown) ||
		!strings.Contains(err.Error(), "the checkpoint topic has no checkpoint of stream events") {
		t.Errorf("a plan from nothing: %v", err)
	}
}

// The checkpoint topic has all commits of a second, and heartbeats; the history has one commit.
func TestEveryCommitIsATarget(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		all := r.kafka.Kept()
		r.redis.Wipe()
		for _, kept := range all {
			c := kept.Checkpoint
			if m := r.plan(control.RewindToEntry{Entry: c.Version}); *m.To.Version != c.Version {
				t.Errorf("%s, a %s: planned to %s", c.Version, c.Kind, m.To.Version)
			}
		}
		h, err := r.History(t.Context(), bridge.HistoryQuery{})
		if err != nil || len(h.Entries) == len(all) {
			t.Errorf("the history has %d of %d commits, %v", len(h.Entries), len(all), err)
		}
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		all, err := r.History(t.Context(), bridge.HistoryQuery{})
		if err != nil || all.Note != "" || all.Stored != len(all.Entries) || len(all.Entries) < 20 {
			t.Fatalf("%d entries, %d stored, %q, %v", len(all.Entries), all.Stored, all.Note, err)
		}
		kept := len(all.Entries)
		r.redis.RollBack(0)
		heal := r.redis.away()
		h, err := r.History(t.Context(), bridge.HistoryQuery{Limit: 5})
		if err != nil || h.Stored != 0 || len(h.Entries) != 5 || h.Entries[0].Version != all.Entries[0].Version ||
			!strings.Contains(h.Note, "Redis does not answer") {
			t.Errorf("while Redis is away: %+v, %v", h, err)
		}
		for _, brief := range []bool{false, true} { // an entry with a tail may be large
			h, err := r.History(t.Context(), bridge.HistoryQuery{Brief: brief})
			if tails := slices.ContainsFunc(h.Entries,
				func(e control.HistoryEntry) bool { return len(e.Tail) > 0 }); err != nil || tails == brief {
				t.Errorf("brief is %t, tails are listed: %t, %v", brief, tails, err)
			}
		}
		// Redis and the topic keep different commits of a second.
		fifth := all.Entries[4].WrittenAt
		h, err = r.History(t.Context(), bridge.HistoryQuery{Since: time.UnixMilli(fifth)})
		if err != nil || len(h.Entries) == 0 || h.Entries[len(h.Entries)-1].WrittenAt < fifth ||
			h.Entries[len(h.Entries)-1].WrittenAt/1000 != fifth/1000 {
			t.Errorf("since the fifth, %d: %+v, %v", fifth, h.Entries, err)
		}
		r.kafka.unreadable = errors.New("no leader")
		must.Fail(r.History(t.Context(), bridge.HistoryQuery{}))(t, bridgetest.ErrDown, "no leader")
		heal()
		if h, err := r.History(t.Context(), bridge.HistoryQuery{}); err != nil || len(h.Entries) != kept ||
			!strings.Contains(h.Note, "no leader") {
			t.Errorf("an unreadable checkpoint topic: %d entries, %q, %v", len(h.Entries), h.Note, err)
		}
		if h, err := r.History(t.Context(), bridge.HistoryQuery{Limit: 3}); err != nil || h.Note != "" ||
			len(h.Entries) != 3 {
			t.Errorf("what Redis has is enough: %d entries, %q, %v", len(h.Entries), h.Note, err)
		}
		r.redis.Wipe()
		r.kafka.unreadable = nil
		if h, err := r.History(t.Context(), bridge.HistoryQuery{}); err != nil || h.Stored != 0 || len(h.Entries) < 20 ||
			h.Note != fmt.Sprintf("the last %d entries are from the checkpoint topic; Redis has none before", len(h.Entries)) {
			t.Errorf("Redis was emptied: %d entries, %q, %v", len(h.Entries), h.Note, err)
		}
	})
}

func TestExport(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) { exports(t, r.now()) })
}

// A target that the API cannot be asked for is rejected, the other way to set a position is
// not: if the API cannot begin at a time, a rewind to a cursor works; if each request
// requires a start, a reset to a time.
func TestRefusedPosition(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		toTime := []control.Target{control.ResetToTime{Time: time.Now()}, control.ResetToLatest{}}
		toCursor := []control.Target{control.ResetToEarliest{}, control.ResetToCursor{Cursor: "c"},
			control.RewindToTime{Time: time.Now()}, control.ResetToCurrent{}}
		for _, starts := range []bool{false, true} {
			r.engine.Refuse = func(at bridge.Position) error {
				if (at.Start != 0) == starts {
					return nil
				}
				return errors.New("no start")
			}
			r.control()
			works, fails := toCursor, toTime
			if starts {
				works, fails = toTime, toCursor
			}
			for _, to := range fails {
				_, err := r.Plan(t.Context(), to)
				refused, ok := errors.AsType[*control.RefusedError](err)
				if !ok || refused.Detail != "no start" || refused.NoStart == starts || refused.NeedsStart != starts {
					t.Errorf("%T: %v", to, err)
				}
			}
			for _, to := range works {
				if _, err := r.Plan(t.Context(), to); err != nil {
					t.Errorf("%T: %v", to, err)
				}
			}
		}
	})
}
