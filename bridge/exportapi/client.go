// Package exportapi reads pages of an export API. It returns failures and rate limits as
// bridge.Faults.
package exportapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
	"exportbridge/bridge/exportapi/internal/memory"
	"exportbridge/bridge/exportapi/internal/ratelimit"
	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/exportapi/internal/stuck"
	"exportbridge/bridge/exportapi/internal/timeline"
	"exportbridge/bridge/exportapi/internal/transport"
	"exportbridge/bridge/exportapi/jsonpointer"
	"exportbridge/bridge/internal/delay"

	"golang.org/x/time/rate"
)

// Client reads one resource of one export API. It implements bridge.Source.
//
// Fetch and Decode may run concurrently with each other, each in one goroutine at a time.
// Pages may be released concurrently. Close is the last call.
type Client struct {
	cfg          Config
	http, tokens transport.Shared // for pages and for token requests
	turns        *ratelimit.Turns
	decoders     *share.Value[string, *decoders]
	auth         *credentials
	faults       faults
	memory       memory.Pages
	pages        pageReader
	// recycle is bound once, so that a page allocates no closure.
	recycle func(*bridge.Page)

	// Owned by the goroutine that calls Fetch.
	requests requests
	reader   body.Reader
	kind     string // the last Content-Type that was JSON
	stuck    stuck.Page

	// Owned by the goroutine that calls Decode.
	order   timeline.Order
	private *private // nil without rules for private data
}

var _ bridge.Source = (*Client)(nil)

// New returns a client for cfg. Its error has all problems of cfg. New does not connect.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("export API: %w", err)
	}
	if _, err := jsonpointer.Parse(cfg.keyPointer()); err != nil {
		return nil, fmt.Errorf("export API: KAFKA_KEY %q: %w, for example %s", cfg.KeyPointer, err,
			bridge.PointerLike(cfg.KeyPointer))
	}
	preset := presets[cfg.Resource]
	urls, _ := cfg.endpoints(preset) // validated
	own := rate.Inf
	if perSecond, _ := ParseRate(cfg.RateLimit); perSecond > 0 { // validated
		own = rate.Limit(perSecond)
	}
	if cfg.Private.Encrypts() && cfg.Keys == nil {
		return nil, errors.New("export API: EVENT_ENCRYPT requires Config.Keys")
	}
	if cfg.Shared == nil {
		cfg.Shared = new(Shared)
	}
	c := &Client{
		cfg:      cfg,
		http:     cfg.Shared.connections.Use(connections(&cfg)),
		tokens:   cfg.Shared.connections.Use(tokenConnections(&cfg)),
		decoders: cfg.Shared.decodersOf(cfg.mapping()),
		turns:    cfg.Shared.limits.Of(limitKey(&cfg), own, cfg.Beside),
	}
	c.auth = newCredentials(&c.cfg, c.tokens)
	c.requests = newRequests(&c.cfg, urls, c.auth)
	c.faults = faults{cfg: &c.cfg, urls: urls, auth: c.auth, reader: &c.reader,
		hidden: c.requests.secrets(), withheld: c.requests.credentials}
	c.pages.init(&c.cfg, &c.requests, &c.faults, c.decoders.V)
	if c.private = newPrivate(&c.cfg); cfg.Private.Encrypts() {
		c.private.keys = cfg.Keys()
	}
	c.recycle = func(p *bridge.Page) {
		c.memory.Give(memory.Page{Body: p.Body, Events: p.Events, Notes: p.Notes}, p.Items)
		p.Body, p.Events, p.Notes = nil, nil, nil
	}
	return c, nil
}

// TrimMemory frees the memory that no Client of the process has needed since the last call.
// It may be called concurrently.
func TrimMemory() {
	memory.Trim()
	body.Trim()
}

// Close releases what the client shares, and closes connections that no other client uses.
// Call it once, after all other calls have returned.
func (c *Client) Close() {
	c.http.Leave()
	c.tokens.Leave()
	c.turns.Leave()
	c.decoders.Leave()
	c.requests.leaks.Leave()
	if c.private != nil && c.private.keys != nil {
		c.private.keys.Close()
	}
}

// Endpoint returns the host and path of pages, for tracing.
func (c *Client) Endpoint() (host, path string) {
	u := c.faults.urls.first
	return u.Host, u.Path
}

// Fetch implements bridge.Source. It waits for the rate limit and sends one request. If the
// API rejects the credentials and others are available, it sends the request again.
func (c *Client) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return c.fetch(ctx, at, c.cfg.PageSize, follow)
}

// Decode implements bridge.Source. Then it applies the rules for private data, and Config.Check.
func (c *Client) Decode(p *bridge.Page) error {
	err := c.decode(p)
	if err == nil {
		err = c.private.hide(p, c.decoders.V)
	}
	if err == nil && c.cfg.Check != nil {
		c.cfg.Check(p)
	}
	return err
}

