package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge/control"
)

const (
	// maxFeeds is the maximum number of connected clients, maxFeedsOfClient that of one
	// address that is no trusted proxy.
	maxFeeds, maxFeedsOfClient = 32, 16
	// backlog is the maximum number of queued messages of a slow client.
	backlog = 64

	statusEvery = 500 * time.Millisecond // minimum time between two messages of a kind
	// detailAtMost and briefsAtMost are the maximum times between two messages of a kind.
	detailAtMost = time.Second
	briefsAtMost = 3 * time.Second
	pingEvery    = 15 * time.Second
	// sendTimeout bounds the write of one message.
	sendTimeout = 10 * time.Second
)

// seats are the open feeds, oldest first. If there are too many, a new feed ends the oldest
// feed of the client with the most feeds, so that no client shuts out others.
type seats struct {
	mu    sync.Mutex // guards taken
	taken []*seat
}

type seat struct {
	client netip.Addr
	end    func() // returns at once, and may be called until leave returns
}

// take adds a feed until leave is called. limit is how many its client may have.
func (s *seats) take(from netip.Addr, limit int, end func()) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := &seat{clientOf(from), end}
	held, most := make(map[netip.Addr]int), 0
	for _, other := range s.taken {
		held[other.client]++
		most = max(most, held[other.client])
	}
	oldest := -1
	if held[own.client] >= limit {
		oldest = slices.IndexFunc(s.taken, func(other *seat) bool { return other.client == own.client })
	} else if len(s.taken) >= maxFeeds {
		oldest = slices.IndexFunc(s.taken, func(other *seat) bool { return held[other.client] == most })
	}
	if oldest >= 0 {
		s.taken[oldest].end()
		s.taken = slices.Delete(s.taken, oldest, oldest+1)
	}
	s.taken = append(s.taken, own)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = slices.DeleteFunc(s.taken, func(other *seat) bool { return other == own })
	}
}

// feed sends the briefs of all streams, the detail and the samples of the stream that the
// parameter stream names, and log entries as server-sent events until the client
// disconnects, is too slow, the stream is removed, or the server stops.
func (h *handler) feed(w http.ResponseWriter, r *http.Request) {
	shown := r.URL.Query().Get("stream")
	if shown != "" && h.watched.named(shown) == nil {
		h.fail(w, r, h.unknownStream(shown))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stream := http.NewResponseController(w)
	limit := maxFeedsOfClient
	if h.guard.proxy.Trusts(peerOf(r)) {
		limit = maxFeeds
	}
	defer h.feeds.take(peerOf(r), limit, func() {
		cancel()
		_ = stream.SetWriteDeadline(time.Now()) // the client may not read
	})()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // keeps proxies from buffering
	c := &caller{to: w, stream: stream, shown: shown, watched: h.watched, mayRead: h.guard.mayRead}
	if c.write("retry: 2000\n\n") != nil {
		return
	}
	past, logs, leaveLog := h.Log.follow()
	defer leaveLog()
	samples, leaveSamples := h.Samples.follow(shown)
	defer leaveSamples()
	for _, entry := range past {
		if c.send("log", entry) != nil {
			return
		}
	}
	var watching sync.WaitGroup
	h.watched.watch(ctx, &watching, shown)
	c.tell(r.WithContext(ctx), logs, samples)
	cancel()
	watching.Wait()
}

// tell sends events until the feed ends, or its client may not read any more.
func (c *caller) tell(r *http.Request, logs <-chan LogEntry, samples <-chan Sample) {
	status, ping := time.NewTicker(statusEvery), time.NewTicker(pingEvery)
	defer status.Stop()
	defer ping.Stop()
	ctx, err := r.Context(), c.sendStatus(time.Now())
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case now := <-status.C:
			err = c.sendStatus(now)
		case <-ping.C:
			if err = c.mayRead(r); err == nil {
				err = c.write(": ping\n\n")
			}
		case entry, ok := <-logs:
			if !ok {
				return // the client is too slow; it gets the last entries again when it reconnects
			}
			err = c.send("log", entry)
		case sample := <-samples:
			err = c.send("sample", sample)
		}
	}
}

// caller is the client of a feed.
type caller struct {
	to     http.ResponseWriter
	stream *http.ResponseController
	shown  string // the stream of the client's page; empty for none

	watched *watcher
	mayRead func(*http.Request) error

	briefs   map[string]control.Brief // the last ones sent; nil before the first
	briefsAt time.Time
	detail   []byte // the last one sent
	detailAt time.Time
}

// briefs is a message about all streams.
type briefs struct {
	// All is true in the first message of a feed. Later ones have the Briefs that have
	// changed, and the names of the streams that were Removed.
	All     bool            `json:"all,omitempty"`
	Briefs  []control.Brief `json:"briefs"`
	Removed []string        `json:"removed,omitempty"`
}

// errRemoved ends the feed of a page whose stream was removed.
var errRemoved = errors.New("the stream was removed")

// sendStatus sends the changed briefs, and the detail of the stream shown.
func (c *caller) sendStatus(now time.Time) error {
	if err := c.sendBriefs(c.watched.briefsOf(now), now); err != nil || c.shown == "" {
		return err
	}
	shown := c.watched.named(c.shown)
	if shown == nil {
		return errRemoved
	}
	return c.sendDetail(c.watched.detailOf(shown, now), now)
}

// sendBriefs sends the briefs that have changed, or none if nothing has been sent for some
// seconds.
func (c *caller) sendBriefs(all []control.Brief, now time.Time) error {
	m := briefs{All: c.briefs == nil, Briefs: []control.Brief{}}
	sent := make(map[string]control.Brief, len(all))
	for _, b := range all {
		b.Lag = 0 // not sent
		if sent[b.Stream] = b; c.briefs[b.Stream] != b {
			m.Briefs = append(m.Briefs, b)
		}
	}
	for name := range c.briefs {
		if _, ok := sent[name]; !ok {
			m.Removed = append(m.Removed, name)
		}
	}
	if !m.All && len(m.Briefs)+len(m.Removed) == 0 && now.Sub(c.briefsAt) < briefsAtMost {
		return nil
	}
	c.briefs, c.briefsAt = sent, now
	return c.send("briefs", m)
}

// sendDetail sends the detail if it has changed, or after a second.
func (c *caller) sendDetail(d detail, now time.Time) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if bytes.Equal(data, c.detail) && now.Sub(c.detailAt) < detailAtMost {
		return nil
	}
	c.detail, c.detailAt = data, now
	return c.writeEvent("detail", data)
}

func (c *caller) send(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.writeEvent(event, data)
}

// writeEvent writes JSON, which escapes line breaks, as an event.
func (c *caller) writeEvent(event string, data []byte) error {
	return c.write("event: " + event + "\ndata: " + string(data) + "\n\n")
}

func (c *caller) write(text string) error {
	if err := c.stream.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := c.to.Write([]byte(text)); err != nil {
		return err
	}
	return c.stream.Flush()
}
