package exportapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

const (
	// maxTransfers is how many bodies are on their way at once, that of the
	// request that leaves included. Two others keep the link busy until its
	// answer begins; more would only share it.
	maxTransfers = 3
	// earlyAfter is how many pages in a row must have named their cursor in
	// the beginning before the next request may leave early, maxEarlyThreshold the most
	// that it becomes for an API that minds.
	earlyAfter        = 2
	maxEarlyThreshold = 1 << 20
	// headSize is the beginning of a body, in bytes, in which a cursor is early.
	// A page of which so much has arrived is no small one.
	headSize = bridge.SmallBody
	// oneFlight is what a server sends, in bytes, before it hears from the
	// other side: the rest of such a body comes with its beginning.
	oneFlight = 16 << 10
	// earlyDivisor is the part of EXPORT_TIMEOUT, as its divisor, that a page may
	// take for others to be early. Beside each other they take longer, and none
	// must come too late because of that.
	earlyDivisor = 8
)

// transfer is one answer on its way into the memory of a page.
type transfer struct {
	client *Client
	at     bridge.Position
	asked  time.Time
	caller context.Context    // that of Fetch
	cancel context.CancelFunc // ends the request
	page   *bridge.Page       // whose body it is

	ended atomic.Bool // the body is complete or will never be

	mu     sync.Mutex     // held while the body is read; guards all below
	resp   *http.Response // nil when ended
	reader *bodyReader    // nil when ended
	body   []byte         // what has arrived, decompressed
	fault  error          // why the body is not complete
	last   time.Time      // when it ended
}

// begin takes over an answer. body is the memory for the page.
func (c *Client) begin(t *transfer, resp *http.Response, body []byte) {
	t.resp, t.body = resp, body
	t.reader = c.readers.take()
	t.reader.open(resp)
}

// read reads until there are enough bytes, and reports whether there are. It
// ends the transfer at the end of the body or at an error. The caller holds mu,
// or nobody else knows t yet.
func (t *transfer) read(enough int) bool {
	if t.resp == nil {
		return len(t.body) >= enough
	}
	body, all, err := t.reader.read(t.body, enough, t.client.cfg.MaxResponse)
	t.body = body
	if all || err != nil {
		t.end(err)
	}
	return len(t.body) >= enough
}

// end gives back what the transfer used. The memory of the page stays. The
// body is complete if err is nil.
func (t *transfer) end(err error) {
	c := t.client
	t.last = time.Now()
	switch {
	case err == nil:
		c.memory.measure(len(t.body))
		if t.last.Sub(t.asked) > c.cfg.Timeout/earlyDivisor {
			c.early.Store(0)
		}
	case t.caller.Err() != nil:
		t.fault = t.caller.Err()
	default:
		t.fault = c.faults.of(t.at, c.faults.body(t.at, err, len(t.body)))
	}
	// A body that was read to its end has given its connection back already.
	_ = t.resp.Body.Close()
	t.cancel()
	c.readers.give(t.reader)
	t.resp, t.reader = nil, nil
	t.ended.Store(true)
}

// finish reads the rest of the body, or waits for whoever does. Whether that
// went well is in fault.
func (t *transfer) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read(math.MaxInt)
}

// abandon ends the transfer where it is, also under somebody who reads, and
// returns the memory of the page.
func (t *transfer) abandon() []byte {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resp != nil {
		t.end(fmt.Errorf("released: %w", context.Canceled))
	}
	return t.body
}

// transfers are the bodies that were on their way when Fetch returned their
// pages, and whose pages were neither decoded nor released since.
type transfers struct {
	mu   sync.Mutex // guards list; never held while a body is read
	list []*transfer
}

func (l *transfers) add(t *transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, t)
}

// of returns the page's transfer, nil if its body has arrived with Fetch.
func (l *transfers) of(p *bridge.Page) *transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.list {
		if t.page == p {
			return t
		}
	}
	return nil
}

func (l *transfers) remove(gone *transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(t *transfer) bool { return t == gone })
}

// abandon ends them all.
func (l *transfers) abandon() {
	l.mu.Lock()
	list := slices.Clone(l.list)
	l.mu.Unlock()
	for _, t := range list {
		t.abandon()
	}
}

// oldest returns the one that has been on its way for longest, if there are
// more than the given number.
func (l *transfers) oldest(more int) *transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first *transfer
	n := 0
	for _, t := range l.list {
		if t.ended.Load() {
			continue
		}
		if first == nil {
			first = t
		}
		n++
	}
	if n <= more {
		return nil
	}
	return first
}

// makeRoom reads bodies to their ends until another request may leave. It
// waits for no call of Decode, which may never come.
func (l *transfers) makeRoom() {
	for t := l.oldest(maxTransfers - 1); t != nil; t = l.oldest(maxTransfers - 1) {
		t.finish()
	}
}
