package ops

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/door"
	"exportbridge/bridge/ops/metrics"
)

// Stream is a bridge.
type Stream interface {
	Status() bridge.Status
	Alive() bool
}

// Parts are the parts of a server. Those that are nil are disabled.
type Parts struct {
	// Version is the program's, for the web UI.
	Version string
	// Metrics and Streams are required. Streams returns the streams of the process, which
	// may change.
	Metrics *metrics.Metrics
	Streams func() []Stream
	// Controller returns what shows and changes a stream, nil for an unknown one.
	Controller func(stream string) Controller
	// Records reads dead letters and jobs.
	Records Records
	// Jobs starts, resumes and cancels jobs; it requires Records.
	Jobs Jobs
	// Log and Samples feed /api/v1/events.
	Log     *LogTail
	Samples *Sampler
	// Page is the web UI, at / and below.
	Page http.Handler
	// Logger logs actions and rejected requests.
	Logger *slog.Logger
	// Audit records them too. Listen opens that of Config.
	Audit *door.Audit

	denials *denials     // of all addresses of a server
	issuer  *door.Issuer // of HTTP_OIDC_ISSUER
}

const (
	apiRoot   = "/api/"
	debugRoot = "/debug/pprof/"
	pageRoot  = "/" // all paths without another handler
	// policy lets the web UI load only its own files, and forbids framing.
	policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// handler answers all requests.
type handler struct {
	Parts
	config  Config
	guard   *guard
	feeds   seats
	watched *watcher
}

// Handler returns the endpoints:
//
//	/livez    200 unless a commit loop has stalled. It ignores Kafka, Redis and the
//	          API: a restart would not bring them back. Alias: /ping.
//	/readyz   200 unless a stream is blocked; ?verbose lists all streams. Alias:
//	          /ready.
//	/metrics  Prometheus.
//	/api/v1/  Controller, Records and Jobs as JSON, and server-sent events.
//	/debug/pprof/  for localhost, if PProf is set.
//	/         the web UI.
//
// Unknown Host names get 421, requests of other sites' pages 403, but for links to the
// web UI. Actions require a token; without one they are restricted to localhost. With named
// tokens or those of an issuer, reading requires one too, but for probes, metrics and the files of the web UI.
// An address that has sent wrong tokens gets 429 for all but one token a second, also for a
// right one that was not accepted from there before.
//
// If ProbeAddr is set, probes and metrics here need what reading needs.
func Handler(cfg Config, parts Parts) http.Handler {
	h := newHandler(cfg, parts)
	mux := http.NewServeMux()
	h.routeProbes(mux)
	h.route(mux)
	if cfg.ProbeAddr == "" {
		return h.secure(mux, slices.Concat(withoutLogin, probePatterns))
	}
	return h.secure(mux, withoutLogin)
}

// probeHandler returns the endpoints of ProbeAddr: probes and metrics.
func probeHandler(cfg Config, parts Parts) http.Handler {
	h := newHandler(cfg, parts)
	h.guard.owns(cfg.ProbeAddr)
	mux := http.NewServeMux()
	h.routeProbes(mux)
	return h.secure(mux, slices.Concat(withoutLogin, probePatterns))
}

func newHandler(cfg Config, parts Parts) *handler {
	if parts.Logger == nil {
		parts.Logger = slog.New(slog.DiscardHandler)
	}
	if parts.issuer == nil {
		parts.issuer = door.NewIssuer(cfg.OIDC, parts.Logger)
	}
	h := &handler{Parts: parts, config: cfg, guard: newGuard(cfg, parts.Logger, parts.issuer),
		watched: &watcher{streams: parts.Streams, controller: parts.Controller}}
	if h.denials == nil {
		h.denials = newDenials(parts)
	}
	return h
}

// routeProbes adds the handlers of probePatterns.
func (h *handler) routeProbes(mux *http.ServeMux) {
	measure := promhttp.HandlerFor(h.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for i, handle := range []http.HandlerFunc{h.live, h.live, h.ready, h.ready, measure.ServeHTTP} {
		mux.HandleFunc(probePatterns[i], handle)
	}
}

func (h *handler) route(mux *http.ServeMux) {
	mux.HandleFunc(apiRoot, h.unknown(mux))
	mux.HandleFunc("GET /api/v1/session", h.session)
	mux.HandleFunc("GET /api/v1/events", h.feed)
	if h.Records != nil {
		mux.HandleFunc("GET /api/v1/jobs", h.query(0, h.jobs))
		mux.HandleFunc("GET /api/v1/streams/{stream}/dead-letters", h.query(lettersKept, h.deadLetters))
	}
	if h.Jobs != nil {
		mux.HandleFunc("POST /api/v1/jobs", h.action(noObject, h.startJob))
		mux.HandleFunc("POST /api/v1/jobs/{job}/resume", h.action(jobID, h.resumeJob))
		mux.HandleFunc("POST /api/v1/jobs/{job}/cancel", h.action(jobID, h.cancelJob))
	}
	if h.Controller != nil {
		mux.HandleFunc("GET /api/v1/status", h.query(0, h.status))
		mux.HandleFunc("GET /api/v1/streams/{stream}/history", h.query(0, h.history))
		mux.HandleFunc("POST /api/v1/streams/{stream}/pause", h.action(h.stream, h.pause))
		mux.HandleFunc("POST /api/v1/streams/{stream}/resume", h.action(h.stream, h.resume))
		mux.HandleFunc("POST /api/v1/streams/{stream}/move", h.action(h.stream, h.move))
	}
	if h.config.PProf {
		for name, show := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.HandleFunc("GET "+debugRoot+name, func(w http.ResponseWriter, r *http.Request) {
				if !isLocal(r) {
					http.NotFound(w, r)
					return
				}
				show(w, r)
			})
		}
	}
	if h.Page != nil {
		mux.Handle(pageRoot, onlyGet(h.Page))
	}
}

// secure sets the common headers and rejects unknown Host names, other sites, and requests
// without a token but for the open patterns.
func (h *handler) secure(next *http.ServeMux, open []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.guard.proxy.Strip(r.Header, peerOf(r))
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		if strings.HasPrefix(r.URL.Path, apiRoot) {
			header.Set("Cache-Control", "no-store")
		}
		if len(r.TransferEncoding) > 0 {
			// With Content-Length too, a proxy may take the rest for another request.
			header.Set("Connection", "close")
			h.fail(w, r, errorf(http.StatusLengthRequired, "send Content-Length", "chunked bodies are not accepted"))
			return
		}
		if !h.guard.knowsHost(r.Host) {
			h.fail(w, r, errorf(http.StatusMisdirectedRequest,
				"add it to HTTP_ALLOWED_HOSTS, or use the IP address", "unknown Host name %q", shorten(r.Host)))
			return
		}
		_, pattern := next.Handler(r)
		if err := h.guard.checkSite(r, pattern == pageRoot); err != nil {
			h.fail(w, r, err)
			return
		}
		if !slices.Contains(open, pattern) {
			if err := h.guard.mayRead(r); err != nil {
				h.fail(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// withoutLogin are the patterns that never require a token: the files of the web UI have no
// data, and session tells it whether to ask for a token. No pattern is a 404 or 405.
var withoutLogin = []string{"", "GET /api/v1/session", pageRoot}

// probePatterns are those of probes and metrics.
var probePatterns = []string{"GET /livez", "GET /ping", "GET /readyz", "GET /ready", "GET /metrics"}

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

// unknown answers requests below /api/ that match no other pattern, as JSON.
func (h *handler) unknown(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := *r
			other.Method = method
			if _, pattern := mux.Handler(&other); pattern != apiRoot {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			h.fail(w, r, errorf(http.StatusMethodNotAllowed, "use "+strings.Join(allowed, " or "),
				"method %s is not allowed for %s", shorten(r.Method), shorten(r.URL.Path)))
			return
		}
		h.fail(w, r, errorf(http.StatusNotFound, "/api/v1/status", "%s does not exist", shorten(r.URL.Path)))
	}
}

// refusal is the body of an error.
type refusal struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// fail answers with an error and logs rejected requests.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := failure(err)
	switch e.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="exportbridge"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	if e.refused || slices.Contains(rejections, e.Status) {
		h.denied(r, e)
	}
	// Only a browser that opens a page lists HTML first.
	if strings.HasPrefix(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(e.Status)
		text := e.Error()
		if e.Hint != "" {
			text += "\nTry: " + e.Hint
		}
		_, _ = fmt.Fprintln(w, text) // or the client has left
		return
	}
	reply(w, e.Status, refusal{Error: e.Error(), Hint: e.Hint})
}

// cut shortens a text to n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
