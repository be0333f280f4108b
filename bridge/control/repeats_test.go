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

// repeats checks how many events a move publishes again.
func (r *harness) repeats(to control.Target, want control.Repeats) {
	r.t.Helper()
	if m := r.plan(to); m.Repeats != want {
		r.t.Errorf("from %s, %T%+v repeats %+v, want %+v", m.From.Text, to, to, m.Repeats, want)
	}
}

// exactly is a known number of events on a known number of pages.
func exactly(from, to bridge.Checkpoint) control.Repeats {
	n := control.Count(from.Events - to.Events)
	return control.Repeats{Min: n, Max: n, Pages: control.Count(from.Pages - to.Pages)}
}

// runFor runs a bridge for so many pages of 10 events.
func (r *harness) runFor(pages int) {
	stop := r.run()
	for range pages {
		r.source.Grow(10)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual
	}
	stop()
}

// A position with a count of 0 begins a branch: pages and events count from there.
func TestRepeatsOfANewCount(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		last, back := r.entryOf(19), r.entryOf(12)
		here := r.now()
		here.Events, here.Pages, here.PositionTime = 0, 0, 0
		r.must(control.Import{Checkpoint: here})
		r.runFor(10)
		now := r.now()
		lose()
		m := r.plan(control.RewindPages{Pages: 5})
		if m.To.Epoch != 1 || m.To.Pages != now.Pages-5 || m.Min != m.Max {
			t.Errorf("planned to %s of %d pages, %+v, want %d pages", m.To.Text, m.To.Pages, m.Repeats, now.Pages-5)
		}
		behind := last.Events - back.Events
		r.repeats(control.RewindToEntry{Entry: back.Version}, between(behind, behind+now.Events))
		if m := r.plan(control.RewindToEntry{Entry: back.Version}); len(m.Notes) > 0 &&
			strings.Contains(strings.Join(m.Notes, "\n"), "ahead") {
			t.Errorf("back to %s: notes %q", back.Version, m.Notes)
		}
	})
}

// Every target counts the later events in the topic, whichever branch published them. Both
// stores give the same number.
func TestRepeatsAfterARewind(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		first, early, back, ahead, last := r.redis.Store.History()[0], r.entryOf(5), r.entryOf(12), r.entryOf(15),
			r.entryOf(19)
		fourth := r.entryOf(4)
		r.must(control.RewindToEntry{Entry: back.Version})
		lose()
		for _, e := range []bridge.Checkpoint{first, early, back, ahead} {
			r.repeats(control.RewindToEntry{Entry: e.Version}, exactly(last, e))
		}
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		r.repeats(control.ResetToTime{Time: time.UnixMilli(early.PositionTime)}, between(0, last.Events-fourth.Events))
	})
	// Epoch 0 begins at 0 events, even if its first commits are gone.
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		early, back, last := r.entryOf(5), r.entryOf(12), r.entryOf(19)
		must.Get(r.Pause(t.Context(), why, 0))(t)
		r.must(control.RewindToEntry{Entry: back.Version})
		r.redis.lacks = func(c *bridge.Checkpoint) bool { return c.Epoch == 0 && c.Version.Compare(early.Version) < 0 }
		r.kafka.dark = errors.New("no leader")
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
	})
	// A stream that has caught up has published no later event, whatever its history has.
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		back := r.entryOf(12)
		r.must(control.RewindToEntry{Entry: back.Version})
		r.runFor(1)
		now := r.now()
		if now.RewindEnd != nil || now.Events != 210 {
			t.Fatalf("at %d events, %+v", now.Events, now.RewindEnd)
		}
		r.redis.lacks = func(c *bridge.Checkpoint) bool { return c.Epoch == 0 && c.Version != back.Version }
		r.kafka.dark = errors.New("no leader")
		r.repeats(control.RewindToEntry{Entry: back.Version}, exactly(now, back))
	})
}

