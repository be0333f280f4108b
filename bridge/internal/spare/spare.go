// Package spare keeps memory for reuse by all streams of a process.
package spare

import (
	"slices"
	"sync"
)

// most is how many values a List keeps.
const most = 64

// List is a LIFO free list: the newest is still in the CPU cache. The zero value is ready
// for use. Its methods may be called concurrently.
type List[T any] struct {
	mu   sync.Mutex // guards all below
	free []T
	idle int // how many were not needed since the last Trim
}

// Take takes the newest value that fits. It returns false if there is none.
func (l *List[T]) Take(fits func(T) bool) (v T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, each := range slices.Backward(l.free) {
		if fits(each) {
			l.free = slices.Delete(l.free, i, i+1)
			l.idle = min(l.idle, i)
			return each, true
		}
	}
	return v, false
}

// Give adds a value, unless there are many.
func (l *List[T]) Give(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < most {
		l.free = append(l.free, v)
	}
}

// Trim drops what was not needed since the last Trim.
func (l *List[T]) Trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = slices.Delete(l.free, 0, l.idle)
	l.idle = len(l.free)
}

// Any fits always.
func Any[T any](T) bool { return true }
