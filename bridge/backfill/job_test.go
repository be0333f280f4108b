package backfill

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to int64
		n        int
	}{{0, 1, 1}, {5, 12, 7}, {5, 13, 3}, {1_000_000_000_000, 4_000_000_000_001, 1000}, {0, 1 << 60, 999}} {
		all := Split(test.from, test.to, test.n)
		next, least, most := test.from, test.to, int64(0)
		for _, w := range all {
			if w.From != next {
				t.Fatalf("%+v: a window begins at %d, the one before ends at %d", test, w.From, next)
			}
			next = w.To
			least, most = min(least, w.To-w.From), max(most, w.To-w.From)
		}
		if len(all) != test.n || next != test.to || least < 1 || most > least+1 {
			t.Errorf("%+v: %d windows of %d to %d, the last ends at %d", test, len(all), least, most, next)
		}
	}
}

// A job of an older version has no limits, and one with wrong ones is no job.
func TestDecodePlan(t *testing.T) {
	t.Parallel()
	const older = `{"v":1,"id":"aaaaaa","kind":"replay","stream":"events","resource":"events","topic":"t","from":1,"to":2,"windows":[{"from":1,"to":2,"events":0,"pages":0}],"created":7,"state":"running"`
	job, err := decodePlan(&kgo.Record{Value: []byte(older + "}")})
	if err != nil || job.RateLimit != 0 || job.Parallel != 0 || job.PageSize != 0 || job.Windows[0].To != 2 {
		t.Errorf("an older job is read as %+v: %v", job, err)
	}
	for _, wrong := range []string{`,"rate_limit":-1}`, `,"parallel":-1}`, `,"page_size":-1}`, `,"v":3}`} {
		if _, err := decodePlan(&kgo.Record{Value: []byte(older + wrong)}); !errors.Is(err, bridge.ErrForeign) {
			t.Errorf("a job with %s: %v", wrong, err)
		}
	}
	// The form is frozen.
	if got, err := json.Marshal(job); err != nil || string(got) != older+"}" {
		t.Errorf("written again it is\n%s, %v", got, err)
	}
	const whole = `{"v":1,"id":"aaaaaa","kind":"backfill","stream":"events","resource":"events","events":["a"],"topic":"t","topic_id":"i","from":1,"to":2,` +
		`"windows":[{"from":1,"to":2,"ended":"e","events":3,"pages":4,"position":5,"dead_lettered":6,"outside_range":2}],"rate_limit":2.5,"parallel":2,"page_size":50,` +
		`"who":"w","reason":"r","created":7,"state":"done","changed":8,"by":"b","why":"y","reduced":true}`
	job = must.Get(decodePlan(&kgo.Record{Value: []byte(whole)}))(t)
	if got, err := json.Marshal(job); err != nil || string(got) != whole {
		t.Errorf("written again it is\n%s, %v", got, err)
	}
	if got := job.WindowName(0); got != "events.aaaaaa.w0.1-2" {
		t.Errorf("its window is named %s", got)
	}
}

func TestJobProgress(t *testing.T) {
	t.Parallel()
	for want, windows := range map[float64][]Window{
		0:     {{From: 1000, To: 2000}, {From: 2000, To: 3000, Position: 1500}},
		0.75:  {{From: 1000, To: 2000, Position: 1500, Events: 5}, {From: 2000, To: 3000, Ended: "empty"}},
		0.375: {{From: 1000, To: 2000, Position: 1500}, {From: 2000, To: 3000, Position: 2250}},
		0.5:   {{To: 2000, Position: 1999}, {From: 2000, To: 3000, Position: 2100, Ended: "on its last page"}},
		1:     {{From: 1000, To: 2000, Position: 2500}},
	} {
		got, worked := (&Job{Windows: windows}).Progress()
		if wantWorked := map[float64]float64{0.75: 0.25}[want]; got != want || worked != wantWorked {
			t.Errorf("%+v are at %v, %v of it with events, want %v and %v", windows, got, worked, want, wantWorked)
		}
	}
	if got, _ := new(Job).Progress(); got != 0 {
		t.Errorf("a job without windows is at %v", got)
	}
}

func TestRunProgress(t *testing.T) {
	t.Parallel()
	all := Split(1000, 5000, 4)
	all[0].Ended, all[0].Events, all[0].Position = "on its last page", 30, 99_000 // the time of the last request
	all[1].Position, all[1].Events = 2500, 10
	all[2].Position = 99_000 // at its end, and not recorded yet
	all[3].Position = 3999   // before its first event
	if got, want := (&Run{windows: all}).Progress(), (Progress{Ended: 1, Windows: 4, Events: 40, Share: 0.625, Worked: 0.375}); got != want {
		t.Errorf("after two and a half windows of four: %+v", got)
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
		j := &Job{Stream: "events", From: test.from, To: test.to}
		if got := j.overlapWith(test.c, test.newest); (got != "") != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}
