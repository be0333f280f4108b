package control_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// Each condition has its reason, and the worst comes first. A doubtful stream is never
// healthy.
func TestBrief(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	live := func(state bridge.State, change func(*bridge.Status)) *bridge.Status {
		s := &bridge.Status{State: state, Owner: "one", Leader: true, Position: now, Version: bridge.Version{Epoch: 1}}
		if change != nil {
			change(s)
		}
		return s
	}
	odd := []bridge.Warning{{Text: "odd"}}
	paused := &bridge.Checkpoint{Version: bridge.Version{Epoch: 2}, PausedUntil: bridge.Forever}
	done := &bridge.Checkpoint{Drained: true, Origin: bridge.Origin{End: 1}}
	tests := []struct { // worst first
		live       *bridge.Status
		checkpoint *bridge.Checkpoint
		members    []bridge.Member
		known      bool
		want       bridge.State
		why        string
		state      bridge.State // if it is another than want
	}{
		{live: live(bridge.StateBlocked, func(s *bridge.Status) { s.Error = "401" }), want: bridge.StateBlocked, why: "401"},
		{live: live(bridge.StateStopped, func(s *bridge.Status) { s.Error = "lost" }), want: bridge.StateStopped,
			why: "lost"},
		{known: true, want: control.StateNone},
		{live: live(bridge.StateBackoff, func(s *bridge.Status) { s.Error = "503" }), want: bridge.StateBackoff, why: "503"},
		{want: control.StateUnknown},
		{known: true, members: []bridge.Member{{Process: "two", Host: "h"}}, want: control.StateUnknown,
			why: "two at h runs it, this Redis has no status of it"},
		{live: live(bridge.StateRunning, func(s *bridge.Status) {
			s.Position, s.Dependencies = now.Add(-time.Hour), map[string]bridge.Dependency{"redis": {Trouble: "is down"}}
		}), want: control.StateDegraded, why: "redis is down", state: bridge.StateRunning},
		{live: live(bridge.StateIdle, func(s *bridge.Status) { s.CaughtUp, s.DeadLettered, s.Published = true, 1, 99 }),
			want: control.StateDegraded, why: "many dead letters", state: bridge.StateIdle},
		{live: live(bridge.StateIdle, func(s *bridge.Status) { s.CaughtUp, s.Warnings = true, odd }),
			want: control.StateDegraded, why: "odd", state: bridge.StateIdle},
		{live: live(bridge.StateRunning, func(s *bridge.Status) { s.Position = now.Add(-2 * time.Hour) }),
			want: control.StateBehind, state: bridge.StateRunning},
		{live: live(bridge.StateRunning, func(s *bridge.Status) { s.Position = now.Add(-time.Hour) }),
			want: control.StateBehind, state: bridge.StateRunning},
		{live: live(bridge.StateRunning, nil), checkpoint: paused, want: bridge.StatePaused},
		{checkpoint: paused, known: true, want: bridge.StatePaused, why: "not running"},
		{live: live(bridge.StateRunning, nil), want: bridge.StateRunning},
		{live: live(bridge.StateRunning, func(s *bridge.Status) { s.CaughtUp, s.DeadLettered, s.Published = true, 1, 100 }),
			want: bridge.StateIdle},
		{live: live(bridge.StateStopped, func(s *bridge.Status) { s.Ended = "after 5 events" }), want: control.StateEnded,
			why: "after 5 events"},
		{checkpoint: done, known: true, want: control.StateEnded, why: "the window ended"},
	}
	var briefs []control.Brief
	for i, tc := range tests {
		r := control.NewReport(string(rune('a'+i)), bridge.ExactlyOnce)
		r.Live, r.Members, r.MembersKnown = tc.live, tc.members, tc.known
		if tc.checkpoint != nil {
			r.Checkpoint = control.Mask(tc.checkpoint)
		}
		r.Measure(now)
		b := r.Brief(now)
		if want := cmp.Or(tc.state, tc.want); b.State != want {
			t.Errorf("%d: state %s, want %s", i, b.State, want)
		}
		ended := tc.want == control.StateEnded
		if known := tc.live != nil && tc.checkpoint == nil && !tc.live.CaughtUp && !ended; b.Position.IsZero() == known ||
			ended && b.Lag >= 0 {
			t.Errorf("%d: position %s, lag %s, caught up %v", i, b.Position, b.Lag, b.CaughtUp)
		}
		if b.Condition != tc.want || b.Why != tc.why {
			t.Errorf("%d: %s because of %q, want %s because of %q", i, b.Condition, b.Why, tc.want, tc.why)
		}
		briefs = append([]control.Brief{b}, briefs...)
	}
	slices.SortFunc(briefs, control.Brief.Compare)
	got := ""
	for _, b := range briefs {
		got += b.Stream
	}
	if want := "abcdefghijklmnopq"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
