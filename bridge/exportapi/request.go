package exportapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"exportbridge/bridge"
)

// The parameters that have one name everywhere.
const (
	paramStart  = "start"
	paramEnd    = "end"
	paramEvents = "events"
)

// request builds the request for one page of at most size items.
func (c *Client) request(ctx context.Context, at bridge.Position, size int) *http.Request {
	target := *c.endpoint
	if at.Cursor != "" && !at.Window && size == c.cfg.PageSize {
		target.RawQuery = c.usual[0] + url.QueryEscape(at.Cursor) + c.usual[1]
	} else {
		target.RawQuery = c.query(at, size).Encode()
	}
	req := c.template.WithContext(ctx)
	req.URL = &target
	return req
}

// query is the query of a page of at most size items. It is escaped, so that
// the API reads the cursor byte for byte.
func (c *Client) query(at bridge.Position, size int) url.Values {
	query := url.Values{}
	if at.Cursor != "" {
		query.Set(c.cfg.CursorParam, at.Cursor)
	}
	if at.Cursor == "" || at.Window {
		setMillis(query, paramStart, at.Start)
		setMillis(query, paramEnd, at.End)
	}
	// Whether a cursor carries these is not documented.
	query.Set(c.cfg.PageSizeParam, strconv.Itoa(size))
	if c.cfg.Resource == "events" {
		query[paramEvents] = c.cfg.Events
	}
	if c.cfg.KeyQuery != "" {
		query.Set(c.cfg.KeyQuery, c.sentKey())
	}
	return query
}

// sentKey is the key as requests carry it.
func (c *Client) sentKey() string {
	if c.cfg.KeyPrefix == "" {
		return c.key.Reveal()
	}
	return strings.TrimRight(c.cfg.KeyPrefix, " ") + " " + c.key.Reveal()
}

// prepare makes what requests with the same key have in common. They share the
// template's header, which nobody changes.
func (c *Client) prepare() {
	c.usual = [2]string{url.QueryEscape(c.cfg.CursorParam) + "=", "&" + c.query(bridge.Position{}, c.cfg.PageSize).Encode()}
	header := http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {acceptEncoding},
		"User-Agent":      {"exportbridge"},
	}
	if c.cfg.KeyQuery == "" {
		header.Set(c.cfg.KeyHeader, c.sentKey())
	}
	c.template = &http.Request{Method: http.MethodGet, Host: c.endpoint.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

func setMillis(query url.Values, name string, at int64) {
	if at != 0 {
		query.Set(name, strconv.FormatInt(at, 10))
	}
}

// rereadKey reads the key's file again, if it came from one, and reports
// whether the file holds another key than before.
func (c *Client) rereadKey() (changed bool, err error) {
	if c.cfg.APIKeyFile == "" {
		return false, nil
	}
	raw, err := os.ReadFile(c.cfg.APIKeyFile)
	if err != nil {
		return false, fmt.Errorf("read the key again: %w", err)
	}
	key := strings.TrimRight(string(raw), "\r\n")
	if key == "" || !printable(key) {
		return false, errors.New("read the key again: " + c.cfg.APIKeyFile + " holds no key")
	}
	changed = key != c.key.Reveal()
	c.key.set(bridge.Secret(key))
	c.prepare()
	return changed, nil
}

// apiKey is the key in use. It may be used concurrently: whoever writes an
// error must keep the key out of it.
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

// Reveal returns the key itself.
func (k *apiKey) Reveal() string { return k.get().Reveal() }

// String returns what may be shown in place of the key.
func (k *apiKey) String() string { return k.get().String() }
