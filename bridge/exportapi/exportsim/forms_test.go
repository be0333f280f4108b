package exportsim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// A formClient reads one form as the documentation of its service says. It does not use
// Form. It remembers the next request.
type formClient struct {
	method, url, body string
	header            http.Header
	// items returns the items of a page. turn goes to the next page. At the end it keeps
	// the request, or goes to where new items appear.
	items func(page []byte) []json.RawMessage
	turn  func(c *formClient, r *http.Response, page []byte)
}

// at returns a member of nested objects, nil if it is absent.
func at(page []byte, names ...string) json.RawMessage {
	for _, name := range names {
		if i, err := strconv.Atoi(name); err == nil && i < len(list(page)) {
			page = list(page)[i]
			continue
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(page, &object); err != nil {
			return nil
		}
		page = object[name]
	}
	return page
}

func list(raw json.RawMessage) []json.RawMessage {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil
	}
	return items
}

func member(names ...string) func([]byte) []json.RawMessage {
	return func(page []byte) []json.RawMessage { return list(at(page, names...)) }
}

func array(page []byte) []json.RawMessage { return list(page) }

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // null is empty
	return s
}

var linkNext = regexp.MustCompile(`<([^>]*)>; rel="next"`)

// followLink goes to the URL of rel="next", if there is one.
func followLink(c *formClient, r *http.Response, _ []byte) {
	found := linkNext.FindStringSubmatch(strings.Join(r.Header.Values("Link"), ", "))
	if found == nil {
		return
	}
	if strings.HasPrefix(found[1], "/") {
		found[1] = "http://" + r.Request.Host + found[1]
	}
	c.url = found[1]
}

// setCursor puts a cursor into the query.
func (c *formClient) setCursor(name, cursor string) {
	u, _ := url.Parse(c.url)
	query := u.Query()
	query.Set(name, cursor)
	u.RawQuery = query.Encode()
	c.url = u.String()
}

// turnTo puts the cursor of a page into the query.
func turnTo(param string, names ...string) func(*formClient, *http.Response, []byte) {
	return func(c *formClient, _ *http.Response, page []byte) {
		if next := strings.Trim(string(at(page, names...)), `"`); next != "" && next != "null" {
			c.setCursor(param, next)
		}
	}
}

// post puts the cursor of a page into a body.
func post(body string, names ...string) func(*formClient, *http.Response, []byte) {
	return func(c *formClient, _ *http.Response, page []byte) {
		if next := at(page, names...); next != nil {
			c.body = fmt.Sprintf(body, next)
		}
	}
}

func basic(user, password string) http.Header {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header
}

