// Package sourcecall bounds the calls of a bridge.Source. It is the last resort if a Source
// exceeds its own timeouts.
package sourcecall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

// Calls are the calls of a Source: at most one of Fetch and one of Decode at a time.
type Calls struct {
	timeout       time.Duration
	fetch, decode call
}

// call is a call in progress, with its deadline.
type call struct {
	since    atomic.Int64 // when it began, in milliseconds since the epoch; 0 while there is none
	deadline *time.Timer
}

// begin begins a call, or continues it after a deliberate wait; end ends it.
func (c *call) begin(timeout time.Duration) {
	c.since.Store(time.Now().UnixMilli())
	c.deadline.Reset(timeout)
}

func (c *call) end() {
	c.deadline.Stop()
	c.since.Store(0)
}

// Timeout returns a configured time-out, or ten minutes for 0.
func Timeout(configured time.Duration) time.Duration { return cmp.Or(configured, 10*time.Minute) }

// errOverdue is the cause of a context whose call takes too long.
var errOverdue = errors.New("the source does not answer")

// Bound returns a context for Fetch. It ends when a call takes longer than timeout, not
// counting its deliberate waits (bridge.Waiting). The caller cancels it before the next
// Bound.
func (c *Calls) Bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.timeout = timeout
	for _, call := range []*call{&c.fetch, &c.decode} {
		call.deadline = time.AfterFunc(timeout, func() { cancel(errOverdue) })
		call.end()
	}
	return bridge.WithWaiting(ctx, func() (resume func()) {
		c.fetch.end()
		return func() { c.fetch.begin(timeout) }
	}), cancel
}

// Fetch calls the Source's Fetch with a context of Bound.
func (c *Calls) Fetch(ctx context.Context, source bridge.Source, at bridge.Position) (*bridge.Page, error) {
	c.fetch.begin(c.timeout)
	defer c.fetch.end()
	return source.Fetch(ctx, at)
}

// Decode calls the Source's Decode. It may run at the same time as a later Fetch.
func (c *Calls) Decode(source bridge.Source, p *bridge.Page) error {
	c.decode.begin(c.timeout)
	defer c.decode.end()
	return source.Decode(p)
}

// Overdue reports whether a context of Bound has ended because a call takes too long.
func Overdue(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errOverdue) }

// Ended returns why a context of Bound has ended: its error, or a Fault.
func (c *Calls) Ended(ctx context.Context) error {
	if !Overdue(ctx) {
		return ctx.Err()
	}
	return &bridge.Fault{Code: "timeout", HintCode: bridge.HintOverdue,
		Err: fmt.Errorf("fetch a page: no result within %s", c.timeout)}
}

// Alive reports whether no call takes longer than limit. It may be called concurrently.
func (c *Calls) Alive(limit time.Duration) bool {
	return Within(&c.fetch.since, limit) && Within(&c.decode.since, limit)
}

// Within reports whether less than limit has passed since a time in milliseconds since
// the epoch; 0 is none.
func Within(since *atomic.Int64, limit time.Duration) bool {
	ms := since.Load()
	return ms == 0 || time.Since(time.UnixMilli(ms)) < limit
}
