package kafkaadmin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// gather is how long the first stream that creates topics waits for others to join.
const gather = 50 * time.Millisecond

// Creations sends the topics that several streams create in few requests: brokers create
// one topic after the other where each has its own. All streams use one cluster, and the
// same rights. Its zero value is ready.
type Creations struct {
	mu   sync.Mutex // guards next, and its topics while it is there
	next *creation  // that streams can still join
}

// results are those of a request, by topic.
type results map[string]*kmsg.CreateTopicsResponseTopic

// creation is one request.
type creation struct {
	topics map[string]PlannedTopic
	sent   chan struct{} // closed when what follows is set
	err    error         // of the request
	result results
}

// create creates topics by a request of several makers, and returns the result of each
// topic.
func (c *Creations) create(ctx context.Context, m *maker, topics []PlannedTopic) (results, error) {
	if c == nil {
		return m.request(ctx, topics)
	}
	joined, first := c.join(topics)
	if !first {
		select {
		case <-joined.sent:
		case <-ctx.Done():
			return nil, fmt.Errorf("create topics with other streams: %w", ctx.Err())
		}
		if joined.err != nil { // which may be about the one that sent it
			return m.request(ctx, topics)
		}
		return joined.result, nil
	}
	bridge.Sleep(ctx, gather)
	joined.result, joined.err = m.request(ctx, c.closed(joined))
	close(joined.sent)
	return joined.result, joined.err
}

// join adds topics to the next request, and reports whether the caller is to send it.
func (c *Creations) join(topics []PlannedTopic) (next *creation, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first = c.next == nil; first {
		c.next = &creation{topics: make(map[string]PlannedTopic), sent: make(chan struct{})}
	}
	for _, t := range topics {
		if _, known := c.next.topics[t.Name]; !known { // of several streams, such as that of dead letters
			c.next.topics[t.Name] = t
		}
	}
	return c.next, first
}

// closed returns the topics of a request that nobody can join any more.
func (c *Creations) closed(joined *creation) (topics []PlannedTopic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = nil
	for _, t := range joined.topics {
		topics = append(topics, t)
	}
	return topics
}
