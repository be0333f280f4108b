package cursorstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// mostTogether is how many commands of streams go to Redis in one pipeline.
const mostTogether = 200

// operation is one command of a stream, which is sent together with those of other streams.
type operation struct {
	of   *stream
	what string // for errors
	// send sends the command. A script is sent by its hash, or whole to load it.
	send func(ctx context.Context, to redis.Cmdable, load bool) redis.Cmder
	// quiet is true if the result tells nothing about the health of the server.
	quiet bool

	sent redis.Cmder // has the result
	err  error
}

// together runs operations in pipelines. For each stream it reports whether the server with
// the stream's keys is healthy, unless ctx was cancelled.
func (c *Client) together(ctx context.Context, all ...*operation) {
	var sending sync.WaitGroup
	for _, some := range c.byNode(ctx, all) {
		for some := range slices.Chunk(some, mostTogether) {
			sending.Go(func() { c.pipeline(ctx, some) })
		}
	}
	sending.Wait()
}

// byNode divides operations by the node of a cluster that has their keys. If one node does not
// answer, go-redis gives its error to the whole pipeline.
func (c *Client) byNode(ctx context.Context, all []*operation) map[*redis.Client][]*operation {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok {
		return map[*redis.Client][]*operation{nil: all}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	nodes := make(map[*redis.Client][]*operation)
	for _, o := range all {
		node, err := cluster.MasterForKey(ctx, o.of.keys.status)
		if err != nil { // the pipeline has the error
			return map[*redis.Client][]*operation{nil: all}
		}
		nodes[node] = append(nodes[node], o)
	}
	return nodes
}

// pipeline runs operations in one pipeline.
func (c *Client) pipeline(ctx context.Context, some []*operation) {
	pipe := c.rdb.Pipeline()
	for _, o := range some {
		o.sent = o.send(ctx, pipe, false)
	}
	_ = c.call(ctx, "pipeline", func(ctx context.Context) error { // each command has its own error
		_, err := pipe.Exec(ctx)
		return err
	})
	for _, o := range some {
		o.end(ctx)
	}
}

// end sets err from the result, and loads the script if the server lacks it.
func (o *operation) end(ctx context.Context) {
	c := o.of.c
	o.err = o.sent.Err()
	if redis.HasErrorPrefix(o.err, "NOSCRIPT") {
		_ = c.call(ctx, o.what, func(ctx context.Context) error {
			o.sent = o.send(ctx, c.rdb, true)
			o.err = o.sent.Err()
			return o.err
		})
	}
	switch {
	case o.err != nil && ctx.Err() != nil:
		o.err = fmt.Errorf("%s: %w", o.what, ctx.Err())
		return
	case o.err != nil:
		o.err = fmt.Errorf("%s: %w", o.what, c.explain(o.err))
	}
	if !o.quiet {
		c.report(o.of.name, c.writes.health(o.of.name, o.err))
	}
}

// polls asks Redis for requests to all waiting streams, in one pipeline. One of the waiting
// callers asks for all; when it stops waiting, another caller takes over.
type polls struct {
	mu      sync.Mutex // guards all below
	waiting []*waiter
	asking  bool      // one of the callers asks
	asked   time.Time // when a caller last asked
}

// waiter is a caller that waits for a request of its stream.
type waiter struct {
	of    *inbox
	found chan error    // of capacity 1; nil is a request
	turn  chan struct{} // of capacity 1; filled for the caller that asks from now on
}

// await waits until the stream has a request. It returns errors of Redis at once.
func (p *polls) await(ctx context.Context, i *inbox) error {
	w, asks := p.join(i), false
	defer func() { p.leave(w, asks) }()
	for {
		select {
		case err := <-w.found:
			return err
		case <-w.turn:
			asks = true
		case <-ctx.Done():
			return fmt.Errorf("next command for %s: %w", i.name, ctx.Err())
		}
		for asks && len(w.found) == 0 && ctx.Err() == nil {
			p.ask(ctx, i.c)
		}
	}
}

func (p *polls) join(i *inbox) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{of: i, found: make(chan error, 1), turn: make(chan struct{}, 1)}
	p.waiting = append(p.waiting, w)
	if !p.asking {
		p.asking = true
		w.turn <- struct{}{}
	}
	return w
}

// leave ends a wait. If the caller asks, or was just chosen to ask, another one takes over.
func (p *polls) leave(w *waiter, asks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(each *waiter) bool { return each == w })
	if !asks && len(w.turn) == 0 {
		return
	}
	if p.asking = len(p.waiting) > 0; p.asking {
		p.waiting[0].turn <- struct{}{}
	}
}

// ask asks once for all waiting callers, at least nextInterval after the last time, and
// nextEach for each of them.
func (p *polls) ask(ctx context.Context, c *Client) {
	p.mu.Lock()
	due := p.asked.Add(max(nextInterval, time.Duration(len(p.waiting))*nextEach))
	p.mu.Unlock()
	if bridge.Sleep(ctx, time.Until(due)); ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	p.asked = time.Now()
	waiting := slices.Clone(p.waiting)
	p.mu.Unlock()
	var all []*operation
	for _, w := range waiting {
		all = append(all, &operation{of: &w.of.stream, what: "next command for " + w.of.name,
			send: func(ctx context.Context, to redis.Cmdable, _ bool) redis.Cmder {
				return to.HExists(ctx, w.of.keys.request, "id")
			}})
	}
	c.together(ctx, all...)
	for n, o := range all {
		if there, ok := o.sent.(*redis.BoolCmd); o.err == nil && ok && !there.Val() || ctx.Err() != nil {
			continue
		}
		select {
		case waiting[n].found <- o.err:
		default: // the caller has an answer already
		}
	}
}
