package engine

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// mostStarts is the number of sessions that begin at a time. Each takes some 20
	// requests over four connections. 1,000 at once would exceed the file descriptors of a
	// process, and cause timeouts of each other.
	mostStarts = 16
	// slowStart is how long a beginning session counts. After that, a session that waits
	// for a partition, or for another producer's open transaction, no longer delays the
	// others.
	slowStart = 2 * time.Second
)

// Starts bounds how many streams of a process begin a session at a time. The others wait in
// turn without a time limit.
type Starts struct{ slots chan struct{} }

// NewStarts returns the Starts for the streams of a process.
func NewStarts() *Starts { return &Starts{make(chan struct{}, mostStarts)} }

// begin waits for the stream's turn. The caller calls end. A nil Starts never waits.
func (s *Starts) begin(ctx context.Context) (end func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to begin a session: %w", ctx.Err())
	}
	free := sync.OnceFunc(func() { <-s.slots })
	slow := time.AfterFunc(slowStart, free)
	return func() { slow.Stop(); free() }, nil
}
