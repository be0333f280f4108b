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
	// maxFeeds is the maximum number of connected clients.
	maxFeeds = 32
	// backlog is how many messages are queued for a slow client.
	backlog = 64

	statusEvery = 500 * time.Millisecond // both kinds of status at most this often
	// detailAtMost and briefsAtMost are the longest times between two messages of a kind.
	detailAtMost = time.Second
	briefsAtMost = 3 * time.Second
	pingEvery    = 15 * time.Second
	// sendTimeout bounds the write of one message.
	sendTimeout = 10 * time.Second
)

// seats are the feeds, the oldest first. A new one ends the oldest feed of the client that
// has most: no client can shut out others.
type seats struct {
	mu    sync.Mutex // guards taken
	taken []*seat
}

type seat struct {
	client netip.Addr
	end    func() // returns at once, and may be called until leave returns
}

// take adds a feed until leave is called.
func (s *seats) take(from netip.Addr, end func()) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= maxFeeds {
		held, most := make(map[netip.Addr]int), 0
		for _, other := range s.taken {
			held[other.client]++
			most = max(most, held[other.client])
		}
		oldest := slices.IndexFunc(s.taken, func(other *seat) bool { return held[other.client] == most })
		s.taken[oldest].end()
		s.taken = slices.Delete(s.taken, oldest, oldest+1)
	}
	own := &seat{clientOf(from), end}
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
	if shown != "" && h.named(shown) == nil {
		h.fail(w, r, h.unknownStream(shown))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stream := http.NewResponseController(w)
	defer h.feeds.take(peerOf(r), func() {
		cancel()
		_ = stream.SetWriteDeadline(time.Now()) // the client may not read
	})()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // keeps proxies from buffering
	s := &caller{to: w, stream: stream, shown: shown}
	if s.write("retry: 2000\n\n") != nil {
		return
	}
	past, logs, leaveLog := h.Log.follow()
	defer leaveLog()
	samples, leaveSamples := h.Samples.follow(shown)
	defer leaveSamples()
	for _, entry := range past {
		if s.send("log", entry) != nil {
			return
		}
	}
	var watching sync.WaitGroup
	h.watch(ctx, &watching, shown)
	h.tell(r.WithContext(ctx), s, logs, samples)
	cancel()
	watching.Wait()
}

// tell sends events until the feed ends, or its client may not read any more.
func (h *handler) tell(r *http.Request, s *caller, logs <-chan LogEntry, samples <-chan Sample) {
	status, ping := time.NewTicker(statusEvery), time.NewTicker(pingEvery)
	defer status.Stop()
	defer ping.Stop()
	ctx, err := r.Context(), h.sendStatus(s, time.Now())
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case now := <-status.C:
			err = h.sendStatus(s, now)
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
	shown  string // the stream of the client's page; empty for none

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

// sendStatus sends what has changed of all streams and of the one shown.
func (h *handler) sendStatus(s *caller, now time.Time) error {
	if err := s.sendBriefs(h.briefsOf(now), now); err != nil || s.shown == "" {
		return err
	}
	shown := h.named(s.shown)
	if shown == nil {
		return h.unknownStream(s.shown)
	}
	return s.sendDetail(h.detailOf(shown, now), now)
}

// sendBriefs sends the briefs that have changed, or none if nothing has been sent for some
// seconds.
func (s *caller) sendBriefs(all []control.Brief, now time.Time) error {
	m := briefs{All: s.briefs == nil, Briefs: []control.Brief{}}
	sent := make(map[string]control.Brief, len(all))
	for _, b := range all {
		b.Lag = 0 // not sent
		if sent[b.Stream] = b; s.briefs[b.Stream] != b {
			m.Briefs = append(m.Briefs, b)
		}
	}
	for name := range s.briefs {
		if _, ok := sent[name]; !ok {
			m.Removed = append(m.Removed, name)
		}
	}
	if !m.All && len(m.Briefs)+len(m.Removed) == 0 && now.Sub(s.briefsAt) < briefsAtMost {
		return nil
	}
	s.briefs, s.briefsAt = sent, now
	return s.send("briefs", m)
}

// sendDetail sends the detail if it has changed, or after a second.
func (s *caller) sendDetail(d detail, now time.Time) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if bytes.Equal(data, s.detail) && now.Sub(s.detailAt) < detailAtMost {
		return nil
	}
	s.detail, s.detailAt = data, now
	return s.writeEvent("detail", data)
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