// formClients returns the clients by the name of their form.
func formClients(t *testing.T, base string) map[string]*formClient {
	bearer := http.Header{"Authorization": {"Bearer sesame"}}
	return map[string]*formClient{
		"default": {
			url: "/events?pageSize=100", header: http.Header{"X-Api-Key": {"sesame"}}, items: member("items"),
			turn: turnTo("cursor", "nextCursor"),
		},
		"nested": {
			url: "/v1/events?limit=100", header: bearer, items: member("data", "items"),
			turn: turnTo("cursor", "data", "paging", "next"),
		},
		"integer-cursor": {
			url: "/changes?count=100", header: http.Header{"X-Api-Key": {"sesame"}}, items: member("changes"),
			turn: turnTo("since_id", "last"),
		},
		"header-cursor": {
			url: "/feed?pageSize=100", header: http.Header{"X-Api-Key": {"sesame"}}, items: array,
			turn: func(c *formClient, r *http.Response, _ []byte) {
				if next := r.Header.Get("X-Next-Cursor"); next != "" {
					c.setCursor("cursor", next)
				}
			},
		},
		"next-url": {
			url: "/export/events?per_page=100&api_key=sesame", items: member("items"),
			turn: func(c *formClient, _ *http.Response, page []byte) {
				if next := text(at(page, "links", "next")); next != "" {
					c.url = next
				}
			},
		},
		"link": {url: "/items?pageSize=100", header: basic("exporter", "sesame"), items: array, turn: followLink},
		"last-item": {
			url: "/log?limit=100", items: member("data"),
			turn: func(c *formClient, _ *http.Response, page []byte) {
				if items := list(at(page, "data")); len(items) > 0 {
					c.setCursor("after_seq", string(at(items[len(items)-1], "seq")))
				}
			},
		},
		"post": {
			method: "POST", url: "/api/v2/events", body: `{"limit":100}`, header: bearer, items: member("items"),
			turn: post(`{"limit":100,"cursor":%s}`, "cursor"),
		},
		"cursor-alone": {
			method: "POST", url: "/api/v2/auditevents", body: `{"limit":100,"start_time":"2020-01-01T00:00:00Z"}`,
			header: bearer, items: member("items"),
			turn: post(`{"cursor":%s}`, "cursor"),
		},
		"end-of-stream": {
			url: "/api/v2/incremental/events/cursor?per_page=100", header: basic("agent@acme.example/token", "sesame"),
			items: member("events"),
			turn:  turnTo("cursor", "after_cursor"),
		},
		"okta-system-log": {
			url: "/api/v1/logs?limit=100", header: http.Header{"Authorization": {"SSWS sesame"}}, items: array, turn: followLink,
		},
		"auth0-logs": {
			url: "/api/v2/logs?from=0&take=100", items: array, turn: followLink,
			header: http.Header{"Authorization": {"Bearer " + fetchToken(t, base, "sesame")}},
		},
		"github-audit-log": {url: "/orgs/acme/audit-log?order=asc&per_page=100", header: bearer, items: array,
			turn: followLink},
		"1password-events": {
			method: "POST", url: "/api/v2/auditevents", body: `{"limit":100,"start_time":"2020-01-01T00:00:00Z"}`,
			header: bearer, items: member("items"),
			turn: post(`{"cursor":%s}`, "cursor"),
		},
		"metronome-audit-log": {
			url: "/v1/auditLogs?limit=100", header: bearer, items: member("data"),
			turn: turnTo("next_page", "next_page"),
		},
		"datadog-audit-trail": {
			method: "POST", url: "/api/v2/audit/events/search",
			body:   `{"sort":"timestamp","filter":{"from":"now-90d"},"page":{"limit":100}}`,
			header: http.Header{"Dd-Application-Key": {"sesame"}}, items: member("data"),
			turn: post(`{"sort":"timestamp","filter":{"from":"now-90d"},"page":{"limit":100,"cursor":%s}}`, "meta", "page",
				"after"),
		},
	}
}

func fetchToken(t *testing.T, base, secret string) string {
	response := must.Get(http.PostForm(base+"/oauth/token", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {"exporter"}, "client_secret": {secret},
		"audience": {"https://acme.example/api/v2/"},
	}))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	return text(at(body, "access_token"))
}

func (c *formClient) ask(t *testing.T, base string) (*http.Response, []byte) {
	t.Helper()
	target := c.url
	if strings.HasPrefix(target, "/") {
		target = base + target
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), c.method, target, strings.NewReader(c.body)))(t)
	request.Header = c.header.Clone()
	if c.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s %v", c.method, target, response.Status, page, err)
	}
	return response, page
}

// drain reads until a page has nothing new and leads to no other page. It returns the
// number of events, which follow seen without a gap.
func (c *formClient) drain(t *testing.T, h *exportsim.Handler, base string, seen int) int {
	t.Helper()
	for {
		asked, before := c.url+c.body, seen
		response, page := c.ask(t, base)
		for _, item := range c.items(page) {
			i, ok := exportsim.IndexOf(item)
			if !ok || i > seen || !bytes.Equal(item, h.Event(i)) {
				t.Fatalf("event %d (%v) where %d is due: %s", i, ok, seen, item)
			}
			seen = max(seen, i+1)
		}
		if c.turn(c, response, page); seen == before && asked == c.url+c.body {
			return seen
		}
	}
}

