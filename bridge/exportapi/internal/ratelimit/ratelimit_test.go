package ratelimit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// sent returns how many requests each client sends in a minute, each as soon as it may.
func sent(t *testing.T, clients ...*Turns) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	count := make([]int, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for c.Wait(ctx) == nil {
				count[i]++
			}
		})
	}
	all.Wait()
	return count
}

// The clients of a key share its limit, or half of it if they run beside its streams. A
// stream has no more than its own limit.
func TestShareOfKey(t *testing.T) {
	t.Parallel()
	const perSecond = rate.Limit(1)
	for name, tc := range map[string]struct {
		limits  []rate.Limit // of streams
		jobs    int
		streams []int // the expected requests in a minute, within 2
		beside  int   // the same for all jobs together
	}{
		"a stream":               {limits: []rate.Limit{perSecond}, streams: []int{60}},
		"two streams":            {limits: []rate.Limit{perSecond, perSecond}, streams: []int{30, 30}},
		"a stream and a job":     {limits: []rate.Limit{perSecond}, jobs: 1, streams: []int{30}, beside: 30},
		"a stream and four jobs": {limits: []rate.Limit{perSecond}, jobs: 4, streams: []int{30}, beside: 30},
		"a slow stream and a job": {limits: []rate.Limit{perSecond / 10, perSecond}, jobs: 2, streams: []int{6, 25},
			beside: 30},
		"two limits": {limits: []rate.Limit{perSecond / 10, perSecond}, streams: []int{6, 54}},
		"a limit that comes later": {limits: []rate.Limit{perSecond, 2 * perSecond}, jobs: 3, streams: []int{30, 30},
			beside: 60},
		"the higher one comes first": {limits: []rate.Limit{2 * perSecond, perSecond}, jobs: 3, streams: []int{30, 30},
			beside: 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l Limits
			var all []*Turns
			for _, limit := range tc.limits {
				all = append(all, l.Of("a", limit, false))
			}
			for range tc.jobs {
				all = append(all, l.Of("a", rate.Inf, true))
			}
			got := sent(t, all...)
			beside := 0
			for _, n := range got[len(tc.limits):] {
				beside += n
			}
			for i, n := range append(got[:len(tc.limits):len(tc.limits)], beside) {
				if want := append(tc.streams, tc.beside)[i]; n < want-2 || n > want+2 {
					t.Errorf("%s: sent %d, of the jobs %d; want %d, %d", name, got, beside, tc.streams, tc.beside)
				}
			}
		})
	}
}

// A client that has left no longer counts: a reload that lowers the limits of a key lowers what
// its clients have together, also if the new ones come before the old ones leave.
func TestLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		old, again, job := l.Of("a", 10, false), l.Of("a", 10, false), l.Of("a", rate.Inf, true)
		a, b := l.Of("a", 1, false), l.Of("a", 1, false)
		old.Leave()
		if got := sent(t, again, job); got[0] < 298 || got[1] < 298 {
			t.Errorf("with a fast stream left, sent %d", got)
		}
		again.Leave()
		if got := sent(t, a, b, job); got[0]+got[1]+got[2] > 62 || got[2] > 32 {
			t.Errorf("sent %d, more than 60 in a minute, or than 30 for the job", got)
		}
		a.Leave()
		b.Leave()
		if got := sent(t, job); got[0] > 32 {
			t.Errorf("between two streams, the job sent %d", got[0])
		}
	})
}

// Nothing is kept of a key without clients, except for the delay that the API requests.
func TestKeyFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		a, job := l.Of("a", 1, false), l.Of("a", rate.Inf, true)
		a.Hold(time.Minute)
		a.Leave()
		job.Leave()
		next := l.Of("a", 1, false)
		if fault := next.Wait(t.Context()); fault == nil {
			t.Error("the next client is not held")
		}
		next.Leave()
		bridge.Sleep(t.Context(), time.Minute)
		l.Of("b", rate.Inf, true).Leave()
		if len(l.byKey) > 0 {
			t.Errorf("keeps %d keys", len(l.byKey))
		}
	})
}

// Another key has its own limit. A job without streams has none.
func TestKeysShareNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		a, b := l.Of("a", 1, false), l.Of("b", 1, false)
		if got := sent(t, a, b); got[0] < 58 || got[1] < 58 {
			t.Errorf("sent %d", got)
		}
		a.Hold(time.Minute)
		if fault := b.Wait(t.Context()); fault != nil {
			t.Errorf("it is held for another key: %v", fault)
		}
		job := l.Of("c", rate.Inf, true)
		for range 1000 {
			if fault := job.Wait(t.Context()); fault != nil || job.Limited() {
				t.Fatalf("a job in a process of its own waits: %v", fault)
			}
		}
	})
}

// A delay that the API requests of one client holds all clients of the key, also those that
// already wait.
func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		a, job := l.Of("a", 0.1, false), l.Of("a", rate.Inf, true)
		_ = a.Wait(t.Context())
		waiting := make(chan *bridge.Fault)
		go func() { waiting <- job.Wait(t.Context()) }()
		synctest.Wait()
		a.Hold(time.Minute)
		a.Hold(time.Second) // must not shorten the delay
		for who, fault := range map[string]*bridge.Fault{"the job that waits": <-waiting, "the stream": a.Wait(t.Context())} {
			if fault == nil || fault.Class != bridge.Throttled || fault.RetryAfter <= 49*time.Second ||
				fault.RetryAfter > 50*time.Second || !fault.Unsent {
				t.Errorf("%s: %+v", who, fault)
			}
		}
		bridge.Sleep(t.Context(), time.Minute)
		if fault := job.Wait(t.Context()); fault != nil {
			t.Errorf("after it: %v", fault)
		}
	})
}

// The wait for a rate limit does not count as time of the request.
func TestTurnsWaitOnPurpose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waits, resumed int
		ctx := bridge.WithWaiting(t.Context(), func() (resume func()) {
			waits++
			return func() { resumed++ }
		})
		var l Limits
		slow, free := l.Of("a", 1, false), l.Of("b", rate.Inf, false)
		for range 3 {
			if fault := slow.Wait(ctx); fault != nil {
				t.Fatal(fault)
			}
			if fault := free.Wait(ctx); fault != nil {
				t.Fatal(fault)
			}
		}
		if waits != 3 || resumed != 3 {
			t.Errorf("%d waits, %d ended, want 3", waits, resumed)
		}
	})
}
