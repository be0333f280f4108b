//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// found is what verify prints.
type found struct {
	API          int `json:"api_events"`
	Held         int `json:"topic_events"`
	Missing      int `json:"missing"`
	DeadLettered int `json:"dead_lettered"`
	Extra, Again int
	Parts        int
	Late         struct {
		Known, Events int
		P50           int64 `json:"p50_ms"`
		P99           int64 `json:"p99_ms"`
		Max           int64 `json:"max_ms"`
	}
	Repair *struct {
		Events, Refused int
		Live            int `json:"left_to_live"`
		Before          int `json:"repaired_before"`
	}
}

// times are the bounds of all events.
func (s *stage) times() (from, to time.Time) {
	return s.truth.EventTime(0), s.truth.EventTime(s.config.Events - 1).Add(time.Millisecond)
}

func (s *stage) verify(code int, from, to time.Time, args ...string) (got found) {
	s.t.Helper()
	window := []string{"verify", "--json", "--from", from.UTC().Format(time.RFC3339Nano), "--to",
		to.UTC().Format(time.RFC3339Nano)}
	p, _ := s.command(code, append(window, args...)...)
	decode(s.t, p.stdout(), &got)
	return got
}

// TestE2EVerify: 100 events come after the cursor has passed their time. They
// are found, repaired once, also over kill -9, and dead letters and events that
// the API no longer has are told from them.
func TestE2EVerify(t *testing.T) {
	t.Parallel()
	// Not a multiple of the page size: the last page ends the export then, and
	// the stream's position is behind the last event.
	const n, lateBy = 3005, 2 * time.Hour
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "200"
	late := func(i int) bool { return i%30 == 7 }
	broken := func(i int) bool { return i == 100 }
	gone := func(i int) bool { return i%300 == 50 }
	serve := func(i int, item []byte) []byte {
		switch {
		case late(i):
			return withMember(item, "systemTimestamp", s.truth.EventTime(i).Add(lateBy).UnixMilli())
		case broken(i):
			return padded(item, 2<<20)
		}
		return item
	}
	api := s.serveAltered(func(i int, item []byte) []byte {
		if late(i) {
			return nil
		}
		return serve(i, item)
	})
	s.finish()
	from, to := s.times()
	if got := s.verify(0, from, to); got.API != n-100 || got.Held != n-101 || got.DeadLettered != 1 ||
		got.Extra != 0 || got.Parts != 1 || got.Late.Events != 0 {
		t.Errorf("nothing is missing yet: %+v", got)
	}

	arrived := func(i int, item []byte) []byte {
		if gone(i) {
			return nil
		}
		return serve(i, item)
	}
	api.serve(arrived)
	api.endless.Store(0)
	want := func(what string, got found, missing int) {
		t.Helper()
		if got.API != n-10 || got.Missing != missing || got.Held != n-11-missing || got.DeadLettered != 1 ||
			got.Extra != 10 || got.Again != 0 {
			t.Errorf("%s: %+v, want %d missing", what, got, missing)
		}
	}
	got := s.verify(3, from, to, "--batch", "400")
	want("in parts", got, 100)
	if l := got.Late; got.Parts < 8 || l.Known != n-10 || l.Events != 100 || l.Max != lateBy.Milliseconds() ||
		l.P99 != l.Max || l.P50 != l.Max {
		t.Errorf("%d parts, late %+v", got.Parts, l)
	}
	half := s.verify(3, from, s.truth.EventTime(n/2))
	if half.API == 0 || half.API >= n || half.Missing < 45 || half.Missing > 55 || half.Extra < 4 || half.Extra > 6 {
		t.Errorf("half of the window: %+v", half)
	}

	began := time.Now()
	s.verify(3, from, s.truth.EventTime(n/2), "--rate-limit", "10/s") // 8 pages and more
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("--rate-limit 10/s: 8 pages in %s", took)
	}

	if asked := api.endless.Load(); asked > 0 {
		t.Errorf("%d pages were asked for without the window's bounds", asked)
	}

	// Nothing is published before it may be.
	s.command(2, "verify", "--from", "-3d", "--to", "now", "--repair", "--execute")
	got = s.verify(3, from, to, "--repair")
	if want("a dry run", got, 100); got.Repair.Events != 100 {
		t.Errorf("a dry run says %+v", got.Repair)
	}
	s.wantRepaired(n, never, func(i int) []byte {
		if late(i) || broken(i) {
			return nil
		}
		return s.truth.Event(i)
	})

	window := []string{"verify", "--from", from.UTC().Format(time.RFC3339Nano), "--to",
		to.UTC().Format(time.RFC3339Nano), "--repair", "--execute"}
	killed := s.start(append(window, "--batch", "400")...)
	eventually(t, stepTimeout, "a part to be repaired",
		func() bool { return bytes.Contains(killed.stderr(), []byte("compared ")) })
	killed.kill()
	got = s.verify(0, from, to, "--repair", "--execute", "--batch", "400")
	if got.Missing != got.Repair.Events || got.Missing == 0 || got.Missing >= 100 || got.Repair.Before != 0 {
		t.Errorf("after a kill: %+v, repaired %+v", got, got.Repair)
	}
	got = s.verify(0, from, to, "--repair", "--execute")
	if want("repaired", got, 0); got.Repair.Events != 0 {
		t.Errorf("a second repair published %+v", got.Repair)
	}
	s.finish() // the live stream goes on
	s.wantRepaired(n, late, func(i int) []byte {
		if broken(i) {
			return nil
		}
		return serve(i, s.truth.Event(i))
	})
}

