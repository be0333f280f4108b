//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// shownStatus is what status --json says of the only stream.
type shownStatus struct {
	Stream     string
	Live       *bridge.Status
	Checkpoint *bridge.Checkpoint
	Members    []struct {
		Process string
		Owner   bool
	}
	Changes []bridge.Change
	Notes   []string
}

func (s *stage) status() shownStatus {
	s.t.Helper()
	var all []shownStatus
	p, _ := s.command(0, "status", "--json")
	decode(s.t, p.stdout(), &all)
	if len(all) != 1 || all[0].Stream != "events" {
		s.t.Fatalf("status --json shows\n%s", tail(p.stdout()))
	}
	return all[0]
}

// wantSaid checks that a command printed each of the texts.
func (s *stage) wantSaid(p *program, texts ...string) {
	s.t.Helper()
	said := string(p.stdout()) + string(p.stderr())
	for _, text := range texts {
		if !strings.Contains(said, text) {
			s.t.Errorf("%s says\n%s\nwant %q", p.name, said, text)
		}
	}
}

func TestE2EPauses(t *testing.T) {
	t.Parallel()
	inEachMode(t, pauses)
}

// claimedAndGone leaves a reset in a paused stream's way whose claimer was
// killed, and whose deadline has passed: the next command answers it.
func (s *stage) claimedAndGone() {
	s.t.Helper()
	store, key := s.redis(), s.settings["CURSOR_PREFIX"]+":{events}:"
	cmd := must.Get(json.Marshal(bridge.Command{ID: "gone", Kind: bridge.KindReset, BaseEpoch: s.checkpoint().Epoch,
		Who: "ann"}))(s.t)
	ago := time.Now().Add(-time.Minute).UnixMilli()
	must.Do(s.t, store.HSet(s.t.Context(), key+"request", "id", "gone", "data", cmd, "at", ago, "deadline", ago+5000,
		"claimed", "pod-1", "session", "killed").Err())
	p, _ := s.command(0, "pause")
	s.wantSaid(p, "acknowledged by this command")
	if said, err := store.HGet(s.t.Context(), key+"answer:gone", "data").Result(); err != nil ||
		!strings.Contains(said, "expired") {
		s.t.Errorf("the request whose claimer is gone is answered with %s, %v; want expired", said, err)
	}
}

func pauses(t *testing.T, v *backends, mode bridge.Mode) {
	n := int(size(t, "E2E_EVENTS", 4000, 50_000))
	s := newStage(t, v, exportsim.Config{Events: n, Latency: 20 * time.Millisecond})
	s.deliver(mode)
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	// However late the pause comes, there is something left to pause.
	coming := make(chan struct{})
	s.serveAltered(func(i int, item []byte) []byte {
		if i >= n/2 {
			<-coming
		}
		return item
	})
	come := sync.OnceFunc(func() { close(coming) })
	t.Cleanup(come)
	run := s.run()
	s.awaitPublished(n / 10)
	p, took := s.command(0, "pause", "--reason", "the vendor migrates")
	come()
	s.wantSaid(p, "paused, acknowledged by ", "; to go on: exportbridge resume")
	held := s.published()
	// The bridge tells once a second.
	eventually(t, stepTimeout, "status to say that the stream is paused",
		func() bool { live := s.status().Live; return live != nil && live.State == bridge.StatePaused })
	st := s.status()
	if st.Live == nil || st.Live.State != bridge.StatePaused || st.Live.PausedUntil != bridge.Forever ||
		st.Checkpoint.PausedUntil != bridge.Forever {
		t.Errorf("status of a paused stream: live %+v, checkpoint %+v", st.Live, st.Checkpoint)
	}
	if len(st.Changes) == 0 || st.Changes[0].Kind != bridge.KindPause ||
		st.Changes[0].Reason != "the vendor migrates" || st.Changes[0].Who == "" {
		t.Errorf("status shows the changes %+v", st.Changes)
	}
	if code, body := s.get("/readyz"); code != 200 {
		t.Errorf("/readyz of a paused stream = %d %s", code, tail(body))
	}
	if p, _ := s.command(0, "status"); true {
		s.wantSaid(p, "; to go on: exportbridge resume", st.Live.Owner+" at ", "is the owner", "guarantee",
			"the vendor migrates")
	}
	if m := st.Members; len(m) != 1 || m[0].Process != st.Live.Owner || !m[0].Owner {
		t.Errorf("status shows the processes %+v, want %s", m, st.Live.Owner)
	}
	if p, _ := s.command(0, "cursor", "show"); true {
		s.wantSaid(p, "; to go on: exportbridge resume")
	}

	// It outlives the process, whatever ends it.
	run.kill()
	run = s.run()
	s.awaitState("paused")
	if again := s.published(); again > 0 {
		t.Errorf("%d events published after %d, while paused", again, held)
	}
	run.stop()
	run = s.run()
	s.awaitState("paused")
	s.command(0, "resume")
	s.awaitPublished(n / 10)
	p, _ = s.command(0, "pause", "--duration", "2s", "--json")
	if !bytes.Contains(p.stdout(), []byte(`"applied": true`)) {
		t.Errorf("pause --json says\n%s", tail(p.stdout()))
	}
	s.awaitState("idle") // by itself

	// Mistakes change nothing.
	p, _ = s.command(0, "resume")
	s.wantSaid(p, "stream events is not paused")
	p, _ = s.command(2, "pause", "--duration", "10ms")
	s.wantSaid(p, "--duration 10ms is less than a second")
	p, _ = s.command(2, "pause", "--duration", "soon")
	s.wantSaid(p, "soon")
	p, _ = s.command(2, "pause", "--stream", "nope")
	s.wantSaid(p, `unknown stream "nope"`)

	// Without a bridge.
	run.stop()
	p, _ = s.command(0, "pause", "--duration", "1h")
	s.wantSaid(p, "acknowledged by this command")
	s.wantBlocked("paused")
	p, _ = s.command(0, "cursor", "list")
	s.wantSaid(p, "events", "paused, no status in Redis")
	s.claimedAndGone()
	s.command(0, "resume")
	s.finish()
	c := s.read()
	c.wantAll(n, s.copies(2*50*8))
	want := int64(6) // four pauses and two resumes; one pause ended by itself
	if mode == bridge.AtLeastOnce {
		want++ // what expired after a claim takes one
	}
	if epoch := s.checkpoint().Epoch; epoch != want {
		t.Errorf("the stream is at epoch %d, want %d", epoch, want)
	}
	t.Logf("e2e: pauses: applied in %s", took.Round(time.Millisecond))
}

