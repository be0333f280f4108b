package ops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/ops"
)

const (
	pausePath = "POST /api/v1/streams/events/pause"
	movePath  = "POST /api/v1/streams/events/move"
	anyReason = `{"reason":"why"}`
)

// An unauthorized action does not reach the controller.
func TestWhoMayAct(t *testing.T) {
	t.Parallel()
	open := ops.Config{Addr: "127.0.0.1:8080"}
	locked := ops.Config{Addr: ":8080", AdminToken: rightToken, AllowedHosts: []string{"Bridge.Example.com"}}
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": token} }
	const remote = "10.1.2.3:4000"
	proxied := func(origin string, site ...string) ask {
		h := bearer("Bearer " + rightToken)
		h["Origin"] = origin
		for _, s := range site {
			h["Sec-Fetch-Site"] = s
		}
		return ask{host: "10.1.2.4:8080", peer: remote, header: h}
	}
	for _, tc := range []struct {
		name string
		cfg  ops.Config
		ask  ask
		code int
		text string
	}{
		{"from this machine", open, ask{}, 200, ""},
		{"from this machine, IPv6", open, ask{peer: "[::1]:4000"}, 200, ""},
		{"from this machine, IPv4 in IPv6", open, ask{peer: "[::ffff:127.0.0.1]:4000"}, 200, ""},
		{"from elsewhere without a token", open, ask{peer: remote}, 403, "without a token"},
		{"from behind a proxy on this machine", open, ask{header: map[string]string{"X-Forwarded-For": "127.0.0.1"}}, 403,
			"without a token"},
		{"from behind another proxy", open, ask{header: map[string]string{"Forwarded": "for=127.0.0.1"}}, 403,
			"without a token"},
		{"from behind a proxy that names the scheme only", open,
			ask{header: map[string]string{"X-Forwarded-Proto": "https"}}, 403, "without a token"},
		{"from behind a sidecar", open, ask{header: map[string]string{"X-Envoy-Attempt-Count": "1"}}, 403, "without a token"},
		{"from behind Cloudflare", open, ask{header: map[string]string{"CF-Connecting-IP": "127.0.0.1"}}, 403,
			"without a token"},
		{"from behind Akamai", open, ask{header: map[string]string{"True-Client-IP": "127.0.0.1"}}, 403, "without a token"},
		{"from behind a load balancer", open, ask{header: map[string]string{"X-Cluster-Client-IP": "127.0.0.1"}}, 403,
			"without a token"},
		{"from behind Apache", open, ask{header: map[string]string{"X-Client-IP": "127.0.0.1"}}, 403, "without a token"},
		{"from behind Linkerd", open, ask{header: map[string]string{"l5d-dst-override": "bridge:8080"}}, 403,
			"without a token"},
		{"from behind Fastly", open, ask{header: map[string]string{"Fastly-Client-IP": "127.0.0.1"}}, 403, "without a token"},
		{"from behind a proxy that nobody knows", open, ask{header: map[string]string{"Acme-Edge": "1"}}, 403,
			"by a proxy: it has the header Acme-Edge"},
		{"from behind a proxy that adds no header", open, ask{proto: 10}, 403, "by a proxy: it has HTTP/1.0"},
		{"by a browser", open, ask{header: map[string]string{
			"Accept": "*/*", "Accept-Encoding": "gzip, deflate, br, zstd", "Accept-Language": "de",
			"Cache-Control": "no-cache", "Connection": "keep-alive", "Cookie": "a=b",
			"DNT": "1", "Origin": "http://localhost:8080", "Pragma": "no-cache", "Priority": "u=0",
			"Referer": "http://localhost:8080/", "Sec-Fetch-Dest": "empty",
			"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin", "Sec-GPC": "1", "sec-ch-ua-platform": "Linux",
			"TE": "trailers", "User-Agent": "Mozilla/5.0",
		}}, 200, ""},
		{"by curl", open, ask{header: map[string]string{"Accept": "*/*", "Content-Length": "16", "Expect": "100-continue",
			"User-Agent": "curl/8.5.0"}}, 200, ""},
		{"from a peer that is no address", open, ask{peer: "@"}, 403, "from unknown"},
		{"with the token", locked, ask{peer: remote, header: bearer("Bearer " + rightToken)}, 200, ""},
		{"with the token, scheme in small letters", locked, ask{peer: remote, header: bearer("bearer " + rightToken)},
			200, ""},
		{"from this machine without the token", locked, ask{}, 401, "token is required"},
		{"with a wrong token", locked, ask{header: bearer("Bearer " + strings.ToUpper(rightToken))}, 401, "is wrong"},
		{"with the token cut short", locked, ask{header: bearer("Bearer " + rightToken[:15])}, 401, "is wrong"},
		{"with more than the token", locked, ask{header: bearer("Bearer " + rightToken + "0")}, 401, "is wrong"},
		{"with no token after the scheme", locked, ask{header: bearer("Bearer")}, 401, "is wrong"},
		{"with another scheme", locked, ask{header: bearer("Basic " + rightToken)}, 401, "is wrong"},
		{"with the token alone", locked, ask{header: bearer(rightToken)}, 401, "is wrong"},

		{"from another site", open, ask{header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403, "cross-site"},
		{"from a sibling site", open, ask{header: map[string]string{"Sec-Fetch-Site": "same-site"}}, 403, "cross-site"},
		{"from another origin", open, ask{header: map[string]string{"Origin": "https://evil.example"}}, 403, "cross-site"},
		{"from no origin at all", open, ask{header: map[string]string{"Origin": "null"}}, 403, "cross-site"},
		{"from another port", open, ask{header: map[string]string{"Origin": "http://localhost:9090"}}, 403, "cross-site"},
		{"from our own page", open,
			ask{header: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8080"}}, 200, ""},
		{"from another site with the token", locked,
			ask{header: map[string]string{"Sec-Fetch-Site": "cross-site", "Authorization": "Bearer " + rightToken}}, 403,
			"cross-site"},
		{"from our page behind a proxy that changes Host", locked, proxied("http://bridge.example.com"), 200, ""},
		{"from our page behind a proxy at a port of its own", locked, proxied("http://Bridge.example.com:8443"), 200, ""},
		{"from another name behind that proxy", locked, proxied("http://ops.example.com"), 403,
			"cross-site request from http://ops.example.com"},
		{"from a name below ours behind that proxy", locked, proxied("http://x.bridge.example.com"), 403, "cross-site"},
		{"from a name that is ours as a user's", locked, proxied("http://bridge.example.com@evil.example"), 403,
			"cross-site"},
		{"from an IP address behind that proxy", locked, proxied("http://10.0.0.9"), 403, "cross-site"},
		{"from no origin behind that proxy", locked, proxied("null"), 403, "cross-site"},
		{"from our name where the browser says it is another site", locked,
			proxied("http://bridge.example.com", "same-site"), 403, "cross-site"},

		{"by a name of somebody else", open, ask{host: "evil.example:8080"}, 421, "unknown Host name"},
		{"by a name that begins as ours", open, ask{host: "localhost.evil.example"}, 421, "unknown Host name"},
		{"by a name that ends as ours", open, ask{host: "evillocalhost"}, 421, "unknown Host name"},
		{"by an address that is a name", open, ask{host: "127.0.0.1.evil.example"}, 421, "unknown Host name"},
		{"by something unreadable", open, ask{host: "a:b:c"}, 421, "unknown Host name"},
		{"by an IP address", open, ask{host: "192.168.1.5:8080"}, 200, ""},
		{"by an IPv6 address", open, ask{host: "[::1]"}, 200, ""},
		{"by localhost with a dot", open, ask{host: "LOCALHOST.:8080"}, 200, ""},
		{"by a name below localhost", open, ask{host: "bridge.localhost"}, 200, ""},
		{"by a name that is allowed", locked, ask{host: "bridge.example.COM:443", header: bearer("Bearer " + rightToken)},
			200, ""},
		{"by a name below one that is allowed", locked, ask{host: "x.bridge.example.com",
			header: bearer("Bearer " + rightToken)}, 421, "unknown Host name"},
		{"by the name that it listens on", ops.Config{Addr: "bridge-0:8080"}, ask{host: "bridge-0:8080"}, 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(tc.cfg)
			tc.ask.line, tc.ask.body = pausePath, anyReason
			w := s.do(tc.ask)
			if acted := len(s.control.orders) == 1; acted != (tc.code == 200) {
				t.Errorf("acted: %v", acted)
			}
			if tc.code == 200 {
				if w.Code != 200 {
					t.Errorf("status %d %s, want 200", w.Code, w.Body)
				}
				return
			}
			wantRefusal(t, w, tc.code, tc.text)
			if tc.cfg.AdminToken != "" && strings.Contains(w.Body.String(), rightToken) {
				t.Error("the answer tells the token")
			}
		})
	}
}

// A page under an unknown Host name says which setting allows the name, unless the browser
// reports another site.
func TestOriginHint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ origin, site, hint string }{
		{"http://ops.example.com:81", "", "if this is the web UI behind a proxy, add ops.example.com to HTTP_ALLOWED_HOSTS"},
		{"http://ops.example.com:81", "cross-site", "use the web UI of this server, or curl"},
		{"null", "", "use the web UI of this server, or curl"},
	} {
		w := newSite(ops.Config{}).do(ask{line: pausePath, body: anyReason,
			header: map[string]string{"Origin": tc.origin, "Sec-Fetch-Site": tc.site}})
		wantRefusal(t, w, 403, "cross-site request")
		if want := fmt.Sprintf(`"hint":%q`, tc.hint); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s: %s lacks %s", tc.origin, tc.site, w.Body, want)
		}
	}
}

