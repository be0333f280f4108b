package exportapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"exportbridge/bridge"
)

// The fixed parameter names.
const (
	paramStart  = "start"
	paramEnd    = "end"
	paramEvents = "events"
)

// requests builds a client's requests, for one goroutine at a time.
type requests struct {
	cfg      *Config
	endpoint *url.URL
	auth     *credentials
	template *http.Request
	// afterFirst is the query of a page with a cursor, before and after the cursor.
	afterFirst [2]string
}

// page builds the request for one page of at most size items.
func (r *requests) page(ctx context.Context, at bridge.Position, size int) *http.Request {
	target := *r.endpoint
	if at.Cursor != "" && !at.Window && size == r.cfg.PageSize {
		target.RawQuery = r.afterFirst[0] + url.QueryEscape(at.Cursor) + r.afterFirst[1]
	} else {
		target.RawQuery = r.query(at, size).Encode()
	}
	req := r.template.WithContext(ctx)
	req.URL = &target
	return req
}

// query is the query of a page of at most size items, escaped so that the API
// receives the cursor byte for byte.
func (r *requests) query(at bridge.Position, size int) url.Values {
	query := url.Values{}
	if at.Cursor != "" {
		query.Set(r.cfg.CursorParam, at.Cursor)
	}
	if at.Cursor == "" || at.Window {
		setMillis(query, paramStart, at.Start)
		setMillis(query, paramEnd, at.End)
	}
	// Whether a cursor carries these is not documented.
	query.Set(r.cfg.PageSizeParam, strconv.Itoa(size))
	if r.cfg.Resource == "events" {
		query[paramEvents] = r.cfg.Events
	}
	if r.cfg.Scheme == authKey && r.cfg.KeyQuery != "" {
		query.Set(r.cfg.KeyQuery, r.auth.key())
	}
	return query
}

// prepare builds the parts common to requests with the same credentials. They
// share the template's header, which is never modified.
func (r *requests) prepare() {
	r.afterFirst = [2]string{url.QueryEscape(r.cfg.CursorParam) + "=", "&" + r.query(bridge.Position{}, r.cfg.PageSize).Encode()}
	header := http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {acceptEncoding},
		"User-Agent":      {"exportbridge"},
	}
	r.auth.sign(header)
	r.template = &http.Request{Method: http.MethodGet, Host: r.endpoint.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

func setMillis(query url.Values, name string, at int64) {
	if at != 0 {
		query.Set(name, strconv.FormatInt(at, 10))
	}
}
