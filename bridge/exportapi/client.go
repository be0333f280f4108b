// Package exportapi reads the export API: one page per call, failures as typed
// faults, rate limits as Retry-After.
package exportapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
	"exportbridge/bridge/exportapi/internal/delay"
	"exportbridge/bridge/exportapi/internal/jsonpointer"
	"exportbridge/bridge/exportapi/internal/memory"
	"exportbridge/bridge/exportapi/internal/stuck"
	"exportbridge/bridge/exportapi/internal/timeline"
)

// Client reads one resource of one export API. It implements bridge.Source.
//
// Fetch, Check and Sample are for one goroutine at a time, Decode for one
// goroutine at a time, which may be another. Pages may be released
// concurrently. Close is the last call.
type Client struct {
	cfg          Config
	endpoint     *url.URL
	http, tokens *http.Transport // for pages and for token requests; may be the same
	turns        *turns
	auth         *credentials
	faults       faults
	memory       memory.Pages
	readers      body.Readers
	behind       transfers
	// recycle is bound once, so that a page allocates no closure.
	recycle func(*bridge.Page)
	// early counts consecutive pages with the cursor at the beginning that
	// neither failed nor were slow.
	early atomic.Int32
	// listed is set when a page had an array of items: EXPORT_ITEMS_FIELD is right.
	listed atomic.Bool

	reporting  sync.Mutex // held while cfg.Report is called
	simple     bool       // see Config.simple
	cursorName string     // the member of a simple page with the cursor

	// Owned by the goroutine that calls Fetch.
	requests       requests
	earlyThreshold int32        // the value of early from which on a page may be early
	ahead          *pageDecoder // for pages with the cursor in the middle
	scratch        []byte       // holds a cursor while it is decoded
	kind           string       // the last Content-Type that was JSON
	nothing        []byte       // a page without items, in place of a body that is empty
	told           bool         // a page has said whether more results follow
	lacking        []string     // see Lacking
	stuck          stuck.Page

	// Owned by the goroutine that calls Decode.
	decoder *pageDecoder
	order   timeline.Order

	ingestion ingestionReader
}

var _ bridge.Source = (*Client)(nil)

// New returns a client for cfg, or all problems of cfg. It does not connect.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	preset := presets[cfg.Resource]
	urls, errURL := cfg.endpoints(preset)
	transport, errHTTP := newTransport(&cfg)
	own, errRate := parseRate(cfg.RateLimit)
	ahead, errAhead := newPageDecoder(&cfg, preset)
	if err := errors.Join(errURL, errHTTP, errRate, errAhead); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	decoder, err := newPageDecoder(&cfg, preset)
	if err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	if cfg.Limits == nil {
		cfg.Limits = new(Limits)
	}
	c := &Client{
		cfg:            cfg,
		endpoint:       urls.first,
		http:           transport,
		tokens:         tokenTransport(&cfg, transport),
		turns:          cfg.Limits.of(&cfg, own),
		earlyThreshold: earlyAfter,
		ahead:          ahead,
		decoder:        decoder,
	}
	if c.auth, err = newCredentials(&c.cfg, c.tokens); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	if err := c.ingestion.init(&cfg, preset); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	if c.simple = cfg.simple(); c.simple {
		path, _ := jsonpointer.Path(cfg.CursorField) // validated
		c.cursorName = path[0]
	}
	c.nothing, _ = pageAround(cfg.ItemsField, nil) // validated
	c.requests = newRequests(&c.cfg, urls, c.auth)
	c.faults = faults{cfg: &c.cfg, urls: urls, endpoint: urls.first, auth: c.auth, readers: &c.readers, hidden: c.requests.secrets()}
	c.recycle = func(p *bridge.Page) {
		body := p.Body
		if t := c.behind.of(p); t != nil {
			body = t.abandon()
			c.behind.remove(t)
		}
		c.memory.Give(memory.Page{Body: body, Events: p.Events}, p.Items)
		p.Body, p.Events = nil, nil
	}
	return c, nil
}

// Close closes idle connections and cancels the transfers of pages that were
// not decoded. No other call may be running.
func (c *Client) Close() {
	c.behind.abandon()
	c.http.CloseIdleConnections()
	c.tokens.CloseIdleConnections()
	c.readers.Close()
}