func TestActionBodies(t *testing.T) {
	t.Parallel()
	move := func(to, more string) string { return fmt.Sprintf(`{"to":%s,"reason":"why"%s}`, to, more) }
	const do = `,"execute":true,"confirm":"events","base_epoch":3`
	for _, tc := range []struct {
		name string
		ask  ask
		code int
		text string
	}{
		{"no reason", ask{line: pausePath, body: `{}`}, 400, "reason is empty"},
		{"a blank reason", ask{line: pausePath, body: `{"reason":" \t"}`}, 400, "reason is empty"},
		{"null", ask{line: pausePath, body: `null`}, 400, "reason is empty"},
		{"a long reason", ask{line: pausePath, body: `{"reason":"` + strings.Repeat("x", 1001) + `"}`}, 400, "1001 bytes"},
		{"a reason that moves the terminal", ask{line: pausePath, body: `{"reason":"\u001b[2J"}`}, 400, "control character"},
		{"an unknown field", ask{line: pausePath, body: `{"reason":"why","until":"tomorrow"}`}, 400, "until"},
		{"a field of pause in resume", ask{line: "POST /api/v1/streams/events/resume",
			body: `{"reason":"why","for":"1m"}`}, 400, "for"},
		{"no JSON", ask{line: pausePath, body: `reason=why`}, 400, "invalid body"},
		{"no body", ask{line: pausePath}, 400, "invalid body: it is empty"},
		{"half an object", ask{line: pausePath, body: `{"reason":"wh`}, 400, "ends before the object does"},
		{"a number", ask{line: pausePath, body: `{"reason":5}`}, 400, "invalid body: reason is number, want a string"},
		{"text for a shift", ask{line: movePath, body: move(`{"shift":"-5"}`, "")}, 400,
			"invalid body: to.shift is string, want a whole number"},
		{"text for a place", ask{line: movePath, body: move(`"earliest"`, "")}, 400,
			"invalid body: to is string, want an object"},
		{"text for a yes", ask{line: movePath, body: move(`{"earliest":"yes"}`, "")}, 400,
			"invalid body: to.earliest is string, want true or false"},
		{"two objects", ask{line: pausePath, body: anyReason + anyReason}, 400, "trailing data"},
		{"an array", ask{line: pausePath, body: `[]`}, 400, "invalid body: array, want an object"},
		{"a form", ask{line: pausePath, body: anyReason,
			header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}, 415, "JSON"},
		{"text", ask{line: pausePath, body: anyReason, header: map[string]string{"Content-Type": "text/plain"}}, 415, "JSON"},
		{"no type", ask{line: pausePath, body: anyReason, header: map[string]string{"Content-Type": "-"}}, 415, "JSON"},
		{"a large body", ask{line: pausePath, body: `{"reason":"` + strings.Repeat("x", 64<<10) + `"}`}, 413, "65536"},
		{"a pause of no length", ask{line: pausePath, body: `{"reason":"why","for":"0s"}`}, 400, "for:"},
		{"a pause of no duration", ask{line: pausePath, body: `{"reason":"why","for":"soon"}`}, 400, "for:"},
		{"another stream", ask{line: "POST /api/v1/streams/users/pause", body: anyReason}, 404, `unknown stream "users"`},
		{"a way out of the streams", ask{line: "POST /api/v1/streams/..%2f..%2fevents/pause", body: anyReason}, 404,
			"unknown stream"},

		{"nowhere", ask{line: movePath, body: move(`{}`, "")}, 400, "0 targets"},
		{"two places", ask{line: movePath, body: move(`{"shift":-5,"earliest":true}`, "")}, 400, "2 targets"},
		{"forward", ask{line: movePath, body: move(`{"shift":5}`, "")}, 400, "shift: 5 does not go back"},
		{"the future", ask{line: movePath, body: move(`{"datetime":"2999-01-01T00:00:00Z"}`, "")}, 400, "future"},
		{"a future event time", ask{line: movePath, body: move(`{"event_time":"2999-01-01T00:00:00Z"}`, "")}, 400,
			"event_time: 2999-01-01T00:00:00Z is in the future"},
		{"both times", ask{line: movePath, body: move(`{"event_time":"2026-01-01","datetime":"2026-01-01"}`, "")}, 400,
			"2 targets"},
		{"no time", ask{line: movePath, body: move(`{"datetime":"yesterday"}`, "")}, 400, "not a time: use "},
		{"an unknown place", ask{line: movePath, body: move(`{"cursor":"abc"}`, "")}, 400, "cursor"},
		{"no source", ask{line: movePath, body: move(`{"current":true}`, `,"accept_source":"SOURCE"`)}, 400,
			`accept_source: "SOURCE" is no source`},
		{"no reason for a plan", ask{line: movePath, body: `{"to":{"shift":-5}}`}, 400, "reason is empty"},
		{"not confirmed", ask{line: movePath, body: move(`{"shift":-5}`, `,"execute":true,"base_epoch":3`)}, 400, "confirm"},
		{"confirmed for another stream",
			ask{line: movePath, body: move(`{"shift":-5}`, `,"execute":true,"base_epoch":3,"confirm":"users"`)}, 400, "confirm"},
		{"not planned", ask{line: movePath, body: move(`{"shift":-5}`, `,"execute":true,"confirm":"events"`)}, 400,
			"base_epoch"},
		{"planned for no epoch",
			ask{line: movePath, body: move(`{"shift":-5}`, `,"execute":true,"confirm":"events","base_epoch":"x"`)}, 400,
			"base_epoch"},
		{"all that it takes", ask{line: movePath, body: move(`{"shift":-5}`, do)}, 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(ops.Config{})
			w := s.do(tc.ask)
			if tc.code == 200 {
				if w.Code != 200 || len(s.control.orders) != 1 {
					t.Errorf("status %d %s and %d orders, want 200 and one", w.Code, w.Body, len(s.control.orders))
				}
				return
			}
			wantRefusal(t, w, tc.code, tc.text)
			if len(s.control.orders)+len(s.control.plans) > 0 {
				t.Errorf("the controller was asked for %v %v", s.control.orders, s.control.plans)
			}
		})
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{})
	for _, tc := range []struct {
		line, body string
		to         control.Target
		want       order
	}{
		{pausePath, `{"reason":"why"}`, nil, order{Action: "pause"}},
		{pausePath, `{"reason":"why","for":""}`, nil, order{Action: "pause"}},
		{pausePath, `{"reason":"why","for":"30m"}`, nil, order{Action: "pause", For: 30 * time.Minute}},
		{pausePath, `{"reason":"why","for":"PT1H30M"}`, nil, order{Action: "pause", For: 90 * time.Minute}},
		{"POST /api/v1/streams/events/resume", `{"reason":"why"}`, nil, order{Action: "resume"}},
		{
			movePath, `{"to":{"entry":"3.12"},"reason":"why","execute":true,"confirm":"events","base_epoch":0}`,
			control.RewindToEntry{Entry: bridge.Version{Epoch: 3, Seq: 12}}, order{Action: "move"},
		},
		{
			movePath, `{"to":{"datetime":"2026-01-02T03:04:05Z"},"reason":"why","execute":true,"confirm":"events",` +
				`"base_epoch":7}`,
			control.RewindToTime{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, order{Action: "move", BaseEpoch: 7},
		},
		{
			movePath, `{"to":{"datetime":"2026-01-02 03:04Z"},"reason":"why","execute":true,"confirm":"events","base_epoch":7}`,
			control.RewindToTime{Time: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)}, order{Action: "move", BaseEpoch: 7},
		},
		{
			movePath, `{"to":{"event_time":"2026-01-02"},"reason":"why","execute":true,"confirm":"events","base_epoch":7}`,
			control.ResetToTime{Time: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, order{Action: "move", BaseEpoch: 7},
		},
	} {
		s.control.orders, s.control.plans, s.control.epoch = nil, nil, tc.want.BaseEpoch
		w := s.do(ask{line: tc.line, body: tc.body,
			header: map[string]string{"Content-Type": "application/json; charset=utf-8"}})
		tc.want.By = control.Request{Who: "http:127.0.0.1", Reason: "why", Timeout: 20 * time.Second}
		if diff := cmp.Diff([]order{tc.want}, s.control.orders); diff != "" {
			t.Errorf("%s %s: orders (-want +got):\n%s", tc.line, tc.body, diff)
		}
		if tc.to != nil && (len(s.control.plans) != 1 || s.control.plans[0] != tc.to) {
			t.Errorf("%s %s: planned to %v, want %v", tc.line, tc.body, s.control.plans, tc.to)
		}
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %s", tc.line, w.Code, w.Body)
		}
		want := map[string]any{"applied": true, "by": "one", "epoch": 4.0, "seq": 0.0, "at": "1970-01-01T00:00:01Z"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: answer (-want +got):\n%s", tc.line, diff)
		}
	}
}

