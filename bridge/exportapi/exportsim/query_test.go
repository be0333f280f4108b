package exportsim_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 500, BasePath: "/export", APIKey: "right"})
	tests := []struct {
		method, target, key string
		want                int
	}{
		{"GET", "/export/events", "right", 200},
		{"GET", "/export/session", "right", 200},
		{"GET", "/export/user", "right", 200},
		{"GET", "/export/events", "", 401},
		{"GET", "/export/events", "wrong", 403},
		{"GET", "/export/events", "right ", 403},
		{"GET", "/events", "right", 404},
		{"GET", "/export", "right", 404},
		{"GET", "/export/", "right", 404},
		{"GET", "/export/events/", "right", 404},
		{"GET", "/export/users", "right", 404},
		{"GET", "/export/eventsx", "right", 404},
		{"POST", "/export/events", "right", 405},
		{"HEAD", "/export/events", "right", 405},
		{"DELETE", "/export/user", "", 405},
		{"GET", "/export/events?pageSize=1", "right", 200},
		{"GET", "/export/events?pageSize=1000", "right", 200},
		{"GET", "/export/events?pageSize=0", "right", 400},
		{"GET", "/export/events?pageSize=1001", "right", 400},
		{"GET", "/export/events?pageSize=-1", "right", 400},
		{"GET", "/export/events?pageSize=", "right", 400},
		{"GET", "/export/events?pageSize=ten", "right", 400},
		{"GET", "/export/events?pageSize=10&pageSize=20", "right", 400},
		{"GET", "/export/events?start=1&end=2", "right", 200},
		{"GET", "/export/events?start=0", "right", 200},
		{"GET", "/export/events?start=1.5", "right", 400},
		{"GET", "/export/events?start=2026-11-01", "right", 400},
		{"GET", "/export/events?start=-5", "right", 400},
		{"GET", "/export/events?end=x", "right", 400},
		{"GET", "/export/events?end=0", "right", 400},
		{"GET", "/export/events?start=5&end=5", "right", 400},
		{"GET", "/export/events?start=6&end=5", "right", 400},
		{"GET", "/export/events?start=99999999999999999999", "right", 400},
		{"GET", "/export/events?start=9223372036854775807", "right", 200},
		{"GET", "/export/events?events=orderPlaced", "right", 200},
		{"GET", "/export/events?events=testGroupAssigned", "right", 400},
		{"GET", "/export/events?events=orderPlaced&events=nonsense", "right", 400},
		{"GET", "/export/events?events=", "right", 400},
		{"GET", "/export/user?events=whatever", "right", 200},
		{"GET", "/export/events?unknown=1", "right", 200},
		{"GET", "/export/events?cursor=", "right", 400},
		{"GET", "/export/events?cursor=abc", "right", 400},
		{"GET", "/export/events?cursor=%zz", "right", 400},
	}
	for _, test := range tests {
		request := httptest.NewRequest(test.method, "/", nil)
		target, query, _ := strings.Cut(test.target, "?")
		request.URL = &url.URL{Path: target, RawQuery: query}
		if test.key != "" {
			request.Header.Set("X-Api-Key", test.key)
		}
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, request)
		if recorder.Code != test.want {
			t.Errorf("%s %s with key %q: %d, want %d: %s",
				test.method, test.target, test.key, recorder.Code, test.want, recorder.Body)
		}
		want := "application/json"
		if test.want != 200 {
			want = "application/problem+json"
		}
		if got := recorder.Header().Get("Content-Type"); got != want {
			t.Errorf("%s %s: Content-Type %q, want %q", test.method, test.target, got, want)
		}
		if allow := recorder.Header().Get("Allow"); (allow == "GET") != (test.want == 405) {
			t.Errorf("%s %s: Allow is %q", test.method, test.target, allow)
		}
	}
}

func TestEventTypesOfGenerations(t *testing.T) {
	t.Parallel()
	for schema, known := range map[exportsim.Schema]map[string]bool{
		exportsim.Schema05: {"audienceMatched": true, "userClicked": false, "linkOpened": false},
		exportsim.Schema07: {"audienceMatched": true, "userClicked": true, "linkOpened": false},
		exportsim.Schema08: {"audienceMatched": true, "userClicked": true, "linkOpened": true},
	} {
		h := newHandler(t, exportsim.Config{Schema: schema})
		for name, ok := range known {
			if got := recordStatus(h, "/events?events="+name).Code; (got == 200) != ok {
				t.Errorf("%s: type %s gives %d", schema, name, got)
			}
		}
	}
}

func firstCursor(t *testing.T, h http.Handler, path, query string) string {
	t.Helper()
	cursor := decodePage(t, recordStatus(h, path+"?pageSize=10&"+query).Body.Bytes()).cursor()
	if cursor == "" {
		t.Fatalf("%s?%s has no cursor", path, query)
	}
	return cursor
}

