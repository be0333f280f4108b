package ops

import (
	"bytes"
	"context"
	"encoding/json"
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
	// backlog is how many messages are queued for a slow client.
	backlog = 64

	statusEvery  = 500 * time.Millisecond // at most this often
	statusAtMost = time.Second            // at least this often
	pingEvery    = 15 * time.Second
	// sendTimeout bounds the write of one message.
	sendTimeout = 10 * time.Second
)

// seats are the feeds, the oldest first. If there are too many, a new one ends the oldest feed
// of the client that has most: no client can shut out others.
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

// feed sends log entries, samples and status as server-sent events until the client
// disconnects, is too slow, or the server stops.
func (h *handler) feed(w http.ResponseWriter, r *http.Request) {
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
	s := &caller{to: w, stream: stream}
	if s.write("retry: 2000\n\n") != nil {
		return
	}
	past, logs, leaveLog := h.Log.follow()
	defer leaveLog()
	samples, leaveSamples := h.Samples.follow()
	defer leaveSamples()
	for _, entry := range past {
		if s.send("log", entry) != nil {
			return
		}
	}
	h.tell(r.WithContext(ctx), s, logs, samples)
}

// tell sends events until the feed ends, or its client may not read any more.
func (h *handler) tell(r *http.Request, s *caller, logs <-chan LogEntry, samples <-chan Sample) {
	status, ping := time.NewTicker(statusEvery), time.NewTicker(pingEvery)
	defer status.Stop()
	defer ping.Stop()
	ctx, err := r.Context(), s.sendStatus(h.Streams(), time.Now())
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case now := <-status.C:
			err = s.sendStatus(h.Streams(), now)
		case <-ping.C:
			if err = h.guard.mayRead(r); err == nil {
				err = s.write(": ping\n\n")
			}
		case entry, ok := <-logs:
			if !ok {
				return // the client is too slow; it gets the last entries again when it reconnects
			}
			err = s.send("log", entry)
		case sample := <-samples:
			err = s.send("sample", sample)
		}
	}
}

// caller is the client of a feed.
type caller struct {
	to     http.ResponseWriter
	stream *http.ResponseController
	status []byte // the last one sent
	sent   time.Time
}

// sendStatus sends the status if it has changed, or after a second.
func (s *caller) sendStatus(streams []Stream, now time.Time) error {
	data, err := json.Marshal(liveReports(streams, now))
	if err != nil {
		return err
	}
	if bytes.Equal(data, s.status) && now.Sub(s.sent) < statusAtMost {
		return nil
	}
	s.status, s.sent = data, now
	return s.writeEvent("status", data)
}

func (s *caller) send(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.writeEvent(event, data)
}

// writeEvent writes JSON, which escapes line breaks, as an event.
func (s *caller) writeEvent(event string, data []byte) error {
	return s.write("event: " + event + "\ndata: " + string(data) + "\n\n")
}

func (s *caller) write(text string) error {
	if err := s.stream.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.stream.Flush()
}

// liveReports returns reports from this process's own state.
func liveReports(streams []Stream, now time.Time) []control.Report {
	all := make([]control.Report, len(streams))
	for i, s := range streams {
		status := s.Status()
		all[i] = control.NewReport(status.Stream, status.Mode)
		all[i].Live = &status
		all[i].Measure(now)
	}
	return all
}
