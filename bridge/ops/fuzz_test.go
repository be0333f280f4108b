package ops_test

import (
	"encoding/json"
	"strings"
	"testing"

	"exportbridge/bridge/ops"
)

// FuzzRequest sends requests as from browsers, proxies and attackers. None acts without the
// token, is answered under a foreign Host name, or shows a cursor.
func FuzzRequest(f *testing.F) {
	const path = "/api/v1/streams/events/pause"
	for _, seed := range [][6]string{
		{"POST", path, "localhost", "Bearer " + rightToken, "", anyReason},
		{"POST", path, "localhost", "Bearer x", "", anyReason},
		{"POST", path, "evil.example", "Bearer " + rightToken, "", anyReason},
		{"POST", path, "[::1]:80", "bearer  " + rightToken, "http://evil.example", anyReason},
		{"POST", "/api/v1/streams/events/move", "127.0.0.1", "Bearer " + rightToken, "",
			`{"to":{"shift":-1},"reason":"x","execute":true,"confirm":"events","base_epoch":1}`},
		{"POST", "/api/v1/streams/events/move", "127.0.0.1", "", "null", `{"to":{"entry":"1.2"},"reason":"x"}`},
		{"POST", "/api/v1/streams/%2e%2e/pause", "localhost:", "Basic Og==", "", `{"reason":"\u0000"}`},
		{"POST", "/api/v1/jobs", "localhost", "Bearer " + rightToken, "", newJob("")},
		{"POST", "/api/v1/jobs/aaaaaa/cancel", "localhost", "Bearer x", "", `{"reason":"x","execute":true}`},
		{"GET", "/api/v1/status", "localhost.", "", "", ""},
		{"GET", "/api/v1/streams/events/history?limit=1e9&since=x", "a.localhost", "", "", ""},
		{"GET", "//api/../api/v1/status", "", "", "", ""},
		{"PATCH", "/api/v1/session", "[fe80::1%eth0]:1", "", "", "{"},
		{"GET", "/debug/pprof/heap", "localhost", "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	s, jobs, _ := jobSite(ops.Config{Addr: ":8080", AdminToken: rightToken})
	f.Fuzz(func(t *testing.T, method, path, host, authorization, origin, body string) {
		a := ask{line: method + " " + path, host: host, peer: "10.0.0.1:1", body: body,
			header: map[string]string{"Authorization": authorization, "Origin": origin}}
		if !sendable(method, path) || strings.HasPrefix(path, "/api/v1/events") {
			t.Skip()
		}
		s.control.orders, s.control.plans, jobs.asks, jobs.last = nil, nil, nil, nil
		w := s.do(a)
		scheme, token, _ := strings.Cut(authorization, " ")
		trusted := strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(token) == rightToken
		if acted := len(s.control.orders)+len(s.control.plans)+len(jobs.asks) > 0 || jobs.last != nil; acted &&
			(!trusted || method != "POST") {
			t.Errorf("acted for %+v", a)
		}
		if strings.Contains(strings.ToLower(host), "evil") && w.Code != 421 {
			t.Errorf("%+v: %d, want 421", a, w.Code)
		}
		answer := w.Body.String()
		if strings.Contains(answer, secretCursor) || strings.Contains(answer, rightToken) &&
			!strings.Contains(path+body, rightToken) {
			t.Errorf("%+v: the answer tells a secret: %s", a, answer)
		}
		if w.Code >= 500 {
			t.Errorf("%+v: %d %s", a, w.Code, answer)
		}
		if strings.HasPrefix(path, "/api/") && w.Code >= 400 && !json.Valid([]byte(answer)) {
			t.Errorf("%+v: %q is no JSON", a, answer)
		}
	})
}

// sendable reports whether a client could send such a request line.
func sendable(method, path string) bool {
	if method == "" || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " #") {
		return false
	}
	for _, c := range []byte(method) {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	// A % must be part of an escape: httptest panics otherwise, net/http answers 400.
	for i := range path {
		if path[i] == '%' && (i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2])) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
