package exportsim_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// auditClient reads one audit list as its documentation says.
type auditClient struct {
	path                     string // empty for /audit
	size, from, to           string // parameters
	filter                   string // the field in $filter, which replaces from and to
	unit                     time.Duration
	fromExcluded, toIncluded bool // what happens to an event at the bound
	offset                   bool
	blind                    bool // no page says whether another page follows
	numbered                 bool // pages have numbers, and each has the full size
	whole                    bool // the bounds are whole seconds
	items                    func(page []byte) []json.RawMessage
	next                     func(target url.URL, r *httptest.ResponseRecorder) string
}

var auditClients = map[string]auditClient{
	"audit-list": {size: "pageSize", from: "start", to: "end", items: member("items"),
		next: nextBy("cursor", "nextCursor")},
	"audit-list-url": {
		size: "limit", from: "after_time", to: "until", unit: time.Millisecond, fromExcluded: true, toIncluded: true,
		items: member("items"), next: nextIn("paging", "next"),
	},
	"audit-list-offset": {size: "per_page", from: "from", to: "to", unit: time.Second, toIncluded: true, offset: true,
		items: array, next: nextLinked},
	"audit-list-pages": {size: "per_page", from: "from", to: "to", unit: time.Millisecond, offset: true, blind: true,
		numbered: true, items: member("items"), next: nextNumber("page")},
	"audit-list-skip": {size: "limit", from: "from", to: "to", offset: true, blind: true, items: member("items"),
		next: nextNumber("offset")},
	"slack-audit-logs": {
		path: "/audit/v1/logs", size: "limit", from: "oldest", to: "latest", unit: time.Second, toIncluded: true, whole: true,
		items: member("entries"), next: nextBy("cursor", "response_metadata", "next_cursor"),
	},
	"google-workspace-activities": {
		path: "/admin/reports/v1/activity/users/all/applications/login", size: "maxResults", from: "startTime",
		to: "endTime", toIncluded: true,
		items: member("items"), next: nextBy("pageToken", "nextPageToken"),
	},
	"stripe-events": {
		path: "/v1/events", size: "limit", from: "created[gte]", to: "created[lt]", unit: time.Second,
		items: member("data"),
		next: func(target url.URL, r *httptest.ResponseRecorder) string {
			if items := list(at(r.Body.Bytes(), "data")); string(at(r.Body.Bytes(), "has_more")) == "true" {
				query := target.Query()
				query.Set("starting_after", text(at(items[len(items)-1], "id")))
				target.RawQuery = query.Encode()
				return target.String()
			}
			return ""
		},
	},
	"gitlab-audit-events": {
		path: "/api/v4/groups/acme/audit_events", size: "per_page", from: "created_after", to: "created_before",
		toIncluded: true,
		items:      array, next: nextLinked,
	},
	"microsoft-graph-audit": {
		path: "/v1.0/auditLogs/directoryAudits", size: "$top", filter: "activityDateTime", toIncluded: true,
		items: member("value"), next: nextIn("@odata.nextLink"),
	},
}

// nextIn returns a function that finds the next URL in a page.
func nextIn(names ...string) func(url.URL, *httptest.ResponseRecorder) string {
	return func(_ url.URL, r *httptest.ResponseRecorder) string { return text(at(r.Body.Bytes(), names...)) }
}

// nextBy returns a function that makes the next request with the cursor in a page.
func nextBy(param string, names ...string) func(url.URL, *httptest.ResponseRecorder) string {
	return func(target url.URL, r *httptest.ResponseRecorder) string {
		cursor := text(at(r.Body.Bytes(), names...))
		if cursor == "" {
			return ""
		}
		query := target.Query()
		query.Set(param, cursor)
		target.RawQuery = query.Encode()
		return target.String()
	}
}

// nextNumber returns a function that counts up after a page with items: pages from 1, or
// items from 0.
func nextNumber(param string) func(url.URL, *httptest.ResponseRecorder) string {
	return func(target url.URL, r *httptest.ResponseRecorder) string {
		n := len(list(at(r.Body.Bytes(), "items")))
		if n == 0 {
			return ""
		}
		query := target.Query()
		number, _ := strconv.Atoi(query.Get(param))
		if param == "page" {
			number, n = max(1, number), 1
		}
		query.Set(param, strconv.Itoa(number+n))
		target.RawQuery = query.Encode()
		return target.String()
	}
}

// nextLinked returns the next link of a page.
func nextLinked(_ url.URL, r *httptest.ResponseRecorder) string {
	if found := linkNext.FindStringSubmatch(r.Header().Get("Link")); found != nil {
		return found[1]
	}
	return ""
}

func (c *auditClient) bound(at time.Time) string {
	if c.unit == 0 {
		return at.UTC().Format(time.RFC3339Nano)
	}
	return strconv.FormatInt(at.UnixNano()/int64(c.unit), 10)
}

// within reports whether a list from one bound to another has an event.
func (c *auditClient) within(at, from, to time.Time) bool {
	if c.whole {
		at = at.Truncate(time.Second)
	}
	return (at.After(from) || at.Equal(from) && !c.fromExcluded) && (at.Before(to) || at.Equal(to) && c.toIncluded)
}