// Endpoint returns the host and path of pages, for tracing.
func (c *Client) Endpoint() (host, path string) { return hostPort(c.endpoint), c.endpoint.Path }

// Fetch implements bridge.Source. It sends one request, and a second one only
// if the key was rejected and its file has changed. It waits for the rate
// limit.
func (c *Client) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	page, _, err := c.fetch(ctx, at, c.cfg.PageSize)
	return page, err
}

// Decode implements bridge.Source.
func (c *Client) Decode(p *bridge.Page) error {
	err := c.arrive(p)
	if err == nil {
		err = c.split(p)
	}
	if err != nil {
		c.early.Store(0)
	}
	return err
}

// DecodeItem returns a page of one item, given as its bytes. Like Decode it is
// called by one goroutine at a time. The page need not be released.
func (c *Client) DecodeItem(item []byte) (*bridge.Page, error) {
	body, err := pageAround(c.cfg.ItemsField, item)
	if err != nil {
		return nil, err
	}
	page := &bridge.Page{Body: body, Size: int64(len(body))}
	if err := c.Decode(page); err != nil {
		return nil, err
	}
	if len(page.Events) != 1 || !bytes.Equal(page.Events[0].Raw, item) {
		return nil, errors.New("not a single JSON value")
	}
	return page, nil
}

// IngestedAt returns when the API took an item in, in milliseconds since the
// epoch; 0 where the item does not say. It may be called concurrently.
func (c *Client) IngestedAt(item []byte) int64 {
	return c.ingestion.read(item)
}

// arrive waits for the rest of the page's body.
func (c *Client) arrive(p *bridge.Page) error {
	t := c.behind.of(p)
	if t == nil {
		return nil
	}
	t.finish()
	c.behind.remove(t)
	p.Body, p.Size = t.body, int64(len(t.body))
	if t.caller.Err() == nil {
		c.report(t.fault)
	}
	if t.fault == nil {
		p.ArrivedAt = t.last
	}
	return t.fault
}

// split decodes a page that has arrived.
func (c *Client) split(p *bridge.Page) error {
	var fault *bridge.Fault
	if len(p.Events) == 0 { // else Fetch had to read all of it to find the cursor
		fault = c.parse(p, c.decoder)
		if fault == nil {
			fault = c.unlisted(p, c.decoder)
		}
		if fault == nil && c.simple && string(c.decoder.cursor.text) != p.Next {
			fault = schemaFault(fmt.Errorf("%w: the cursor read ahead differs from the parsed one", errNoPage))
		}
	}
	if fault == nil && c.order.Backwards(p) {
		fault = orderFault()
	}
	if fault == nil && c.cfg.widens() {
		from, to := c.cfg.asked(p.At)
		fault = boundsFault(timeline.Trim(p, from, to))
	}
	if fault != nil {
		p.Events, p.Items = p.Events[:0], 0
		return c.faults.of(p.At, fault)
	}
	return nil
}

// answer is the part of a response that Check reports beside the page.
type answer struct {
	compression string
	tls         *tls.ConnectionState // nil for plain http
}

// fetch requests one page of at most size items.
func (c *Client) fetch(ctx context.Context, at bridge.Position, size int) (*bridge.Page, answer, error) {
	page, got, err := c.ask(ctx, at, size)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Reason == bridge.ReasonAuth {
		changed, errKey := c.auth.renew(f.Code)
		switch {
		case changed:
			c.requests.prepare()
			page, got, err = c.ask(ctx, at, size)
		case errKey != nil:
			f.Err = fmt.Errorf("%w; %w", f.Err, errKey)
		}
	}
	if err == nil {
		c.stuck.Passed(at.Cursor)
	}
	switch {
	case err == nil && page.ArrivedAt.IsZero(): // arrive will tell
	case err == nil:
		c.report(nil)
	case ctx.Err() != nil:
		return nil, answer{}, ctx.Err()
	default:
		c.slowDown(err)
		c.report(err)
	}
	return page, got, err
}

// slowDown makes the next requests wait for the bodies of the requests before
// them. An API that throttles may object to concurrent requests: each time more
// pages are needed before requests leave early again.
func (c *Client) slowDown(err error) {
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Throttled && c.early.Load() >= c.earlyThreshold {
		c.earlyThreshold = min(4*c.earlyThreshold, maxEarlyThreshold)
	}
	c.early.Store(0)
}

