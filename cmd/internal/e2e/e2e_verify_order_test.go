//go:build unix

package e2e_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EVerifyAtTheEnd: events do not say when the API took them in, so a
// repair waits until the running stream has come to the end of the export after
// they were read, and leaves out what it has published until then.
func TestE2EVerifyAtTheEnd(t *testing.T) {
	t.Parallel()
	const n, news, hidden = 490, 20, 9 // the last page is not full, and grows
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: exportsim.Schema07,
		Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	late := func(i int) bool { return i%50 == 3 && i < 450 }
	api := s.serveAltered(hiding(func(i int) bool { return late(i) || i >= n-news }))
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "50", "1s"
	run := s.run()
	s.awaitPublished(n - news - hidden)
	s.awaitState("idle")
	run.signal(syscall.SIGSTOP)
	api.serve(asServed)
	verify := s.start("verify", "--json", "--from", s.timeOf(0), "--to",
		s.truth.EventTime(n).UTC().Format(time.RFC3339Nano), "--repair", "--execute")
	eventually(t, stepTimeout, "the repair to wait",
		func() bool { return bytes.Contains(verify.stderr(), []byte("waiting for stream events")) })
	run.signal(syscall.SIGCONT)
	s.awaitPublished(n - hidden)
	passed := time.Now()
	eventually(t, stepTimeout, "a poll that clocks cannot confuse",
		func() bool { return time.Since(passed) > 5*time.Second })
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

// TestE2EVerifyRefuses: what a paused stream, one that is moved meanwhile, or an
// unfinished backfill may still publish is not published for them.
func TestE2EVerifyRefuses(t *testing.T) {
	t.Parallel()
	const n = 490
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n,
		Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "50", "1s"
	api := s.serveAltered(hiding(func(i int) bool { return i == 3 }))
	s.finish()
	api.serve(asServed)
	window := []string{"verify", "--from", s.timeOf(0), "--to", s.timeOf(n), "--repair", "--execute"}

	moved := s.start(append(window, "--rate-limit", "5/s")...) // ten pages, twice
	eventually(t, stepTimeout, "the repair to begin", func() bool { return s.held(s.topic+".checkpoints.jobs") > 0 })
	s.command(0, "cursor", "reset", "--to-datetime", s.timeOf(n-20), "--execute")
	moved.wantExit(1, stepTimeout)
	s.wantSaid(moved, "was moved meanwhile, from epoch 0 to 1", "repeat the command")
	s.finish()

	backfill := s.start("backfill", "--from", s.timeOf(0), "--to", s.timeOf(n/2), "--allow-overlap", "--rate-limit",
		"1/s", "--execute")
	id := s.jobID(backfill)
	backfill.kill()
	p, _ := s.command(1, window...)
	s.wantSaid(p, "backfill "+id, "is unfinished", "exportbridge backfill cancel "+id)
	s.command(0, "backfill", "cancel", id, "--execute")

	api.serve(func(_ int, item []byte) []byte {
		return bytes.Replace(item, []byte(`"systemTimestamp":`), []byte(`"was":`), 1)
	})
	s.run()
	s.awaitState("idle")
	s.command(0, "pause")
	p, _ = s.command(1, window...)
	s.wantSaid(p, "the stream is paused", "exportbridge resume")
}