// A cursor that was exported is imported into a new Redis and the same Kafka.
func TestE2ECursorFiles(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	s.simulate()
	s.run("--max-events", "1000").wantExit(0, stepTimeout)
	file := filepath.Join(t.TempDir(), "events.cursor")
	p, _ := s.command(0, "cursor", "export", "--file", file)
	s.wantSaid(p, "written to "+file)
	at := s.checkpoint()
	p, _ = s.command(1, "cursor", "export", "--file", file)
	s.wantSaid(p, "file exists")
	whole := must.Get(os.ReadFile(file))(t)
	s.finish()

	bad := func(name, want string, content []byte) {
		t.Helper()
		other := filepath.Join(t.TempDir(), "bad")
		must.Do(t, os.WriteFile(other, content, 0o600))
		p, _ := s.command(1, "cursor", "import", other, "--execute")
		s.wantSaid(p, want)
		if got := s.checkpoint(); got.Epoch != 0 {
			t.Errorf("%s: the stream is at epoch %d", name, got.Epoch)
		}
	}
	bad("cut in half", "not a complete JSON document", whole[:len(whole)/2])
	bad("empty", "it is empty", nil)
	bad("changed", "it was changed", bytes.Replace(whole, []byte(`"pages": 20`), []byte(`"pages": 21`), 1))
	bad("something else", "its format is", []byte(`{"format":"else"}`))
	p, _ = s.command(1, "cursor", "import", file+".not")
	s.wantSaid(p, "no such file")

	p, _ = s.command(0, "cursor", "import", file)
	s.wantSaid(p, "the exported cursor: entry "+at.Version.String(), "dry run: nothing was changed")
	p, _ = s.command(0, "cursor", "import", file, "--execute", "--reason", "back to the copy")
	if now := s.checkpoint(); now.Epoch != 1 || now.Cursor != at.Cursor || now.Events != at.Events ||
		now.Change.Reason != "back to the copy" {
		t.Errorf("%s leads to %+v, want the position of %+v", tail(p.stdout()), now, at)
	}
	s.finish()
	c := s.read()
	c.wantAll(n, n-1000)

	// A cursor of another export does not belong here.
	s.settings["EXPORT_EVENTS"] = "orderPlaced"
	p, _ = s.command(5, "cursor", "import", file, "--execute")
	s.wantSaid(p, "the cursor belongs elsewhere", "--accept-other")
}

// A cursor that has expired is left behind: the stream starts by time, and what
// the topic holds is not published again.
func TestE2EExpiredCursor(t *testing.T) {
	t.Parallel()
	const n, rate, lifetime = 3000, 50, 8 * time.Second
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Rate: rate})
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.settings["EXPORT_ON_INVALID_CURSOR"] = "time"
	s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "200ms", "200ms"
	s.simulate("--cursor-ttl", lifetime.String())
	run := s.run()
	s.awaitPublished(n)
	run.stop()
	stopped := time.Now()
	before := s.checkpoint()
	eventually(t, stepTimeout, "the cursor to expire", func() bool { return time.Since(stopped) > lifetime+time.Second })
	run = s.run()
	eventually(t, 3*time.Minute, "the overlap to be over", func() bool {
		c := s.checkpoint()
		return c.Overlap != nil && c.Overlap.Done
	})
	o := s.checkpoint().Overlap
	p, _ := s.command(0, "status")
	s.wantSaid(p, "cursor rejected by the API", "known duplicates dropped", "410")
	run.stop()
	s.finish()
	c := s.read()
	c.wantAll(len(c.copies), 0)
	if o.Dropped != before.Events || o.Until != before.LastEventTime {
		t.Errorf("overlap %+v, want the %d events up to %d dropped that were published", o, before.Events,
			before.LastEventTime)
	}
}
