package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// pagedExport is an export of 300 items that takes the parameters pageSize, at
// most 500, cursor and kind. Its path names how it differs from that.
func pagedExport(t *testing.T) (url string) {
	t.Helper()
	const all = 300
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, path := r.URL.Query(), r.URL.Path
		from, _ := strconv.Atoi(strings.TrimPrefix(query.Get("cursor"), "c"))
		if path == "/since" && from > 0 { // later than the last item
			from = max(0, (from-1790000000000)/1000+1)
		}
		size, err := strconv.Atoi(query.Get("pageSize"))
		if err != nil {
			size = 50
		}
		switch {
		case path == "/silent" && from > 0:
			<-r.Context().Done()
			return
		case path == "/held" && from > 0:
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case path == "/capped":
			size = min(size, 20)
		case path == "/alone" && from > 0 && len(query) > 1, size > 500:
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		end := min(from+size, all)
		if query.Get("start") != "" && query.Get("end") == "" {
			from, end = all, all // from now on
		}
		if path == "/empty" {
			from, end = 0, 0
		}
		if path == "/inclusive" && from > 0 {
			from--
		}
		if path == "/overlap" {
			from = max(0, from-20)
		}
		items, next := []string{}, "null"
		for i := from; i < end; i++ {
			when := 1790000000000 + 1000*i
			if path == "/ahead" {
				when += 100 * 365 * 24 * 3600 * 1000
			}
			if path == "/backwards" {
				if when = 1790000000000 - 1000*i; i%10 == 7 {
					when -= 1500 // after the next one
				}
			}
			items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d,"n":%d}`, i, when, i))
		}
		if path == "/short" || path == "/short-bounded" { // newest first, two items a page
			if n, err := strconv.ParseInt(query.Get("start"), 10, 64); err == nil && path == "/short-bounded" &&
				n > 1790000000000 {
				items, end = nil, all
			} else if n, err := strconv.ParseInt(query.Get("end"), 10, 64); err == nil && path == "/short-bounded" &&
				n < 1780000000000 {
				items, end = nil, all
			} else {
				items, end = nil, min(from+2, all)
				for i := from; i < end; i++ {
					items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, 1790000000000-1000*i))
				}
			}
		}
		if end < all {
			next = strconv.Quote(fmt.Sprintf("c%d", end))
		}
		if path == "/next-url" && end < all {
			next = strconv.Quote(fmt.Sprintf("?cursor=c%d&pageSize=%d", end, size))
		}
		w.Header().Set("Content-Type", "application/json")
		if path == "/elsewhere" {
			_, _ = fmt.Fprintf(w, `{"items":[],"results":[%s],"nextCursor":%s}`, strings.Join(items, ","), next)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":%s}`, strings.Join(items, ","), next)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestCheckFollowsTheCursor: check requests the page at the cursor of the first page, as the
// bridge does, and reports why it cannot.
func TestCheckFollowsTheCursor(t *testing.T) {
	t.Parallel()
	api := pagedExport(t)
	for _, test := range []struct{ name, path, args string }{
		{"taken", "/", ""},
		{"a start", "/", "--set EXPORT_START=2026-09-01"},
		{"no next page", "/", "--sample 301"},
		{"alone, beside", "/alone", ""},
		{"alone, beside EXPORT_PARAMS", "/alone", "--set EXPORT_PARAMS=kind=a --set EXPORT_PAGE_SIZE_PARAM=none"},
		{"overlapping", "/inclusive", ""},
		{"overlapping by many", "/overlap", ""},
		{"overlapping, without ids", "/inclusive", "--set EXPORT_ITEM_ID=none"},
		{"times", "/since", "--set EXPORT_CURSOR_IN=last-item --set EXPORT_CURSOR_FIELD=/timestamp"},
		{"alone", "/alone", "--set EXPORT_CURSOR_ALONE=true"},
		{"a parameter lost", "/next-url", "--set EXPORT_CURSOR_IN=next-url --set EXPORT_PARAMS=include=all,tenant=acme"},
		{
			"a parameter lost and added", "/next-url",
			"--set EXPORT_CURSOR_IN=next-url --set EXPORT_PARAMS=include=all --set EXPORT_NEXT_PARAMS=add-missing",
		},
		{"a cursor that is not read", "/", "--set EXPORT_CURSOR_FIELD=nextPage"},
		{"a key that no item has", "/", "--set KAFKA_KEY=/tenant --set EXPORT_ITEM_TYPE=/kind"},
		{"no items", "/empty", ""},
		{"items elsewhere", "/elsewhere", ""},
		{"a start that the API ignores", "/", "--set EXPORT_START=2026-10-01 --set EXPORT_START_PARAM=since"},
		{"times ahead", "/ahead", ""},
		{"types that the API does not select", "/", "--set EXPORT_EVENTS=signUp --set EXPORT_ITEM_TYPE=/eventId"},
		{"a key that is no pointer", "/", "--set KAFKA_KEY=userId"},
		{"ignored", "/", "--set EXPORT_CURSOR_PARAM=after"},
		{"ignored, pages of one size", "/", "--set EXPORT_CURSOR_PARAM=after --set EXPORT_PAGE_SIZE=2"},
		{"a page too large", "/", "--set EXPORT_PAGE_SIZE=501"},
		{"a page too large, the only one", "/", "--set EXPORT_PAGE_SIZE=501 --sample 301"},
		{"backwards", "/backwards", "--sample 2"},
		{"backwards, short pages", "/short", "--set EXPORT_START_PARAM=none"},
		{"backwards, short pages, bounds", "/short-bounded", ""},
		{"in time", "/silent", "--timeout 3s"},
		{"within limits", "/held", ""},
		{"a slow rate", "/", "--set EXPORT_RATE_LIMIT=20/m --sample 5 --timeout 5500ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"EXPORT_URL": api, "EXPORT_PATH": test.path, "EXPORT_API_KEY": secretKey,
				"EXPORT_PAGE_SIZE": "500"}
			got := runProgram(t, env, append([]string{"check", "--only", "api"}, strings.Fields(test.args)...)...)
			wantGolden(t, "check pages "+test.name, got)
		})
	}
}

