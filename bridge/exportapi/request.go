package exportapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

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
	key      *apiKey
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
	if r.cfg.KeyQuery != "" {
		query.Set(r.cfg.KeyQuery, r.sentKey())
	}
	return query
}

// sentKey is the key as sent in requests.
func (r *requests) sentKey() string {
	if r.cfg.KeyPrefix == "" {
		return r.key.Reveal()
	}
	return strings.TrimRight(r.cfg.KeyPrefix, " ") + " " + r.key.Reveal()
}

// prepare builds the parts common to requests with the same key. They share the
// template's header, which is never modified.
func (r *requests) prepare() {
	r.afterFirst = [2]string{url.QueryEscape(r.cfg.CursorParam) + "=", "&" + r.query(bridge.Position{}, r.cfg.PageSize).Encode()}
	header := http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {acceptEncoding},
		"User-Agent":      {"exportbridge"},
	}
	if r.cfg.KeyQuery == "" {
		header.Set(r.cfg.KeyHeader, r.sentKey())
	}
	r.template = &http.Request{Method: http.MethodGet, Host: r.endpoint.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

func setMillis(query url.Values, name string, at int64) {
	if at != 0 {
		query.Set(name, strconv.FormatInt(at, 10))
	}
}

// reloadKey reloads the key's file, if there is one, and reports whether the
// key has changed.
func (r *requests) reloadKey() (changed bool, err error) {
	if r.cfg.APIKeyFile == "" {
		return false, nil
	}
	key, err := bridge.ReadSecretFile(r.cfg.APIKeyFile)
	if err != nil {
		return false, fmt.Errorf("reload the key: %w", err)
	}
	if key == "" || !printable(key) {
		return false, errors.New("reload the key: " + r.cfg.APIKeyFile + " contains no key")
	}
	changed = key != r.key.Reveal()
	r.key.set(bridge.Secret(key))
	r.prepare()
	return changed, nil
}

// apiKey is the key in use. It may be used concurrently: errors are redacted
// with it.
type apiKey struct {
	mu     sync.Mutex // guards secret
	secret bridge.Secret
}

func (k *apiKey) set(to bridge.Secret) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secret = to
}

func (k *apiKey) get() bridge.Secret {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secret
}

// Reveal returns the key.
func (k *apiKey) Reveal() string { return k.get().Reveal() }

// String returns the redacted key.
func (k *apiKey) String() string { return k.get().String() }
