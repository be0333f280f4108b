package engine

import (
	"sync/atomic"
	"time"
)

// stalledAfter is how long the commit loop may work without a wait.
const stalledAfter = time.Minute

// defaultFetchTimeout is that of Config.FetchTimeout.
const defaultFetchTimeout = 10 * time.Minute

// watchdog notices a commit loop that hangs, and a Source. The loop tells it before
// and after each wait; anybody may ask.
type watchdog struct {
	// workingSince is when the loop left its last wait, in milliseconds since
	// the epoch; 0 while it waits for an input or a port.
	workingSince atomic.Int64
	// fetch and decode are the calls of the Source.
	fetch, decode sourceCall
}

// wait begins a wait, and returns what ends it.
func (w *watchdog) wait() (work func()) { w.workingSince.Store(0); return w.work }
func (w *watchdog) work()               { w.workingSince.Store(time.Now().UnixMilli()) }

func (w *watchdog) alive(fetchTimeout time.Duration) bool {
	return within(&w.workingSince, stalledAfter) && within(&w.fetch.since, fetchTimeout+stalledAfter) && within(&w.decode.since, fetchTimeout+stalledAfter)
}

func within(since *atomic.Int64, limit time.Duration) bool {
	ms := since.Load()
	return ms == 0 || time.Since(time.UnixMilli(ms)) < limit
}

// sourceCall is a call of the Source with a deadline of its own, whatever the Source
// waits for.
type sourceCall struct {
	since    atomic.Int64 // when it began, in milliseconds since the epoch; 0 while there is none
	deadline *time.Timer
}

// begin begins a call, or goes on with it after a wait on purpose; end ends it.
func (c *sourceCall) begin(timeout time.Duration) {
	c.since.Store(time.Now().UnixMilli())
	c.deadline.Reset(timeout)
}

func (c *sourceCall) end() {
	c.deadline.Stop()
	c.since.Store(0)
}
