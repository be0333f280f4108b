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
	query := url.Values{}
	if at.Cursor != "" {
		// Values escapes, so that the API reads the cursor byte for byte.
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
	key := c.key.Reveal()
	if c.cfg.KeyPrefix != "" {
		key = strings.TrimRight(c.cfg.KeyPrefix, " ") + " " + key
	}
	header := http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {acceptEncoding},
		"User-Agent":      {"exportbridge"},
	}
	if c.cfg.KeyQuery != "" {
		query.Set(c.cfg.KeyQuery, key)
	} else {
		header.Set(c.cfg.KeyHeader, key)
	}
	target := *c.endpoint
	target.RawQuery = query.Encode()
	req := &http.Request{Method: http.MethodGet, URL: &target, Host: target.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return req.WithContext(ctx)
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
	c.key = bridge.Secret(key)
	return changed, nil
}