func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	for body, to := range map[string]control.Target{
		`{"latest":true}`: control.ResetToLatest{}, `{"earliest":true}`: control.ResetToEarliest{},
		`{"current":true}`: control.ResetToCurrent{},
		`{"shift":-5}`:     control.RewindPages{Pages: 5},
	} {
		s := newSite(ops.Config{})
		w := s.do(ask{line: movePath, body: `{"to":` + body + `,"reason":"why","confirm":"events","base_epoch":3}`})
		if w.Code != 200 || len(s.control.orders) != 0 || len(s.control.plans) != 1 || s.control.plans[0] != to {
			t.Errorf("%s: %d %s, orders %v, plans %v", body, w.Code, w.Body, s.control.orders, s.control.plans)
		}
		if !strings.Contains(w.Body.String(), `"base_epoch":3`) {
			t.Errorf("the plan lacks its epoch: %s", w.Body)
		}
	}
}

// A move that was planned for another epoch is rejected.
func TestMovedSincePlanned(t *testing.T) {
	t.Parallel()
	s := newSite(ops.Config{})
	w := s.do(ask{line: movePath,
		body: `{"to":{"shift":-5},"reason":"why","execute":true,"confirm":"events","base_epoch":2}`})
	wantRefusal(t, w, 409, "moved, paused or resumed after the plan was made: its epoch is 3, the plan is for epoch 2")
	if len(s.control.orders) != 0 {
		t.Errorf("orders %v", s.control.orders)
	}
}

