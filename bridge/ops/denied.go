package ops

import (
	"context"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/door"
)

const (
	// denialRate is the number of rejected requests per second that have a line of their own
	// in log and audit log, and the burst.
	denialRate = 100
	// clientRate and clientBurst are the limits of one client that is not a trusted proxy.
	clientRate, clientBurst = 20, 50
	// maxDenialWait is how long a rejected request waits for its line.
	maxDenialWait = time.Second
	// tallyWindow is how long requests without a line, and failed handshakes, are counted
	// before one line stands for them.
	tallyWindow = 5 * time.Second
)

// rejections are the statuses of rejected requests. A request that is rejected because tokens
// cannot be read has another.
var rejections = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusLengthRequired, http.StatusMisdirectedRequest,
	http.StatusTooManyRequests,
}

// denials limits the lines of rejected requests. Clients that leave do not get more of them.
type denials struct {
	unwritten *tally
	handshake *tally

	mu  sync.Mutex // guards all below
	all *rate.Limiter
	of  map[netip.Addr]*rate.Limiter // by address, like guesses.wrong
}

func newDenials(parts Parts) *denials {
	return &denials{
		all: rate.NewLimiter(denialRate, denialRate),
		unwritten: &tally{report: func(n int, caller, _ string) {
			parts.Logger.Warn("requests rejected, without a line each", "count", n, "caller", caller)
			all := door.Record{Outcome: door.Denied, Count: n, Error: "too many rejected requests for a line each"}
			_ = parts.record(sender{address: caller}, all) // which logs an error
		}},
		handshake: &tally{report: func(n int, caller, last string) {
			parts.Logger.Warn("TLS handshakes failed", "count", n, "caller", caller, "error", last)
		}},
	}
}

// place takes a place for a line, and returns how long it must wait for it; false if none is
// free within maxDenialWait. client is the zero Addr for a trusted proxy, which has many.
func (d *denials) place(client netip.Addr, now time.Time) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	limits := []*rate.Limiter{d.all}
	if client.IsValid() {
		if d.of[client] == nil {
			d.of = add(d.of, client, rate.NewLimiter(clientRate, clientBurst))
		}
		limits = append(limits, d.of[client])
	}
	var wait time.Duration
	var taken []*rate.Reservation
	for _, limit := range limits {
		r := limit.ReserveN(now, 1)
		taken, wait = append(taken, r), max(wait, r.DelayFrom(now))
	}
	if wait <= maxDenialWait {
		return wait, true
	}
	for _, r := range taken {
		r.CancelAt(now)
	}
	return 0, false
}

// flush writes what is counted.
func (d *denials) flush() {
	d.unwritten.flush()
	d.handshake.flush()
}

// denied counts, logs and records a rejected request. If there are too many, one line
// stands for several.
func (h *handler) denied(r *http.Request, e *Error) {
	h.Metrics.Rejected(strconv.Itoa(e.Status))
	client := clientOf(peerOf(r))
	if h.guard.proxy.Trusts(peerOf(r)) {
		client = netip.Addr{}
	}
	wait, ok := h.denials.place(client, time.Now())
	if !ok {
		h.denials.unwritten.add(callerOf(r), "")
		bridge.Sleep(r.Context(), maxDenialWait) // slows a client that waits for the answer
		return
	}
	bridge.Sleep(context.WithoutCancel(r.Context()), wait) // a client that leaves keeps its place
	text := shortenTo(e.Error(), maxError)
	h.Logger.Warn("request rejected", "caller", callerOf(r), "method", shorten(r.Method), "path", shorten(r.URL.Path),
		"status", e.Status, "error", text, "hint", e.Hint)
	entry := door.Record{Outcome: door.Denied, Status: e.Status, Error: text}
	if r.Method == http.MethodPost {
		entry.Action = shorten(path.Base(r.URL.Path))
		entry.Stream, entry.Job = shorten(r.PathValue("stream")), shorten(r.PathValue("job"))
	}
	_ = h.record(senderOf(e.who, r), entry) // which logs an error
}

// tally counts what is reported at most every tallyWindow, with the caller, or "several",
// and the last error.
type tally struct {
	report func(count int, caller, last string)

	mu     sync.Mutex // guards all below
	count  int
	caller string
	last   string // error
	end    *time.Timer
}

func (t *tally) add(caller, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = reason
	if t.count++; t.count == 1 {
		t.caller, t.end = caller, time.AfterFunc(tallyWindow, t.flush)
	} else if t.caller != caller {
		t.caller = "several"
	}
}

// flush reports what is counted.
func (t *tally) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count > 0 {
		t.end.Stop()
		t.report(t.count, t.caller, t.last)
		t.count = 0
	}
}

const (
	// maxText and maxError bound a client's input, and an error that has some of it, in bytes
	// of JSON.
	maxText  = 200
	maxError = 600
)

// shorten bounds a client's input in answers and the log.
func shorten(s string) string { return shortenTo(s, maxText) }

// shortenTo shortens a text to n bytes of JSON, where some characters take more.
func shortenTo(s string, n int) string {
	for i, r := range s {
		switch {
		case r < ' ', r == utf8.RuneError, r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
			n -= len(`\u0000`)
		case r == '"', r == '\\':
			n -= 2
		default:
			n -= utf8.RuneLen(r)
		}
		if n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// serverLog is the log of an http.Server. One line stands for several failed handshakes.
type serverLog struct{ Parts }

// Write implements io.Writer for a whole message.
func (l serverLog) Write(message []byte) (int, error) {
	text := strings.TrimSpace(string(message))
	rest, ok := strings.CutPrefix(text, "http: TLS handshake error from ")
	if !ok {
		l.Logger.Warn("problem in the HTTP server", "error", text)
		return len(message), nil
	}
	caller, reason, _ := strings.Cut(rest, ": ")
	if peer, err := netip.ParseAddrPort(caller); err == nil {
		caller = peer.Addr().Unmap().String()
	}
	l.Metrics.Rejected("tls")
	l.denials.handshake.add(caller, reason)
	return len(message), nil
}
