package engine

import (
	"sync/atomic"
	"time"

	"exportbridge/bridge/internal/sourcecall"
)

// stalledAfter is how long the commit loop may work without a wait.
const stalledAfter = time.Minute

// watchdog notices a commit loop or a Source that hangs. The loop marks the beginning and
// the end of each wait. alive may be called concurrently.
type watchdog struct {
	// workingSince is when the loop left its last wait, in milliseconds since the epoch; 0
	// while it waits for an input or a port.
	workingSince atomic.Int64
	source       sourcecall.Calls
}

// wait begins a wait, and returns the function that ends it.
func (w *watchdog) wait() (work func()) { w.workingSince.Store(0); return w.work }
func (w *watchdog) work()               { w.workingSince.Store(time.Now().UnixMilli()) }

func (w *watchdog) alive(fetchTimeout time.Duration) bool {
	return sourcecall.Within(&w.workingSince, stalledAfter) && w.source.Alive(fetchTimeout+stalledAfter)
}
