package exportsim

import (
	"sync"
	"time"
)

// link is a line of a fixed speed that all answers share. It transmits chunks one after the
// other, in the order of their reservation.
type link struct {
	perByte float64 // nanoseconds; 0 is no limit

	mu   sync.Mutex
	free time.Time // when the last reserved chunk is transmitted; guarded by mu
}

// newLink returns a link with a speed in bits per second; 0 is no limit.
func newLink(bits int64) *link {
	if bits == 0 {
		return &link{}
	}
	return &link{perByte: 8 * float64(time.Second) / float64(bits)}
}

// reserve reserves the line for n bytes that were ready at a time, and returns when they
// are transmitted. A sender that overslept passes the time at which it wanted to wake, so
// that its delay leaves no gap on the line.
func (l *link) reserve(n int, ready time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(ready) {
		l.free = ready
	}
	l.free = l.free.Add(time.Duration(float64(n) * l.perByte))
	return l.free
}
