package command

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"

	"github.com/twmb/franz-go/pkg/kadm"
)

// boundedExport lists twenty events, one a second from firstEvent on, by start and end.
func boundedExport(t *testing.T, item func(n int) string) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		start, end := int64(0), int64(1<<62)
		_, _ = fmt.Sscan(r.FormValue("start"), &start)
		_, _ = fmt.Sscan(r.FormValue("end"), &end)
		for n := range 20 {
			if at := firstEvent.UnixMilli() + int64(n)*1000; start <= at && at < end {
				items = append(items, item(n))
			}
		}
		return items, "null"
	})
}

func small(n int) string { return event(fmt.Sprint("e", n), n) }

// large is small, apart from the events 2 and 12.
func large(n int) string {
	if n%10 != 2 {
		return small(n)
	}
	return strings.Replace(small(n), `"payload":{`, `"payload":{"text":"`+strings.Repeat("x", 30_000)+`",`, 1)
}

// nth returns the time of the nth event of an export.
func nth(n int) string {
	return firstEvent.Add(time.Duration(n) * time.Second).UTC().Format(time.RFC3339)
}

// TestTwoOperatorsBackfill: of two backfills of one range that begin at the same time, one is
// rejected.
func TestTwoOperatorsBackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_START"] = boundedExport(t, small), nth(10)
	w.runOnce(t)
	var both sync.WaitGroup
	var got [2]result
	for i := range got {
		both.Go(func() {
			got[i] = runProgram(t, w.env, "backfill", "--from", nth(0), "--to", nth(10), "--here", "--execute")
		})
	}
	both.Wait()
	if got[0].code+got[1].code != cli.ExitOK+cli.ExitFailed || !strings.Contains(got[0].stderr+got[1].stderr, "covers") {
		t.Errorf("%+v\n%+v", got[0], got[1])
	}
	count := runProgram(t, w.env, "verify", "--from", nth(0), "--to", nth(20))
	if !strings.Contains(count.stdout, " 0 duplicate records") {
		t.Error(count.stdout)
	}
}

// TestPagesOfABackfill: the page that ends a window counts.
func TestPagesOfABackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_START"] = boundedExport(t, small), nth(10)
	w.runOnce(t)
	got := runProgram(t, w.env, "backfill", "--from", nth(0), "--to", nth(10), "--here", "--execute")
	if got.code != cli.ExitOK || !strings.Contains(got.stdout, "10 events in 1 page into") {
		t.Errorf("%+v", got)
	}
}

// TestBackfillOfACompactedEpoch: a backfill of a range that the stream has published before a reset
// is rejected, although Kafka has deleted the checkpoints from before the reset: it compacts their
// topic after some days.
func TestBackfillOfACompactedEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_START"] = boundedExport(t, small), nth(0)
	w.runOnce(t)
	succeed(t, w.env, "cursor", "reset", "--to-datetime", nth(15), "--execute")
	w.runOnce(t)
	admin := kadm.NewClient(servers.Client(t, w.env["KAFKA_BROKERS"]))
	gone := make(kadm.Offsets)
	must.Get(admin.ListEndOffsets(t.Context(), "exportbridge.checkpoints"))(t).Each(func(o kadm.ListedOffset) {
		gone.AddOffset(o.Topic, o.Partition, max(0, o.Offset-2), -1) // the newest checkpoint, and the end of its transaction
	})
	must.Get(admin.DeleteRecords(t.Context(), gone))(t)
	got := runProgram(t, w.env, "backfill", "--from", nth(0), "--to", nth(10), "--here", "--execute")
	if got.code == cli.ExitOK || !strings.Contains(got.stderr, "published "+nth(0)[:10]) {
		t.Errorf("%+v, want it rejected", got)
	}
}

// TestPlanAfterABackfill: the plan of a reset counts the events that a backfill published.
func TestPlanAfterABackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_START"] = boundedExport(t, small), nth(10)
	w.runOnce(t)
	plan := func(target, want string, backfilled bool) {
		t.Helper()
		got := runProgram(t, w.env, append([]string{"cursor", "reset"}, strings.Fields(target)...)...)
		if got.code != cli.ExitOK || !strings.Contains(got.stdout, "  again  "+want) ||
			strings.Contains(got.stdout, "up to 10 events of backfills come again too") != backfilled {
			t.Errorf("%s: %+v, want %s", target, got, want)
		}
	}
	plan("--to-earliest", "10 events, with the same ce_id\n", false)
	succeed(t, w.env, "backfill", "--from", nth(0), "--to", nth(10), "--here", "--execute")
	plan("--to-earliest", "10 to 20 events, with the same ce_id\n", true)
	plan("--to-datetime "+nth(5), "at most 20 events, with the same ce_id\n", true)
	plan("--to-datetime "+nth(10), "at most 10 events, with the same ce_id\n", false)
}