// steerings are requests that reach a controller, records those that reach the
// Records.
var (
	steerings = []ask{
		{line: pausePath, body: anyReason}, {line: "POST /api/v1/streams/events/resume", body: anyReason},
		{line: movePath, body: `{"to":{"shift":-1},"reason":"why"}`}, {line: "GET /api/v1/streams/events/history"},
	}
	records = []ask{{line: "GET /api/v1/jobs"}, {line: "GET /api/v1/streams/events/dead-letters"}}
)

// failing is an error and its answer.
type failing struct {
	err  error
	code int
	hint string
}

func (f *failing) want(t *testing.T, asks []ask) {
	t.Helper()
	s := newSite(ops.Config{})
	s.control.err, s.records.err = f.err, f.err
	for _, a := range asks {
		w := s.do(a)
		wantRefusal(t, w, f.code, f.err.Error())
		if !strings.Contains(w.Body.String(), fmt.Sprintf(`"hint":%q`, f.hint)) {
			t.Errorf("%s: %s lacks the hint %q", a.line, w.Body, f.hint)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]failing{
		"refused": {&ops.Error{Status: http.StatusConflict, Err: errors.New("moved meanwhile"), Hint: "again"}, 409,
			"again"},
		"away":     {fmt.Errorf("load: %w", &bridge.Fault{Err: errors.New("redis: refused"), Hint: "check"}), 503, "check"},
		"too late": {fmt.Errorf("read: %w", errTimeout), 504, "run exportbridge check"},
		"other":    {errors.New("strange"), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.want(t, records)
		})
	}
}