// TestE2EVerifyWithoutIDs: events have no ids and records no headers, so that
// only the bytes tell which is which.
func TestE2EVerifyWithoutIDs(t *testing.T) {
	t.Parallel()
	const n = 510
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: exportsim.Schema05})
	s.settings["BRIDGE_HEADERS"], s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "none",
		"100", "1s"
	api := s.serveAltered(hiding(func(i int) bool { return i%50 == 3 && i < 500 })) // of pages that are passed
	s.finish()
	from, to := s.times()
	api.serve(asServed)
	if got := s.verify(3, from, to); got.API != n || got.Held != n-10 || got.Missing != 10 || got.Extra != 0 {
		t.Errorf("%+v, want 10 of %d missing", got, n)
	}
	s.run() // commits a heartbeat every 30 seconds
	s.awaitState("idle")
	for _, repaired := range []int{10, 0} {
		if got := s.verify(0, from, to, "--repair", "--execute"); got.Missing != repaired ||
			got.Repair.Events != repaired || got.Extra != 0 || got.Again != 0 {
			t.Errorf("%+v, repaired %+v, want %d", got, got.Repair, repaired)
		}
	}
}

// TestE2EVerifyLeaves: what the running stream may still bring and what the topic
// cannot take are left out, and the others of the same transaction are not.
func TestE2EVerifyLeaves(t *testing.T) {
	t.Parallel()
	const n, ahead, large = 60, 4, 5
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	hidden := func(i int) bool { return i >= 3 && i < 10 }
	api := s.serveAltered(hiding(hidden))
	s.finish()
	arrived := func(i int, item []byte) []byte {
		switch i {
		case ahead:
			return withMember(item, "systemTimestamp", time.Now().Add(time.Hour).UnixMilli())
		case large:
			return padded(item, 2<<20)
		}
		return item
	}
	api.serve(arrived)
	from, to := s.times()
	got := s.verify(3, from, to, "--repair", "--execute")
	if r := got.Repair; got.Missing != 7 || r.Events != 5 || r.Live != 1 || r.Refused != 1 || r.Before != 0 {
		t.Errorf("missing %d, repaired %+v", got.Missing, got.Repair)
	}
	s.wantRepaired(n, hidden, func(i int) []byte {
		if i == ahead || i == large {
			return nil
		}
		return s.truth.Event(i)
	})
}

