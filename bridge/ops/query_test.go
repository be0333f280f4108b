package ops_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/ops"
)

var errTimeout = context.DeadlineExceeded

func TestQueries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string
		code int
		want string
	}{
		{"GET /api/v1/jobs", 200, `{"jobs":[]}`},
		{"GET /api/v1/streams/events/history", 200, `{"source":"redis","entries":[]}`},
		{"GET /api/v1/streams/events/dead-letters", 200, `{"letters":[],"total":0,"more":false}`},
		{"GET /api/v1/streams/events/history?limit=0", 400, "limit"},
		{"GET /api/v1/streams/events/history?limit=1001", 400, "limit"},
		{"GET /api/v1/streams/events/history?limit=many", 400, "limit"},
		{"GET /api/v1/streams/events/history?since=yesterday", 400, "since"},
		{"GET /api/v1/streams/events/history?since=2999-01-01", 400, "since: 2999-01-01 is in the future"},
		{"GET /api/v1/streams/events/dead-letters?limit=-1", 400, "limit"},
		{"GET /api/v1/streams/users/history", 404, "unknown stream"},
		{"GET /api/v1/streams/../status/history", 307, ""},
		{"GET /api/v1/streams//history", 307, ""},
		{"GET /api/v1/nothing", 404, "/api/v1/nothing does not exist"},
		{"GET /api/v1/streams/events/pause", 405, "method GET is not allowed"},
		{"POST /api/v1/status", 405, "method POST is not allowed"},
		{"DELETE /api/v1/status", 405, "method DELETE is not allowed"},
		{"PUT /api/v1/streams/events/move", 405, "method PUT is not allowed"},
		{"GET /../../etc/passwd", 307, ""},
		{"GET /etc/passwd", 404, ""},
		{"GET /debug/pprof/", 404, ""},
	} {
		t.Run(tc.line, func(t *testing.T) {
			t.Parallel()
			w := newSite(ops.Config{Addr: ":8080"}).do(ask{line: tc.line})
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%d %s, want %d with %s", w.Code, w.Body, tc.code, tc.want)
			}
			if location := w.Header().Get("Location"); location != "" &&
				(!strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//")) {
				t.Errorf("redirects to %s", location)
			}
		})
	}
}

// Dead letters are listed without their items, and with whether there are more. A job without a
// process is interrupted.
func TestRecords(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{})
	for i := range 3 {
		s.records.dead = append(s.records.dead, deadletter.DeadLetter{
			Place: deadletter.Place{Partition: 1, Offset: int64(9 - i)}, Time: time.UnixMilli(1000),
			Reason: bridge.DefectTime, Size: 7, Item: []byte("secret"), Headers: map[string]string{"ce_type": "orderPlaced"},
		})
	}
	s.records.jobs = []backfill.Listed{{Job: backfill.Job{
		ID: "aaaaaa", Kind: backfill.Backfill, State: backfill.Running, From: 1000, To: 3000,
		Windows: []backfill.Window{{From: 1000, To: 2000, Ended: "so", Events: 5, Outside: 2}, {From: 2000, To: 3000}},
	}}}
	for line, want := range map[string]string{
		"GET /api/v1/streams/events/dead-letters?limit=1": `{"letters":[{"partition":1,"offset":9,` +
			`"time":"1970-01-01T00:00:01Z","reason":"bad-timestamp","message":"","cursor_hash":"","index":0,"bytes":7,` +
			`"headers":{"ce_type":"orderPlaced"}}],"total":1,"more":true}`,
		"GET /api/v1/jobs": `{"jobs":[{"id":"aaaaaa","kind":"backfill","stream":"","state":"interrupted","topic":"",` +
			`"from":"1970-01-01T00:00:01Z","to":"1970-01-01T00:00:03Z","windows":2,"done":1,"events":5,"outside_range":2,` +
			`"note":"2 of 5 events have a time outside the requested range: the API selects by another time,` +
			` or ignores a bound; check EXPORT_START_PARAM, EXPORT_END_PARAM and EXPORT_TIME_FORMAT","progress":0.5,` +
			`"progress_with_events":0.5,"parallel":2,"rate_limit":0,"begun":"1970-01-01T00:00:00Z"}]}`,
	} {
		if w := s.do(ask{line: line}); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s, want %s", line, w.Code, w.Body, want)
		}
	}
}