func TestCursorNeedsEncoding(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 5000})
	query := ""
	for range 100 {
		cursor := firstCursor(t, h, "/events", query)
		if !strings.HasSuffix(cursor, "=") || !strings.Contains(cursor, "%") {
			t.Fatalf("cursor %q has no = or no %%", cursor)
		}
		raw := httptest.NewRequest(http.MethodGet, "/events", nil)
		raw.URL.RawQuery = "cursor=" + cursor
		recorder := httptest.NewRecorder()
		if h.ServeHTTP(recorder, raw); recorder.Code != 400 {
			t.Fatalf("cursor %q without encoding: %d, want 400", cursor, recorder.Code)
		}
		query = "cursor=" + url.QueryEscape(cursor)
	}
}

func TestTamperedCursor(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 5000})
	cursor := firstCursor(t, h, "/events", "")
	status := func(cursor string) int {
		return recordStatus(h, "/events?"+params("cursor", cursor).Encode()).Code
	}
	if got := status(cursor); got != 200 {
		t.Fatalf("untouched cursor: %d", got)
	}
	altered := []string{
		strings.ToLower(cursor), " " + cursor, cursor + " ", cursor + "\n", "\n" + cursor, cursor + "=",
		strings.TrimRight(cursor, "="), strings.ReplaceAll(cursor, "%2B", "+"), cursor + cursor,
		cursor[:20] + "\r\n" + cursor[20:], strings.Replace(cursor, "c1", "c2", 1),
	}
	for i := range cursor {
		// A and B differ in the lowest of six bits. In the last character, the
		// decoder drops that bit.
		for _, other := range []byte{'A', 'B', cursor[i] ^ 1, cursor[i] ^ 32} {
			if other != cursor[i] {
				altered = append(altered, cursor[:i]+string(other)+cursor[i+1:])
			}
		}
		altered = append(altered, cursor[:i], cursor[:i]+cursor[i+1:])
	}
	for _, a := range altered {
		if got := status(a); got != 400 {
			t.Errorf("cursor %q altered to %q: %d, want 400", cursor, a, got)
		}
	}
}

func TestCursorIsBoundToItsChain(t *testing.T) {
	t.Parallel()
	c := exportsim.Config{Events: 5000}
	h := newHandler(t, c)
	plain := firstCursor(t, h, "/events", "")
	window := firstCursor(t, h, "/events", "start=5&end=1900000000000")
	filtered := firstCursor(t, h, "/events", "events=pageOpened&events=orderPlaced")
	tests := []struct {
		name, path, query, cursor string
		want                      int
	}{
		{"alone", "/events", "", plain, 200},
		{"other resource", "/session", "", plain, 400},
		{"start added", "/events", "start=5", plain, 400},
		{"filter added", "/events", "events=pageOpened", plain, 400},
		{"window, cursor only", "/events", "", window, 200},
		{"window again", "/events", "start=5&end=1900000000000", window, 200},
		{"other start", "/events", "start=6&end=1900000000000", window, 400},
		{"other end", "/events", "end=1900000000001", window, 400},
		{"filter, cursor only", "/events", "", filtered, 200},
		{"filter again, other order", "/events", "events=orderPlaced&events=pageOpened", filtered, 200},
		{"other filter", "/events", "events=orderPlaced", filtered, 400},
	}
	for _, test := range tests {
		query := test.query + "&" + params("cursor", test.cursor).Encode()
		if got := recordStatus(h, test.path+"?"+query).Code; got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	c.Seed = 99
	if got := recordStatus(newHandler(t, c), "/events?"+params("cursor", plain).Encode()).Code; got != 400 {
		t.Errorf("cursor of another seed: %d, want 400", got)
	}
	// A filter that only the cursor has still applies.
	next := recordStatus(h, "/events?pageSize=50&"+params("cursor", filtered).Encode())
	for _, item := range decodePage(t, next.Body.Bytes()).Items {
		if name := payloadType(t, item, "type"); name != "pageOpened" && name != "orderPlaced" {
			t.Fatalf("a page of the filtered chain has type %s", name)
		}
	}
}

func TestCursorExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exportsim.Config{Events: 500, CursorTTL: time.Minute})
		cursor := params("cursor", firstCursor(t, h, "/events", "")).Encode()
		pass(time.Minute)
		if got := recordStatus(h, "/events?"+cursor).Code; got != 200 {
			t.Errorf("cursor at the end of its life: %d, want 200", got)
		}
		pass(time.Millisecond)
		if got := recordStatus(h, "/events?"+cursor).Code; got != 410 {
			t.Errorf("expired cursor: %d, want 410", got)
		}
	})
}

// Waiting at the end does not renew a cursor.
func TestCursorExpiresAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exportsim.Config{EndOfResults: exportsim.EmptyItems, CursorTTL: time.Minute})
		cursor := params("cursor", firstCursor(t, h, "/events", "")).Encode()
		for _, want := range []int{200, 410} {
			pass(40 * time.Second)
			if got := recordStatus(h, "/events?"+cursor).Code; got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
	})
}

func TestHealthz(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{
		APIKey: "key", BasePath: "/export", Faults: exportsim.Faults{{Kind: "500", Probability: 1}},
	})
	if got := recordStatus(h, "/healthz"); got.Code != 200 || got.Body.String() != "ok\n" {
		t.Errorf("healthz: %d %q", got.Code, got.Body)
	}
}
