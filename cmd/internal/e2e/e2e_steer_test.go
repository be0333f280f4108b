//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/bridge/exportapi/exportsim"
)

// command runs a command to its end, wants the exit code, and returns how long
// it took.
func (s *stage) command(code int, args ...string) (*program, time.Duration) {
	s.t.Helper()
	began := time.Now()
	p := s.start(args...)
	p.wantExit(code, outageTimeout)
	return p, time.Since(began)
}

// checkpoint returns the committed one.
func (s *stage) checkpoint() bridge.Checkpoint {
	s.t.Helper()
	p, _ := s.command(0, "cursor", "export")
	c, err := control.ReadExport(bytes.NewReader(p.stdout()))
	if err != nil {
		s.t.Fatalf("read the exported cursor: %v", err)
	}
	return c
}

func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("decode %s: %v", tail(raw), err)
	}
}

// benchRun is what one epoch published: the events from one index up to another,
// exclusive.
type benchRun struct{ from, to int }

// stretches splits the topic at the places where a partition goes back to an
// earlier event. It fails the test where an epoch is not one stretch without
// gaps and in order.
func (c *contents) stretches() []benchRun {
	var epochs [][]int
	for _, lane := range c.lanes {
		epoch := 0
		for n, i := range lane {
			if n > 0 && i <= lane[n-1] {
				epoch++
			}
			if epoch == len(epochs) {
				epochs = append(epochs, nil)
			}
			epochs[epoch] = append(epochs[epoch], i)
		}
	}
	all := make([]benchRun, len(epochs))
	for n, events := range epochs {
		slices.Sort(events)
		all[n] = benchRun{events[0], events[len(events)-1] + 1}
		if want := all[n].to - all[n].from; len(events) != want {
			c.errorf("epoch %d published %d events between %d and %d, want all %d once", n, len(events), all[n].from,
				all[n].to, want)
		}
	}
	return all
}

// firstAt returns the first event at or after the time of event i.
func (s *stage) firstAt(i int) int {
	for i > 0 && s.truth.EventTime(i-1).Equal(s.truth.EventTime(i)) {
		i--
	}
	return i
}

func (s *stage) timeOf(i int) string { return s.truth.EventTime(i).UTC().Format(time.RFC3339Nano) }

func TestE2ERewinds(t *testing.T) {
	t.Parallel()
	inEachMode(t, rewinds)
}

func rewinds(t *testing.T, v *backends, mode bridge.Mode) {
	n := int(size(t, "E2E_EVENTS", 8000, 100_000))
	const rate = 50
	pageSize := max(20, min(1000, n/400))
	s := newStage(t, v, exportsim.Config{Events: n, Rate: rate, Latency: 5 * time.Millisecond})
	s.deliver(mode)
	s.settings["EXPORT_PAGE_SIZE"] = strconv.Itoa(pageSize)
	s.simulate()
	run := s.run()
	var from []int // where each epoch begins
	var acked []time.Duration
	move := func(begin int, args ...string) (repeated int64) {
		t.Helper()
		before := s.checkpoint()
		p, took := s.command(0, append([]string{"cursor"}, append(args, "--execute", "--json")...)...)
		var plan struct {
			Pages    int64 `json:"repeats_pages"`
			Executed bool
			Answer   bridge.Answer
		}
		decode(t, p.stdout(), &plan)
		if !plan.Executed || !plan.Answer.Applied || plan.Answer.Version != (bridge.Version{Epoch: before.Epoch + 1}) {
			t.Fatalf("%v: answer %+v, want it applied as epoch %d", args, plan.Answer, before.Epoch+1)
		}
		from, acked = append(from, begin), append(acked, took)
		return plan.Pages
	}

	s.awaitPublished(n / 20)
	marked := s.checkpoint()
	s.awaitPublished(n * 6 / 10)
	early := s.checkpoint()
	back := move(-1, "rewind", "--shift-by", "-100")
	published := s.published()
	again := s.historyOf(bridge.Version{Epoch: 1})
	from[0] = int(again.Events) // the entry's counter: it was reached without any reset
	// The command counts from where the bridge is when it looks, which is at
	// or after early.
	if back < 100 || again.Pages+back < early.Pages {
		t.Errorf("rewind by 100 pages says %d and went back to page %d from page %d or later", back, again.Pages, early.Pages)
	}
	s.awaitPublished(published + n/10)
	target := n / 10
	move(s.firstAt(target), "reset", "--to-datetime", s.timeOf(target))
	published = s.published()
	s.awaitPublished(published + n/10)
	move(int(marked.Events), "reset", "--to-cursor", marked.Cursor)
	s.awaitState("idle")
	run.stop()
	least := s.stock(n - 1)
	s.finish()
	last := s.checkpoint()

	c := s.read()
	got := c.stretches()
	if len(got) != 4 {
		t.Fatalf("the topic holds %d epochs: %v, want 4", len(got), got)
	}
	for epoch, begin := range append([]int{0}, from...) {
		if got[epoch].from != begin {
			t.Errorf("epoch %d begins with event %d, want %d", epoch, got[epoch].from, begin)
		}
	}
	end := got[3].to
	if end < least || got[0].to < int(early.Events) {
		t.Errorf("epochs %v end too early: the export had %d events, %d were committed before the first rewind", got,
			least, early.Events)
	}
	if want := int64(end - from[2]); last.Events != want || last.Epoch != 3 {
		t.Errorf("the last checkpoint counts %d events in epoch %d, the topic has %d in epoch 3", last.Events, last.Epoch,
			want)
	}
	sum := 0
	for _, e := range got {
		sum += e.to - e.from
	}
	if sum != c.records {
		t.Errorf("the epochs hold %d records, the topic %d", sum, c.records)
	}
	c.wantAll(end, sum-end)
	t.Logf("e2e: rewinds: %s, %d events, epochs %v, %d records of which %d marked as rewound, %d unexplained, %d "+
		"lost; acknowledged in %s",
		mode, end, got, c.records, c.rewound, c.records-sum, c.lost(end), rounded(acked))
	s.offline(c)
}