func TestHistoryQuery(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{})
	s.do(ask{line: "GET /api/v1/streams/events/history?limit=7&since=2026-01-02T03:04:05Z"})
	if want := (bridge.HistoryQuery{Limit: 7, Brief: true, Since: time.Date(2026, 1, 2, 3, 4, 5, 0,
		time.UTC)}); s.control.query != want {
		t.Errorf("asked for %+v, want %+v", s.control.query, want)
	}
	s.do(ask{line: "GET /api/v1/streams/events/history"})
	if s.control.query.Limit != 200 {
		t.Errorf("asked for %d entries, want 200", s.control.query.Limit)
	}
}

// The cursor is secret: with a key it gives access to the export.
func TestStatusHidesTheCursor(t *testing.T) {
	t.Parallel()
	w := newSite(ops.Config{}).do(ask{line: "GET /api/v1/status"})
	body := w.Body.String()
	for _, want := range []string{`"epoch":3`, `"cursor_hash":"`, `"tail_items":2`, `"client_id":"one"`,
		`"guarantee":"exactly-once`} {
		if !strings.Contains(body, want) {
			t.Errorf("status lacks %s: %s", want, body)
		}
	}
	for _, secret := range []string{secretCursor, `"cursor":`, `"tail":`} {
		if strings.Contains(body, secret) {
			t.Errorf("status shows %s: %s", secret, body)
		}
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	locked := ops.Config{AdminToken: rightToken, ShowEvents: true}
	for _, tc := range []struct {
		name string
		cfg  ops.Config
		ask  ask
		want []string
	}{
		{"here", ops.Config{}, ask{}, []string{`"write":true`, `"needs_token":false`, `"show_events":false`,
			`"streams":["events"]`, `"version":"v1"`}},
		{"elsewhere", ops.Config{}, ask{peer: "10.0.0.1:1"}, []string{`"write":false`, `"needs_token":false`}},
		{"without the token", locked, ask{}, []string{`"write":false`, `"needs_token":true`, `"show_events":true`}},
		{"with the token", locked, ask{header: map[string]string{"Authorization": "Bearer " + rightToken}},
			[]string{`"write":true`, `"needs_token":true`}},
	} {
		tc.ask.line = "GET /api/v1/session"
		w := newSite(tc.cfg).do(tc.ask)
		for _, want := range tc.want {
			if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %s lacks %s", tc.name, w.Code, w.Body, want)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{}, func(p *ops.Parts) {
		p.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	})
	for line, code := range map[string]int{
		"GET /": 200, "GET /app.js": 200, "POST /": 405, "GET /livez": 200, "GET /metrics": 200,
		"GET /api/v1/session": 200, "GET /api/v1/nothing": 404,
	} {
		w := s.do(ask{line: line})
		if w.Code != code {
			t.Errorf("%s = %d, want %d", line, w.Code, code)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", line, name, got, want)
			}
		}
		if stored := w.Header().Get("Cache-Control"); strings.Contains(line, "/api/") && stored != "no-store" {
			t.Errorf("%s: Cache-Control %q", line, stored)
		}
	}
	if w := s.do(ask{line: "GET /", host: "evil.example"}); w.Code != 421 || strings.Contains(w.Body.String(), "page") {
		t.Errorf("the page by a foreign name: %d %s", w.Code, w.Body)
	}
}

// A browser gets a text in place of JSON.
func TestRefusedVisitor(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{Addr: "127.0.0.1:8080"})
	const text = "unknown Host name \"bridge.example\"\nTry: add it to HTTP_ALLOWED_HOSTS, or use the IP address\n"
	for accept, want := range map[string]string{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/plain; charset=utf-8",
		"*/*": "application/json; charset=utf-8", "": "application/json; charset=utf-8",
		"application/json, text/html": "application/json; charset=utf-8",
	} {
		w := s.do(ask{line: "GET /", host: "bridge.example", header: map[string]string{"Accept": accept}})
		if got := w.Header().Get("Content-Type"); w.Code != 421 || got != want ||
			(w.Body.String() == text) != strings.HasPrefix(want, "text/plain") {
			t.Errorf("Accept %q: %d, %s: %s", accept, w.Code, got, w.Body)
		}
	}
}