// After a reset to a time, a reset to an earlier time publishes again what another branch has
// published between the two: the new branch begins at the first time, not before all others.
func TestRepeatsBeforeTheStartOfTheBranch(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]bool{"to a time": false, "to the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, r *harness, lose func()) {
				last, early, back := r.entryOf(19), r.entryOf(5), r.entryOf(12)
				if skip {
					r.must(control.ResetToLatest{})
				} else {
					r.must(control.ResetToTime{Time: time.UnixMilli(back.PositionTime)})
				}
				r.runFor(3) // reads to the end
				if now := r.now(); now.RewindEnd != nil {
					t.Fatalf("the stream has not caught up: %+v", now.RewindEnd)
				}
				lose()
				again := control.Count(last.Events - early.Events) // at least these were published at that time or later
				m := r.plan(control.ResetToTime{Time: time.UnixMilli(early.PositionTime)})
				if m.Max >= 0 && m.Max < again {
					t.Errorf("the plan says %+v, but %d events or more are published again", m.Repeats, again)
				}
			})
		})
	}
}

// If Redis lost the commit from which a move started, the checkpoint topic has it. If the topic
// lost it too, only bounds are known.
func TestRepeatsWithoutTheLeftCommit(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		early, back, last := r.entryOf(5), r.entryOf(12), r.entryOf(19)
		r.must(control.RewindToEntry{Entry: back.Version})
		r.redis.lacks = func(c *bridge.Checkpoint) bool { return c.Epoch == 0 && c.Version.Compare(back.Version) > 0 }
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(last, early))
		r.repeats(control.ResetToEarliest{}, between(last.Events, last.Events))
		must.Get(r.Pause(t.Context(), why, 0))(t)
		r.kafka.dark = errors.New("no leader")
		r.repeats(control.RewindToEntry{Entry: early.Version}, between(back.Events-early.Events, -1))
		r.repeats(control.ResetToEarliest{}, between(back.Events, -1))
	})
	// A pause passes no event: the commit before it is not needed.
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		early, now := r.entryOf(5), r.now()
		must.Get(r.Pause(t.Context(), why, 0))(t)
		r.redis.lacks = func(c *bridge.Checkpoint) bool { return c.Version == now.Version }
		r.kafka.dark = errors.New("no leader")
		r.repeats(control.RewindToEntry{Entry: early.Version}, exactly(now, early))
		r.repeats(control.ResetToEarliest{}, between(now.Events, now.Events))
	})
}

// After settings were accepted, the position is unknown until the next page: it is neither
// before nor after a time. The stream's own export has a position.
func TestRepeatsFromAnUnknownPosition(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, r *harness, lose func()) {
		last, back, before := r.entryOf(19), r.entryOf(12), r.entryOf(11)
		to := control.ResetToTime{Time: time.UnixMilli(back.PositionTime)}
		r.engine.Origin.Events = []string{"click"}
		r.control()
		r.must(control.ResetToCurrent{})
		if now := r.now(); now.PositionTime != 0 {
			t.Fatalf("the position is %d, want it unknown", now.PositionTime)
		}
		lose()
		r.repeats(to, between(0, last.Events-before.Events))
		if notes := strings.Join(r.plan(to).Notes, "\n"); strings.Contains(notes, "ahead") {
			t.Errorf("to the past: notes %q", notes)
		}
	})
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		now := r.now()
		r.must(control.Import{Checkpoint: now})
		if got := r.now().PositionTime; got != now.PositionTime {
			t.Errorf("the imported position is %d, want %d", got, now.PositionTime)
		}
		now.Origin.Resource = "user"
		r.must(control.Import{Checkpoint: now, AcceptOther: true})
		if got := r.now().PositionTime; got != 0 {
			t.Errorf("another export's position is %d, want it unknown", got)
		}
	})
}

// Changed settings keep the reason why a number is unknown.
func TestRepeatsUnknownUnderOtherSettings(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(_ *testing.T, r *harness) {
		r.engine.Origin.Events = []string{"click"}
		r.control()
		r.repeats(control.ResetToCursor{Cursor: "elsewhere"}, notKnown)
	})
}

