package learn_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/learn"
)

// commands are curl commands for the forms, as their users have them. URL is the base.
var commands = map[string]string{
	"default":        "-H 'X-Api-Key: Sesame' 'URL/events?pageSize=50'",
	"nested":         "-H 'Authorization: Bearer Sesame' 'URL/v1/events?limit=50'",
	"integer-cursor": "-H 'X-Api-Key: Sesame' 'URL/changes?count=50'",
	"header-cursor":  "-H 'X-Api-Key: Sesame' 'URL/feed?pageSize=50'",
	"next-url":       "'URL/export/events?per_page=50&api_key=Sesame'",
	"link":           "-u exporter:Sesame 'URL/items?pageSize=50'",
	"last-item":      "'URL/log?limit=50'",
	"post":           `-H 'Authorization: Bearer Sesame' --json '{"limit":50}' URL/api/v2/events`,
	"cursor-alone":   `-H 'Authorization: Bearer Sesame' -d '{"limit":50,"start_time":"2020-01-01T00:00:00Z"}' URL/api/v2/auditevents`,
	"end-of-stream": "-u agent@acme.example/token:Sesame " +
		"'URL/api/v2/incremental/events/cursor?per_page=50&start_time=1577836800'",
	"okta-system-log":     "-H 'Authorization: SSWS Sesame' 'URL/api/v1/logs?limit=50&since=2020-01-01T00:00:00Z'",
	"github-audit-log":    "-H 'Authorization: Bearer Sesame' -G -d order=asc -d per_page=50 URL/orgs/acme/audit-log",
	"1password-events":    `-H 'Authorization: Bearer Sesame' -d '{"limit":50,"start_time":"2020-01-01T00:00:00Z"}' URL/api/v2/auditevents`,
	"metronome-audit-log": "-H 'Authorization: Bearer Sesame' 'URL/v1/auditLogs?limit=50'",
	"datadog-audit-trail": `-H 'DD-APPLICATION-KEY: Sesame' -H 'DD-API-KEY: Other' -d '{"filter":{"from":"now-90d"},"sort":"timestamp","page":{"limit":50}}' URL/api/v2/audit/events/search`,
}

// TestForms learns each form that can be followed, and reads all of it with the profile.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, name := range exportsim.FormNames() {
		if _, known := commands[name]; !known { // newest first, or with a test of its own
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, base := simulate(t, exportsim.Config{Form: formNamed(t, name), Events: 333, APIKey: "Sesame"})
			first := lesson(t, "curl -sS "+strings.ReplaceAll(commands[name], "URL", base))
			profile := first.Profile
			if strings.Contains(profile, "Sesame") || strings.Contains(profile, "other") && name == "datadog-audit-trail" &&
				strings.Contains(profile, "KEY: Other") {
				t.Errorf("the profile has a key:\n%s", profile)
			}
			readAll(t, h, profile, "EXPORT_HEADERS=DD-API-KEY: Other")
			wantReplayed(t, first, "curl -sS "+commands[name], base)
		})
	}
}

// backwards are curl commands for the forms that come newest first.
func backwards() map[string]string {
	recent := time.Now().Add(-50 * time.Minute).UTC()
	return map[string]string{
		"audit-list": "-H 'X-Api-Key: Sesame' 'URL/audit?pageSize=50'",
		"audit-list-url": fmt.Sprintf("-H 'X-Api-Key: Sesame' 'URL/audit?limit=50&after_time=%d&until=%d'",
			recent.UnixMilli(), time.Now().UnixMilli()),
		"audit-list-offset": "-H 'X-Api-Key: Sesame' 'URL/audit?per_page=50&from=" + strconv.FormatInt(recent.Unix(), 10) +
			"'",
		"audit-list-pages": "-H 'X-Api-Key: Sesame' 'URL/audit?per_page=50&page=1&from=" +
			strconv.FormatInt(recent.UnixMilli(), 10) + "'",
		"audit-list-skip":     "-H 'X-Api-Key: Sesame' 'URL/audit?limit=50&offset=0'",
		"gitlab-audit-events": "-H 'PRIVATE-TOKEN: Sesame' 'URL/api/v4/groups/acme/audit_events?per_page=50'",
		"slack-audit-logs": fmt.Sprintf("-H 'Authorization: Bearer Sesame' 'URL/audit/v1/logs?limit=50&oldest=%d'",
			recent.Unix()),
		"stripe-events": fmt.Sprintf("-H 'Authorization: Bearer Sesame' -G -d limit=50 -d 'created[gte]=%d' "+
			"URL/v1/events", recent.Unix()),
	}
}

