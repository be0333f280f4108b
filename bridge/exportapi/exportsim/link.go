package exportsim

import (
	"sync"
	"time"
)

// link is a line of a fixed speed that all answers share: chunks go over it
// one after the other, in the order in which they were reserved.
type link struct {
	perByte float64 // nanoseconds; 0 is no limit

	mu   sync.Mutex
	free time.Time // when the last reserved chunk has gone over; guarded by mu
}

// newLink takes the speed in bits per second; 0 is no limit.
func newLink(bits int64) *link {
	if bits == 0 {
		return &link{}
	}
	return &link{perByte: 8 * float64(time.Second) / float64(bits)}
}

// reserve takes the line for n bytes that were ready to go at a time, and
// returns when they have gone over. A sender that overslept names the time
// that it wanted to wake at: what waits to be sent leaves no gap on the line.
func (l *link) reserve(n int, ready time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(ready) {
		l.free = ready
	}
	l.free = l.free.Add(time.Duration(float64(n) * l.perByte))
	return l.free
}