func rounded(all []time.Duration) []time.Duration {
	for i := range all {
		all[i] = all[i].Round(time.Millisecond)
	}
	return all
}

// historyOf returns the history's entry at a place.
func (s *stage) historyOf(place bridge.Version) bridge.Checkpoint {
	s.t.Helper()
	var entries []bridge.Checkpoint
	p, _ := s.command(0, "cursor", "history", "--limit", "0", "--json")
	decode(s.t, p.stdout(), &entries)
	i := slices.IndexFunc(entries, func(c bridge.Checkpoint) bool { return c.Version == place })
	if i < 0 {
		s.t.Fatalf("the history has no entry %s", place)
	}
	return entries[i]
}

// offline moves the cursor with no bridge running: the command does it itself.
func (s *stage) offline(before *contents) {
	s.t.Helper()
	target := len(before.copies) - 100
	p, took := s.command(0, "cursor", "reset", "--to-datetime", s.timeOf(target), "--execute")
	if !bytes.Contains(p.stdout(), []byte("no bridge runs the stream")) {
		s.t.Errorf("the reset without a bridge says\n%s", p.stdout())
	}
	s.finish()
	c := s.read()
	// What came since is known by its offsets. So few events leave partitions
	// out, where nothing would be seen to go back.
	var since []int
	for partition, lane := range c.lanes {
		since = append(since, lane[len(before.lanes[partition]):]...)
	}
	slices.Sort(since)
	for i, event := range since {
		if want := s.firstAt(target) + i; event != want {
			s.t.Fatalf("after a reset without a bridge event %d follows, want %d: all from %d on, once", event, want,
				s.firstAt(target))
		}
	}
	if want := len(c.copies) - s.firstAt(target); len(since) != want {
		s.t.Errorf("after a reset without a bridge %d events follow, want %d", len(since), want)
	}
	c.wantAll(len(c.copies), c.records-len(c.copies))
	s.t.Logf("e2e: rewinds: without a bridge applied in %s", took.Round(time.Millisecond))
}

