package engine

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// The pace is how fast the position moves, by the first and the last commit.
func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for name, tc := range map[string]struct {
		positions []int64 // one a second, in seconds; 0 is none
		after     time.Duration
		want      float64
	}{
		"nothing":               {nil, 0, 0},
		"one":                   {[]int64{100}, 0, 0},
		"as fast as time":       {[]int64{100, 101, 102}, 0, 1},
		"catches up":            {[]int64{100, 160, 220}, 0, 60},
		"a gap":                 {[]int64{100, 0, 0, 130}, 0, 10},
		"went back":             {[]int64{1000, 1010, 100}, 0, 0},
		"long ago":              {[]int64{100, 160}, time.Minute, 0},
		"more than ten seconds": {[]int64{1, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110}, 0, 1},
		"the ring has turned": {[]int64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35,
			37}, 0, 2},
		"only unknown positions": {[]int64{0, 0}, 0, 0},
	} {
		var r rate
		now := at
		for i, p := range tc.positions {
			if now = at.Add(time.Duration(i) * time.Second); p > 0 {
				r.add(now, 1, p*1000)
			}
		}
		if _, got := r.over(now.Add(tc.after)); got != tc.want {
			t.Errorf("%s: pace %v, want %v", name, got, tc.want)
		}
	}
}

// A stream stays caught up while it reads what is new, unless that takes long or
// something else comes between.
func TestCaughtUpSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(&Engine{log: slog.New(slog.DiscardHandler)}, nil)
		began := time.Now()
		for _, step := range []struct {
			after time.Duration
			state bridge.State
			since time.Duration // after the beginning
		}{
			{0, bridge.StateRunning, 0},
			{time.Minute, bridge.StateIdle, time.Minute},
			{time.Hour, bridge.StateRunning, 61 * time.Minute},
			{time.Second, bridge.StateIdle, time.Minute},
			{time.Hour, bridge.StateRunning, 121*time.Minute + time.Second},
			{2 * time.Minute, bridge.StateIdle, 123*time.Minute + time.Second},
			{59 * time.Minute, bridge.StateRunning, 182*time.Minute + time.Second},
			{0, bridge.StateBackoff, 182*time.Minute + time.Second},
			{time.Second, bridge.StateRunning, 182*time.Minute + 2*time.Second},
			{time.Second, bridge.StateIdle, 182*time.Minute + 3*time.Second},
		} {
			time.Sleep(step.after) //nolint:forbidigo // virtual
			f.setState(step.state, nil)
			if got := f.since.Sub(began); got != step.since {
				t.Errorf("%s since %s, want %s", step.state, got, step.since)
			}
		}
	})
}

// A standby does not use the API. It must not show the API as down for ever because the API
// was down at the end of the last ownership.
func TestStandbySuffersNoSource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		state bridge.State
		away  string
		want  bridge.State
	}{
		{bridge.StateStandby, bridge.DependencySource, bridge.StateStandby},
		{bridge.StateStandby, bridge.DependencySink, bridge.StateBackoff},
		{bridge.StateRunning, bridge.DependencySource, bridge.StateBackoff},
	} {
		h := new(bridge.Health)
		h.Reporter(tc.away)(errors.New("gone"))
		e := &Engine{ports: Ports{Health: h}}
		e.view.Store(&view{status: bridge.Status{State: tc.state, Mode: bridge.ExactlyOnce}})
		if got := e.Status(); got.State != tc.want {
			t.Errorf("%s without %s is %s, want %s: %+v", tc.state, tc.away, got.State, tc.want, got)
		}
	}
}