// If a topic is not read to its end, the answer names the command that waits longer.
func TestUnread(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("list: %w", &kafkaclient.IncompleteError{Err: errTimeout})
	(&failing{err, 503, "run exportbridge check"}).want(t, records[:1])
	(&failing{err, 503, "run exportbridge dlq list --stream events --timeout 10m, which waits longer"}).want(t,
		records[1:])
}

// Each error of a controller has a status.
func TestSteeringFailures(t *testing.T) {
	t.Parallel()
	away := &bridge.Fault{Err: errors.New("redis: refused"), Hint: "check"}
	for _, f := range []failing{
		{&control.RefusedError{By: "one", Detail: "not paused"}, 409, "check the status and plan again"},
		{&control.RefusedError{By: "one", Restored: true}, 409, "Redis had lost the cursor and has it again; retry"},
		{&control.RefusedError{Detail: "no start", NoStart: true}, 409, "use a rewind, or the earliest event"},
		{&control.RefusedError{Detail: "no start", NeedsStart: true}, 409, "use a rewind, or an event time"},
		{fmt.Errorf("stream events has %w", control.ErrNoPosition), 409, "use an event time, or start the stream"},
		{new(control.Move).CheckEpoch(1), 409, "check the status and plan again"},
		{fmt.Errorf("request: %w", &bridge.PendingError{}), 409, "retry when that request is done"},
		{&control.NoEntryError{Err: fmt.Errorf("entry 1.2: %w", bridge.ErrNoEntry)}, 404,
			"use an entry of the history, or a reset"},
		{&control.NoEntryError{Err: bridge.ErrNoEntry, Left: &bridge.Version{Epoch: 1, Seq: 7}}, 404,
			"use entry 1.7, the newest with another cursor before the last move, or a reset"},
		{&control.NoCheckpointError{Stream: "events", Live: &bridge.Status{Hint: "look"}}, 503, "look"},
		{&control.NoCheckpointError{Stream: "events"}, 503, ""},
		{&control.UnacknowledgedError{State: bridge.CommandWithdrawn}, 503, "retry when the stream is healthy"},
		{&control.UnacknowledgedError{State: bridge.CommandWithdrawn,
			Live: &bridge.Status{State: bridge.StateBlocked, Reason: bridge.ReasonOwner, Hint: "stop one"}}, 503, "stop one"},
		{&control.UnacknowledgedError{State: bridge.CommandClaimed}, 503, "check the status: it may have been applied"},
		{&control.StoreAwayError{Because: control.ErrStoreHolds, Err: away}, 503,
			"start Redis or correct REDIS_URL, then retry"},
		{fmt.Errorf("load: %w", away), 503, "check"},
		{fmt.Errorf("read: %w", errTimeout), 503, ""},
		{errors.New("strange"), 503, ""},
	} {
		f.want(t, steerings)
	}
	w := newSite(ops.Config{}).do(ask{line: movePath, body: `{"to":{"entry":"latest"},"reason":"why"}`})
	if wantRefusal(t, w, 400, "entry: "); !strings.Contains(w.Body.String(), "an entry of the history") {
		t.Errorf("a bad entry: %s", w.Body)
	}
}
