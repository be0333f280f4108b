package command

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// pagedExport is an export of 300 items that takes the parameters pageSize, at
// most 500, cursor and kind. What it does otherwise is said by its path.
func pagedExport(t *testing.T) (url string) {
	t.Helper()
	const all = 300
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, path := r.URL.Query(), r.URL.Path
		from, _ := strconv.Atoi(query.Get("cursor"))
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
			items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, when))
		}
		if end < all {
			next = strconv.Quote(strconv.Itoa(end))
		}
		if path == "/next-url" && end < all {
			next = strconv.Quote(fmt.Sprintf("?cursor=%d&pageSize=%d", end, size))
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

// TestCheckFollowsTheCursor: check asks for the page that the first one's cursor
// names, as the bridge would, and says what keeps it from it.
func TestCheckFollowsTheCursor(t *testing.T) {
	t.Parallel()
	const taken = `ok   second page read by the first one's cursor, 200 items$`
	const taken201 = `ok   second page read by the first one's cursor, 201 items$`
	api := pagedExport(t)
	for name, test := range map[string]struct {
		path string
		env  map[string]string
		args []string
		code int
		want []string
	}{
		"taken":         {path: "/", want: []string{`ok   key accepted, .*500 per page`, `ok   100 items sampled`, taken, ` 0 warnings, 0 failures`}},
		"a start":       {path: "/", env: map[string]string{"EXPORT_START": "2026-09-01"}, want: []string{`info a new stream begins at 2026-09-01T00:00:00Z \(EXPORT_START\); one that has a checkpoint resumes there$`}},
		"no next page":  {path: "/", args: []string{"--sample", "301"}, want: []string{`ok   300 items sampled`, `ok, 0 warnings, 0 failures`}},
		"alone, beside": {path: "/alone", code: cli.ExitCheck, want: []string{`FAIL .*page at cursor .*400 Bad Request`, `Try: set EXPORT_CURSOR_ALONE=true .*EXPORT_CURSOR_PARAM.*EXPORT_PAGE_SIZE`, `, 1 failure$`}},
		"alone, beside EXPORT_PARAMS": {
			path: "/alone", env: map[string]string{"EXPORT_PARAMS": "kind=a", "EXPORT_PAGE_SIZE_PARAM": "none"}, code: cli.ExitCheck,
			want: []string{`FAIL .*page at cursor .*400 Bad Request`, `Try: set EXPORT_CURSOR_ALONE=true `, `, 1 failure$`},
		},
		"overlapping": {path: "/inclusive", want: []string{taken201, `info pages overlap: the second one lists 1 item of the first one again, which the bridge drops$`, ` 0 failures`}},
		"overlapping, without ids": {
			path: "/inclusive", env: map[string]string{"EXPORT_ITEM_ID": "none"},
			want: []string{taken201, `warn pages overlap: .* 1 item .*; without ids they are published twice$`, `Try: set EXPORT_ITEM_ID`, ` 0 failures`},
		},
		"alone": {path: "/alone", env: map[string]string{"EXPORT_CURSOR_ALONE": "true"}, want: []string{`ok   second page read by the first one's cursor, 50 items$`}},
		"a parameter lost": {
			path: "/next-url", env: map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_PARAMS": "include=all,tenant=acme"},
			want: []string{`ok   second page read by the first one's cursor`, `warn the next URL lacks parameters of the first request: include, tenant$`, `Try: .*EXPORT_NEXT_PARAMS=add-missing`, ` 1 warning, 0 failures$`},
		},
		"a parameter lost and added": {
			path: "/next-url", env: map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_PARAMS": "include=all", "EXPORT_NEXT_PARAMS": "add-missing"},
			want: []string{` 0 warnings, 0 failures$`},
		},
		"a cursor that is not read": {
			path: "/", env: map[string]string{"EXPORT_CURSOR_FIELD": "nextPage"}, code: cli.ExitCheck,
			want: []string{`FAIL the first page names no next page, but has /nextCursor, which looks like a next cursor$`, `Try: .*EXPORT_CURSOR_FIELD=/nextCursor`, `, 1 failure$`},
		},
		"a key that no item has": {
			path: "/", env: map[string]string{"KAFKA_KEY": "/tenant", "EXPORT_ITEM_TYPE": "/kind"},
			want: []string{
				`warn 100 of the first 100 items have no value at /tenant \(KAFKA_KEY\): their records get no key, and no order among them$`, `Try: correct KAFKA_KEY`,
				`warn 100 of the first 100 items have no value at /kind \(EXPORT_ITEM_TYPE\)`, ` 2 warnings, 0 failures$`,
			},
		},
		"no items":        {path: "/empty", want: []string{`warn no items from the earliest event on: how they are read is not checked$`, `Try: .*EXPORT_START`, ` 1 warning, 0 failures$`}},
		"items elsewhere": {path: "/elsewhere", want: []string{`warn no items at EXPORT_ITEMS_FIELD, but a list of objects at /results$`, `Try: .*EXPORT_ITEMS_FIELD=/results$`, ` 1 warning, 0 failures$`}},
		"a start that the API ignores": {
			path: "/", env: map[string]string{"EXPORT_START": "2026-10-01", "EXPORT_START_PARAM": "since"},
			want: []string{`warn asked for items from now on, the API lists older ones: `, `Try: check EXPORT_START_PARAM and EXPORT_TIME_FORMAT`, ` 1 warning, 0 failures$`},
		},
		"times ahead": {path: "/ahead", want: []string{`warn the first 100 items have a time in the future, the first one 2126-`, `Try: check EXPORT_ITEM_TIME`}},
		"types that the API does not select": {
			path: "/", env: map[string]string{"EXPORT_EVENTS": "signUp", "EXPORT_ITEM_TYPE": "/eventId"},
			want: []string{`warn 100 of the first 100 items have a type that EXPORT_EVENTS does not name: `, `Try: check EXPORT_EVENTS`, ` 1 warning, 0 failures$`},
		},
		"a key that is no pointer": {
			path: "/", env: map[string]string{"KAFKA_KEY": "userId"}, code: cli.ExitCheck,
			want: []string{`FAIL .*KAFKA_KEY "userId": a JSON pointer must begin with /, for example /userId$`},
		},
		"ignored": {
			path: "/", env: map[string]string{"EXPORT_CURSOR_PARAM": "after"}, code: cli.ExitCheck,
			want: []string{`FAIL the second page has the same items as the first one$`, `Try: check EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD and EXPORT_CURSOR_PARAM: the API ignores`, `, 1 failure$`},
		},
		"ignored, pages of one size": {
			path: "/", env: map[string]string{"EXPORT_CURSOR_PARAM": "after", "EXPORT_PAGE_SIZE": "2"}, code: cli.ExitCheck,
			want: []string{`FAIL the second page has the same items as the first one$`},
		},
		"a page too large": {
			path: "/", env: map[string]string{"EXPORT_PAGE_SIZE": "501"}, code: cli.ExitCheck,
			want: []string{`FAIL .*page at cursor .*400 Bad Request`, `Try: .*EXPORT_PAGE_SIZE=501`},
		},
		"a page too large, the only one": {
			path: "/", env: map[string]string{"EXPORT_PAGE_SIZE": "501"}, args: []string{"--sample", "301"}, code: cli.ExitCheck,
			want: []string{`ok   300 items sampled`, `FAIL .*first page .*400 Bad Request`, `Try: .*EXPORT_PAGE_SIZE`},
		},
		"backwards":     {path: "/backwards", args: []string{"--sample", "2"}, code: cli.ExitCheck, want: []string{`ok   2 items sampled`, `FAIL .*listed newest first`, `Try: ask the API for ascending order`}},
		"in time":       {path: "/silent", args: []string{"--timeout", "3s"}, want: []string{`ok   100 items sampled`, `warn the second page did not arrive in time$`, `Try: raise --timeout`}},
		"within limits": {path: "/held", want: []string{`warn no second page sampled: the API asked to wait for 5m0s`, ` 0 failures`}},
		"a slow rate": {
			path: "/", env: map[string]string{"EXPORT_RATE_LIMIT": "20/m"}, args: []string{"--sample", "5", "--timeout", "5500ms"},
			want: []string{`ok   5 items sampled`, `info no second page sampled: EXPORT_RATE_LIMIT=20/m allows no other request within \d`, ` 0 failures`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"EXPORT_URL": api, "EXPORT_PATH": test.path, "EXPORT_API_KEY": secretKey, "EXPORT_PAGE_SIZE": "500"}
			maps.Copy(env, test.env)
			got := runProgram(t, env, append([]string{"check", "--only", "api"}, test.args...)...)
			wantLines(t, got.stdout, test.want)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d: %s", got.code, test.code, got.stderr)
			}
		})
	}
}
