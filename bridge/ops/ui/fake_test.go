//go:build browser

package ui_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops/ui"
)

type object = map[string]any

// report is the JSON form of a control.Report.
type report struct {
	Stream     string         `json:"stream"`
	Live       *bridge.Status `json:"live,omitempty"`
	Checkpoint object         `json:"checkpoint,omitempty"`
	Members    []object       `json:"members,omitempty"`
	Known      bool           `json:"members_known"`
	LagSeconds float64        `json:"lag_seconds"`
	CaughtUpIn float64        `json:"caught_up_in_seconds"`
	Guarantee  string         `json:"guarantee"`
	Changes    []object       `json:"changes,omitempty"`
	Notes      []string       `json:"notes,omitempty"`
}

// message is an event of the live connection.
type message struct {
	name string
	data any
}

// posted is an action that the page requested.
type posted struct {
	Path, Token string
	Body        object
}

// answer is the answer to an action.
type answer struct {
	code int
	body object
}

// fakeBridge serves the API with figures that a test sets.
type fakeBridge struct {
	URL string

	mu         sync.Mutex // guards all below
	token      string     // that actions need; "" is none
	write      bool       // whether a caller without a token may act
	showEvents bool
	reports    []report
	history    []object
	historyErr *answer
	recordsErr *answer           // of dead letters and jobs
	refuse     map[string]answer // to all requests of a path; without a body, a proxy's page
	letters    []object
	more       bool // older letters
	jobs       []object
	incomplete string // why jobs are missing
	metrics    string
	first      []message // sent at the beginning of each connection
	cut        chan struct{}
	refusing   bool // new live connections
	refused    int  // live connections so far
	silent     bool // nothing is sent on them
	standby    bool // this process stands by for all streams
	posts      []posted
	answers    []answer      // to the next actions
	late       chan struct{} // the next action is answered once it is closed; may be nil
}

func newFakeBridge(t *testing.T, reports ...report) *fakeBridge {
	t.Helper()
	f := &fakeBridge{write: true, reports: reports, cut: make(chan struct{})}
	mux := http.NewServeMux()
	page := ui.Handler()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { // as ops.Handler serves it
		w.Header().Set("Content-Security-Policy",
			"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		page.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /api/v1/session", f.session)
	mux.HandleFunc("GET /api/v1/events", f.events)
	mux.HandleFunc("GET /api/v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		f.records(w, func() any { return object{"jobs": f.jobs, "incomplete": f.incomplete} })
	})
	mux.HandleFunc("GET /api/v1/streams/{stream}/history", f.listHistory)
	mux.HandleFunc("GET /api/v1/streams/{stream}/dead-letters", func(w http.ResponseWriter, _ *http.Request) {
		f.records(w, func() any { return object{"letters": f.letters, "total": len(f.letters), "more": f.more} })
	})
	mux.HandleFunc("POST /api/v1/streams/{stream}/{action}", f.act)
	mux.HandleFunc("POST /api/v1/jobs", f.act)
	mux.HandleFunc("POST /api/v1/jobs/{job}/{action}", f.act)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		io.WriteString(w, f.metrics)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		a, refused := f.refuse[r.URL.Path]
		f.mu.Unlock()
		switch {
		case refused && a.body == nil:
			http.Error(w, "<html>nginx", a.code)
		case refused:
			writeJSON(w, a.code, a.body)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		f.drop()
		server.Close()
	})
	f.URL = server.URL
	return f
}

// set changes the figures.
func (f *fakeBridge) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// drop ends all live connections.
func (f *fakeBridge) drop() {
	f.set(func() {
		close(f.cut)
		f.cut = make(chan struct{})
	})
}

func (f *fakeBridge) send(w http.ResponseWriter, read func() any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	writeJSON(w, http.StatusOK, read())
}

// records answers with records of Kafka, or with recordsErr.
func (f *fakeBridge) records(w http.ResponseWriter, read func() any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.recordsErr != nil {
		writeJSON(w, f.recordsErr.code, f.recordsErr.body)
		return
	}
	writeJSON(w, http.StatusOK, read())
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}

// mayAct reports whether the caller may; f.mu is held.
func (f *fakeBridge) mayAct(r *http.Request) bool {
	if f.token == "" {
		return f.write
	}
	return r.Header.Get("Authorization") == "Bearer "+f.token
}

func (f *fakeBridge) session(w http.ResponseWriter, r *http.Request) {
	f.send(w, func() any {
		streams := []string{}
		for i := range f.reports {
			streams = append(streams, f.reports[i].Stream)
		}
		return object{
			"version": "v1.4.2", "now": time.Now(), "read": true, "write": f.mayAct(r), "needs_token": f.token != "",
			"show_events": f.showEvents, "streams": streams,
		}
	})
}

