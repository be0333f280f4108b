package ops_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/door"
)

// people are the tokens of one who may act, and of one who may read.
type people struct {
	actor, reader   string
	lines, readLine string
}

func newPeople(t *testing.T) people {
	t.Helper()
	actor, line, err := door.New(door.Identity{Name: "alice", Role: door.Act})
	if err != nil {
		t.Fatal(err)
	}
	reader, readLine, err := door.New(door.Identity{Name: "bob", Role: door.Read})
	if err != nil {
		t.Fatal(err)
	}
	return people{actor, reader, line + "\n" + readLine, readLine}
}

func (p people) config() ops.Config {
	return ops.Config{Addr: ":8080", Tokens: bridge.Secret(p.lines), AdminToken: rightToken, PProf: true}
}

const loginPeer = "10.1.2.3:4000"

// TestLogin attacks a server with named tokens.
func TestLogin(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	with := func(name, value string) map[string]string { return map[string]string{name: value} }
	const status, history, session = "GET /api/v1/status", "GET /api/v1/streams/events/history", "GET /api/v1/session"
	hash := strings.Fields(p.lines)[2]
	for _, tc := range []struct {
		name string
		ask  ask
		code int
		text string
	}{
		{"read", ask{line: status, header: bearer(p.reader)}, 200, ""},
		{"read as one who may act", ask{line: status, header: bearer(p.actor)}, 200, ""},
		{"read as admin", ask{line: history, header: bearer(rightToken)}, 200, ""},
		{"act", ask{line: pausePath, body: anyReason, header: bearer(p.actor)}, 200, ""},
		{"probes need no token", ask{line: "GET /readyz?verbose"}, 200, ""},
		{"metrics need no token", ask{line: "GET /metrics"}, 200, ""},

		{"1 no token", ask{line: status}, 401, "a token is required"},
		{"2 no token, from this machine", ask{line: status, peer: "127.0.0.1:1"}, 401, "a token is required"},
		{"3 feed without a token", ask{line: "GET /api/v1/events"}, 401, "a token is required"},
		{"4 HEAD without a token", ask{line: "HEAD /api/v1/status"}, 401, ""},
		{"5 wrong role", ask{line: pausePath, body: anyReason, header: bearer(p.reader)}, 403, "bob has the role read"},
		{"6 wrong role plans a move", ask{line: movePath, body: `{"to":{"shift":-1},"reason":"why"}`, header: bearer(p.reader)}, 403, "may not act"},
		{"7 the hash as token", ask{line: status, header: bearer(hash)}, 401, "is wrong"},
		{"8 the line as token", ask{line: status, header: bearer(p.readLine)}, 401, "is wrong"},
		{"9 the token in a cookie", ask{line: status, header: with("Cookie", "exportbridge-token="+p.reader)}, 401, "a token is required"},
		{"10 the token in the query", ask{line: status + "?access_token=" + p.reader}, 401, "a token is required"},
		{"11 Basic", ask{line: status, header: with("Authorization", "Basic "+p.reader)}, 401, "is wrong"},
		{"12 a user header", ask{line: status, header: with("X-Forwarded-User", "alice")}, 401, "a token is required"},
		{"13 X-Forwarded-For says local", ask{line: status, header: with("X-Forwarded-For", "127.0.0.1")}, 401, "a token is required"},
		{"14 a JWT with alg none", ask{line: status, header: bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.")}, 401, "is wrong"},
		{"15 empty token", ask{line: status, header: bearer("")}, 401, "is wrong"},
		{"16 token cut short", ask{line: status, header: bearer(p.reader[1:])}, 401, "is wrong"},
		{"17 token in other letters", ask{line: status, header: bearer(strings.ToLower(p.reader))}, 401, "is wrong"},
		{"18 two tokens", ask{line: status, header: bearer("x, Bearer " + p.reader)}, 401, "is wrong"},
		{"19 DNS rebinding", ask{line: status, host: "evil.example", header: bearer(p.reader)}, 421, "unknown Host name"},
		{"20 another site's page", ask{line: status, header: map[string]string{"Authorization": "Bearer " + p.reader, "Sec-Fetch-Site": "cross-site"}}, 403, "cross-site"},
		{"21 a preflight of another site", ask{line: "OPTIONS /api/v1/status", header: with("Origin", "https://evil.example")}, 403, "cross-site"},
		{"22 dots in the path", ask{line: "GET /livez/../api/v1/status"}, 401, ""},
		{"23 escaped dots in the path", ask{line: "GET /livez/%2e%2e/api/v1/status"}, 404, ""},
		{"24 two slashes", ask{line: "GET //api/v1/status"}, 401, ""},
		{"25 an escaped slash", ask{line: "GET /api%2fv1/status"}, 404, ""},
		{"26 capital letters", ask{line: "GET /API/v1/status"}, 404, ""},
		{"27 profiles without a token", ask{line: "GET /debug/pprof/cmdline", peer: "127.0.0.1:1"}, 401, "a token is required"},
		{"28 another method", ask{line: "POST /api/v1/status"}, 401, ""},
		{"29 a token that breaks the line", ask{line: status, header: bearer("x\r\nAuthorization: Bearer " + p.reader)}, 401, "is wrong"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(p.config(), func(parts *ops.Parts) {
				parts.Page = http.NotFoundHandler()
			})
			if tc.ask.peer == "" {
				tc.ask.peer = loginPeer
			}
			w := s.do(tc.ask)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.text) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, tc.code, tc.text)
			}
			if acted := len(s.control.orders) > 0; acted != (tc.name == "act") {
				t.Errorf("acted: %v", acted)
			}
			if body := w.Body.String(); w.Code != 200 && (strings.Contains(body, p.reader) || strings.Contains(body, p.actor) || strings.Contains(body, hash)) {
				t.Errorf("the answer tells a token: %s", body)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin") + w.Header().Get("Set-Cookie"); got != "" {
				t.Errorf("the answer has %q", got)
			}
		})
	}
}

