package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestRetryRules walks the rows of the cursor rules: how often what is tried
// again, after how long, and what happens then.
func TestRetryRules(t *testing.T) {
	t.Parallel()
	const limit = 30 * time.Second
	type want struct {
		least, most         time.Duration
		blocked, crossCheck bool
	}
	block := want{least: time.Minute, most: time.Minute, blocked: true}
	transient := []want{
		{most: 500 * time.Millisecond}, {most: time.Second}, {most: 2 * time.Second}, {most: 4 * time.Second},
		{most: 8 * time.Second}, {most: 16 * time.Second}, {most: limit}, {most: limit},
	}
	for name, tc := range map[string]struct {
		fault bridge.Fault
		waits []want
	}{
		"5xx, network, time-out": {bridge.Fault{Class: bridge.Transient}, transient},
		"429 without Retry-After": {bridge.Fault{Class: bridge.Throttled},
			[]want{{least: 500 * time.Millisecond, most: 500 * time.Millisecond},
				{least: 500 * time.Millisecond, most: time.Second}}},
		"429 with Retry-After": {bridge.Fault{Class: bridge.Throttled, RetryAfter: 10 * time.Minute},
			[]want{{least: 10 * time.Minute, most: 11*time.Minute + time.Second}}},
		"503 with Retry-After": {bridge.Fault{Class: bridge.Transient, RetryAfter: 5 * time.Minute},
			[]want{{least: 5 * time.Minute, most: 6 * time.Minute}}},
		"401, 403": {bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}, []want{block, block}},
		"schema, cycle": {bridge.Fault{Class: bridge.Malformed, Reason: bridge.ReasonSchema},
			[]want{{most: time.Second}, {most: 2 * time.Second}, block, block}},
		"a refused cursor": {bridge.Fault{Class: bridge.BadCursor},
			[]want{{least: 10 * time.Second, most: 10 * time.Second}, {least: 30 * time.Second, most: 30 * time.Second},
				{crossCheck: true}, {crossCheck: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 50 { // jitter
				r := retries{max: limit}
				for i, w := range tc.waits {
					v := r.after(&tc.fault)
					if v.wait < w.least || v.wait > w.most || v.blocked != w.blocked || v.crossCheck != w.crossCheck {
						t.Fatalf("try %d: %+v, want %+v", i+1, v, w)
					}
				}
			}
		})
	}
}

// A request that was held back says nothing of what the earlier ones met.
func TestHeldRequestsKeepTheTries(t *testing.T) {
	t.Parallel()
	r := retries{max: 30 * time.Second}
	held := &bridge.Fault{Class: bridge.Throttled, Unsent: true, RetryAfter: time.Minute}
	for i, crossCheck := range []bool{false, false, true} {
		if v := r.after(&bridge.Fault{Class: bridge.BadCursor}); v.crossCheck != crossCheck {
			t.Errorf("try %d: %+v", i+1, v)
		}
		if v := r.after(held); v.wait < held.RetryAfter || v.blocked || v.crossCheck {
			t.Errorf("held: %+v", v)
		}
	}
}

func TestRetriesOfAnotherKindStartAnew(t *testing.T) {
	t.Parallel()
	r := retries{max: time.Minute}
	schema := &bridge.Fault{Class: bridge.Malformed, Reason: bridge.ReasonSchema}
	r.after(schema)
	r.after(schema)
	r.after(&bridge.Fault{Class: bridge.Transient})
	if v := r.after(schema); v.blocked {
		t.Error("blocked after one schema error in a row")
	}
	r.reset()
	r.after(schema)
	if v := r.after(schema); v.blocked {
		t.Error("blocked after two schema errors")
	}
}

func TestPollsGrowWhileNothingComes(t *testing.T) {
	t.Parallel()
	p := polls{least: time.Second, most: 4 * time.Second}
	for i, want := range []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond,
		3375 * time.Millisecond, 4 * time.Second, 4 * time.Second} {
		if got := p.wait(i == 0); got != want {
			t.Errorf("wait %d = %v, want %v", i, got, want)
		}
	}
	if got := p.wait(true); got != time.Second {
		t.Errorf("after news the wait is %v, want the least", got)
	}
}

