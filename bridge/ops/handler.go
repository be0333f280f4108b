package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/metrics"
)

// Stream is what the server asks of a bridge.
type Stream interface {
	Status() bridge.Status
	Alive() bool
}

// Parts are what a server shows and steers. What is nil is not there.
type Parts struct {
	// Version is that of the program, for the page.
	Version string
	// Metrics and Streams are required.
	Metrics *metrics.Metrics
	Streams []Stream
	// Controllers see and steer the streams, by name.
	Controllers map[string]Controller
	// Records are dead letters and jobs.
	Records Records
	// Log and Samples feed /api/v1/events.
	Log     *LogTail
	Samples *Sampler
	// Page is at / and below.
	Page http.Handler
	// Logger is told who acted, and who was refused.
	Logger *slog.Logger
}

const (
	apiRoot   = "/api/"
	debugRoot = "/debug/pprof/"
	// policy lets the page load nothing but its own files, and nobody frame it.
	policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// handler answers all requests.
type handler struct {
	Parts
	config  Config
	guard   guard
	queries chan struct{} // full while maxQueries are being answered
	feeds   chan struct{} // full while maxFeeds are connected
}

// Handler returns the endpoints:
//
//	/livez    200 while every commit loop turns. Kafka, Redis or the API being
//	          away does not make a process dead: restarting it would not help.
//	          /ping is the same.
//	/readyz   200 while no stream is blocked; ?verbose says what each one does.
//	          /ready is the same.
//	/metrics  Prometheus.
//	/api/v1/  what Controllers and Records answer, as JSON, and events as they happen.
//	/debug/pprof/  for this machine alone, and only while Addr is of loopback.
//	/         the page.
//
// A request by a name that is not ours gets 421, one from a page of another site
// to /api/ or /debug/ 403. Actions need the token, or, without one, a caller on
// this machine.
func Handler(cfg Config, parts Parts) http.Handler {
	if parts.Logger == nil {
		parts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{
		Parts: parts, config: cfg, guard: newGuard(cfg),
		queries: make(chan struct{}, maxQueries), feeds: make(chan struct{}, maxFeeds),
	}
	mux := http.NewServeMux()
	h.route(mux)
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(h.denySite))
	return h.secure(sites.Handler(mux))
}

func (h *handler) route(mux *http.ServeMux) {
	for path, f := range map[string]http.HandlerFunc{"/livez": h.live, "/ping": h.live, "/readyz": h.ready, "/ready": h.ready} {
		mux.HandleFunc("GET "+path, f)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.Metrics.Registry(), promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc(apiRoot, h.unknown(mux))
	mux.HandleFunc("GET /api/v1/session", h.query(h.session))
	mux.HandleFunc("GET /api/v1/events", h.feed)
	if h.Records != nil {
		mux.HandleFunc("GET /api/v1/jobs", h.query(h.jobs))
		mux.HandleFunc("GET /api/v1/streams/{stream}/dead-letters", h.query(h.deadLetters))
	}
	if h.Controllers != nil {
		mux.HandleFunc("GET /api/v1/status", h.query(h.status))
		mux.HandleFunc("GET /api/v1/streams/{stream}/history", h.query(h.history))
		mux.HandleFunc("POST /api/v1/streams/{stream}/pause", h.action(h.pause))
		mux.HandleFunc("POST /api/v1/streams/{stream}/resume", h.action(h.resume))
		mux.HandleFunc("POST /api/v1/streams/{stream}/move", h.action(h.move))
	}
	if h.config.Local() {
		for path, f := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
			mux.HandleFunc("GET "+debugRoot+path, onlyLocal(f))
		}
	}
	if h.Page != nil {
		mux.Handle("/", onlyGet(h.Page))
	}
}

// secure sets what every answer has, and refuses names that are not ours.
func (h *handler) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		if strings.HasPrefix(r.URL.Path, apiRoot) {
			header.Set("Cache-Control", "no-store")
		}
		if !h.guard.knowsHost(r.Host) {
			h.fail(w, r, &Error{
				Status: http.StatusMisdirectedRequest, Err: fmt.Errorf("this server is not called %q", shorten(r.Host)),
				Hint: "add the name to HTTP_ALLOWED_HOSTS, or use the IP address",
			})
			return
		}
		if fromOtherSite(r) {
			h.denySite(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *handler) denySite(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, &Error{Status: http.StatusForbidden, Err: errors.New("the request comes from a page of another site"), Hint: "the page of this server, or curl"})
}

func onlyLocal(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			http.NotFound(w, r)
			return
		}
		next(w, r)
	}
}

func onlyGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unknown answers what no other pattern below /api/ matches, as JSON.
func (h *handler) unknown(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := *r
			other.Method = method
			if _, pattern := mux.Handler(&other); pattern != apiRoot {
				w.Header().Set("Allow", method)
				h.fail(w, r, &Error{Status: http.StatusMethodNotAllowed, Err: fmt.Errorf("%s is not for %s", shorten(r.URL.Path), shorten(r.Method)), Hint: method})
				return
			}
		}
		h.fail(w, r, &Error{Status: http.StatusNotFound, Err: fmt.Errorf("there is no %s", shorten(r.URL.Path)), Hint: "/api/v1/status"})
	}
}

// refusal is the body of an answer that is an error.
type refusal struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// fail answers with an error, and logs what somebody was refused.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := failure(err)
	switch e.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="exportbridge"`)
		fallthrough
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		h.Logger.Warn("request refused", "caller", callerOf(r), "method", shorten(r.Method), "path", shorten(r.URL.Path), "status", e.Status, "error", e.Error(), "hint", e.Hint)
	}
	reply(w, e.Status, refusal{Error: e.Error(), Hint: e.Hint})
}

// reply sends v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked is gone
}

// shorten bounds what a caller gave before it is said back or logged.
func shorten(s string) string { return cut(s, 200) }

// cut shortens a text to n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
