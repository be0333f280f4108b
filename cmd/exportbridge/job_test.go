package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

// silent is a Source that answers at once.
type silent struct{ bridge.Source }

func (silent) Fetch(context.Context, bridge.Position) (*bridge.Page, error) {
	return &bridge.Page{}, nil
}

// The windows of a job share one limit, and a stop does not wait for a turn.
func TestSharedLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &jobRun{limit: rate.NewLimiter(10, 1)}
		began := time.Now()
		var windows sync.WaitGroup
		for range 3 {
			windows.Go(func() {
				api := r.limited(silent{})
				for range 7 {
					if _, err := api.Fetch(t.Context(), bridge.Position{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		windows.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("21 requests at 10/s took %s, want 2s", took)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := r.limited(silent{}).Fetch(stopped, bridge.Position{}); err == nil {
			t.Error("a request leaves after the stop")
		}
	})
}

func TestJobProgress(t *testing.T) {
	t.Parallel()
	all := kafkasink.JobWindows(1000, 5000, 4)
	r := &jobRun{windows: all}
	first := r.progress()
	if first.share != 0 || first.done != 0 || first.windows != 4 {
		t.Errorf("before it begins: %+v", first)
	}
	all[0].Ended, all[0].Events, all[0].Position = "on its last page", 30, 99_000 // the time of the last request
	all[1].Position, all[1].Events = 2500, 10
	all[2].Position = 99_000 // at its end, and not recorded yet
	all[3].Position = 3999   // before its first event
	now := r.progress()
	if now.share != 0.625 || now.done != 1 || now.events != 40 {
		t.Errorf("after two and a half windows of four: %+v", now)
	}
	want := "  [1/4]   62 %  40 events   4/s   eta 6s"
	if got := now.text(first, 10*time.Second); got != want {
		t.Errorf("shows %q, want %q", got, want)
	}
}

func TestOverlapWithStream(t *testing.T) {
	t.Parallel()
	at := func(start, position, end int64) *bridge.Checkpoint {
		return &bridge.Checkpoint{Origin: bridge.Origin{Start: start, End: end}, PositionTime: position}
	}
	for _, test := range []struct {
		name     string
		from, to int64
		c        *bridge.Checkpoint
		newest   bool
		want     bool
	}{
		{"up to its start", 10, 20, at(20, 50, 0), true, false},
		{"a millisecond into it", 10, 21, at(20, 50, 0), true, true},
		{"from the earliest on", 10, 20, at(0, 50, 0), true, true},
		{"ahead of where it is", 60, 70, at(20, 50, 0), true, true},
		{"behind its end", 60, 70, at(20, 50, 60), true, false},
		{"an epoch before, in it", 50, 70, at(20, 50, 0), false, true},
		{"an epoch before, after it", 51, 70, at(20, 50, 0), false, false},
		{"an epoch before, before it", 10, 20, at(20, 50, 0), false, false},
	} {
		p := &jobPlan{job: kafkasink.Job{Stream: "events", From: test.from, To: test.to}}
		if got := p.overlapWith(test.c, test.newest); (got != "") != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}
