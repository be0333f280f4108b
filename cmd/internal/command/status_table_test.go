package command

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// The table of a thousand streams fits the terminal; the worst streams are first.
func TestStatusTable(t *testing.T) {
	t.Parallel()
	all := make([]streamStatus, 1000)
	for i := range all {
		all[i] = streamStatus{Report: control.NewReport(fmt.Sprintf("tenant-%03d", i), bridge.ExactlyOnce)}
		all[i].Live = &bridge.Status{State: bridge.StateIdle, CaughtUp: true, Owner: "one"}
	}
	all[700].Live = &bridge.Status{State: bridge.StateBlocked, Reason: bridge.ReasonAuth, Owner: "one",
		Error: strings.Repeat("the key is not valid ", 9)}
	all[800].Live = &bridge.Status{State: bridge.StateBackoff, Owner: "two", Error: "503"}
	a := &cli.App{Stdio: cli.Stdio{Columns: 80}, Environ: []string{"A=b"}}
	lines := strings.Split(stripColour(statusTable(a, all, 24)), "\n")
	if len(lines) != 24 || lines[23] != "" || lines[22] != "and 980 streams more" {
		t.Errorf("%d lines, the last ones %q", len(lines), lines[len(lines)-2:])
	}
	if lines[0] != "1,000 streams: 1 blocked, 1 retrying, 998 caught up" {
		t.Errorf("%q", lines[0])
	}
	for i, want := range []string{"tenant-700  BLOCKED (auth)", "tenant-800  retrying", "tenant-000  caught up"} {
		if !strings.HasPrefix(lines[2+i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[2+i], want)
		}
	}
	for _, line := range lines {
		if n := process.Width(line); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if !strings.Contains(statusTable(a, all, 24), " \x1b[1;31mBLOCKED\x1b[0m (auth)") {
		t.Error("BLOCKED does not stand out on a terminal")
	}
	for _, height := range []int{0, 2} {
		want := map[int]int{0: 1002, 2: 4}[height]
		if got := strings.Count(statusTable(a, all, height), "\n"); got != want {
			t.Errorf("height %d: %d lines, want %d", height, got, want)
		}
	}
}

// Four streams are printed as a table; --stream and JSON show them in full.
func TestStatusOfManyStreams(t *testing.T) {
	t.Parallel()
	w := fourStreams(t)
	got := runProgram(t, w.env, "status")
	wantLines(t, got.stdout,
		[]string{`^4 streams: 4 not running$`, `^STREAM `, `^[a-d] +not running `, `^[a-d] +not running `})
	if strings.Contains(got.stdout, "guarantee") || got.code != cli.ExitOK {
		t.Errorf("%+v", got)
	}
	if got := runProgram(t, w.env, "status", "--stream", "b"); !strings.Contains(got.stdout, "guarantee  exactly-once") {
		t.Errorf("--stream b: %+v", got)
	}
	if got := runProgram(t, w.env, "status", "--json"); strings.Count(got.stdout, `"guarantee"`) != 4 {
		t.Errorf("--json: %+v", got)
	}
	var out bytes.Buffer
	w.redis.Close()
	w.env["REDIS_TIMEOUT"] = "1s"
	if got := runOn(t.Context(), cli.Stdio{Stdout: &out}, w.env, "status"); got.code != cli.ExitFailed ||
		!strings.Contains(got.stderr, "no answer from redis") || !strings.Contains(out.String(), "live status unknown: ") {
		t.Errorf("without Redis: %+v\n%s", got, out.String())
	}
}

// fourStreams is a world with the drained streams a to d.
func fourStreams(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	maps.Copy(w.env, map[string]string{"BRIDGE_STREAMS": "a,b,c,d", "KAFKA_CREATE_TOPICS": "true"})
	for _, name := range []string{"A", "B", "C", "D"} {
		w.env["STREAM_"+name+"_EXPORT_RESOURCE"] = "events"
	}
	w.runOnce(t)
	return w
}

// TestEndedBeside: a stream that has ended while its process runs another one is not in trouble.
func TestEndedBeside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	maps.Copy(w.env, map[string]string{
		"BRIDGE_STREAMS": "a,b", "STREAM_A_EXPORT_RESOURCE": "events", "STREAM_B_EXPORT_RESOURCE": "events",
		"STREAM_A_EXPORT_END": "2026-11-02T00:00:00Z", "KAFKA_CREATE_TOPICS": "true", "HTTP_ADDR": "off",
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan result, 1)
	go func() { done <- runOn(ctx, cli.Stdio{}, w.env, "run") }()
	var got result
	for began := time.Now(); !strings.Contains(got.stdout, "state      ended: the window ended\n"); {
		if got = runProgram(t, w.env, "status", "--stream", "a"); time.Since(began) > time.Minute {
			t.Errorf("%+v", got)
			break
		}
	}
	if got := runProgram(t, w.env, "status", "--stream", "b"); strings.Contains(got.stdout, "ended") {
		t.Errorf("%+v", got)
	}
	stop()
	if got := <-done; got.code != cli.ExitOK {
		t.Errorf("%+v", got)
	}
}