// A page of another site may link to the web UI, and nothing else.
func TestOtherSitesMakeNoWork(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{Addr: "127.0.0.1:8080", PProf: true}, func(p *ops.Parts) {
		p.Page = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	const own, foreign = "http://localhost:8080", "http://evil.example"
	type header = map[string]string
	for _, tc := range []struct {
		header  header
		page    int // of the files of the page, whose scripts have an Origin
		linked  int // of the metrics and the probes
		guarded int // of the API and the profiles
	}{
		{nil, 200, 200, 200},
		{header{"Sec-Fetch-Site": "none"}, 200, 200, 200},
		{header{"Sec-Fetch-Site": "same-origin", "Origin": own}, 200, 200, 200},
		{header{"Sec-Fetch-Site": "same-site"}, 200, 200, 403},
		{header{"Sec-Fetch-Site": "cross-site"}, 200, 200, 403},
		{header{"Origin": own}, 200, 200, 200},
		{header{"Origin": foreign}, 200, 403, 403},
		{header{"Origin": "http://localhost:9090"}, 200, 403, 403},
		{header{"Origin": "null"}, 200, 403, 403},
		{header{"Sec-Fetch-Site": "cross-site", "Origin": foreign}, 403, 403, 403},
	} {
		for path, want := range map[string]int{
			"/": tc.page, "/app.js": tc.page, "/livez": tc.linked, "/ready": tc.linked, "/metrics": tc.linked,
			"/api/v1/status": tc.guarded, "/debug/pprof/cmdline": tc.guarded,
		} {
			if w := s.do(ask{line: "GET " + path, header: tc.header}); w.Code != want {
				t.Errorf("%s with %v: %d, want %d", path, tc.header, w.Code, want)
			}
		}
	}
}

func TestProfilesStayHere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr string
		off  bool
		ask  ask
		code int
	}{
		{addr: "127.0.0.1:8080", code: 200},
		{addr: ":8080", code: 200},
		{addr: "127.0.0.1:8080", off: true, code: 404},
		{addr: "127.0.0.1:8080", ask: ask{peer: "10.0.0.1:1"}, code: 404},
		{addr: ":8080", ask: ask{peer: "10.0.0.1:1"}, code: 404},
		{addr: "127.0.0.1:8080", ask: ask{header: map[string]string{"X-Forwarded-For": "10.0.0.1"}}, code: 404},
	} {
		tc.ask.line = "GET /debug/pprof/cmdline"
		if w := newSite(ops.Config{Addr: tc.addr, PProf: !tc.off}).do(tc.ask); w.Code != tc.code {
			t.Errorf("%+v: %d, want %d", tc, w.Code, tc.code)
		}
	}
}

// slowRecords answers when the test allows it.
type slowRecords struct {
	*fakeRecords
	answer chan struct{}
}

func (f *slowRecords) Jobs(context.Context) ([]backfill.Listed, error) {
	<-f.answer
	return nil, nil
}

// If too many requests of a kind wait, another one is rejected at once, and requests of other
// kinds are answered.
func TestTooManyQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowRecords{fakeRecords: new(fakeRecords), answer: make(chan struct{})}
		s := newSite(ops.Config{}, func(p *ops.Parts) { p.Records = slow })
		var asking sync.WaitGroup
		for range 16 {
			asking.Go(func() {
				if w := s.do(ask{line: "GET /api/v1/jobs"}); w.Code != 200 {
					t.Errorf("waiting: %d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		wantRefusal(t, s.do(ask{line: "GET /api/v1/jobs"}), 503, "too many requests")
		for _, path := range []string{"session", "status", "streams/events/history", "streams/events/dead-letters"} {
			if w := s.do(ask{line: "GET /api/v1/" + path}); w.Code != 200 {
				t.Errorf("%s meanwhile: %d %s", path, w.Code, w.Body)
			}
		}
		close(slow.answer)
		asking.Wait()
		if w := s.do(ask{line: "GET /api/v1/jobs"}); w.Code != 200 {
			t.Errorf("afterwards: %d %s", w.Code, w.Body)
		}
	})
}