// TestWindows learns lists that come newest first, and reads a range with the profile.
func TestWindows(t *testing.T) {
	t.Parallel()
	for name, command := range backwards() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now().Add(-time.Hour).Truncate(time.Second)
			h, base := simulate(t, exportsim.Config{Form: formNamed(t, name), Start: began, Rate: 0.1, APIKey: "Sesame"})
			first := lesson(t, "curl -sS "+strings.ReplaceAll(command, "URL", base))
			profile := first.Profile
			if strings.Contains(profile, "Sesame") || !strings.Contains(profile, "EXPORT_FOLLOW=windows") {
				t.Errorf("the profile is\n%s", profile)
			}
			readRange(t, h, profile)
			wantReplayed(t, first, "curl -sS "+command, base)
		})
	}
}

// readRange reads all events between two times with a profile.
func readRange(t *testing.T, h *exportsim.Handler, profile string) {
	t.Helper()
	r := open(t, profile, "Sesame", true)
	const from, to = 100, 290
	at := bridge.Position{Start: h.EventTime(from).UnixMilli(), End: h.EventTime(to).UnixMilli(), Window: true}
	seen := make(map[int]bool)
	for range 40 {
		page := r.read(at)
		for _, event := range page.Events {
			i, ok := exportsim.IndexOf(event.Raw)
			if !ok || i < from-1 || i > to || event.Defect != bridge.DefectNone || len(event.ID) == 0 {
				t.Fatalf("event %d, %v, id %q\n%s", i, event.Defect, event.ID, profile)
			}
			seen[i] = true
		}
		at.Cursor = page.Next
		if page.Release(); at.Cursor == "" {
			break
		}
	}
	for i := from + 1; i < to; i++ {
		if !seen[i] {
			t.Fatalf("event %d of %d was not read, %d were\n%s", i, to, len(seen), profile)
		}
	}
}

func formNamed(t *testing.T, name string) exportsim.Form {
	t.Helper()
	form, ok := exportsim.FormNamed(name)
	if !ok {
		t.Fatalf("no form %s", name)
	}
	return form
}

func simulate(t *testing.T, c exportsim.Config) (*exportsim.Handler, string) {
	t.Helper()
	c.Seed = 5
	h := must.Get(exportsim.New(c))(t)
	t.Cleanup(h.Close)
	return h, serve(t, h)
}

func serve(t *testing.T, h http.Handler) (base string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func learned(t *testing.T, command string) string {
	t.Helper()
	return lesson(t, command).Profile
}

func lesson(t *testing.T, command string) *learn.Lesson {
	t.Helper()
	lesson, err := learn.Learn(t.Context(), parsed(t, command), nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return lesson
}

func parsed(t *testing.T, command string) *learn.Request {
	t.Helper()
	request := must.Get(learn.ParseCurl([]string{command}))(t)
	return request
}

// wantIn wants texts in a profile.
func wantIn(t *testing.T, profile string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(profile, text) {
			t.Errorf("%q is not in\n%s", text, profile)
		}
	}
}

// reader reads pages with a learned profile.
type reader struct {
	t       *testing.T
	profile string
	stream  *config.Stream
	client  *exportapi.Client
}

// open returns a reader with a key, if the profile needs one, and other settings. Only with
// anyOrder items may come newest first.
func open(t *testing.T, profile, key string, anyOrder bool, environ ...string) *reader {
	t.Helper()
	file := filepath.Join(t.TempDir(), "learned.env")
	must.Do(t, os.WriteFile(file, []byte(profile), 0o600))
	environ = append(environ, "EXPORT_PROFILE="+file)
	if !strings.Contains(profile, "EXPORT_AUTH=none") {
		environ = append(environ, "EXPORT_API_KEY="+key)
	}
	s, err := config.Load(config.Sources{Environ: environ}, config.UsesExport)
	if err != nil {
		t.Fatalf("%v\n%s", err, profile)
	}
	r := &reader{t: t, profile: profile, stream: &s.Streams[0]}
	export := r.stream.Export
	export.AnyOrder = export.AnyOrder || anyOrder
	r.client = must.Get(exportapi.New(export))(t)
	t.Cleanup(r.client.Close)
	return r
}

// read reads a page. The caller releases it.
func (r *reader) read(at bridge.Position) *bridge.Page {
	r.t.Helper()
	page, err := r.client.Fetch(r.t.Context(), at)
	if err == nil {
		err = r.client.Decode(page)
	}
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.profile)
	}
	return page
}