func (c *Client) decode(p *bridge.Page) error {
	var fault *bridge.Fault
	if len(p.Events) == 0 { // otherwise Fetch decoded the page to find the cursor
		fault = c.pages.decode(p)
	}
	if fault == nil && !c.cfg.AnyOrder && c.order.Backwards(p) {
		fault = &bridge.Fault{Class: bridge.Permanent, Code: codeSchema, Reason: bridge.ReasonConfig, Err: ErrNewestFirst,
			Hint: HintWindows}
	}
	if fault == nil && !c.cfg.AnyOrder && c.cfg.widens() {
		from, to := c.cfg.asked(p.At)
		if err := timeline.Trim(p, from, to); err != nil {
			fault = &bridge.Fault{Class: bridge.Permanent, Code: codeSchema, Reason: bridge.ReasonMapping, Err: err,
				Hint: "set EXPORT_ITEM_TIME to a time that each item has; " +
					"for an exception choose other bounds, or another EXPORT_PAGE_SIZE"}
		}
	}
	if fault != nil {
		p.Events, p.Items = p.Events[:0], 0
		return c.faults.of(p.At, fault)
	}
	return nil
}

// DecodeItem decodes the bytes of one item into a page, and applies the rules for private
// data, but not Config.Check. It must not run concurrently with Decode. The page need not be released.
// An error that is a bridge.Fault is that of Config.Keys; others mean that the bytes are no item.
func (c *Client) DecodeItem(item []byte) (*bridge.Page, error) {
	page, err := c.decodeItem(item)
	if err == nil {
		err = c.private.hide(page, c.decoders.V)
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}

// DecodeRecord is DecodeItem for the value of a record with this ce_id, to which the rules
// were applied.
func (c *Client) DecodeRecord(value []byte, id string) (*bridge.Page, error) {
	page, err := c.decodeItem(value)
	if err != nil {
		return nil, err
	}
	e := &page.Events[0]
	switch {
	case e.ID == nil:
		e.Sums = bridge.SumsOfRecord([]byte(id))
	case c.private != nil && c.private.id && !bytes.HasPrefix(e.ID, []byte(id)): // a hash of what was no id
		e.ID = []byte(id)
	}
	return page, nil
}

func (c *Client) decodeItem(item []byte) (*bridge.Page, error) {
	page := &bridge.Page{Body: pageAround(c.cfg.ItemsField, item)}
	if err := c.decode(page); err != nil {
		return nil, errors.New(err.Error()) // no Fault: it concerns these bytes alone
	}
	if len(page.Events) != 1 || !bytes.Equal(page.Events[0].Raw, item) {
		return nil, errors.New("not a single JSON value")
	}
	return page, nil
}

// IngestedAt returns the ingestion time of an item in milliseconds since the epoch, 0 if it
// has none. It may be called concurrently.
func (c *Client) IngestedAt(item []byte) int64 {
	return c.decoders.V.ingestedAt(item)
}

// fetch requests one page of at most size items.
func (c *Client) fetch(ctx context.Context, at bridge.Position, size int, receive receiver) (*bridge.Page, error) {
	page, err := c.ask(ctx, at, size, receive)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Reason == bridge.ReasonAuth {
		changed, errKey := c.auth.renew(f.Code)
		switch {
		case changed:
			c.requests.prepare()
			page, err = c.ask(ctx, at, size, receive)
		case errKey != nil:
			f.Err = fmt.Errorf("%w; %w", f.Err, errKey)
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		c.stuck.Passed(at.Cursor)
	}
	c.report(err)
	return page, err
}

// report passes the outcome of a request to Config.Report. A 429 and a rejected cursor
// count as success: the API works.
func (c *Client) report(err error) {
	if c.cfg.Report == nil {
		return
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok && (f.Class == bridge.Throttled || f.Class == bridge.BadCursor) {
		err = nil
	}
	c.cfg.Report(err)
}

// receiver reads the response to a request into p.
type receiver func(c *Client, p *bridge.Page, asked *url.URL, resp *http.Response) *bridge.Fault

// follow is the receiver of Fetch.
func follow(c *Client, p *bridge.Page, asked *url.URL, resp *http.Response) *bridge.Fault {
	return c.receive(p, asked, resp, nil)
}

// ask sends one request and reads the page. A non-nil error is a Fault, unless ctx has
// ended.
func (c *Client) ask(ctx context.Context, at bridge.Position, size int, receive receiver) (*bridge.Page, error) {
	queued := time.Now()
	if fault := c.turns.Wait(ctx); fault != nil {
		return nil, c.faults.of(at, fault)
	}
	if c.cfg.Waited != nil && c.turns.Limited() {
		c.cfg.Waited(time.Since(queued))
	}
	renewed, err := c.auth.authorize(ctx, time.Now())
	if err != nil {
		return nil, c.faults.of(at, c.faults.token(at, err))
	}
	if renewed {
		c.requests.prepare()
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := c.requests.page(ctx, at, size)
	if err != nil {
		return nil, c.faults.of(at, impossible(err))
	}
	asked := time.Now()
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, c.faults.of(at, c.faults.connection(at, err, fmt.Sprintf("no answer within %s", c.cfg.Timeout)))
	}
	defer resp.Body.Close()
	if fault := c.refused(at, resp); fault != nil {
		if fault.Class == bridge.Throttled {
			c.turns.Hold(fault.RetryAfter)
		}
		body.Discard(resp.Body)
		c.noteFailed(at, fault)
		return nil, c.faults.of(at, fault)
	}
	c.turns.Hold(delay.Quota(resp.Header, time.Now())) // 0 while requests are left
	page := &bridge.Page{At: at, RequestedAt: asked, ServerTime: delay.ServerTime(resp.Header), Recycle: c.recycle}
	if fault := receive(c, page, req.URL, resp); fault != nil {
		page.Release()
		if fault.Code == codeDecode { // a body that broke off looks like an outage
			c.noteFailed(at, fault)
		}
		return nil, c.faults.of(at, fault)
	}
	return page, nil
}

// refused returns a fault if the status or size of a response shows that it is no page,
// else nil.
func (c *Client) refused(at bridge.Position, resp *http.Response) *bridge.Fault {
	body.DropConnection(resp)
	switch {
	case resp.StatusCode == http.StatusNoContent,
		resp.StatusCode == http.StatusOK && resp.ContentLength == 0 && c.cfg.EmptyBodyEnds:
		resp.Header.Del("Content-Encoding") // there is nothing to decompress
	case resp.StatusCode != http.StatusOK:
		return c.faults.refusal(at, resp)
	case body.Plain(resp) && resp.ContentLength > c.cfg.MaxResponse:
		return c.faults.size()
	}
	return nil
}

// receive reads the body of a page and finds its next cursor. See pageReader.next for look.
func (c *Client) receive(p *bridge.Page, asked *url.URL, resp *http.Response, look lookout) *bridge.Fault {
	kept, size := c.memory.Take()
	if body.Plain(resp) && resp.ContentLength > 0 {
		size = c.private.room(int(resp.ContentLength))
	}
	p.Events, p.Body, p.Notes = kept.Events, kept.Room(size), kept.Notes
	if fault := c.read(p, resp); fault != nil {
		return fault
	}
	if fault := c.pages.next(p, asked, resp.Header, look); fault != nil {
		return fault
	}
	return c.requests.leaked(p.Next)
}

// read reads the whole body. Unless the Content-Type is JSON, it checks the first byte
// before it waits for the others, which may never come. HTML is refused even if it begins
// with white space.
func (c *Client) read(p *bridge.Page, resp *http.Response) *bridge.Fault {
	c.reader.Open(resp)
	defer c.reader.Done()
	var err error
	kind := resp.Header.Get("Content-Type")
	if kind != c.kind && !namesJSON(kind) {
		p.Body, err = c.reader.Read(p.Body, 1, c.cfg.MaxResponse)
		begun := p.Body
		if strings.HasPrefix(kind, "text/html") && isEmpty(begun) && len(begun) > 0 {
			begun = []byte("<")
		}
		if fault := c.notJSON(p.At, resp, begun); err == nil && fault != nil {
			return fault
		}
	}
	if err == nil {
		p.Body, err = c.reader.Read(p.Body, math.MaxInt, c.cfg.MaxResponse)
	}
	if err != nil {
		return c.faults.body(p.At, err, len(p.Body))
	}
	p.ArrivedAt = time.Now()
	room := c.private.room(len(p.Body))
	c.memory.Measure(room)
	p.Extra = int64(room - len(p.Body))
	return c.whole(p, resp)
}

// whole checks a complete body before it is decoded. An empty body is an empty page if the
// status or the settings say so.
func (c *Client) whole(p *bridge.Page, resp *http.Response) *bridge.Fault {
	switch {
	case !isEmpty(p.Body):
		return c.notJSON(p.At, resp, p.Body)
	case resp.StatusCode == http.StatusNoContent || c.cfg.EmptyBodyEnds:
		p.Body = append(p.Body[:0], c.pages.nothing...)
		return nil
	}
	return &bridge.Fault{Class: bridge.Malformed, Code: codeSchema, Reason: bridge.ReasonSchema,
		Err: fmt.Errorf("%w: the body is empty", errNoPage),
		Hint: "if the API answers so where there are no events, set EXPORT_EMPTY_BODY_ENDS=true; " +
			"otherwise check for a proxy that drops bodies"}
}