// TestE2EVerifyMany: the memory that verify takes goes by --batch, and not by
// the size of the window. By hand with millions:
//
//	TEST_REAL=1 E2E_EVENTS=10000000 E2E_BATCH=1000000 go test -run TestE2EVerifyMany -timeout 1h -v ./cmd/internal/e2e
func TestE2EVerifyMany(t *testing.T) {
	t.Parallel()
	n := int(size(t, "E2E_EVENTS", 20_000, 200_000))
	batch := int(size(t, "E2E_BATCH", 2000, 20_000))
	s := newStage(t, startServers(t, owned{}), exportsim.Config{
		Events: n, Start: time.Now().Add(-time.Duration(n)*100*time.Millisecond - time.Hour).Truncate(time.Second),
		// they are 100 ms apart
	})
	s.simulate()
	s.run("--once", "--max-events", fmt.Sprint(n*9/10)).wantExit(0, 20*time.Minute)
	held := int(s.checkpoint().Events)
	from, to := s.times()
	began := time.Now()
	p := s.start("verify", "--json", "--from", from.UTC().Format(time.RFC3339Nano), "--to",
		to.UTC().Format(time.RFC3339Nano), "--batch", fmt.Sprint(batch))
	memory := p.memory()
	p.wantExit(3, 40*time.Minute)
	took, peak := time.Since(began), memory()
	var got found
	decode(t, p.stdout(), &got)
	if got.API != n || got.Held != held || got.Missing != n-held || got.Extra != 0 || got.Again != 0 ||
		got.Parts < n/batch {
		t.Errorf("%+v, want %d events, of which %d are missing", got, n, n-held)
	}
	t.Logf("e2e: verify: %d events in %d parts of at most %d in %.1f s, peak memory %d MB", n, got.Parts, batch,
		took.Seconds(), peak>>20)
}

// TestE2EVerifySharedIDs: different events under one id are compared each by
// itself: those that the topic lacks are missing, are repaired once, and those
// that became dead letters are found there.
func TestE2EVerifySharedIDs(t *testing.T) {
	t.Parallel()
	const n = 60
	servers := startServers(t, owned{})
	share := func(i int, item []byte) []byte {
		if 10 <= i && i < 20 {
			return bytes.Replace(item, []byte(exportsim.EventID(1, i)), []byte(exportsim.EventID(1, 10)), 1)
		}
		return item
	}
	s := newStage(t, servers, exportsim.Config{Events: n, Seed: 1})
	api := s.serveAltered(func(i int, item []byte) []byte {
		if 15 <= i && i < 20 {
			return nil
		}
		return share(i, item)
	})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	s.finish()
	from, to := s.times()
	if got := s.verify(0, from, to); got.API != n-5 || got.Held != n-5 || got.Missing+got.Extra+got.Again != 0 {
		t.Errorf("nothing is missing yet: %+v", got)
	}
	api.serve(share)
	if got := s.verify(3, from, to); got.API != n || got.Held != n-5 || got.Missing != 5 || got.Extra+got.Again != 0 {
		t.Errorf("five of ten under one id are missing: %+v", got)
	}

	s = newStage(t, servers, exportsim.Config{Events: n, Seed: 1})
	s.serveAltered(share)
	s.settings["BRIDGE_ON_SHARED_ID"] = "bad-event"
	s.finish()
	from, to = s.times() // another export
	if got := s.verify(0, from, to); got.API != n || got.Held != n-9 || got.DeadLettered != 9 || got.Missing != 0 {
		t.Errorf("as dead letters: %+v", got)
	}
	if got := results(s.retry(0, "--all", "--execute")); got["published"] != 9 {
		t.Errorf("retried: %v, want nine published", got)
	}
	if got := s.verify(0, from, to); got.Held != n || got.DeadLettered+got.Missing+got.Again != 0 {
		t.Errorf("after the retry: %+v", got)
	}
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