// A client that was written from the documentation of the service drains each form, and
// follows it while it grows.
func TestFormsAreDrained(t *testing.T) {
	t.Parallel()
	for _, name := range exportsim.FormNames() {
		if named(t, name).Backwards() {
			continue
		}
		for _, schema := range []exportsim.Schema{exportsim.Schema08, exportsim.Schema05} {
			t.Run(name+"/"+string(schema), func(t *testing.T) {
				t.Parallel()
				form, _ := exportsim.FormNamed(name)
				h, server := newServer(t, exportsim.Config{
					Form: form, Seed: 3, Events: 300, Schema: schema, BasePath: "/base", APIKey: "sesame",
				})
				c := formClients(t, server.base)[name]
				seen := 0
				for _, grow := range []int{0, 1, 40, 59, 100, 250} { // totals of 300 and 400 end with a full page
					h.Grow(grow)
					if seen = c.drain(t, h, server.base, seen); seen != h.Stock() {
						t.Fatalf("%d of %d events at %s", seen, h.Stock(), c.url)
					}
				}
			})
		}
	}
}

// The members that a form declares are at their pointers, and have the values of the event.
func TestFormItems(t *testing.T) {
	t.Parallel()
	for _, name := range exportsim.FormNames()[1:] {
		form, _ := exportsim.FormNamed(name)
		h := newHandler(t, exportsim.Config{Form: form, Events: 100, Every: 70 * time.Microsecond})
		for i := range 100 {
			item := h.Event(i)
			if !json.Valid(item) {
				t.Fatalf("%s: event %d is not JSON: %s", name, i, item)
			}
			find := func(pointer string) string {
				return strings.Trim(string(at(item, strings.Split(pointer, "/")[1:]...)), `"`)
			}
			if id := find(form.ItemID); id == "" || form.ItemType == "" ||
				find(form.ItemType) != payloadType(t, at(item, "event"), "type") {
				t.Fatalf("%s: id %q, type %q: %s", name, id, find(form.ItemType), item)
			}
			if user := find(form.ItemSubject); user != text(at(item, "event", "userId")) {
				t.Fatalf("%s: subject %q: %s", name, user, item)
			}
			if got, want := parseTime(t, form.ItemTimeFormat, find), h.EventTime(i); form.ItemTime != "" &&
				!got(form.ItemTime).Equal(want) &&
				!got(form.ItemTime).Equal(want.Truncate(time.Second)) {
				t.Fatalf("%s: time %s, want %s: %s", name, got(form.ItemTime), want, item)
			}
		}
	}
}

// parseTime reads a time in whole milliseconds.
func parseTime(t *testing.T, format string, find func(string) string) func(string) time.Time {
	return func(pointer string) time.Time {
		value := find(pointer)
		if format == "rfc3339" {
			at := must.Get(time.Parse(time.RFC3339, value))(t)
			return at.Truncate(time.Millisecond).Local()
		}
		unit := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "us": time.Microsecond,
			"": time.Millisecond}[format]
		whole, fraction, _ := strings.Cut(value, ".")
		var n, micros int64
		must.Get(fmt.Sscan(whole, &n))(t)
		if fraction != "" {
			must.Get(fmt.Sscanf(fraction, "%d", &micros))(t)
		}
		return time.UnixMicro(n*unit.Microseconds() + micros).Truncate(time.Millisecond)
	}
}

// A cursor has the bounds and the page size, and no other parameter may be beside it.
func TestCursorAlone(t *testing.T) {
	t.Parallel()
	form, _ := exportsim.FormNamed("cursor-alone")
	h := newHandler(t, exportsim.Config{Form: form, Events: 300, APIKey: "k"})
	ask := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/api/v2/auditevents", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	iso := func(i int) string { return h.EventTime(i).UTC().Format("2006-01-02T15:04:05.000Z") }
	page := ask(`{"limit":7,"start_time":"` + iso(10) + `","end_time":"` + iso(30) + `"}`).Body.Bytes()
	for due := 10; due < 30; {
		items := list(at(page, "items"))
		if want := min(7, 30-due); len(items) != want {
			t.Fatalf("%d items from %d on, want %d: %s", len(items), due, want, page)
		}
		for _, item := range items {
			if i, _ := exportsim.IndexOf(item); i != due {
				t.Fatalf("event %d where %d is due", i, due)
			}
			due++
		}
		cursor := string(at(page, "cursor"))
		for _, beside := range []string{`"limit":7`, `"start_time":"` + iso(10) + `"`, `"end_time":"` + iso(30) + `"`,
			`"any":"thing"`} {
			if r := ask(`{"cursor":` + cursor + `,` + beside + `}`); r.Code != http.StatusBadRequest {
				t.Errorf("%s beside the cursor gives %d", beside, r.Code)
			}
		}
		r := ask(`{"cursor":` + cursor + `}`)
		if page = r.Body.Bytes(); r.Code != http.StatusOK {
			t.Fatalf("the cursor gives %d: %s", r.Code, page)
		}
	}
}