// TestPollsOfAQuietStream: a wait is at most 16 s and a sixteenth of the time without events.
func TestPollsOfAQuietStream(t *testing.T) {
	t.Parallel()
	p := polls{least: time.Second, most: time.Minute}
	quiet, requests := time.Duration(0), 0
	for p.next < p.most {
		wait := p.wait(false)
		if most := 16*time.Second + quiet/16; wait > most {
			t.Errorf("after %s without events the wait is %s, want at most %s", quiet, wait, most)
		}
		quiet += wait
		requests++
	}
	if quiet < 10*time.Minute || quiet > 15*time.Minute || requests > 40 {
		t.Errorf("a poll a minute after %s and %d requests, want after 10 to 15 minutes and at most 40", quiet, requests)
	}
}

// TestStreamsPollOutOfStep: streams that begin together soon poll at all times, and none
// more often or more rarely than is set.
func TestStreamsPollOutOfStep(t *testing.T) {
	t.Parallel()
	const streams, most = 1000, 15 * time.Second
	var perSecond [120]int // in the third and fourth minute
	for i := range streams {
		p := newSchedule(&Config{Stream: fmt.Sprintf("s%d", i), PollInterval: time.Second, PollIntervalMax: most}).polls
		for at := time.Duration(0); at < 4*time.Minute; {
			wait := p.wait(false)
			if wait < p.least || wait > most || at > time.Minute && wait < most*3/4 {
				t.Fatalf("stream %d waits %s after %s", i, wait, at)
			}
			if at += wait; at >= 2*time.Minute && at < 4*time.Minute {
				perSecond[int((at-2*time.Minute)/time.Second)]++
			}
		}
	}
	if worst := slices.Max(perSecond[:]); worst > 2*streams/13 {
		t.Errorf("%d of %d streams poll in one second, want about %d", worst, streams, streams/13)
	}
}

// TestHeartbeatsOutOfStep: streams at rest do not commit at the same times.
func TestHeartbeatsOutOfStep(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	times := make(map[time.Time]int)
	for i := range 100 {
		stream := fmt.Sprintf("s%d", i)
		r := run{busy: began, committed: began}
		if wait := r.heartbeatDue(stream, false).Sub(began); wait != heartbeatInterval {
			t.Fatalf("the first heartbeat comes after %s", wait)
		}
		r.committed = began.Add(time.Hour)
		due := r.heartbeatDue(stream, false)
		if wait := due.Sub(r.committed); wait > quietHeartbeat || wait < quietHeartbeat*3/4 {
			t.Errorf("stream %d waits %s", i, wait)
		}
		times[due.Truncate(time.Second)]++
	}
	if len(times) < 40 {
		t.Errorf("100 streams commit in %d different seconds", len(times))
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	var r rate
	start := time.Unix(1_700_000_000, 0)
	for s := range 30 {
		r.add(start.Add(time.Duration(s)*time.Second), 100, 0)
	}
	if got, _ := r.over(start.Add(30 * time.Second)); got != 100 {
		t.Errorf("rate = %v, want 100", got)
	}
	if got, _ := r.over(start.Add(35 * time.Second)); got != 50 {
		t.Errorf("five quiet seconds later rate = %v, want 50", got)
	}
	if got, _ := r.over(start.Add(time.Hour)); got != 0 {
		t.Errorf("an hour later rate = %v, want 0", got)
	}
}

// TestFullBatch: a batch does not grow for ever where pages are always ready.
func TestFullBatch(t *testing.T) {
	t.Parallel()
	s := sizer{breadth: 10}
	for _, tc := range []struct {
		pages int
		age   time.Duration
		want  bool
	}{{9, 0, false}, {10, 0, true}, {1, growMost / 2, false}, {1, growMost, true}} {
		if got := s.full(batch{pages: tc.pages, began: time.Now().Add(-tc.age)}); got != tc.want {
			t.Errorf("%d pages of %s: full is %v", tc.pages, tc.age, got)
		}
	}
}