// Each page of an audit list has what sorting and filtering all events gives, while the
// list grows between the pages.
func TestAuditLists(t *testing.T) {
	t.Parallel()
	const lag = 3 * time.Second
	for name, c := range auditClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start.Add(2 * time.Minute)
			h := newHandler(t, exportsim.Config{
				Form: named(t, name), Seed: 11, Rate: 20, Lag: lag, Clock: func() time.Time { return now },
			})
			random := rand.New(rand.NewPCG(3, 4))
			most := 0
			for range 30 {
				now = now.Add(time.Duration(random.IntN(5000)) * time.Millisecond)
				most = max(most, c.compare(t, h, &now, random))
			}
			if most < 3 {
				t.Errorf("no list had more than %d pages", most)
			}
		})
	}
}

// compare reads a list with bounds at or near an event, and returns the number of its
// pages.
func (c *auditClient) compare(t *testing.T, h *exportsim.Handler, now *time.Time, random *rand.Rand) (pages int) {
	t.Helper()
	from := h.EventTime(random.IntN(h.Stock())).Add(time.Duration(random.IntN(3)-1) * time.Millisecond)
	to := from.Add(time.Duration(1+random.IntN(60_000)) * time.Millisecond)
	if c.unit == time.Second {
		from, to = from.Truncate(c.unit), to.Truncate(c.unit).Add(c.unit)
	}
	size := 20 + random.IntN(80)
	query := url.Values{c.size: {strconv.Itoa(size)}, c.from: {c.bound(from)}, c.to: {c.bound(to)}}
	if c.filter != "" {
		query = url.Values{c.size: {strconv.Itoa(size)},
			"$filter": {fmt.Sprintf("%s ge %s and %[1]s le %[3]s", c.filter, c.bound(from), c.bound(to))}}
	}
	first := url.URL{Path: cmp.Or(c.path, "/audit"), RawQuery: query.Encode()}
	before, listed := h.Stock()+1<<20, 0 // of the last item so far
	for target := first.String(); target != ""; pages++ {
		var want []int
		for i := h.Stock() - 1; i >= 0 && !h.EventTime(i).Before(from); i-- {
			if c.within(h.EventTime(i), from, to) && !h.VisibleAt(i).After(*now) && (c.offset || i < before) {
				want = append(want, i)
			}
		}
		if c.offset {
			want = want[min(listed, len(want)):]
		}
		more := len(want) > size
		want = want[:min(size, len(want))]
		r := recordStatus(h, target)
		var got []int
		for _, item := range c.items(r.Body.Bytes()) {
			i, _ := exportsim.IndexOf(item)
			got = append(got, i)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s at %s lists %v, want %v", target, now, got, want)
		}
		asked, _ := url.Parse(target)
		if target = c.next(*asked, r); (target != "") != (more || c.blind && len(want) > 0) {
			t.Fatalf("the next page is %q, %v that there is one", target, more)
		}
		if len(want) > 0 {
			before = want[len(want)-1]
		}
		if listed += len(want); c.numbered {
			listed = (pages + 1) * size
		}
		*now = now.Add(time.Duration(random.IntN(700)) * time.Millisecond)
	}
	return pages
}

// An event is listed at its time, or later by at most the lag. The Date is the time of the list.
func TestAuditLag(t *testing.T) {
	t.Parallel()
	const lag, n = 3 * time.Second, 4000
	now := start
	h := newHandler(t, exportsim.Config{
		Form: named(t, "audit-list"), Rate: 20, Lag: lag, Changes: time.Minute, Clock: func() time.Time { return now },
	})
	late, latest := 0, time.Duration(0)
	for i := range n {
		behind := h.VisibleAt(i).Sub(h.EventTime(i))
		if behind < 0 || behind > lag {
			t.Fatalf("event %d is listed %s after its time", i, behind)
		}
		if behind > 0 {
			late++
		}
		latest = max(latest, behind)
	}
	if late < n/5 || late > n/3 || latest < lag*9/10 {
		t.Errorf("%d of %d events are late, by at most %s", late, n, latest)
	}
	now = h.EventTime(n).Add(90 * time.Second)
	r := recordStatus(h, "/audit?pageSize=1")
	if got := r.Header().Get("Date"); got != now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") {
		t.Errorf("Date is %s at %s", got, now)
	}
	if old := string(h.Event(n)); !strings.Contains(old, `"views":1,`) {
		t.Errorf("after 90 s an event that changes every minute is %s", old)
	}
	h.Grow(1000)
	if got := h.Stock(); h.EventTime(got-1).After(now) || !h.EventTime(got).After(now) {
		t.Errorf("%d events have happened", got)
	}
}

// A Retry-After that is a date counts from the Date of the response.
func TestAuditRetryAfter(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{
		Form: named(t, "audit-list"), Clock: func() time.Time { return start }, Faults: exportsim.Faults{{"429", 1}},
	})
	for range 20 {
		text := recordStatus(h, "/audit").Header().Get("Retry-After")
		at, err := http.ParseTime(text)
		if err != nil {
			continue
		}
		if wait := at.Sub(start); wait < time.Second || wait > 4*time.Second {
			t.Errorf("Retry-After is %s at %s", text, start)
		}
		return
	}
	t.Error("no Retry-After is a date")
}