// Adjacent windows list an event at their common bound once, or twice if the end is
// inclusive.
func TestFormWindows(t *testing.T) {
	t.Parallel()
	iso := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
	seconds := func(t time.Time) string { return fmt.Sprint(t.Unix()) }
	micros := func(t time.Time) string { return fmt.Sprint(t.UnixMicro()) }
	for name, window := range map[string]struct {
		path, start, end string
		format           func(time.Time) string
		twice            bool
	}{
		"nested":         {"/v1/events?limit=500&", "from", "to", iso, false},
		"integer-cursor": {"/changes?count=500&", "after", "before", seconds, true},
		"header-cursor":  {"/feed?pageSize=500&", "start", "end", micros, false},
		"next-url":       {"/export/events?per_page=500&", "start", "end", seconds, false},
		"link":           {"/items?pageSize=500&", "since", "until", iso, true},
	} {
		form, _ := exportsim.FormNamed(name)
		h := newHandler(t, exportsim.Config{Form: form, Events: 400, Every: 250 * time.Millisecond})
		ask := func(query string) (indexes []int) {
			body := recordStatus(h, window.path+query).Body.Bytes()
			items := array(body)
			for _, field := range [][]string{{"data", "items"}, {"changes"}, {"items"}} {
				if len(items) == 0 {
					items = list(at(body, field...))
				}
			}
			for _, item := range items {
				i, _ := exportsim.IndexOf(item)
				indexes = append(indexes, i)
			}
			return indexes
		}
		bound := h.EventTime(200)
		if name == "integer-cursor" || name == "next-url" {
			bound = bound.Truncate(time.Second)
		}
		before := ask(window.end + "=" + window.format(bound))
		after := ask(window.start + "=" + window.format(bound))
		if len(after) == 0 || len(before) == 0 || after[len(after)-1] != 399 || before[0] != 0 {
			t.Fatalf("%s: %d and %d events", name, len(before), len(after))
		}
		if twice := after[0] <= before[len(before)-1]; twice != window.twice {
			t.Errorf("%s: events to %d before the bound and from %d after it, listed twice: %v", name, before[len(before)-1],
				after[0], twice)
		}
		if after[0] > before[len(before)-1]+1 {
			t.Errorf("%s: no window has event %d", name, after[0]-1)
		}
	}
}

// A service may list events late to a client that polls, and by their own time in a bounded
// request. Both list all events.
func TestLateEvents(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Form: named(t, "okta-system-log"), Events: 1500})
	late := 0
	for i := 1; i < 1500; i++ {
		if h.EventTime(i).Before(h.EventTime(i - 1)) {
			late++
		}
	}
	if late < 100 || late > 300 {
		t.Errorf("%d of 1500 events are late", late)
	}
	var last time.Time
	seen := map[int]bool{}
	for from := start.Add(-10 * time.Second); from.Before(start.Add(160 * time.Second)); from = from.Add(7 * time.Second) {
		bounds := "&since=" + from.Format(time.RFC3339) + "&until=" + from.Add(7*time.Second).Format(time.RFC3339)
		for target := "/api/v1/logs?limit=20" + bounds; target != ""; {
			r := recordStatus(h, target)
			for _, item := range array(r.Body.Bytes()) {
				i, _ := exportsim.IndexOf(item)
				at := h.EventTime(i)
				if at.Before(last) || at.Before(from) || !at.Before(from.Add(7*time.Second)) || seen[i] {
					t.Fatalf("event %d at %s after %s, from %s, listed before: %v", i, at, last, from, seen[i])
				}
				seen[i], last = true, at
			}
			next := linkNext.FindStringSubmatch(strings.Join(r.Header().Values("Link"), ","))
			if target = ""; next != nil {
				target = next[1]
			}
		}
	}
	if len(seen) != 1500 {
		t.Errorf("bounded requests list %d of 1500 events", len(seen))
	}
}
