// Package exportapi speaks the export API: one page per call, problems as
// faults that say what to do about them, limits as a time to wait.
package exportapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// Client reads one resource of one export API. It implements bridge.Source.
//
// Fetch and Check are for one goroutine at a time, Decode for one at a time
// that may be another. Pages may be released from anywhere. Close comes last.
type Client struct {
	cfg      Config
	endpoint *url.URL
	http     *http.Transport
	limit    *rate.Limiter
	memory   sheets
	// recycle is bound once, so that a page costs no closure.
	recycle func(*bridge.Page)

	// Owned by the goroutine that calls Fetch.
	key     bridge.Secret
	body    bodyReader
	ahead   *pageDecoder // for pages that do not end in their cursor
	scratch []byte       // holds a cursor while it is decoded

	// Owned by the goroutine that calls Decode.
	decoder *pageDecoder
}

var _ bridge.Source = (*Client)(nil)

// New returns a client for cfg, or everything that is wrong with cfg. It does
// not connect.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	preset := presets[cfg.Resource]
	endpoint, errURL := cfg.endpoint(preset)
	transport, errHTTP := newTransport(&cfg)
	limit, errRate := parseRate(cfg.RateLimit)
	ahead, errAhead := newPageDecoder(&cfg, preset)
	decoder, errDecoder := newPageDecoder(&cfg, preset)
	if err := errors.Join(errURL, errHTTP, errRate, errAhead, errDecoder); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	c := &Client{
		cfg:      cfg,
		endpoint: endpoint,
		http:     transport,
		limit:    rate.NewLimiter(limit, 1),
		key:      cfg.APIKey,
		ahead:    ahead,
		decoder:  decoder,
	}
	c.recycle = func(p *bridge.Page) {
		c.memory.give(sheet{body: p.Body, events: p.Events})
		p.Body, p.Events = nil, nil
	}
	return c, nil
}

// Close ends idle connections. No request may be under way.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.body.close()
}

// Fetch implements bridge.Source. It asks once; only a key that was refused
// and has changed in its file since is tried a second time. A rate limit is
// waited for.
func (c *Client) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	page, _, err := c.fetch(ctx, at, c.cfg.PageSize)
	return page, err
}

// Decode implements bridge.Source.
func (c *Client) Decode(p *bridge.Page) error {
	if len(p.Events) > 0 {
		return nil // Fetch had to read all of it to find the cursor
	}
	fault := split(p, c.decoder)
	if fault == nil && string(c.decoder.cursor) != p.Next {
		fault = schemaFault(fmt.Errorf("%w: its end names another cursor than the whole", errNoPage))
		p.Events, p.Items = p.Events[:0], 0
	}
	if fault != nil {
		return c.fault(p.At, fault)
	}
	return nil
}

// answer is what Check shows of a response beside the page.
type answer struct {
	compression string
	tls         *tls.ConnectionState // nil for plain http
}

// fetch asks for one page of at most size items.
func (c *Client) fetch(ctx context.Context, at bridge.Position, size int) (*bridge.Page, answer, error) {
	page, got, err := c.ask(ctx, at, size)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Reason == bridge.ReasonAuth {
		changed, errKey := c.rereadKey()
		switch {
		case changed:
			page, got, err = c.ask(ctx, at, size)
		case errKey != nil:
			f.Err = fmt.Errorf("%w; %w", f.Err, errKey)
		}
	}
	switch {
	case err == nil:
		c.report(nil)
	case ctx.Err() != nil:
		return nil, answer{}, ctx.Err()
	default:
		c.report(err)
	}
	return page, got, err
}

// report tells the dependency's health. Asking us to slow down, or refusing a
// cursor, is an API at work.
func (c *Client) report(err error) {
	if c.cfg.Report == nil {
		return
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok && (f.Class == bridge.Throttled || f.Class == bridge.BadCursor) {
		err = nil
	}
	c.cfg.Report(err)
}

// ask sends one request and reads its answer. A non-nil error is a Fault,
// unless ctx is done.
func (c *Client) ask(ctx context.Context, at bridge.Position, size int) (*bridge.Page, answer, error) {
	if err := c.limit.Wait(ctx); err != nil {
		// Wait also refuses when ctx would end before the turn comes.
		return nil, answer{}, c.fault(at, &bridge.Fault{Code: codeTimeout, Err: errors.New("the turn that EXPORT_RATE_LIMIT gives comes too late"), Hint: "check EXPORT_RATE_LIMIT"})
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	asked := time.Now()
	resp, err := c.http.RoundTrip(c.request(ctx, at, size))
	if err != nil {
		return nil, answer{}, c.fault(at, c.connectionFault(at, err, fmt.Sprintf("no answer within %s", c.cfg.Timeout)))
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// This body is a bare connection, on which no time-out works.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	defer discard(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, answer{}, c.fault(at, c.refusal(at, resp))
	}
	page, fault := c.page(at, resp)
	if fault != nil {
		return nil, answer{}, c.fault(at, fault)
	}
	page.RequestedAt = asked
	return page, answer{compression: resp.Header.Get("Content-Encoding"), tls: resp.TLS}, nil
}

// page reads a page from an answer and finds its cursor.
func (c *Client) page(at bridge.Position, resp *http.Response) (*bridge.Page, *bridge.Fault) {
	if fault := c.checkHeader(at, resp); fault != nil {
		return nil, fault
	}
	memory, size := c.memory.take()
	if plain(resp) && resp.ContentLength > 0 {
		size = int(resp.ContentLength)
	}
	body, err := c.body.read(resp, memory.room(size), c.cfg.MaxResponse)
	if err != nil {
		c.memory.give(sheet{body: body, events: memory.events})
		return nil, c.bodyFault(at, err, len(body))
	}
	c.memory.measure(len(body))
	p := &bridge.Page{At: at, Body: body, Size: int64(len(body)), Events: memory.events, ServerTime: serverTime(resp.Header), Recycle: c.recycle}
	cursor, ok := tailCursor(body, c.cfg.CursorField, c.scratch[:0])
	if ok {
		p.Next = string(cursor)
		c.scratch = cursor[:0]
		return p, nil
	}
	if fault := split(p, c.ahead); fault != nil {
		p.Release()
		return nil, fault
	}
	p.Next = string(c.ahead.cursor)
	return p, nil
}

// split fills the page's events, items and source with the decoder, which
// keeps the cursor until its next page.
func split(p *bridge.Page, with *pageDecoder) *bridge.Fault {
	err := with.decode(p.Body, p.Events[:0])
	p.Events, with.events = with.events, nil
	if err != nil {
		p.Events = p.Events[:0]
		return schemaFault(err)
	}
	p.Items, p.Source = len(p.Events), with.identity.identity()
	return nil
}