// The session tells nothing but that a token is required, and what a token may do.
func TestLoginSession(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for token, want := range map[string]string{
		"":       `"read":false,"write":false,"needs_token":true,"version":"","show_events":false,"streams":null}`,
		"wrong":  `"read":false,"write":false,"needs_token":true,"version":"","show_events":false,"streams":null}`,
		p.reader: `"read":true,"write":false,"needs_token":true,"name":"bob","version":"v1","show_events":false,"streams":["events"]}`,
		p.actor:  `"read":true,"write":true,"needs_token":true,"name":"alice","version":"v1","show_events":false,"streams":["events"]}`,
	} {
		a := ask{line: "GET /api/v1/session", peer: loginPeer, header: map[string]string{"Authorization": "-"}}
		if token != "" {
			a.header["Authorization"] = "Bearer " + token
		}
		if w := newSite(p.config()).do(a); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%.5s: %d %s, want %s", token, w.Code, w.Body, want)
		}
	}
}

// The history records who acted.
func TestLoginName(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for token, want := range map[string]string{p.actor: "http:alice@10.1.2.3", rightToken: "http:admin@10.1.2.3"} {
		s := newSite(p.config())
		s.do(ask{line: pausePath, body: anyReason, peer: loginPeer, header: map[string]string{"Authorization": "Bearer " + token}})
		if len(s.control.orders) != 1 || s.control.orders[0].By.Who != want {
			t.Errorf("orders %v, want one by %s", s.control.orders, want)
		}
	}
}

// The file of the tokens is read again: a removed line ends access, and while the file
// cannot be read none of its tokens is accepted.
func TestTokensFileIsReadAgain(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	cfg := p.config()
	cfg.TokensFile = path
	s := newSite(cfg)
	want := func(token string, code int) {
		t.Helper()
		w := s.do(ask{line: "GET /api/v1/status", peer: loginPeer, header: map[string]string{"Authorization": "Bearer " + token}})
		if w.Code != code {
			t.Errorf("%d %s, want %d", w.Code, w.Body, code)
		}
	}
	write(p.lines)
	want(p.actor, 200)
	want(p.reader, 200)
	write(p.readLine)
	want(p.actor, 401)
	want(p.reader, 200)
	write(p.lines + "\nbroken")
	want(p.reader, 503)
	want(rightToken, 200)
	must.Do(t, os.Remove(path))
	want(p.reader, 503)
	write(p.lines)
	want(p.actor, 200)
}

// patient is a client that has no deadline.
type patient struct{ *httptest.ResponseRecorder }

func (patient) SetWriteDeadline(time.Time) error { return nil }

// openFeed opens a feed with a token, which receives when the feed ended. leave ends it.
func openFeed(t *testing.T, s *site, token string) (ended <-chan time.Time, leave func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1/events", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	end := make(chan time.Time, 1)
	go func() {
		s.handler.ServeHTTP(patient{httptest.NewRecorder()}, r)
		end <- time.Now()
	}()
	return end, leave
}

// A feed ends within the next ping after its token was removed.
func TestFeedOfARemovedToken(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := p.config()
		cfg.TokensFile = filepath.Join(t.TempDir(), "tokens")
		must.Do(t, os.WriteFile(cfg.TokensFile, []byte(p.lines), 0o600))
		s := newSite(cfg, func(parts *ops.Parts) {
			parts.Log, parts.Samples = ops.NewLogTail(slog.DiscardHandler), ops.NewSampler(false)
		})
		ended, leave := openFeed(t, s, p.reader)
		<-time.After(time.Minute)
		select {
		case <-ended:
			t.Fatal("the feed has ended")
		default:
		}
		must.Do(t, os.WriteFile(cfg.TokensFile, []byte("# nobody"), 0o600))
		select {
		case <-ended:
		case <-time.After(time.Minute):
			leave()
			<-ended
			t.Error("the feed has ended only because its client left")
		}
	})
}