func (f *fakeBridge) listHistory(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.historyErr != nil {
		writeJSON(w, f.historyErr.code, f.historyErr.body)
		return
	}
	writeJSON(w, http.StatusOK, object{"source": "redis", "entries": f.history})
}

func (f *fakeBridge) act(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	a, late := f.answerTo(r), f.late
	f.late = nil
	f.mu.Unlock()
	if late != nil {
		<-late
	}
	writeJSON(w, a.code, a.body)
}

// answerTo returns the answer to an action; f.mu is held.
func (f *fakeBridge) answerTo(r *http.Request) answer {
	var body object
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/json" {
		return answer{http.StatusBadRequest, object{"error": "not JSON"}}
	}
	f.posts = append(f.posts, posted{Path: r.URL.EscapedPath(), Token: r.Header.Get("Authorization"), Body: body})
	if !f.mayAct(r) {
		return answer{http.StatusUnauthorized, object{"error": "the token is not the bridge's",
			"hint": "the content of HTTP_ADMIN_TOKEN_FILE"}}
	}
	if len(f.answers) == 0 {
		return answer{http.StatusInternalServerError, object{"error": "the test expects no action"}}
	}
	a := f.answers[0]
	f.answers = f.answers[1:]
	return a
}

// events sends the status ten times a second: more often than the real one, so
// that the tests wait less.
func (f *fakeBridge) events(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	refusing, cut, first := f.refusing, f.cut, slices.Clone(f.first)
	if refusing {
		f.refused++
	}
	f.mu.Unlock()
	if refusing {
		writeJSON(w, http.StatusServiceUnavailable, object{"error": "too many clients", "hint": "close other browser tabs"})
		return
	}
	shown := r.URL.Query().Get("stream")
	if !f.has(shown) {
		writeJSON(w, http.StatusNotFound, object{"error": "unknown stream", "hint": ""})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "retry: 100\n\n")
	for _, m := range first {
		sendEvent(w, m)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for f.has(shown) {
		if !f.isSilent() {
			for _, m := range f.status(shown) {
				sendEvent(w, m)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-tick.C:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// has reports whether a feed can show the stream; "" is no stream.
func (f *fakeBridge) has(stream string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return stream == "" || slices.ContainsFunc(f.reports, func(r report) bool { return r.Stream == stream })
}

func (f *fakeBridge) isSilent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.silent
}

// refusals counts the live connections that were refused.
func (f *fakeBridge) refusals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// detail is the event detail.
type detail struct {
	control.Report
	Brief       control.Brief                `json:"brief"`
	Asked       bool                         `json:"asked"`
	Elsewhere   bool                         `json:"elsewhere"`
	ManyDead    bool                         `json:"many_dead_letters"`
	EndDoubtful bool                         `json:"end_doubtful"`
	Servers     map[string]bridge.Dependency `json:"servers"`
}

// status returns the messages about all streams and about the shown one.
func (f *fakeBridge) status(shown string) (all []message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	briefs := []control.Brief{}
	for i := range f.reports {
		d := detailOf(&f.reports[i], f.standby)
		briefs = append(briefs, d.Brief)
		if d.Stream == shown {
			all = append(all, message{"detail", d})
		}
	}
	return append([]message{{"briefs", object{"all": true, "briefs": briefs}}}, all...)
}

func detailOf(r *report, standby bool) detail {
	d, now := detail{Asked: true, Elsewhere: standby}, time.Now()
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &d.Report)
	}
	if err != nil {
		panic(err)
	}
	if l := d.Live; l != nil {
		if r.LagSeconds > 0 { // it stays as far behind as the test says
			l.Position = now.Add(-time.Duration(r.LagSeconds * float64(time.Second)))
		}
		d.ManyDead, d.EndDoubtful = control.ManyDead(l), l.EndDoubtful()
		if !standby {
			d.Servers = l.Dependencies
		}
	}
	d.LagSeconds, d.CaughtUpIn = 0, -1
	d.Measure(now)
	d.Brief = d.Report.Brief(now)
	return d
}

func sendEvent(w io.Writer, m message) {
	data, _ := json.Marshal(m.data)
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.name, data)
}

// actions returns what was posted so far.
func (f *fakeBridge) actions() []posted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.posts)
}

