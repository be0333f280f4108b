package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/cmd/internal/cli"
)

// unboundedExport lists twenty events, one a second, on one page. It has a parameter for the
// start, since, and none for the end.
func unboundedExport(t *testing.T) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		since, _ := strconv.ParseInt(r.FormValue("since"), 10, 64)
		for i := range 20 {
			if at := firstEvent.UnixMilli() + int64(i)*1000; at >= since {
				items = append(items, event(fmt.Sprint(i), i))
			}
		}
		return items, "null"
	})
}

// TestOutsideRange: if the API ignores a bound, a job counts the events outside its range,
// wherever the job is shown. The job fails if all events are outside.
func TestOutsideRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_START_PARAM"] = unboundedExport(t), "since"
	at := func(second int) string {
		return firstEvent.Add(time.Duration(second) * time.Second).UTC().Format(time.RFC3339)
	}
	run := func(code int, args ...string) string {
		t.Helper()
		got := runProgram(t, w.env, args...)
		if got.code != code {
			t.Errorf("%s: %+v, want exit code %d", args, got, code)
		}
		return got.stdout + got.stderr
	}
	wants := func(output string, all ...string) {
		t.Helper()
		for _, want := range all {
			if strings.Count(output, want) != 1 {
				t.Errorf("%q is not there once:\n%s", want, output)
			}
		}
	}
	const some = "12 of 17 events have a time outside the requested range"
	run(cli.ExitOK, "run", "--once", "--max-events", "1")
	wants(run(cli.ExitOK, "replay", "--from", at(3), "--to", at(8), "--execute", "--wide"), some,
		"\"events\":12,\"of\":17", "done in ")
	wants(run(cli.ExitOK, "verify", "--from", at(3), "--to", at(8)), some)
	wants(run(cli.ExitEmptyEnd, "verify", "--from", at(-60), "--to", at(0)), "20 of 20 events have",
		"nothing of the range was compared")
	wants(run(cli.ExitEmptyEnd, "replay", "--from", at(-60), "--to", at(0), "--execute"),
		"done, but nothing of the range", "20 of 20 events have", "published nothing of the range")
	wants(run(cli.ExitOK, "backfill", "list", "--wide"), some, "20 of 20 events have", "done, but nothing of the range")
	var jobs []struct {
		ID    string `json:"id"`
		Total int64  `json:"total_outside_range"`
	}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "backfill", "list", "--json")), &jobs); err != nil ||
		len(jobs) != 2 || jobs[0].Total != 12 || jobs[1].Total != 20 {
		t.Errorf("%+v, %v", jobs, err)
	} else {
		wants(run(cli.ExitEmptyEnd, "replay", "--resume", jobs[1].ID, "--execute"), "was already done",
			"published nothing of the range")
		for execute, want := range map[string]string{"--execute": `"executed": true`, "--dry-run": `"executed": false`} {
			wants(run(cli.ExitOK, "backfill", "resume", jobs[0].ID, "--json", execute), want)
		}
	}
}
