//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// never is true of no event, and asServed leaves an event as it is.
func never(int) bool { return false }

// TestE2EVerifyAhead: one event of the first pages has the greatest time of
// all, so that the position says nothing about what the stream has passed. What
// it has not passed is not published for it, whether or not the events say when
// the API took them in.
func TestE2EVerifyAhead(t *testing.T) {
	t.Parallel()
	for _, schema := range []exportsim.Schema{exportsim.Schema07, exportsim.Schema08} {
		t.Run(string(schema), func(t *testing.T) {
			t.Parallel()
			const n, passed, unordered = 3000, 200, 150
			s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: schema, Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
			s.settings["EXPORT_PAGE_SIZE"] = "100"
			serve := func(i int, item []byte) []byte {
				if i == unordered {
					return bytes.Replace(item, []byte(`"timestamp":`), fmt.Appendf(nil, `"timestamp":%d,"was":`, s.truth.EventTime(n).UnixMilli()), 1)
				}
				return item
			}
			s.serveAltered(serve)
			s.run("--max-events", fmt.Sprint(passed)).wantExit(0, stepTimeout)
			window := []string{"verify", "--from", s.timeOf(0), "--to", s.truth.EventTime(n).UTC().Format(time.RFC3339Nano), "--repair"}
			p, _ := s.command(3, window...)
			s.wantSaid(p, "2,800", "can still publish")
			if schema == exportsim.Schema07 {
				p, _ = s.command(1, append(window, "--execute")...)
				s.wantSaid(p, "missing events lack an ingestion time", "no process runs stream events", "exportbridge run")
			} else {
				p, _ = s.command(3, append(window, "--execute")...)
				s.wantSaid(p, "2,800 left to the running stream")
			}
			s.finish()
			s.wantRepaired(n, never, func(i int) []byte { return serve(i, s.truth.Event(i)) })
		})
	}
}

// TestE2EVerifyAtTheEnd: events do not say when the API took them in, so a
// repair waits until the running stream has come to the end of the export after
// they were read, and leaves out what it has published until then.
func TestE2EVerifyAtTheEnd(t *testing.T) {
	t.Parallel()
	const n, news, hidden = 490, 20, 9 // the last page is not full, and grows
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: exportsim.Schema07, Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	late := func(i int) bool { return i%50 == 3 && i < 450 }
	api := s.serveAltered(func(i int, item []byte) []byte {
		if late(i) || i >= n-news {
			return nil
		}
		return item
	})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "50", "1s"
	run := s.run()
	s.awaitPublished(n - news - hidden)
	s.awaitState("idle")
	run.signal(syscall.SIGSTOP)
	all := func(_ int, item []byte) []byte { return item }
	api.change.Store(&all)
	verify := s.start("verify", "--json", "--from", s.timeOf(0), "--to", s.truth.EventTime(n).UTC().Format(time.RFC3339Nano), "--repair", "--execute")
	eventually(t, stepTimeout, "the repair to wait", func() bool { return bytes.Contains(verify.stderr(), []byte("waiting for stream events")) })
	run.signal(syscall.SIGCONT)
	s.awaitPublished(n - hidden)
	passed := time.Now()
	eventually(t, stepTimeout, "a poll that clocks cannot confuse", func() bool { return time.Since(passed) > 5*time.Second })
	run.signal(syscall.SIGTERM)
	run.wantExit(0, stepTimeout)
	verify.wantExit(0, 2*time.Minute)
	var got found
	decode(t, verify.stdout(), &got)
	if got.Missing != hidden || got.Repair.Events != hidden {
		t.Errorf("%+v, repaired %+v, want %d", got, got.Repair, hidden)
	}
	s.finish()
	s.wantRepaired(n, late, s.truth.Event)
}

// TestE2EVerifyClockAhead: the clock of a client was hours ahead, so that the
// record has the time at which it was published, long before its event's.
func TestE2EVerifyClockAhead(t *testing.T) {
	t.Parallel()
	const n, wrong, ahead = 300, 7, 5 * time.Hour
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Every: 2 * time.Minute, Start: time.Now().Add(-10 * time.Hour).Truncate(time.Second)})
	s.settings["EXPORT_PAGE_SIZE"] = "20"
	took := s.truth.EventTime(wrong)
	stamp := took.Add(ahead)
	api := s.serveAltered(func(i int, item []byte) []byte {
		if i == wrong {
			return nil
		}
		return item
	})
	s.run("--max-events", "19").wantExit(0, stepTimeout)
	// The stream published it then, which a test cannot wait for.
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers.brokers))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	text := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	record := &kgo.Record{Topic: s.topic, Value: s.truth.Event(wrong), Timestamp: took, Headers: []kgo.RecordHeader{
		text("ce_id", exportsim.EventID(s.config.Seed, wrong)), text("ce_time", stamp.UTC().Format(time.RFC3339Nano)), text("eb-stream", "events"),
	}}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s.finish()
	listed := func(i int, item []byte) []byte {
		if i != wrong {
			return nil // the export lists by its own time; the window is the wrong event's
		}
		return bytes.Replace(item, []byte(`"timestamp":`), fmt.Appendf(nil, `"timestamp":%d,"was":`, stamp.UnixMilli()), 1)
	}
	api.change.Store(&listed)
	api.anyTime.Store(true)
	got := s.verify(0, stamp.Add(-time.Minute), stamp.Add(time.Minute))
	if got.API != 1 || got.Held != 1 || got.Missing != 0 {
		t.Errorf("%+v, want the one event found in the topic", got)
	}
}

// TestE2EVerifyRefuses: what a paused stream, one that is moved meanwhile, or an
// unfinished backfill may still publish is not published for them.
func TestE2EVerifyRefuses(t *testing.T) {
	t.Parallel()
	const n = 490
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "50", "1s"
	all := func(_ int, item []byte) []byte { return item }
	undated := func(_ int, item []byte) []byte {
		return bytes.Replace(item, []byte(`"systemTimestamp":`), []byte(`"was":`), 1)
	}
	api := s.serveAltered(func(i int, item []byte) []byte {
		if i == 3 {
			return nil
		}
		return item
	})
	s.finish()
	api.change.Store(&all)
	window := []string{"verify", "--from", s.timeOf(0), "--to", s.timeOf(n), "--repair", "--execute"}

	moved := s.start(append(window, "--rate-limit", "5/s")...) // ten pages, twice
	eventually(t, stepTimeout, "the repair to begin", func() bool { return s.held(s.topic+".checkpoints.jobs") > 0 })
	s.command(0, "cursor", "reset", "--to-datetime", s.timeOf(n-20), "--execute")
	moved.wantExit(1, stepTimeout)
	s.wantSaid(moved, "was moved meanwhile, from epoch 0 to 1", "repeat the command")
	s.finish()

	backfill := s.start("backfill", "--from", s.timeOf(0), "--to", s.timeOf(n/2), "--allow-overlap", "--rate-limit", "1/s", "--execute")
	id := s.jobID(backfill)
	backfill.kill()
	p, _ := s.command(1, window...)
	s.wantSaid(p, "backfill "+id, "is unfinished", "exportbridge backfill cancel "+id)
	s.command(0, "backfill", "cancel", id, "--execute")

	api.change.Store(&undated)
	s.run()
	s.awaitState("idle")
	s.command(0, "pause")
	p, _ = s.command(1, window...)
	s.wantSaid(p, "the stream is paused", "exportbridge resume")
}
