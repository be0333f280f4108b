package exportsim

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is the export API. Its methods may be called concurrently.
type Handler struct {
	config     Config // with defaults
	pages      pages
	limiter    *limiter
	link       *link
	requests   atomic.Int64
	compressor *compressor
	bodies     sync.Pool // of *[]byte

	closeOnce sync.Once
	closed    chan struct{} // closed by Close, ends requests that wait
}

// New returns a Handler. It starts no goroutine.
func New(config Config) (*Handler, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("simulator configuration: %w", err)
	}
	now := time.Now()
	config = config.withDefaults(config.clock()())
	world := newWorld(config)
	if config.Events > world.limit || config.Start.UnixMilli() < minMillis {
		return nil, fmt.Errorf("simulator configuration: %d events %s apart from %s on are not all within 2001 and "+
			"2250, use fewer, a smaller distance or another start",
			config.Events, config.Every, config.Start.Format(time.RFC3339))
	}
	since := config.Since
	if since.IsZero() {
		since = now
	}
	form := config.Form.withDefaults(config)
	h := &Handler{
		config: config,
		pages: pages{
			config:    config,
			form:      form,
			world:     world,
			resources: world.resources(form),
			cursors:   newCursors(config.Seed, config.CursorTTL),
			stock:     growth{rate: config.Rate, limit: world.limit, base: config.Events, since: since},
		},
		limiter: newLimiter(config.RateLimit),
		link:    newLink(config.BandwidthBits),
		closed:  make(chan struct{}),
	}
	if form.Clocked {
		h.pages.stock.happened = world.happened
	}
	h.bodies.New = func() any { return new([]byte) }
	var err error
	h.compressor, err = newCompressor(config)
	return h, err
}

// Close ends requests that wait (latency, bandwidth, stall) without an answer, so that a server
// can shut down. Only the first call has an effect.
func (h *Handler) Close() { h.closeOnce.Do(func() { close(h.closed) }) }

// Stock returns the current number of events.
func (h *Handler) Stock() int { return h.pages.stock.now() }

// Grow adds n events.
func (h *Handler) Grow(n int) { h.pages.stock.grow(n) }

// SetStock sets the number of events to n. They grow by Rate from there.
func (h *Handler) SetStock(n int) { h.pages.stock.set(n) }

// Event returns the bytes of event i as every page has them, even if it is not visible yet.
func (h *Handler) Event(i int) []byte { return h.pages.resources[0].appendItem(nil, i) }

// VisibleAt returns when event i became visible, or will by Rate: the earliest time at
// which a page can have it. Events from New, SetStock or Grow are visible since
// Config.Since or the last SetStock. The zero time means never.
func (h *Handler) VisibleAt(i int) time.Time {
	if h.pages.form.Clocked {
		return time.UnixMilli(h.pages.world.visibleAt(i))
	}
	return h.pages.stock.visible(i + 1)
}

// EventTime returns the time of event i in whole milliseconds. Event i lies within Every
// after Start + i x Every, so the times never fall, unless the form has Late.
func (h *Handler) EventTime(i int) time.Time { return time.UnixMilli(h.pages.world.ownMicros(i) / 1e3) }

// ServeHTTP serves the API. It also serves /healthz, which needs no key and is not delayed or
// faulted.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a client that is gone needs no answer
		return
	}
	random := h.pages.world.hash(saltFault, int(h.requests.Add(1)))
	if h.config.OnRequest != nil {
		h.config.OnRequest(r)
	}
	if !h.wait(r.Context(), h.config.Latency) {
		panic(http.ErrAbortHandler) // a return would be an empty answer with status 200
	}
	if h.pages.form.TokenPath != "" && r.URL.Path == h.config.BasePath+h.pages.form.TokenPath {
		h.serveToken(w, r)
		return
	}
	a, refused := h.answer(r)
	fault := ""
	if !refused {
		fault = h.config.Faults.draw(random)
	}
	if fault != "" {
		a = h.apply(fault, random, a)
	}
	h.send(w, r, a, fault)
	if a.pooled != nil {
		h.bodies.Put(a.pooled)
	}
}

// answer returns the answer to a request. refused is set if the request did not reach a
// page.
func (h *Handler) answer(r *http.Request) (a answer, refused bool) {
	res := h.route(r.URL.Path)
	switch {
	case res == nil:
		return h.problem(http.StatusNotFound, "not-found", "There is nothing at this path."), true
	case r.Method != h.pages.form.Method:
		a := h.problem(http.StatusMethodNotAllowed, "method-not-allowed", "Only "+h.pages.form.Method+" is allowed.")
		a.allow = h.pages.form.Method
		return a, true
	}
	if a, ok := h.authenticate(r); !ok {
		return a, true
	}
	if delay := h.limiter.take(); delay > 0 {
		a := h.problem(h.pages.form.LimitStatus, "rate-limit", "There were too many requests.")
		if !h.pages.form.NoRetryAfter {
			a.retryAfter = strconv.Itoa(int(math.Ceil(delay.Seconds())))
		}
		return a, true
	}
	return h.page(res, r), false
}

// route returns the resource at a path, or nil.
func (h *Handler) route(path string) *resource {
	for i := range h.pages.resources {
		if res := &h.pages.resources[i]; path == h.config.BasePath+res.path {
			return res
		}
	}
	return nil
}

func (h *Handler) page(res *resource, r *http.Request) answer {
	q, err := h.pages.parseQuery(res, r)
	if err != nil {
		return h.refuse(err)
	}
	if page, ok := h.pages.ready(q); ok {
		return answer{status: http.StatusOK, contentType: "application/json", body: page.body, encoded: page.encoded}
	}
	pooled := h.bodies.Get().(*[]byte)
	body, header := h.pages.append((*pooled)[:0], q)
	*pooled = body
	return answer{status: http.StatusOK, contentType: "application/json", header: header, body: body, pooled: pooled}
}

func (h *Handler) refuse(err error) answer {
	if r, ok := errors.AsType[refusal](err); ok {
		return h.problem(r.status, r.kind, r.text)
	}
	return h.problem(http.StatusInternalServerError, "internal", err.Error())
}
