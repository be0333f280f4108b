package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/ops/door"
)

const (
	defaultEntries, maxEntries         = 200, 1000
	defaultDeadLetters, maxDeadLetters = 50, 200
)

// session is the first query of the web UI.
type session struct {
	Now time.Time `json:"now"`
	// Read is true if this client may read; without it, the fields after NeedsToken are
	// empty. Write is true if the client may execute actions.
	Read       bool     `json:"read"`
	Write      bool     `json:"write"`
	NeedsToken bool     `json:"needs_token"`
	Name       string   `json:"name,omitempty"` // of the token
	Version    string   `json:"version"`
	ShowEvents bool     `json:"show_events"`
	Streams    []string `json:"streams"`
}

func (h *handler) session(w http.ResponseWriter, r *http.Request) {
	who, refused := h.guard.identify(r)
	if e, ok := errors.AsType[*Error](refused); ok {
		if e.Status >= http.StatusTooManyRequests { // or 503
			h.fail(w, r, refused)
			return
		}
		if r.Header.Get("Authorization") != "" { // not the page's question whether a token is required
			h.denied(r, e)
		}
	}
	s := session{
		Now: time.Now().UTC(), NeedsToken: h.guard.locked, Name: who.Name, Read: !h.guard.login || refused == nil,
		Write: h.Controller != nil && refused == nil && who.Role == door.Act,
	}
	if s.Read {
		s.Version, s.ShowEvents, s.Streams = h.Version, h.config.ShowEvents, h.names()
	}
	reply(w, http.StatusOK, s)
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
	if slices.Contains(h.names(), asked) {
		return nil
	}
	return h.unknownStream(asked)
}

func (h *handler) unknownStream(asked string) error {
	hint := "one of: " + strings.Join(h.names(), ", ")
	return errorf(http.StatusNotFound, hint, "unknown stream %q", shorten(asked))
}

// controller returns the controller of a stream, which may have been removed since the
// request arrived.
func (h *handler) controller(stream string) (Controller, error) {
	if c := h.Controller(stream); c != nil {
		return c, nil
	}
	return nil, h.unknownStream(stream)
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
		control.Each(len(known), func(i int) { all[i] = known[i].Status(ctx) })
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
		return found, steered(err)
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
