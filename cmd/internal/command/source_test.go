package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tenants serves the events of each tenant at a path of its own, in pages of two.
func tenants(t *testing.T) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant := strings.Trim(r.URL.Path, "/")
		var at int
		_, _ = fmt.Sscan(r.FormValue("cursor"), &at)
		var items []string
		for i := at; i < min(at+2, 5); i++ {
			items = append(items, fmt.Sprintf(`{"eventId":"%s-%d","userId":"u","timestamp":%d,"payload":{"@type":"x"}}`, tenant, i, firstEvent.UnixMilli()+int64(i)*1000))
		}
		next := "null"
		if at+2 < 5 {
			next = fmt.Sprintf(`"%d"`, at+2)
		}
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":%s}`, strings.Join(items, ","), next)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestOtherTenant: under the checkpoint of one tenant nothing publishes the events of
// another one, until a reset names what it accepts.
func TestOtherTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_PATH"] = tenants(t), "/a"
	if got := runProgram(t, w.env, "run", "--once"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
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
	span := []string{"--from", firstEvent.Add(-time.Hour).UTC().Format(time.RFC3339), "--to", firstEvent.Add(time.Hour).UTC().Format(time.RFC3339)}
	source := ""
	for _, args := range [][]string{
		{"run", "--once"}, {"check"}, append([]string{"verify"}, span...), append([]string{"verify", "--repair", "--execute"}, span...),
		append([]string{"backfill", "--allow-overlap", "--execute"}, span...), append([]string{"replay", "--execute"}, span...),
	} {
		got := runProgram(t, w.env, args...)
		output := got.stdout + got.stderr
		if got.code == 0 || !strings.Contains(output, "path changed") || !strings.Contains(output, "Try: ") && !strings.Contains(output, `"hint":`) && args[0] != "check" {
			t.Errorf("%s: %+v", args, got)
		}
		if found := regexp.MustCompile(`these settings are source ([0-9a-f]{8})`).FindStringSubmatch(output); found != nil {
			source = found[1]
		}
	}
	wantEvents("b", 0)
	for _, args := range [][]string{
		{"cursor", "reset", "--to-current", "--execute"}, {"cursor", "reset", "--to-earliest", "--execute", "--accept-source", source},
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
