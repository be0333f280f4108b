package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
)

const (
	defaultEntries, maxEntries         = 200, 1000
	defaultDeadLetters, maxDeadLetters = 50, 200
)

// session is the first query of the web UI.
type session struct {
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
	// Write is true if this client may execute actions.
	Write      bool     `json:"write"`
	NeedsToken bool     `json:"needs_token"`
	ShowEvents bool     `json:"show_events"`
	Streams    []string `json:"streams"`
}

func (h *handler) session(w http.ResponseWriter, r *http.Request) {
	refused := h.guard.mayAct(r)
	if e, ok := errors.AsType[*Error](refused); ok && e.Status == http.StatusTooManyRequests {
		h.fail(w, r, refused)
		return
	}
	reply(w, http.StatusOK, session{
		Version: h.Version, Now: time.Now().UTC(), Write: h.Controller != nil && refused == nil,
		NeedsToken: h.guard.token != nil, ShowEvents: h.config.ShowEvents, Streams: h.names(),
	})
}

func (h *handler) names() []string {
	var names []string
	for _, s := range h.Streams() {
		names = append(names, s.Status().Stream)
	}
	return names
}

// stream returns the name of the stream in the request's path.
func (h *handler) stream(r *http.Request) (string, error) {
	name := r.PathValue("stream")
	return name, h.knowsStream(name)
}

func (h *handler) knowsStream(asked string) error {
	names := h.names()
	if slices.Contains(names, asked) {
		return nil
	}
	return errorf(http.StatusNotFound, "one of: "+strings.Join(names, ", "), "unknown stream %q", shorten(asked))
}

// controller returns the controller of a stream, which may have been removed since the
// request arrived.
func (h *handler) controller(stream string) (Controller, error) {
	if c := h.Controller(stream); c != nil {
		return c, nil
	}
	return nil, errorf(http.StatusNotFound, "one of: "+strings.Join(h.names(), ", "), "unknown stream %q", shorten(stream))
}

func (h *handler) status(*http.Request) (string, reader, error) {
	return "", func(ctx context.Context) (any, error) {
		var known []Controller
		for _, name := range h.names() {
			if c := h.Controller(name); c != nil {
				known = append(known, c)
			}
		}
		all := make([]control.Report, len(known))
		var asking sync.WaitGroup
		for i, c := range known {
			asking.Go(func() { all[i] = c.Status(ctx) })
		}
		asking.Wait()
		return all, nil
	}, nil
}

func (h *handler) history(r *http.Request) (string, reader, error) {
	stream, err := h.stream(r)
	if err != nil {
		return "", nil, err
	}
	q := bridge.HistoryQuery{Brief: true}
	if q.Limit, err = limitOf(r, defaultEntries, maxEntries); err != nil {
		return "", nil, err
	}
	if text := r.URL.Query().Get("since"); text != "" {
		ms, err := bridge.ParsePast(shorten(text), time.Now())
		if err != nil {
			return "", nil, badRequest("since=2026-11-20T13:00:00Z", "since: %w", err)
		}
		q.Since = time.UnixMilli(ms).UTC()
	}
	return fmt.Sprint(stream, "/", q), func(ctx context.Context) (any, error) {
		c, err := h.controller(stream)
		if err != nil {
			return nil, err
		}
		found, err := c.History(ctx, q)
		return historyOf(&found), steered(err)
	}, nil
}

func (h *handler) deadLetters(r *http.Request) (string, reader, error) {
	stream, err := h.stream(r)
	if err != nil {
		return "", nil, err
	}
	limit, err := limitOf(r, defaultDeadLetters, maxDeadLetters)
	return fmt.Sprint(stream, "/", limit), func(ctx context.Context) (any, error) {
		all, err := h.Records.DeadLetters(ctx, stream, limit+1)
		if _, cut := errors.AsType[*kafkaclient.IncompleteError](err); cut {
			err = errorf(http.StatusServiceUnavailable,
				"run exportbridge dlq list --stream "+stream+" --timeout 10m, which waits longer", "%w", err)
		}
		return deadLettersOf(all, limit), err
	}, err
}

// limitOf reads the parameter limit.
func limitOf(r *http.Request, byDefault, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		hint := fmt.Sprintf("limit=%d", byDefault)
		return 0, badRequest(hint, "limit: %q is not a number from 1 to %d", shorten(text), most)
	}
	return n, nil
}