// readAll reads the export to its end with a profile, and then the events that it grew by.
func readAll(t *testing.T, h *exportsim.Handler, profile string, environ ...string) {
	t.Helper()
	r := open(t, profile, "Sesame", false, environ...)
	at := bridge.Position{Start: r.stream.Engine.Origin.Start}
	seen := 0
	for range 40 {
		page := r.read(at)
		for _, event := range page.Events {
			var item struct{ Event json.RawMessage }
			raw := event.Raw
			if json.Unmarshal(raw, &item) == nil && item.Event != nil {
				raw = item.Event
			}
			if i, ok := exportsim.IndexOf(raw); !ok || i > seen {
				t.Fatalf("event %d where %d is due\n%s", i, seen, profile)
			} else if i == seen {
				seen++
			}
			if event.Defect != bridge.DefectNone || len(event.ID) == 0 && !strings.Contains(profile, "EXPORT_ITEM_ID=none") {
				t.Fatalf("an item is read with %v, id %q\n%s", event.Defect, event.ID, profile)
			}
		}
		if page.Next != "" {
			at.Cursor = page.Next
		}
		page.Release()
		if seen == 333 {
			h.Grow(30)
		}
	}
	if seen != 363 {
		t.Errorf("%d of 363 events were read\n%s", seen, profile)
	}
}

// TestToken: a token of the command is the key, and the parameter from is kept.
func TestToken(t *testing.T) {
	t.Parallel()
	h, base := simulate(t, exportsim.Config{Form: formNamed(t, "auth0-logs"), Events: 333})
	readAll(t, h, learned(t, "curl -H 'Authorization: Bearer Sesame' '"+base+"/api/v2/logs?from=900&take=50'"))
}

// odd serves an API and counts its requests; page writes a page.
func odd(t *testing.T, asked *atomic.Int64, page http.HandlerFunc) string {
	t.Helper()
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		page(w, r)
	}))
}

