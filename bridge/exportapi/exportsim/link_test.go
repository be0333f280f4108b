package exportsim_test

import (
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

func TestLinkIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A byte takes a microsecond.
		h := newHandler(t, exportsim.Config{Events: 1000, Latency: 20 * time.Millisecond, BandwidthBits: 8_000_000})
		begin := time.Now()
		var took [2]time.Duration
		var sizes [2]int
		var asked sync.WaitGroup
		for i := range took {
			asked.Go(func() {
				recorder := httptest.NewRecorder()
				h.ServeHTTP(recorder, httptest.NewRequest("GET", "/events?pageSize=1000", nil))
				took[i] = time.Since(begin)
				sizes[i] = recorder.Body.Len()
			})
		}
		asked.Wait()
		bytes := sizes[0]
		both := 20*time.Millisecond + 2*time.Duration(bytes)*time.Microsecond
		if last := max(took[0], took[1]); last < both-time.Microsecond || last > both+time.Millisecond {
			t.Errorf("two answers of %d bytes took %s, want %s", bytes, last, both)
		}
		// The responses alternate: the first one ends a chunk before the second.
		if first := min(took[0], took[1]); first < both-40*time.Millisecond {
			t.Errorf("one of two answers had the link for itself: it took %s of %s", first, both)
		}
		// Unused bandwidth is lost.
		pass(time.Minute)
		begin = time.Now()
		recordStatus(h, "/events?pageSize=1000")
		alone, want := time.Since(begin), 20*time.Millisecond+time.Duration(bytes)*time.Microsecond
		if alone < want-time.Microsecond {
			t.Errorf("an answer after a pause took %s, want %s", alone, want)
		}
	})
}
