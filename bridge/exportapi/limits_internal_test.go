package exportapi

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// sent counts the requests that clients send within a minute, each one as soon as it may.
func sent(t *testing.T, clients ...*turns) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	count := make([]int, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for c.wait(ctx) == nil {
				count[i]++
			}
		})
	}
	all.Wait()
	return count
}

// TestShareOfKey: the clients of a key have its limit together, half of it if they run
// beside its streams, and a stream no more than its own.
func TestShareOfKey(t *testing.T) {
	t.Parallel()
	stream, job := Config{Auth: Auth{APIKey: "a"}}, Config{Auth: Auth{APIKey: "a"}, Beside: true}
	const perSecond = rate.Limit(1)
	for name, tc := range map[string]struct {
		limits  []rate.Limit // of streams
		jobs    int
		streams []int // their requests wanted in a minute, within 2
		beside  int   // those of all jobs together
	}{
		"a stream":                   {limits: []rate.Limit{perSecond}, streams: []int{60}},
		"two streams":                {limits: []rate.Limit{perSecond, perSecond}, streams: []int{30, 30}},
		"a stream and a job":         {limits: []rate.Limit{perSecond}, jobs: 1, streams: []int{30}, beside: 30},
		"a stream and four jobs":     {limits: []rate.Limit{perSecond}, jobs: 4, streams: []int{30}, beside: 30},
		"a slow stream and a job":    {limits: []rate.Limit{perSecond / 10, perSecond}, jobs: 2, streams: []int{6, 25}, beside: 30},
		"two limits":                 {limits: []rate.Limit{perSecond / 10, perSecond}, streams: []int{6, 54}},
		"a limit that comes later":   {limits: []rate.Limit{perSecond, 2 * perSecond}, jobs: 3, streams: []int{30, 30}, beside: 60},
		"the higher one comes first": {limits: []rate.Limit{2 * perSecond, perSecond}, jobs: 3, streams: []int{30, 30}, beside: 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l Limits
			var all []*turns
			for _, limit := range tc.limits {
				all = append(all, l.of(&stream, limit))
			}
			for range tc.jobs {
				all = append(all, l.of(&job, rate.Inf))
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

// TestKeysShareNothing: another key has a limit of its own, and a job without streams none.
func TestKeysShareNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		a, b := l.of(&Config{Auth: Auth{APIKey: "a"}}, 1), l.of(&Config{Auth: Auth{APIKey: "b"}}, 1)
		if got := sent(t, a, b); got[0] < 58 || got[1] < 58 {
			t.Errorf("sent %d", got)
		}
		a.key.hold(time.Minute)
		if fault := b.wait(t.Context()); fault != nil {
			t.Errorf("it is held for another key: %v", fault)
		}
		url := l.of(&Config{URL: "https://x"}, 1)
		if other := l.of(&Config{URL: "https://y"}, 1); url.key == other.key || url.key != l.of(&Config{URL: "https://x"}, 1).key {
			t.Error("without a key, the limit is not the URL's")
		}
		for name, tenant := range map[string]Config{
			"headers": {URL: "https://x", RequestMapping: RequestMapping{Headers: "X-Key: a"}}, "parameters": {URL: "https://x", RequestMapping: RequestMapping{Params: "a=b"}},
			"a certificate": {URL: "https://x", Auth: Auth{TLSCert: "a"}}, "other headers": {URL: "https://x", RequestMapping: RequestMapping{Headers: "X-Key: b"}},
		} {
			if other := l.of(&tenant, 1); other.key == url.key || other.key != l.of(&tenant, 1).key {
				t.Errorf("without a key, %s make no tenant", name)
			}
		}
		if n := len(l.byKey); n != 8 {
			t.Errorf("%d limits, want 8: some tenants share one", n)
		}
		job := l.of(&Config{Auth: Auth{APIKey: "c"}, Beside: true}, rate.Inf)
		for range 1000 {
			if fault := job.wait(t.Context()); fault != nil || job.limited() {
				t.Fatalf("a job in a process of its own waits: %v", fault)
			}
		}
	})
}

// TestHeld: what the API requests of one client, all with its key do, also those that
// wait for their turn.
func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		a, job := l.of(&Config{Auth: Auth{APIKey: "a"}}, 0.1), l.of(&Config{Auth: Auth{APIKey: "a"}, Beside: true}, rate.Inf)
		_ = a.wait(t.Context())
		waiting := make(chan *bridge.Fault)
		go func() { waiting <- job.wait(t.Context()) }()
		synctest.Wait()
		a.key.hold(time.Minute)
		a.key.hold(time.Second) // shortens nothing
		for who, fault := range map[string]*bridge.Fault{"the job that waits": <-waiting, "the stream": a.wait(t.Context())} {
			if fault == nil || fault.Class != bridge.Throttled || fault.RetryAfter <= 49*time.Second || fault.RetryAfter > 50*time.Second || !fault.Unsent {
				t.Errorf("%s: %+v", who, fault)
			}
		}
		bridge.Sleep(t.Context(), time.Minute)
		if fault := job.wait(t.Context()); fault != nil {
			t.Errorf("after it: %v", fault)
		}
	})
}

// TestTurnsWaitOnPurpose: the wait for a rate limit does not count as the request's.
func TestTurnsWaitOnPurpose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waits, resumed int
		ctx := bridge.WithWaiting(t.Context(), func() (resume func()) {
			waits++
			return func() { resumed++ }
		})
		var l Limits
		slow, free := l.of(&Config{Auth: Auth{APIKey: "a"}}, 1), l.of(&Config{Auth: Auth{APIKey: "b"}}, rate.Inf)
		for range 3 {
			if fault := slow.wait(ctx); fault != nil {
				t.Fatal(fault)
			}
			if fault := free.wait(ctx); fault != nil {
				t.Fatal(fault)
			}
		}
		if waits != 3 || resumed != 3 {
			t.Errorf("%d waits, %d ended, want 3", waits, resumed)
		}
	})
}
