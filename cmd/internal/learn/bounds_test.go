package learn_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/cmd/internal/learn"
)

// audit is a list that comes newest first, with cursors.
func audit() *service {
	return &service{
		path: "/audit", params: "limit cursor", unit: "rfc3339", newest: true, size: "limit", most: 50, at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","action":%q,"when":%q}`, e.n, actions[e.n%4], rfc(e))
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, n, all int) {
			fmt.Fprintf(w, `{"entries":%s,"next_cursor":%s}`, items, cursorText(n, all))
		},
	}
}

// auditCommand begins the curl command of audit; the URL and a quote follow.
const auditCommand = "curl -H 'Authorization: Bearer Sesame' '"

// numbers is a list in numbered pages; name is the parameter, which begins at first.
func numbers(s *service, name string, first int) {
	s.params = "limit since until " + name
	s.start, s.end = "since", "until"
	s.at = func(v url.Values) int { n, _ := strconv.Atoi(v.Get(name)); return max(0, n-first) }
	s.page = func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, at, _, all int) {
		fmt.Fprintf(w, `{"entries":%s,"paging":{%q:%d,"total":%d}}`, items, name, at+first, all)
	}
}

// TestBounds: the likeliest names and formats are tried first, by what the API says.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *service)
		query  string
		want   []string
	}{
		"an error names parameters": {func(s *service) {
			s.strict, s.hint = true, ": allowed are limit, cursor, published_since and published_until"
			s.start, s.end, s.params = "published_since", "published_until", "limit cursor published_since published_until"
		}, "", []string{"EXPORT_START_PARAM=published_since", "EXPORT_END_PARAM=published_until", "with 9 requests"}},
		"an error names the format": {func(s *service) {
			s.start, s.end, s.unit, s.params = "since", "until", "seconds since the epoch", "limit cursor since until"
		}, "", []string{"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=until", "EXPORT_TIME_FORMAT=s",
			"EXPORT_END_INCLUSIVE=false"}},
		"the page names parameters": {func(s *service) {
			s.start, s.end, s.params = "published_since", "published_until", "limit cursor published_since published_until"
			page := s.page
			s.page = func(w http.ResponseWriter, r *http.Request, v url.Values, items string, at, n, all int) {
				fmt.Fprint(w, `{"query":{"published_since":null,"published_until":null},`)
				page(&cut{w, 1}, r, v, items, at, n, all)
			}
		}, "", []string{"EXPORT_START_PARAM=published_since", "EXPORT_END_PARAM=published_until", "with 8 requests"}},
		"the start of one pair, the end of another": {func(s *service) {
			s.start, s.end, s.params = "since", "latest", "limit cursor since latest"
		}, "", []string{"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=latest"}},
		"a bound is called as a cursor": {func(s *service) {
			s.start, s.end, s.at, s.params = "after", "before", opaque("next"), "limit next after before"
			s.page = func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, n, all int) {
				fmt.Fprintf(w, `{"entries":%s,"paging":{"next":{"id":%s}}}`, items, cursorText(n, all))
			}
		}, "", []string{"EXPORT_START_PARAM=after", "EXPORT_END_PARAM=before", "EXPORT_CURSOR_PARAM=next"}},
		"times under other names": {func(s *service) {
			s.start, s.end, s.unit, s.params = "event_ts_from", "event_ts_to", "s", "limit cursor event_ts_from event_ts_to"
		}, fmt.Sprintf("&event_ts_to=%d&event_ts_from=%d&team=7", began.Add(3*time.Hour).Unix(), began.Unix()),
			[]string{"EXPORT_START_PARAM=event_ts_from", "EXPORT_END_PARAM=event_ts_to", "EXPORT_TIME_FORMAT=s",
				"EXPORT_PARAMS=team=7\n", "with 8 requests"}},
		"dates under other names, of four": {func(s *service) {
			s.start, s.end, s.params = "activity_gt", "activity_lt", "limit cursor activity_gt activity_lt"
		}, "&activity_gt=2026-01-01T00:00:00Z&activity_lt=2100-01-01T00:00:00Z&due_gt=2020-01-01&due_lt=2101-01-01",
			[]string{"EXPORT_START_PARAM=activity_gt", "EXPORT_END_PARAM=activity_lt", "EXPORT_TIME_FORMAT=rfc3339",
				"EXPORT_PARAMS=due_gt=2020-01-01,due_lt=2101-01-01\n",
				"? due_gt, due_lt: "}},
		"an end under another name": {func(s *service) {
			s.start, s.end, s.params = "since", "up_until", "limit cursor since up_until"
		}, "&joined=2020-01-01T00:00:00Z&since=2026-01-01T00:00:00Z&up_until=2100-01-01T00:00:00Z",
			[]string{"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=up_until", "with 8 requests"}},
		"a start under another name": {func(s *service) {
			s.start, s.end, s.params, s.required = "lower", "until", "limit cursor lower until", true
		}, "&lower=2026-01-01T00:00:00Z&until=2100-01-01T00:00:00Z",
			[]string{"EXPORT_START_PARAM=lower", "EXPORT_END_PARAM=until", "with 8 requests"}},
		"numbers that are no times": {func(s *service) {
			s.start, s.end, s.params = "since", "until", "limit cursor since until"
		}, "&team=1600000000&org=1700000000",
			[]string{"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=until", "EXPORT_PARAMS=org=1700000000,team=1600000000\n",
				"? org, team: "}},
		"a start without milliseconds": {func(s *service) {
			s.start, s.end, s.unit, s.params = "since", "until", "rfc3339 without fractions", "limit cursor since until"
		}, "&since=2026-01-01T00:00:00Z", []string{
			"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=until", "EXPORT_TIME_FORMAT=rfc3339-seconds", "with 9 requests",
		}},
		"both without milliseconds": {func(s *service) {
			s.start, s.end, s.unit, s.params = "since", "until", "rfc3339 without fractions", "limit cursor since until"
			s.required = true
		}, "&since=2026-01-01T00:00:00Z&until=2100-01-01T00:00:00Z", []string{
			"EXPORT_START_PARAM=since", "EXPORT_END_PARAM=until", "EXPORT_TIME_FORMAT=rfc3339-seconds",
		}},
		"only a start": {func(s *service) { s.start = "from" }, "",
			[]string{"EXPORT_START_PARAM=from", "EXPORT_END_PARAM=none",
				"a parameter of the end was not found. Tried without success: ", "from and to"}},
		"inclusive": {func(s *service) { s.start, s.end, s.endInclusive = "start", "end", true }, "",
			[]string{"EXPORT_START_PARAM=start", "EXPORT_END_INCLUSIVE=true"}},
		"inclusive, behind the start": {func(s *service) {
			s.start, s.end, s.endInclusive, s.startExclusive = "start", "end", true, true
		}, "", []string{"EXPORT_START_PARAM=start", "EXPORT_END_INCLUSIVE=false"}},
		"behind the start": {func(s *service) { s.start, s.end, s.startExclusive = "start", "end", true }, "",
			[]string{"EXPORT_START_PARAM=start", "EXPORT_END_INCLUSIVE=false", "EXPORT_START_EXCLUSIVE=true"}},
		"whole seconds prove no end": {func(s *service) {
			s.start, s.end, s.endInclusive = "start", "end", true
			s.item = func(e event) string { return fmt.Sprintf(`{"id":"e%d","at":%d,"type":"t"}`, e.n, e.at.Unix()) }
		}, "", []string{"EXPORT_ITEM_TIME=/at\n", "# ? not proven: the items have times in whole seconds",
			"\n#EXPORT_END_INCLUSIVE=\n"}},
		"a finer time": {func(s *service) {
			s.start, s.end, s.endInclusive = "start", "end", true
			s.item = func(e event) string {
				return fmt.Sprintf(`{"id":"e%d","at":%d,"zat":%q,"type":"t"}`, e.n, e.at.Unix(), rfc(e))
			}
		}, "", []string{"EXPORT_ITEM_TIME=/zat\n", "# ? also times: /at (s)", "\nEXPORT_END_INCLUSIVE=true\n"}},
		"no bounds": {func(*service) {}, "", []string{"EXPORT_START_PARAM=none", "EXPORT_END_PARAM=none", "Not tried: ",
			"add both to"}},
		"within 2 s": {func(s *service) { s.start, s.end, s.every = "from", "to", 10*time.Millisecond }, "",
			[]string{"EXPORT_START_PARAM=none", "are within 2 s of each other", "with 5 requests"}},
		"startAt": {func(s *service) { numbers(s, "startAt", 0) }, "", []string{"EXPORT_CURSOR_IN=offset",
			"EXPORT_CURSOR_PARAM=startAt"}},
		"start_index of 1": {func(s *service) { numbers(s, "start_index", 1) }, "", []string{"EXPORT_CURSOR_IN=offset",
			"EXPORT_CURSOR_PARAM=start_index", "EXPORT_CURSOR_FIRST=1"}},
		"start of the curl command": {func(s *service) { numbers(s, "start", 0) }, "&start=0",
			[]string{"EXPORT_CURSOR_IN=offset", "EXPORT_CURSOR_PARAM=start"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := audit()
			c.change(s)
			profile := learned(t, auditCommand+serve(t, s)+"/audit?limit=50"+c.query+"'")
			wantIn(t, strings.ReplaceAll(profile, "\n#   ", " "), c.want...)
			if !strings.Contains(profile, "CURSOR_IN=offset") { // whose pages overlap
				follow(t, s, profile)
			}
		})
	}
}