func TestE2ETwoResets(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.simulate()
	run := s.run()
	s.awaitState("idle")
	// While the bridge holds still neither can be applied before the other is
	// requested.
	run.signal(syscall.SIGSTOP)
	reset := func(i int) *program {
		return s.start("cursor", "reset", "--to-datetime", s.timeOf(i), "--reason", "event "+strconv.Itoa(i), "--execute")
	}
	targets := []int{100, 300}
	both := []*program{reset(targets[0]), reset(targets[1])}
	eventually(t, stepTimeout, "one of two resets to give way",
		func() bool { return !both[0].running() || !both[1].running() })
	winner := 0
	if !both[0].running() {
		winner = 1
	}
	run.signal(syscall.SIGCONT)
	loser := both[1-winner]
	both[winner].wantExit(0, stepTimeout)
	loser.wantExit(1, stepTimeout)
	if said := string(loser.stderr()); !strings.Contains(said, "another reset") {
		t.Errorf("the reset that gave way says only\n%s", said)
	}
	s.awaitState("idle")
	run.stop()
	s.finish()
	c := s.read()
	want := []benchRun{{0, n}, {s.firstAt(targets[winner]), n}}
	if got := c.stretches(); !slices.Equal(got, want) {
		t.Errorf("the topic holds %v, want %v", got, want)
	}
	t.Logf("e2e: two resets: one applied, the other said: %s",
		strings.ReplaceAll(strings.TrimSpace(string(loser.stderr())), "\n", " "))
}

func TestE2EFlushAll(t *testing.T) {
	t.Parallel()
	const n, rate = 2000, 100
	s := newStage(t, startServers(t, owned{redis: true}), exportsim.Config{Events: n, Rate: rate})
	s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "100ms", "100ms"
	store := s.redis()
	key := s.topic + ":{events}:checkpoint"
	flush := func() {
		t.Helper()
		must.Do(t, store.FlushAll(t.Context()).Err())
	}
	stored := func() bool { return store.Exists(t.Context(), key).Val() == 1 }

	s.simulate()
	run := s.run()
	s.awaitPublished(n)
	flushed := time.Now()
	flush()
	eventually(t, stepTimeout, "the checkpoint to be written again", stored)
	back := time.Since(flushed)
	s.awaitPublished(s.published() + rate)
	run.stop()
	flush()
	p, _ := s.command(1, "cursor", "rewind", "--shift-by", "-100000")
	s.wantSaid(p, "100000 pages back", "nor in the checkpoint topic",
		"Try: choose an entry of exportbridge cursor history, or run exportbridge cursor reset")
	s.finish()
	if !stored() {
		t.Error("a run that found the checkpoint in Kafka did not write it to Redis")
	}
	c := s.read()
	c.wantAll(len(c.copies), 0)

	// Now Kafka has lost it too.
	flush()
	s.deleteTopic(s.settings["KAFKA_CHECKPOINT_TOPIC"])
	s.wantBlocked("topic")
	s.command(0, "topics", "create", "--execute")
	s.wantBlocked("checkpoint-lost")
	run = s.run()
	eventually(t, stepTimeout, "/readyz to say checkpoint-lost", func() bool {
		code, body := s.get("/readyz")
		return code == 503 && bytes.Contains(body, []byte("checkpoint-lost"))
	})
	if code, _ := s.get("/livez"); code != 200 {
		t.Errorf("/livez of a blocked bridge = %d, want 200", code)
	}
	if stored() {
		t.Error("a blocked bridge wrote a checkpoint")
	}
	target := len(c.copies) - 100
	_, took := s.command(0, "cursor", "reset", "--to-datetime", s.timeOf(target), "--execute")
	eventually(t, stepTimeout, "/readyz to be ready again", func() bool {
		code,
			_ := s.get("/readyz")
		return code == 200
	})
	s.awaitPublished(rate)
	run.stop()
	s.finish()
	after := s.read()
	n2 := len(after.copies)
	begin := s.firstAt(target)
	after.wantAll(n2, len(c.copies)-begin)
	if got, want := after.stretches(), []benchRun{{0, len(c.copies)}, {begin, n2}}; !slices.Equal(got, want) {
		t.Errorf("the topic holds %v, want %v", got, want)
	}
	if t.Failed() {
		return
	}
	t.Logf("e2e: flushall: written again after %s, when stopped taken from Kafka, %d events, %d twice; lost in "+
		"Kafka too: exit 5, repaired by a reset in %s, copies %d as asked for",
		back.Round(time.Millisecond), len(c.copies), c.twice(), took.Round(time.Millisecond), after.twice())
}

// wantBlocked wants a bounded run to end because it is blocked for the reason.
func (s *stage) wantBlocked(reason string) {
	s.t.Helper()
	run := s.run("--once")
	run.wantExit(5, stepTimeout)
	if !bytes.Contains(run.stderr(), []byte("blocked ("+reason+")")) {
		s.t.Errorf("run --once says\n%s\nwant that it is blocked (%s)", tail(run.stderr()), reason)
	}
}