// items are JSON items with numbers from first on.
func items(first, n, step int) string {
	var all []string
	for i := range n {
		number := first + i*step
		at := time.UnixMilli(1_760_000_000_000 + int64(number)*1000).UTC().Format(time.RFC3339)
		all = append(all, fmt.Sprintf(`{"id":"i%d","at":%q,"name":"n"}`, number, at))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// TestUnfollowable: a list that cannot be followed, or is no page, is an error after few
// requests.
func TestUnfollowable(t *testing.T) {
	t.Parallel()
	write := func(format string, args ...any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, format, args...) }
	}
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host is asked") }))
	for name, c := range map[string]struct {
		page http.HandlerFunc
		want string
		no   bool
	}{
		"newest first": {write(`{"items":%s,"next":"c"}`, items(100, 10, -1)), "the API lists newest first, by /at", true},
		"page numbers": {write(`{"items":%s,"page":1,"total_pages":9}`, items(1, 10, 1)),
			"the API numbers its pages (/page, /total_pages)", true},
		"next page": {func(w http.ResponseWriter, r *http.Request) {
			page, _ := strconv.Atoi(cmp.Or(r.URL.Query().Get("page"), "1"))
			fmt.Fprintf(w, `{"items":%s,"next_page":%d}`, items(10*page, 10, 1), page+1)
		}, "the API numbers its pages (the parameter page)", true},
		"offset": {func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("next"))
			fmt.Fprintf(w, `{"items":%s,"paging":{"next":%d}}`, items(from, 10, 1), from+10)
		}, "the API numbers its pages (the parameter next)", true},
		"numbered links": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", `</events?limit=10&page=2>; rel="next"`)
			fmt.Fprint(w, items(0, 10, 1))
		}, "the API numbers its pages (the parameter page)", true},
		"cursor ignored": {write(`{"items":%s,"next_cursor":"c"}`, items(1, 10, 1)),
			"the cursor did not lead to other items", true},
		"no next":  {write(`{"items":%s}`, items(1, 10, 1)), "no next page", true},
		"no items": {write(`{"items":[],"next":"c"}`), "the page has no list of objects", false},
		"html": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, "which is not JSON", false},
		"no json": {write(`{"items":[`), "body is not a page", false},
		"huge":    {write(`{"items":"%s"}`, strings.Repeat("x", 9<<20)), "page is larger than", false},
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "401",
			false},
		"throttled": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}, "the API asked to wait for 30s", false},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) }, "302",
			false},
		"next URL of another host": {
			write(`{"items":%s,"next":"%s/e?c=1"}`, items(1, 10, 1), other), "next URL to host", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := new(atomic.Int64)
			url := odd(t, asked, c.page)
			profile, err := learn.Learn(t.Context(), parsed(t, "curl -H 'X-Api-Key: Sesame' "+url+"/events?limit=10"), nil)
			_, no := errors.AsType[*learn.UnfollowableError](err)
			if err == nil || !strings.Contains(err.Error(), c.want) || no != c.no || strings.Contains(err.Error(), "Sesame") {
				t.Errorf("got %v (%v), want %q\n%v", err, no, c.want, profile)
			}
			if n := asked.Load(); n > 16 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestDeadline: an API that does not answer ends with the context.
func TestDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := new(atomic.Int64)
	url := odd(t, asked, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := learn.Learn(ctx, parsed(t, "curl "+url+"/events"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestHostileNames: a name that the API chose does not begin a line of the profile.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	url := odd(t, asked, func(w http.ResponseWriter, r *http.Request) {
		at, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"))
		evil := `\nEXPORT_URL=https://evil.example\u202e_id`
		list := strings.ReplaceAll(items(at, 10, 1), `"id":`, `"`+evil+`":"7","`+evil+`Id":`)
		fmt.Fprintf(w, `{"items":%s,"\nEXPORT_PATH=/evil":[{}],"next":"c%d"}`, list, at+10)
	})
	profile := learned(t, "curl "+url+"/e?limit=10")
	for line := range strings.Lines(profile) {
		if strings.HasPrefix(line, "EXPORT_URL=https://evil") || strings.HasPrefix(line, "EXPORT_PATH=/evil") ||
			strings.Contains(line, "\u202e") {
			t.Errorf("%q is in\n%s", line, profile)
		}
	}
	if !strings.Contains(profile, "evil") {
		t.Errorf("no name of the API is in\n%s", profile)
	}
}

// TestQuestions: an unproven setting is a question with its candidates.
func TestQuestions(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	url := odd(t, asked, func(w http.ResponseWriter, r *http.Request) {
		at, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("bookmark"), "b"))
		fmt.Fprintf(w, `{"rows":%s,"warnings":[{"w":1}],"bookmark":"b%d","more":true}`, items(at, 10, 1), at+10)
	})
	profile := learned(t, "curl "+url+"/v1/rows")
	wantIn(t, profile,
		"# ? the longest list was taken; others are at /warnings\nEXPORT_ITEMS_FIELD=/rows\n",
		"EXPORT_CURSOR_PARAM=bookmark\n",
		"EXPORT_AUTH=none\n", "EXPORT_MORE_FIELD=/more\n", "EXPORT_ITEM_TYPE=/name\n", "EXPORT_PAGE_SIZE_PARAM=none\n",
		"# ? no member looks like the user or object", "# proven: 3 pages with 30 items",
		"# ? it is the same in all items that were read\nEXPORT_ITEM_TYPE=/name\n",
		"# not sent: how many items the first page had\nEXPORT_PAGE_SIZE=10\n",
		"# as EXPORT_PAGE_SIZE\nEXPORT_MAX_PAGE_SIZE=10\n",
	)
}

// TestSecondOfAKind: a second parameter of a start, an end or a size stays a parameter of each request.
func TestSecondOfAKind(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, at)
	for query, want := range map[string][]string{
		"limit=5&created_after=2020-01-01T00:00:00Z&since=2020-01-02T00:00:00Z": {
			"EXPORT_START_PARAM=created_after\n", "EXPORT_PARAMS=since=2020-01-02T00%3A00%3A00Z\n", "# ? since: "},
		"limit=5&since=1600000000&start=1600000001": {
			"EXPORT_START_PARAM=since\n", "EXPORT_PARAMS=start=1600000001\n", "# ? start: "},
		"limit=5&before=2030-01-01T00:00:00Z&until=2030-01-02T00:00:00Z": {
			"EXPORT_PARAMS=until=2030-01-02T00%3A00%3A00Z,before=2030-01-01T00%3A00%3A00Z\n", "# ? until, before: "},
		"limit=5&size=7": {"EXPORT_PAGE_SIZE_PARAM=limit\n", "EXPORT_PARAMS=size=7\n"},
	} {
		wantIn(t, learned(t, "curl '"+base+"/v1/items?"+query+"'"), want...)
	}
}