// TestCheckRulesThatSelectNothing: check names the pointers of rules for private data, and
// the topics of routes, that fit none of the first items. A misspelt one publishes private
// data in clear, or events to another topic.
func TestCheckRulesThatSelectNothing(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"EXPORT_URL": pagedExport(t), "EXPORT_PATH": "/", "EXPORT_PAGE_SIZE": "500", "EXPORT_API_KEY": secretKey,
		"EVENT_HASH_KEY": "k1 YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
		"EVENT_DROP":     "/ip", "EVENT_HASH": "/eventId", "EVENT_MASK": "/timestamps/*:last4,/user/a~1b",
		"KAFKA_ROUTES": "/eventId=*:export.all,/eventId=E*:export.upper,/kind=*:drop,/kind=a:export.all",
	}
	wantGolden(t, "check pages rules that select nothing", runProgram(t, env, "check", "--only", "api"))
	env["EVENT_DROP"], env["EVENT_MASK"], env["KAFKA_ROUTES"] = "/n", "", "/eventId=*:export.all"
	wantGolden(t, "check pages rules that select something", runProgram(t, env, "check", "--only", "api"))
}

// TestCheckHidesWhatTheAPISays: with rules for private data, check shows of a failure only the
// status, whichever of its requests fails. The API may repeat private data.
func TestCheckHidesWhatTheAPISays(t *testing.T) {
	t.Parallel()
	const says = "anna@example.com is locked"
	for failing := int64(1); ; failing++ {
		var requests atomic.Int64
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if requests.Add(1) == failing {
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprintf(w, `{"message":%q}`, says)
				return
			}
			fmt.Fprint(w, `{"items":[{"eventId":"e","timestamp":1790000000000,"email":"anna@example.com"}],"nextCursor":"c"}`)
		}))
		got := runProgram(t, map[string]string{"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey, "EVENT_DROP": "/email",
			"EVENT_HASH_KEY": "k1 YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="}, "check", "--only", "api")
		api.Close()
		if strings.Contains(got.stdout+got.stderr, says) {
			t.Errorf("request %d fails: %s%s", failing, got.stdout, got.stderr)
		}
		if requests.Load() < failing {
			return
		}
	}
}