// running is a stream that reads, 42 s behind.
func running(name string) report {
	now := time.Now()
	up := bridge.Dependency{Up: true, Since: now.Add(-26 * time.Hour)}
	return report{
		Stream: name, LagSeconds: 42.4, CaughtUpIn: 14,
		Guarantee: "exactly-once: events and checkpoint share one Kafka transaction; consumers must read_committed",
		Live: &bridge.Status{
			Stream: name, Owner: "bridge-0", State: bridge.StateRunning, Since: now.Add(-3 * time.Hour), Leader: true,
			Mode:    bridge.ExactlyOnce,
			Version: bridge.Version{Epoch: 3, Seq: 88412}, CursorHash: "9f3c21a07be4", Events: 48_211_907, Pages: 49_120,
			Published: 812_003,
			Rate:      3127, Pace: 4.1, Position: now.Add(-42 * time.Second), LastCommit: now.Add(-300 * time.Millisecond),
			LastPoll: now, Contract: bridge.ContractEmptyItems, PrefetchedPages: 3, PrefetchedBytes: 2_411_724,
			Dependencies: map[string]bridge.Dependency{"api": up, "kafka": up, "redis": up},
		},
		Known:      true,
		Checkpoint: object{"epoch": 3, "seq": 88412, "cursor_hash": "9f3c21a07be4", "events": 48_211_907, "pages": 49_120},
		Members: []object{
			{"client_id": "exportbridge", "instance_id": "bridge-0", "host": "10.2.0.14", "owner": true},
			{"client_id": "exportbridge", "instance_id": "bridge-1", "host": "10.2.0.15", "owner": false},
		},
	}
}

// idle is a stream that has caught up.
func idle(name string) report {
	r := running(name)
	now := time.Now()
	r.LagSeconds, r.CaughtUpIn = 0, 0
	r.Live.State, r.Live.CaughtUp, r.Live.Rate, r.Live.Pace = bridge.StateIdle, true, 2.4, 1
	r.Live.Position, r.Live.NextTry, r.Live.PrefetchedPages, r.Live.PrefetchedBytes = now, now.Add(time.Hour), 0, 0
	return r
}

// entries is the history, newest first, of a stream at 3.88412 that was rewound once.
func entries(n int) []object {
	now := time.Now().UTC()
	var all []object
	events, lag := 48_211_907, 42.0
	for i := range n {
		at := now.Add(-time.Duration(i) * 4 * time.Second)
		more := 11_600 - 8*i + 240*(i*i%7) - 90*(i%11)
		e := object{
			"epoch": 3, "seq": 88412 - i, "at": at, "kind": "data", "events": events, "pages": 49_120 - 13*i,
			"cursor_hash": fmt.Sprintf("%012x", 0x9f3c21a07be4-int64(i)*7_919_331),
			"position":    at.Add(-time.Duration(lag * float64(time.Second))), "change": nil,
		}
		switch {
		case i == 61:
			e["kind"], e["cursor_hash"], e["parent"] = "reset", "51aa90be7712", "2.88409"
			e["change"] = object{"kind": "rewind", "who": "ada@ops-1", "reason": "bad deploy of the consumer",
				"from": object{"epoch": 2, "seq": 88410}, "at": at.UnixMilli()}
		case i > 61:
			e["epoch"], e["seq"] = 2, 88471-i
		}
		lag = max(0.4, lag+float64(i%9)-2.9)
		events -= more
		all = append(all, e)
	}
	return all
}

// measuredText is the text of /metrics for a stream.
func measuredText(stream string) string {
	var text strings.Builder
	line := func(name, labels string, value float64) {
		fmt.Fprintf(&text, "exportbridge_%s{%sstream=%q} %g\n", name, labels, stream, value)
	}
	for stage, sum := range map[string]float64{"wait": 4.1, "fetch": 46.2, "decode": 3.4, "publish": 9.8,
		"checkpoint": 1.9} {
		line("stage_duration_seconds_sum", fmt.Sprintf("stage=%q,", stage), sum)
		line("stage_duration_seconds_count", fmt.Sprintf("stage=%q,", stage), 550)
	}
	line("source_requests_total", `code="200",`, 548)
	line("source_requests_total", `code="429",`, 2)
	for name, sum := range map[string]float64{"source_request_duration_seconds": 46.2,
		"transaction_duration_seconds": 1.7, "cursor_commit_duration_seconds": 0.16} {
		line(name+"_sum", "", sum)
		line(name+"_count", "", 550)
	}
	line("transactions_total", `result="committed",`, 550)
	line("transactions_total", `result="unknown",`, 0)
	line("checkpoint_store_writes_total", `result="ok",`, 550)
	return text.String()
}

// logged and sampled are messages of the live connection.
func logged(level, msg string, attrs object) message {
	return message{"log", object{"time": time.Now(), "level": level, "msg": msg, "attrs": attrs}}
}

func sampled(stream, kind string, n int) message {
	return message{"sample", object{
		"stream": stream, "time": time.Now().Add(-time.Duration(n) * 211 * time.Millisecond), "type": kind,
		"id":       fmt.Sprintf("6b1f0c1e-83d2-4f0a-9d1c-%012x", 7_000_000-n),
		"key_hash": fmt.Sprintf("%08x", 0x8f21_c0de-n*77_773), "partition": n % 6, "offset": 8_035_317 - n, "origin": "live",
	}}
}