// TestRepeatsOfBackfills: a reset to a time also publishes again what backfills published.
func TestRepeatsOfBackfills(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		now, broken := r.now(), error(nil)
		toTime := control.ResetToTime{Time: time.UnixMilli(1)}
		own := r.plan(toTime).Repeats
		var asked []int64
		r.ports.Backfilled = func(_ context.Context, since int64) (int64, error) {
			asked = append(asked, since)
			return 7, broken
		}
		r.control()
		all := exactly(now, bridge.Checkpoint{})
		r.repeats(control.ResetToEarliest{}, between(int64(all.Max), int64(all.Max)+7))
		r.repeats(toTime, between(int64(own.Min), int64(own.Max)+7))
		r.repeats(control.RewindToEntry{Entry: r.entryOf(12).Version}, exactly(now, r.entryOf(12)))
		if !slices.Equal(asked, []int64{0, 1}) {
			t.Errorf("asked for the events since %v", asked)
		}
		broken = errors.New("no answer")
		r.repeats(control.ResetToEarliest{}, control.Repeats{Min: all.Max, Max: control.Unknown, Pages: control.Unknown})
		if m := r.plan(control.ResetToEarliest{}); !strings.Contains(strings.Join(m.Notes, "\n"), "no answer") {
			t.Errorf("notes %q", m.Notes)
		}
	})
}

// TestPlanUnderOtherRules: events that were published under other rules for private data may
// come again with other ids.
func TestPlanUnderOtherRules(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		under := func(rules string) {
			parts := []bridge.RequestPart{{Name: bridge.PartPath, Value: "/x"}, {Name: bridge.PartRules, Value: rules}}
			r.engine.Origin.Request = bridge.NewFingerprint(parts)
			r.control()
		}
		under("one")
		r.runFor(5)
		before := r.now()
		under("two")
		if m := r.plan(control.RewindPages{Pages: 3}); !m.OtherIDs || len(m.Notes) == 0 {
			t.Errorf("before the stream has the rules: %+v", m.Plan)
		}
		r.runFor(5)
		after := time.UnixMilli(before.PositionTime + 1)
		for to, want := range map[control.Target]bool{
			control.RewindPages{Pages: 3}: false, control.RewindPages{Pages: 5}: false, control.RewindPages{Pages: 8}: true,
			control.ResetToEarliest{}: true, control.ResetToTime{Time: after}: false, control.ResetToLatest{}: false,
		} {
			if m := r.plan(to); m.OtherIDs != want {
				t.Errorf("%T%+v: %+v, want other ids %v", to, to, m.Plan, want)
			}
		}
	})
}

// TestPlanUnderOtherIDs: events that were published by another EXPORT_ITEM_ID come again with
// other ids, and the tail of an entry of that time tells no item from others.
func TestPlanUnderOtherIDs(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		ids := func(want bool, all ...control.Target) {
			t.Helper()
			for _, to := range all {
				if m := r.plan(to); m.OtherIDs != want || want && m.Why == "" && len(m.Notes) == 0 {
					t.Errorf("%T%+v: %+v, want other ids %v", to, to, m.Plan, want)
				}
			}
		}
		ids(false, control.RewindPages{Pages: 3}, control.ResetToEarliest{})
		before := r.now()
		r.engine.Origin.ItemID = "/id"
		r.control()
		ids(true, control.RewindPages{Pages: 3}, control.ResetToEarliest{})
		r.must(control.ResetToCurrent{})
		r.runFor(5)
		after := time.UnixMilli(before.PositionTime + 1)
		ids(false, control.RewindPages{Pages: 3}, control.ResetToTime{Time: after}, control.ResetToLatest{},
			control.ResetToCurrent{})
		ids(true, control.RewindPages{Pages: 8}, control.ResetToEarliest{})
		if m := r.plan(control.RewindToEntry{Entry: before.Version}); len(before.Tail) == 0 || !m.OtherIDs ||
			!strings.Contains(m.Why, "ids change") {
			t.Errorf("to the tail of %d items before the change: %+v", len(before.Tail), m.Plan)
		}
		ids(true, control.RewindToEntry{Entry: r.must(control.ResetToEarliest{})})
		r.runFor(3)
		ids(false, control.RewindPages{Pages: 3})
		none := newHarness(t, bridge.ExactlyOnce)
		none.engine.Origin.ItemID = "/id"
		none.control()
		if m := none.plan(control.ResetToEarliest{}); m.OtherIDs || len(m.Notes) > 0 {
			t.Errorf("a stream that has not begun: %+v", m.Plan)
		}
	})
}

