package exportapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
)

const (
	// maxTransfers bounds the bodies in flight, that of the next request
	// included. Two others keep the link busy until its response begins; more
	// would only share it.
	maxTransfers = 3
	// earlyAfter is the number of consecutive pages with the cursor at the
	// beginning before the next request may leave early; maxEarlyThreshold
	// bounds its growth for an API that throttles.
	earlyAfter        = 2
	maxEarlyThreshold = 1 << 20
	// headSize is the beginning of a body, in bytes, that is searched for the
	// cursor. A page that long is not small.
	headSize = bridge.SmallBody
	// oneFlight is the initial congestion window of a server, in bytes: the
	// rest of such a body arrives with its beginning.
	oneFlight = 16 << 10
	// earlyDivisor divides EXPORT_TIMEOUT: a page that takes longer than the
	// quotient ends early requests, since concurrent transfers are slower and
	// none must time out because of them.
	earlyDivisor = 8
)

// transfer is one response in flight into the memory of a page.
type transfer struct {
	client *Client
	at     bridge.Position
	asked  time.Time
	url    *url.URL           // of the request
	caller context.Context    // the context of Fetch
	cancel context.CancelFunc // ends the request
	page   *bridge.Page       // the page of the body

	ended atomic.Bool // the body is complete or has failed

	mu     sync.Mutex     // held while the body is read; guards all below
	resp   *http.Response // nil when ended
	reader *body.Reader   // nil when ended
	body   []byte         // the decompressed bytes so far
	fault  error          // the error of an incomplete body
	last   time.Time      // the time of the end
}

// begin starts the transfer of a response into the page's memory.
func (c *Client) begin(t *transfer, resp *http.Response, body []byte) {
	t.resp, t.body = resp, body
	t.reader = c.readers.Take()
	t.reader.Open(resp)
}

// read reads until there are enough bytes, and reports whether there are. It
// ends the transfer at the end of the body or at an error. The caller holds mu,
// or is the only one that knows t.
func (t *transfer) read(enough int) bool {
	if t.resp == nil {
		return len(t.body) >= enough
	}
	body, all, err := t.reader.Read(t.body, enough, t.client.cfg.MaxResponse)
	t.body = body
	if all || err != nil {
		t.end(err)
	}
	return len(t.body) >= enough
}

// end releases the transfer's resources, but not the page's memory. The body is
// complete if err is nil.
func (t *transfer) end(err error) {
	c := t.client
	t.last = time.Now()
	switch {
	case err == nil:
		c.memory.Measure(len(t.body))
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
	c.readers.Give(t.reader)
	t.resp, t.reader = nil, nil
	t.ended.Store(true)
}

// finish reads the rest of the body, or waits for the goroutine that does.
// fault has the result.
func (t *transfer) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read(math.MaxInt)
}

// abandon cancels the transfer, even during a read, and returns the page's
// memory.
func (t *transfer) abandon() []byte {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resp != nil {
		t.end(fmt.Errorf("released: %w", context.Canceled))
	}
	return t.body
}

// transfers are the bodies in flight of pages that were neither decoded nor
// released yet.
type transfers struct {
	mu   sync.Mutex // guards list; never held while a body is read
	list []*transfer
}

func (l *transfers) add(t *transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, t)
}

// of returns the page's transfer, nil if its body arrived with Fetch.
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

// abandon cancels all.
func (l *transfers) abandon() {
	l.mu.Lock()
	list := slices.Clone(l.list)
	l.mu.Unlock()
	for _, t := range list {
		t.abandon()
	}
}

// oldest returns the oldest transfer if there are more than the given number.
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

// makeRoom completes bodies until another request may leave. It does not wait
// for Decode, which may never be called.
func (l *transfers) makeRoom() {
	for t := l.oldest(maxTransfers - 1); t != nil; t = l.oldest(maxTransfers - 1) {
		t.finish()
	}
}
