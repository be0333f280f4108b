package command

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// sparseExport has an event on every 20th of 100 pages, and an empty cursor at its end.
func sparseExport(t *testing.T) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		at := 0
		_, _ = fmt.Sscan(r.FormValue("cursor"), &at)
		if at%20 == 0 {
			items = []string{event(fmt.Sprint(at), at)}
		}
		if at < 99 {
			return items, fmt.Sprintf("%q", fmt.Sprint(at+1))
		}
		return items, `""`
	})
}

// TestSparse: a job or a comparison that ends at empty pages reports that. After the API has
// marked its end to the live stream, empty pages end neither.
func TestSparse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"] = sparseExport(t)
	span := aroundEvents()
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