// TestPlanUnderOtherFilter: of the events that were published under another filter, the settings
// may select some only.
func TestPlanUnderOtherFilter(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.engine.Origin.Events = []string{"click"}
		r.control()
		r.must(control.ResetToCurrent{})
		r.runFor(5)
		for to, want := range map[control.Target]bool{
			control.RewindPages{Pages: 3}: false, control.RewindPages{Pages: 8}: true, control.ResetToEarliest{}: true,
		} {
			m := r.plan(to)
			if noted := strings.Contains(strings.Join(m.Notes, "\n"), "EXPORT_EVENTS"); noted != want ||
				(m.Min == 0) != want || m.Max <= 0 {
				t.Errorf("%T%+v: %+v, notes %q, want %v", to, to, m.Repeats, m.Notes, want)
			}
		}
	})
}

// TestPlanToAnotherList: the bridge refuses an entry whose cursor is of another list than the
// stream's. The plan says so, and no hint names such an entry.
func TestPlanToAnotherList(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		list := func(path string) bridge.Fingerprint {
			r.engine.Origin.Request = bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartPath, Value: path}})
			r.control()
			return r.engine.Origin.Request
		}
		one := list("/one")
		r.runFor(5)
		before, by := r.now(), why
		by.AcceptSource = list("/two").Digest()
		must.Get(r.Move(t.Context(), r.plan(control.ResetToEarliest{}), by))(t)
		_, err := r.Plan(t.Context(), control.RewindPages{Pages: 1})
		if missing := want[*control.NoEntryError](t, err); missing.Left != nil {
			t.Errorf("the hint names entry %s of another list", missing.Left)
		}
		m := r.plan(control.RewindToEntry{Entry: before.Version})
		_, err = r.Move(t.Context(), m, why)
		if refused := want[*control.RefusedError](t, err); !strings.Contains(refused.Detail, one.Digest()) {
			t.Errorf("refused because %s", refused.Detail)
		}
		if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, "another list") ||
			!strings.Contains(notes, one.Digest()) {
			t.Errorf("notes %q", m.Notes)
		}
		r.runFor(3)
		if m := r.plan(control.RewindPages{Pages: 1}); strings.Contains(strings.Join(m.Notes, "\n"), "another list") {
			t.Errorf("to the own list: notes %q", m.Notes)
		}
	})
}

// TestPlanToUnknownList: an entry of an older version names no list. It is of the list that the
// next entries name, unless the operator has accepted another one in between.
func TestPlanToUnknownList(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		list := func(path string) string {
			r.engine.Origin.Request = bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartPath, Value: path}})
			r.control()
			return r.engine.Origin.Request.Digest()
		}
		accept := func(source string) {
			by := why
			by.AcceptSource = source
			must.Get(r.Move(t.Context(), r.plan(control.ResetToEarliest{}), by))(t)
			r.runFor(2)
		}
		r.runFor(3)
		old := r.now()
		if old.Origin.Request.Known() {
			t.Fatalf("the fingerprint is %s, want none", old.Origin.Request)
		}
		one := list("/one")
		r.runFor(3)
		m := r.plan(control.RewindToEntry{Entry: old.Version})
		if notes := strings.Join(m.Notes, "\n"); strings.Contains(notes, "another list") {
			t.Errorf("to the own list: notes %q", m.Notes)
		}
		accept(list("/two"))
		_, err := r.Move(t.Context(), r.plan(control.RewindToEntry{Entry: old.Version}), why)
		if refused := want[*control.RefusedError](t, err); !strings.Contains(refused.Detail, one) {
			t.Errorf("refused because %s", refused.Detail)
		}
	})
}
