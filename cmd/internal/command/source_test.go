package command

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// tenants serves the events of each tenant at a path of its own, in pages of two.
func tenants(t *testing.T) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		at := 0
		_, _ = fmt.Sscan(r.FormValue("cursor"), &at)
		for i := at; i < min(at+2, 5); i++ {
			items = append(items, event(fmt.Sprintf("%s-%d", strings.Trim(r.URL.Path, "/"), i), i))
		}
		if at+2 < 5 {
			return items, fmt.Sprintf(`"%d"`, at+2)
		}
		return items, "null"
	})
}

// TestOtherTenant: with the checkpoint of one tenant, no command publishes the events of
// another tenant, until a reset accepts that tenant's source.
func TestOtherTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_PATH"] = tenants(t), "/a"
	w.runOnce(t)
	// The topic holds five events, all of this tenant.
	wantEvents := func(tenant string, n int) {
		t.Helper()
		got := runProgram(t, w.env, "tail", "-n", "100", "--json")
		if of := strings.Count(got.stdout, `"eventId":"`+tenant+"-"); got.code != 0 || of != n {
			t.Errorf("the topic has %d events of tenant %s, want %d: %+v", of, tenant, n, got)
		}
	}
	wantEvents("a", 5)
	w.env["EXPORT_PATH"] = "/b"
	span := aroundEvents()
	source := ""
	for _, args := range [][]string{
		{"run", "--once"}, {"check"}, append([]string{"verify"}, span...),
		append([]string{"verify", "--repair", "--execute"}, span...),
		append([]string{"backfill", "--allow-overlap", "--execute"}, span...),
		append([]string{"replay", "--execute"}, span...),
	} {
		got := runProgram(t, w.env, args...)
		output := got.stdout + got.stderr
		if got.code == 0 || !strings.Contains(output, "path changed") || !strings.Contains(output, "Try: ") &&
			!strings.Contains(output, `"hint":`) && args[0] != "check" {
			t.Errorf("%s: %+v", args, got)
		}
		if found := regexp.MustCompile(`these settings are source ([0-9a-f]{8})`).FindStringSubmatch(output); found != nil {
			source = found[1]
		}
	}
	wantEvents("b", 0)
	for _, args := range [][]string{
		{"cursor", "reset", "--to-current", "--execute"}, {"cursor", "reset", "--to-earliest", "--execute",
			"--accept-source", source},
	} { // the first keeps the request, and so changes nothing
		if got := runProgram(t, w.env, args...); got.code != 0 {
			t.Errorf("%s: %+v", args, got)
		}
		runProgram(t, w.env, "run", "--once")
		if args[2] == "--to-current" {
			wantEvents("b", 0)
		}
	}
	wantEvents("a", 5)
	wantEvents("b", 5)
}
