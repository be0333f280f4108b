package engine

import (
	"errors"
	"testing"
	"time"

	"exportbridge/bridge"
)

// The pace is how fast the position moves, whatever is committed in between.
func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for name, tc := range map[string]struct {
		positions []int64 // one a second, in seconds; 0 is none
		after     time.Duration
		want      float64
	}{
		"nothing":                {nil, 0, 0},
		"one":                    {[]int64{100}, 0, 0},
		"as fast as time":        {[]int64{100, 101, 102}, 0, 1},
		"catches up":             {[]int64{100, 160, 220}, 0, 60},
		"a gap":                  {[]int64{100, 0, 0, 130}, 0, 10},
		"went back":              {[]int64{1000, 1010, 100}, 0, 0},
		"long ago":               {[]int64{100, 160}, time.Minute, 0},
		"more than ten seconds":  {[]int64{1, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110}, 0, 1},
		"the ring has turned":    {[]int64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37}, 0, 2},
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

// Who stands by does not ask the API, and must not wait for it for ever because
// it was away at the end of the last ownership.
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
