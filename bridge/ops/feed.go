package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxFeeds is the maximum number of connected clients.
	maxFeeds = 32
	// backlog is how many messages are queued for a slow client.
	backlog = 64

	statusEvery  = 500 * time.Millisecond // at most this often
	statusAtMost = time.Second            // at least this often
	pingEvery    = 15 * time.Second
	// sendTimeout bounds the write of one message.
	sendTimeout = 10 * time.Second
)

// feed sends log entries, samples and status as server-sent events until the client
// disconnects, is too slow, or the server stops.
func (h *handler) feed(w http.ResponseWriter, r *http.Request) {
	select {
	case h.feeds <- struct{}{}:
		defer func() { <-h.feeds }()
	default:
		w.Header().Set("Retry-After", "5")
		h.fail(w, r, &Error{Status: http.StatusServiceUnavailable, Err: fmt.Errorf("%d clients are already connected", maxFeeds), Hint: "close other browser tabs"})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // keeps proxies from buffering
	s := &caller{to: w, control: http.NewResponseController(w)}
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
	h.tell(r.Context(), s, logs, samples)
}

// tell sends events until one of these ends it.
func (h *handler) tell(ctx context.Context, s *caller, logs <-chan LogEntry, samples <-chan Sample) {
	status, ping := time.NewTicker(statusEvery), time.NewTicker(pingEvery)
	defer status.Stop()
	defer ping.Stop()
	err := s.sendStatus(h.Streams, time.Now())
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case now := <-status.C:
			err = s.sendStatus(h.Streams, now)
		case <-ping.C:
			err = s.write(": ping\n\n")
		case entry, ok := <-logs:
			if !ok {
				return // too slow; after reconnecting it gets the last entries again
			}
			err = s.send("log", entry)
		case sample := <-samples:
			err = s.send("sample", sample)
		}
	}
}

// caller is the connection of a client.
type caller struct {
	to      http.ResponseWriter
	control *http.ResponseController
	status  []byte // sent last
	sent    time.Time
}

// sendStatus sends the status if it has changed, and at least once a second.
func (s *caller) sendStatus(streams []Stream, now time.Time) error {
	data, err := json.Marshal(liveReports(streams, now))
	if err != nil {
		return err
	}
	if bytes.Equal(data, s.status) && now.Sub(s.sent) < statusAtMost {
		return nil
	}
	s.status, s.sent = data, now
	return s.write("event: status\ndata: " + string(data) + "\n\n")
}

func (s *caller) send(event string, v any) error {
	data, err := json.Marshal(v) // one line: JSON escapes line breaks
	if err != nil {
		return err
	}
	return s.write("event: " + event + "\ndata: " + string(data) + "\n\n")
}

func (s *caller) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
