//go:build unix

package e2e_test

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
)

// watcher is a consumer of the topic who notes when events become visible.
type watcher struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex  // guards arrivals
	arrivals []time.Time // of events, rising
}

// watch starts a watcher for the length of the test. The topic has to exist.
func (s *stage) watch() *watcher {
	s.t.Helper()
	client := servers.Client(s.t, s.servers.brokers, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{end: cancel}
	w.done.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx) // errors are of brokers that are away
			if fetches.NumRecords() > 0 {
				w.note(time.Now())
			}
		}
	})
	s.t.Cleanup(w.stop)
	eventually(s.t, stepTimeout, "the watcher to see events", func() bool { return w.seen() > 0 })
	return w
}

func (w *watcher) stop() {
	w.end()
	w.done.Wait()
}

func (w *watcher) note(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrivals = append(w.arrivals, at)
}

func (w *watcher) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.arrivals)
}

// gap returns the longest time without events between two times.
func (w *watcher) gap(from, to time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest, last := time.Duration(0), from
	for _, at := range w.arrivals {
		if at.After(from) && at.Before(to) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return max(longest, to.Sub(last))
}