// report reports the health of the API. Throttling and a rejected cursor are
// healthy responses.
func (c *Client) report(err error) {
	if c.cfg.Report == nil {
		return
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok && (f.Class == bridge.Throttled || f.Class == bridge.BadCursor) {
		err = nil
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.cfg.Report(err)
}

// ask sends one request and reads the response until the page's cursor is
// known. A non-nil error is a Fault, unless ctx has ended.
func (c *Client) ask(ctx context.Context, at bridge.Position, size int) (*bridge.Page, answer, error) {
	c.behind.makeRoom()
	queued := time.Now()
	if fault := c.turns.wait(ctx); fault != nil {
		return nil, answer{}, c.faults.of(at, fault)
	}
	if c.cfg.Waited != nil && c.turns.limited() {
		c.cfg.Waited(time.Since(queued))
	}
	renewed, err := c.auth.authorize(ctx, time.Now())
	if err != nil {
		return nil, answer{}, c.faults.of(at, c.faults.token(at, err))
	}
	if renewed {
		c.requests.prepare()
	}
	t := &transfer{client: c, at: at, caller: ctx}
	ctx, t.cancel = context.WithTimeout(ctx, c.cfg.Timeout)
	req, err := c.requests.page(ctx, at, size)
	if err != nil {
		t.cancel()
		return nil, answer{}, c.faults.of(at, impossible(err))
	}
	t.asked, t.url = time.Now(), req.URL
	resp, err := c.http.RoundTrip(req) //nolint:bodyclose // body.Discard and the transfer close it
	if err != nil {
		t.cancel()
		return nil, answer{}, c.faults.of(at, c.faults.connection(at, err, fmt.Sprintf("no answer within %s", c.cfg.Timeout)))
	}
	if fault := c.refused(at, resp); fault != nil {
		if fault.Class == bridge.Throttled {
			c.turns.key.hold(fault.RetryAfter)
		}
		body.Discard(resp.Body)
		t.cancel()
		c.noteFailed(at, fault)
		return nil, answer{}, c.faults.of(at, fault)
	}
	c.turns.key.hold(delay.Quota(resp.Header, time.Now())) // 0 while requests are left
	page, err := c.page(t, resp)
	if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Code == codeDecode { // a body that broke off looks like an outage
		c.noteFailed(at, fault)
	}
	if err != nil {
		return nil, answer{}, err
	}
	return page, answer{compression: resp.Header.Get("Content-Encoding"), tls: resp.TLS}, nil
}

// refused returns the fault of a response that is no page, before its body is
// read, or nil.
func (c *Client) refused(at bridge.Position, resp *http.Response) *bridge.Fault {
	body.DropConnection(resp)
	switch {
	case resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusOK && resp.ContentLength == 0 && c.cfg.EmptyBodyEnds:
		resp.Header.Del("Content-Encoding") // there is nothing to decompress
	case resp.StatusCode != http.StatusOK:
		return c.faults.refusal(at, resp)
	case body.Plain(resp) && resp.ContentLength > c.cfg.MaxResponse:
		return c.faults.size()
	}
	return nil
}

// page reads a page until its cursor is known for certain and the page is known
// not to be small.
//
// It may return the page while the rest of the body is in flight. That changes
// when the next request leaves, not its cursor: either the parse of the whole
// body yields the same cursor, or Decode rejects the page; see headCursor and
// split. If a page turns out broken after the next one was requested, only
// those requests are wasted: nothing after it is used.
func (c *Client) page(t *transfer, resp *http.Response) (*bridge.Page, error) {
	kept, size := c.memory.Take()
	if body.Plain(resp) && resp.ContentLength > 0 {
		size = int(resp.ContentLength)
	}
	c.begin(t, resp, kept.Room(size))
	p := &bridge.Page{At: t.at, Events: kept.Events, RequestedAt: t.asked, ServerTime: delay.ServerTime(resp.Header), Recycle: c.recycle}
	t.page = p
	if fault := c.mayBeJSON(t, resp); fault != nil {
		p.Body = t.abandon()
		p.Release()
		return nil, c.faults.of(t.at, fault)
	}
	if c.mayBeEarly(t.at, resp, size) && t.read(headSize) && !t.ended.Load() && c.nextFromHead(p, t.body) && !p.Tail() && c.requests.leaked(p.Next) == nil {
		p.Size = int64(max(size, len(t.body)))
		c.behind.add(t)
		return p, nil
	}
	t.read(math.MaxInt)
	whole := c.whole(t, resp)
	p.Body, p.Size, p.ArrivedAt = t.body, int64(len(t.body)), t.last
	err := whole
	if err == nil {
		err = c.next(p, t.url, resp.Header)
	}
	if fault := c.requests.leaked(p.Next); err == nil && fault != nil {
		err = c.faults.of(t.at, fault)
	}
	if err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// mayBeJSON refuses a body of another type by its first byte, HTML also if that is
// white space: the rest may never come.
func (c *Client) mayBeJSON(t *transfer, resp *http.Response) *bridge.Fault {
	kind := resp.Header.Get("Content-Type")
	if namesJSON(kind) || !t.read(1) {
		return nil
	}
	begun := t.body
	if strings.HasPrefix(kind, "text/html") && isEmpty(begun) {
		begun = []byte("<")
	}
	return c.notJSON(t.at, resp, begun)
}

// whole judges a body that has arrived before it is decoded. One that is empty
// is an empty page if the status says so, or the settings.
func (c *Client) whole(t *transfer, resp *http.Response) error {
	switch {
	case t.fault != nil:
		return t.fault
	case !isEmpty(t.body):
		if fault := c.notJSON(t.at, resp, t.body); fault != nil {
			return c.faults.of(t.at, fault)
		}
	case resp.StatusCode == http.StatusNoContent || c.cfg.EmptyBodyEnds:
		t.body = append(t.body[:0], c.nothing...)
	default:
		return c.faults.of(t.at, emptyBody())
	}
	return nil
}

// mayBeEarly reports whether the next request may leave before this body is
// complete; expected is its size as far as known.
//
// The preceding pages must have had the cursor at the beginning. First pages,
// probes (without a cursor) and bodies that arrive in one flight are waited
// for.
func (c *Client) mayBeEarly(at bridge.Position, resp *http.Response, expected int) bool {
	if resp.ContentLength >= 0 {
		expected = int(resp.ContentLength)
	}
	return c.simple && at.Cursor != "" && c.early.Load() >= c.earlyThreshold && expected >= oneFlight
}

// next sets the cursor of a page that has arrived: of a simple one by its ends
// if they tell it.
func (c *Client) next(p *bridge.Page, asked *url.URL, h http.Header) error {
	if c.simple {
		if cursor, ok := tailCursor(p.Body, c.cursorName, c.scratch[:0]); ok {
			c.early.Store(0)
			c.setNext(p, cursor)
			return nil
		}
		if c.nextFromHead(p, p.Body) {
			return nil
		}
	}
	fault := c.parse(p, c.ahead)
	if fault == nil {
		fault = c.follow(p, asked, h)
	}
	if fault == nil {
		fault = c.unlisted(p, c.ahead)
	}
	if fault != nil {
		return c.faults.of(p.At, fault)
	}
	return nil
}

// nextFromHead sets the cursor of a partially received page if the beginning of
// its body has one.
func (c *Client) nextFromHead(p *bridge.Page, body []byte) bool {
	cursor, ok := headCursor(body[:min(len(body), headSize)], c.cursorName, c.scratch[:0])
	if ok {
		c.setNext(p, cursor)
	}
	switch {
	case !ok || p.Tail():
		c.early.Store(0)
	case c.early.Load() < c.earlyThreshold:
		c.early.Add(1)
	}
	return ok
}

func (c *Client) setNext(p *bridge.Page, cursor []byte) {
	p.Next = string(cursor)
	c.scratch = cursor[:0]
}

// parse decodes the page's events, items and source with a decoder, which keeps
// the cursor until its next page.
func (c *Client) parse(p *bridge.Page, with *pageDecoder) *bridge.Fault {
	err := with.decode(p.Body, p.Events[:0])
	p.Events, with.events = with.events, nil
	if err != nil {
		p.Events = p.Events[:0]
		return schemaFault(err)
	}
	p.Items, p.Extra, p.Source = len(p.Events), with.item.extra, with.identity.identity()
	return nil
}
