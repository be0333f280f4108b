package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"exportbridge/cmd/internal/cli"
)

// sparseExport has an event on every 20th of 100 pages, and an empty cursor at its end.
func sparseExport(t *testing.T) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, items, next := 0, "", ""
		_, _ = fmt.Sscan(r.FormValue("cursor"), &at)
		if at%20 == 0 {
			items = fmt.Sprintf(`{"eventId":"%d","userId":"u","timestamp":%d,"payload":{"@type":"x"}}`, at, firstEvent.UnixMilli()+int64(at)*1000)
		}
		if at < 99 {
			next = fmt.Sprint(at + 1)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":%q}`, items, next)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestSparse: a job or comparison that empty pages cut says so. Once the API has
// marked its end, to the live stream, they cut nothing any more.
func TestSparse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"] = sparseExport(t)
	span := []string{"--from", firstEvent.Add(-time.Hour).UTC().Format(time.RFC3339), "--to", firstEvent.Add(time.Hour).UTC().Format(time.RFC3339)}
	run := func(code int, want string, args ...string) {
		t.Helper()
		if got := runProgram(t, w.env, args...); got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%s: %+v, want exit code %d and %q", args, got, code, want)
		}
	}
	run(cli.ExitEmptyEnd, "more may follow", "run", "--once")
	run(cli.ExitEmptyEnd, "more events may follow", append([]string{"verify"}, span...)...)
	run(cli.ExitEmptyEnd, "done, as far as read", append([]string{"backfill", "--allow-overlap", "--execute"}, span...)...)
	run(cli.ExitOK, "done, as far as read", "backfill", "list")
	w.env["EXPORT_EMPTY_PAGES"] = "30"
	run(cli.ExitOK, "", "run", "--once") // and sees how the API marks its end
	delete(w.env, "EXPORT_EMPTY_PAGES")
	run(cli.ExitOK, "", append([]string{"verify"}, span...)...)
	run(cli.ExitOK, "5 events in", append([]string{"backfill", "--allow-overlap", "--execute"}, span...)...)
}