// cut drops the first bytes that are written to it.
type cut struct {
	http.ResponseWriter
	n int
}

func (c *cut) Write(b []byte) (int, error) {
	n := min(c.n, len(b))
	c.n -= n
	_, err := c.ResponseWriter.Write(b[n:])
	return len(b), err
}

// TestNoBoundsNoCursor: a list that can be followed in neither way says what was tried, and
// what not.
func TestNoBoundsNoCursor(t *testing.T) {
	t.Parallel()
	s := audit()
	s.page = func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, _, _ int) {
		fmt.Fprintf(w, `{"entries":%s}`, items)
	}
	profile, err := learn.Learn(t.Context(), parsed(t, auditCommand+serve(t, s)+"/audit?limit=50'"), nil)
	if _, no := errors.AsType[*learn.UnfollowableError](err); !no {
		t.Fatalf("got %v\n%+v", err, profile)
	}
	wantIn(t, err.Error(), "newest first, by /when", "since and until", "Not tried: ", "add both to the curl command")
}

// TestRequiredEnd: a list that requires an end is followed by neither way if its items have
// no time.
func TestRequiredEnd(t *testing.T) {
	t.Parallel()
	s := audit()
	s.start, s.end, s.required = "since", "until", true
	s.item = func(e event) string { return fmt.Sprintf(`{"id":"e%d"}`, e.n) }
	request := parsed(t, auditCommand+serve(t, s)+"/audit?since=2026-01-01T00:00:00Z&until=2100-01-01T00:00:00Z'")
	if profile, err := learn.Learn(t.Context(), request, nil); err == nil || !strings.Contains(err.Error(),
		"refuses a request without until") {
		t.Errorf("got %v\n%+v", err, profile)
	}
}

// TestTimesOldestFirst: times of the command are the bounds of a list that is followed by
// its cursor, by windows where the API requires the end.
func TestTimesOldestFirst(t *testing.T) {
	t.Parallel()
	for required, want := range map[bool]string{false: "EXPORT_START=" + began.Format(time.RFC3339) + "\n",
		true: "EXPORT_FOLLOW=windows\n"} {
		s := audit()
		s.newest, s.required = false, required
		s.start, s.end, s.params = "lower", "upper", "limit cursor lower upper"
		profile := learned(t, auditCommand+serve(t, s)+"/audit?limit=50&lower="+
			began.Format(time.RFC3339)+"&upper=2100-01-01T00:00:00Z'")
		wantIn(t, profile, want, "EXPORT_START_PARAM=lower\n", "EXPORT_END_PARAM=upper\n", "EXPORT_END_INCLUSIVE=false\n")
		if strings.Contains(profile, "EXPORT_PARAMS") {
			t.Errorf("a bound is also static in\n%s", profile)
		}
		follow(t, s, profile)
	}
}
