package faultproxy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RuleStats counts the hits of a KafkaRule. Its methods may be called concurrently.
type RuleStats struct {
	what   string
	remove func()

	mu      sync.Mutex // guards all below
	count   int
	replies []kmsg.Response
	changed chan struct{} // closed and replaced with each hit
}

func newRuleStats(what string, remove func()) *RuleStats {
	return &RuleStats{what: what, remove: remove, changed: make(chan struct{})}
}

// add counts a hit. reply is the reply that the client did not get, if there is one.
func (h *RuleStats) add(reply kmsg.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	if reply != nil {
		h.replies = append(h.replies, reply)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Count returns the number of hits. A hit is counted before its connection is cut, after
// the server has executed the request, if it gets it. So a client that misses its reply
// finds the hit counted.
func (h *RuleStats) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// Replies returns the replies of a Kafka broker that the client never got.
func (h *RuleStats) Replies() []kmsg.Response {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.replies)
}

// Wait waits until the rule has this number of hits.
func (h *RuleStats) Wait(ctx context.Context, count int) error {
	for {
		h.mu.Lock()
		got, changed := h.count, h.changed
		h.mu.Unlock()
		if got >= count {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until the proxy's rule %q has hit: %d of %d times: %w", h.what, got, count, ctx.Err())
		}
	}
}

// Remove ends the rule. It does not undo hits: a late request is still delivered.
func (h *RuleStats) Remove() { h.remove() }
