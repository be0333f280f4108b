//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// job is what replay, backfill and their list say of a job.
type job struct {
	ID, Kind, State, Topic string
	From, To               int64
	WindowsDone            int `json:"windows_done"`
	TotalEvents            int `json:"total_events"`
	Executed               bool
	Windows                []struct {
		Events int
		Ended  string
	}
	Processes []struct {
		ClientID string `json:"client_id"`
	}
}

func (s *stage) jobOf(p *program) job {
	s.t.Helper()
	var j job
	decode(s.t, p.stdout(), &j)
	return j
}

// jobs returns the list of all jobs.
func (s *stage) jobs() []job {
	s.t.Helper()
	var all []job
	p, _ := s.command(0, "backfill", "list", "--json")
	decode(s.t, p.stdout(), &all)
	return all
}

var jobSaid = regexp.MustCompile(`(?m)^  job ([a-z2-7]{6});`)

// jobID waits until a process has said which job it works on.
func (s *stage) jobID(p *program) (id string) {
	s.t.Helper()
	eventually(s.t, stepTimeout, "the id of the job", func() bool {
		if m := jobSaid.FindSubmatch(p.stderr()); m != nil {
			id = string(m[1])
		}
		return id != "" || !p.running()
	})
	if id == "" {
		s.t.Fatalf("%s ended without a job:\n%s", p.name, tail(p.stderr()))
	}
	return id
}

// held counts the records of a topic, uncommitted ones and marks included; 0
// where it does not exist.
func (s *stage) held(topic string) int {
	s.t.Helper()
	return s.ended(topic, (*kadm.Client).ListEndOffsets)
}

// committed counts those that no open transaction hides.
func (s *stage) committed(topic string) int {
	s.t.Helper()
	return s.ended(topic, (*kadm.Client).ListCommittedOffsets)
}

func (s *stage) ended(
	topic string, list func(*kadm.Client, context.Context, ...string) (kadm.ListedOffsets, error),
) (n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
	defer cancel()
	offsets, err := list(s.admin(), ctx, topic)
	if err != nil {
		return 0
	}
	for _, o := range offsets[topic] {
		if o.Err == nil {
			n += int(o.Offset)
		}
	}
	return n
}

// readJob reads a topic that jobs have published to.
func (s *stage) readJob(topic string, origins ...string) *contents {
	s.t.Helper()
	c := newContents(s.t.Errorf)
	c.private = s.private
	c.origins = make(map[string]int)
	for _, origin := range origins {
		c.origins[origin] = 0
	}
	s.eachRecord(topic, func(r *kgo.Record) { c.add(s.truth, s.config.Seed, r) })
	return c
}

// wantWindow wants the events from one up to another, once each, and no others.
func (c *contents) wantWindow(from, to int) {
	lost, more := 0, 0
	for i := range max(to, len(c.copies)) {
		n := 0
		if i < len(c.copies) {
			n = c.copies[i]
		}
		switch {
		case i < from || i >= to:
			more += n
		case n == 0:
			lost++
		default:
			more += n - 1
		}
	}
	if lost+more+c.wrong > 0 {
		c.errorf("of the events %d up to %d, %d are lost; %d records are twice or of others, %d are wrong", from, to,
			lost, more, c.wrong)
	}
}

func TestE2EReplay(t *testing.T) {
	t.Parallel()
	const n = 3000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.simulate()
	s.finish()
	before, records := s.checkpoint(), s.records(s.topic)
	from, to := s.firstAt(n/4), s.firstAt(n*3/4)
	bounds := []string{"replay", "--from", s.timeOf(from), "--to", s.timeOf(to), "--reason", "bad deploy"}

	p, _ := s.command(1, append(bounds, "--events", "orderPlaced,noSuchType", "--execute")...)
	s.wantSaid(p, "noSuchType")
	p, _ = s.command(1, append(bounds, "--kafka-topic", s.topic+".none")...)
	s.wantSaid(p, "topic "+s.topic+".none does not exist", "Try: check the name (KAFKA_TOPIC",
		"if it is right: exportbridge topics create --execute")
	p, _ = s.command(0, bounds...)
	s.wantSaid(p, "dry run: nothing was changed", s.topic+".replay.<id>")
	if all := s.jobs(); len(all) > 0 || s.held(s.topic+".checkpoints.jobs") > 0 {
		t.Errorf("a dry run left the jobs %+v", all)
	}
	s.settings["EXPORT_RATE_LIMIT"] = "3000/m"
	p, _ = s.command(0, bounds...)
	s.wantSaid(p, "at most 25/s for all windows")
	p, _ = s.command(0, append(bounds, "--rate-limit", "2/s")...)
	s.wantSaid(p, "at most 2/s for all windows")
	delete(s.settings, "EXPORT_RATE_LIMIT")
	p, took := s.command(0, append(bounds, "--execute", "--json")...)
	one := s.jobOf(p)
	if one.State != "done" || !one.Executed || one.TotalEvents != to-from || one.Topic != s.topic+".replay."+one.ID ||
		one.Windows[0].Ended != "on its last page" {
		t.Errorf("replay says %+v", one)
	}
	if len(s.ends(one.Topic)) != 3 {
		t.Errorf("topic %s has %d partitions, want 3 as the stream's", one.Topic, len(s.ends(one.Topic)))
	}
	s.readJob(one.Topic, "replay").wantWindow(from, to)

	p, _ = s.command(0, append(bounds, "--windows", "7", "--parallel", "3", "--topic", s.topic+".again", "--execute")...)
	s.wantSaid(p, "WINDOW", "on its last page", strconv.Itoa((to-from)/1000)+",")
	many := s.jobID(p)
	s.readJob(s.topic+".again", "replay").wantWindow(from, to)
	if all := s.jobs(); len(all) != 2 || all[1].ID != many || all[1].WindowsDone != 7 || all[1].State != "done" ||
		all[1].TotalEvents != to-from {
		t.Errorf("the list shows %+v", all)
	}
	p, _ = s.command(0, "replay", "--resume", many, "--execute")
	s.wantSaid(p, "was already done")
	s.readJob(s.topic+".again", "replay").wantWindow(from, to)
	p, _ = s.command(1, "backfill", "cancel", many, "--execute")
	s.wantSaid(p, "there is nothing to cancel")

	p, _ = s.command(0, append(bounds, "--events", "orderPlaced", "--topic", s.topic+".orders", "--execute", "--json")...)
	orders := s.readJob(s.topic+".orders", "replay")
	if got := s.jobOf(p).TotalEvents; got == 0 || got == to-from || got != orders.records || orders.wrong > 0 {
		t.Errorf("replay of one type says %d events, the topic has %d, %d wrong", got, orders.records, orders.wrong)
	}

	if after := s.checkpoint(); after.Version != before.Version || after.Cursor != before.Cursor {
		t.Errorf("the stream was at %s, and is at %s after the replays", before.Version, after.Version)
	}
	if after := s.records(s.topic); after != records {
		t.Errorf("the stream's topic had %d records, and has %d after the replays", records, after)
	}
	p, _ = s.command(2, append(bounds, "--topic", s.topic)...)
	s.wantSaid(p, "belongs to stream events")
	p, _ = s.command(1, "replay", "--resume", "aaaaaa")
	s.wantSaid(p, "has no job aaaaaa")
	p, _ = s.command(2, "backfill", "--resume", many)
	s.wantSaid(p, "is a replay")
	t.Logf("e2e: replay: %d events in %s", to-from, took.Round(time.Millisecond))
}

// A window that is cut short by empty pages says so.
func TestE2EWindowOfEmptyPages(t *testing.T) {
	t.Parallel()
	const n, first, empty = 1000, 400, 5
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_EMPTY_PAGES"] = "20", strconv.Itoa(empty)
	s.serveAltered(hiding(func(i int) bool { return i >= first && i < first+20*(empty+2) }))
	s.command(0, "topics", "create", "--execute")
	bounds := []string{"replay", "--from", s.timeOf(0), "--to", s.timeOf(n - 1), "--execute"}
	p, _ := s.command(6, bounds...)
	s.wantSaid(p, "after 5 empty pages in a row")
	if all := s.jobs(); len(all) != 1 || all[0].TotalEvents != first ||
		all[0].Windows[0].Ended != "after 5 empty pages in a row" {
		t.Errorf("the list shows %+v, want %d events", all, first)
	}
	s.settings["EXPORT_EMPTY_PAGES"] = strconv.Itoa(empty + 3)
	p, _ = s.command(0, append(bounds, "--json")...)
	if one := s.jobOf(p); one.TotalEvents != s.firstAt(n-1)-20*(empty+2) || one.Windows[0].Ended != "on its last page" {
		t.Errorf("with more empty pages allowed it says %+v", one)
	}
}

// A job that is told to stop says how to go on. One that is cancelled stops by
// itself, and does not go on.
func TestE2EJobEnds(t *testing.T) {
	t.Parallel()
	const n = 4000
	s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: n, Latency: 20 * time.Millisecond})
	s.settings["EXPORT_PAGE_SIZE"] = "20"
	s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	s.simulate()
	s.command(0, "topics", "create", "--execute")
	bounds := []string{"--from", s.timeOf(0), "--to", s.timeOf(n - 1), "--windows", "4", "--parallel", "2", "--execute"}
	begin := func() (run *program, id string) {
		run = s.start(append([]string{"replay", "--rate-limit", "15/s"},
			bounds...)...) // so slow that it is there when it is looked for
		id = s.jobID(run)
		eventually(t, stepTimeout, "records", func() bool { return s.held(s.topic+".replay."+id) > 0 })
		return run, id
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		run, id := begin()
		p, _ := s.command(4, "replay", "--resume", id, "--execute")
		s.wantSaid(p, " is running job "+id)
		run.signal(sig)
		run.wantExit(130, stepTimeout)
		s.wantSaid(run, "interrupted", "Try: exportbridge replay --resume "+id+" --execute")
		p, _ = s.command(0, "replay", "--resume", id)
		s.wantSaid(p, "into       "+s.topic+".replay."+id, "so far", "dry run: nothing was changed")
		if all := s.jobs(); all[len(all)-1].State != "running" || len(all[len(all)-1].Processes) > 0 {
			t.Errorf("the list shows %+v of a job that was interrupted", all[len(all)-1])
		}
		s.wantWindows("interrupted")
		s.wantSaid(p, "at most 15/s for all windows", "2 at a time")
		p, _ = s.command(0, "replay", "--resume", id, "--rate-limit", "1000/s", "--parallel", "4", "--execute")
		s.wantSaid(p, "at most 1000/s for all windows", "4 at a time")
		p, _ = s.command(0, "backfill", "list", "--json")
		s.wantSaid(p, `"rate_limit": 1000`, `"parallel": 4`)
		s.readJob(s.topic+".replay."+id, "replay").wantWindow(0, s.firstAt(n-1))
	}

	run, id := begin()
	p, _ := s.command(0, "backfill", "cancel", id)
	s.wantSaid(p, "dry run: nothing was changed")
	if !run.running() {
		t.Error("the dry run of a cancel ended the job")
	}
	s.command(0, "backfill", "cancel", id, "--reason", "wrong month", "--execute")
	run.wantExit(1, stepTimeout)
	s.wantSaid(run, "the job was cancelled by ", "(wrong month)")
	p, _ = s.command(0, "backfill", "list")
	s.wantSaid(p, id, "cancelled by ", "wrong month")
	for _, all := range s.jobs() {
		if want := map[bool]string{true: "cancelled", false: "done"}[all.ID == id]; all.State != want {
			t.Errorf("job %s is %s, want %s", all.ID, all.State, want)
		}
	}
	s.wantWindows("cancelled")
	held := s.records(s.topic + ".replay." + id)
	p, _ = s.command(1, "replay", "--resume", id, "--execute")
	s.wantSaid(p, "was cancelled by ", "cannot be resumed")
	if after := s.records(s.topic + ".replay." + id); after != held {
		t.Errorf("a cancelled job's topic went from %d to %d records", held, after)
	}
	c := s.readJob(s.topic+".replay."+id, "replay")
	if c.twice() > 0 || c.wrong > 0 || c.records == 0 || c.records >= n-1 {
		t.Errorf("a cancelled job left %d records, %d twice, %d wrong", c.records, c.twice(), c.wrong)
	}
}

// TestE2EJobKeepsItsLimits: what a job was told to ask of the API at most, and
// in pages of what size, holds for the process that resumes it too.
func TestE2EJobKeepsItsLimits(t *testing.T) {
	t.Parallel()
	const n, page, perSecond = 800, 20, 10
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = strconv.Itoa(page)
	s.simulate()
	s.command(0, "topics", "create", "--execute")
	run := s.start("replay", "--from", s.timeOf(0), "--to", s.timeOf(n-1), "--windows", "4", "--parallel", "1",
		"--rate-limit", "10/s", "--execute")
	id := s.jobID(run)
	eventually(t, stepTimeout, "records", func() bool { return s.held(s.topic+".replay."+id) > 0 })
	run.signal(syscall.SIGTERM)
	run.wantExit(130, stepTimeout)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_RATE_LIMIT"] = "1000", "5000/s"
	p, _ := s.command(0, "replay", "--resume", id)
	s.wantSaid(p, "at most 10/s for all windows", "1 at a time", "20 events per page")
	p, _ = s.command(0, "backfill", "list")
	s.wantSaid(p, "limit 10/s")
	left := (n - s.jobs()[0].TotalEvents) / page
	_, took := s.command(0, "replay", "--resume", id, "--execute")
	if least := time.Duration(left-2) * time.Second / perSecond; took < least {
		t.Errorf("%d pages at %d/s took %s after a resume, want %s at least", left, perSecond, took, least)
	}
	s.readJob(s.topic+".replay."+id, "replay").wantWindow(0, s.firstAt(n-1))
}

// wantWindows starts a bridge, and wants its metrics to show the windows of all
// jobs, those that the last one still has before it in a state.
func (s *stage) wantWindows(state string) {
	s.t.Helper()
	all := s.jobs()
	want := map[string]float64{"running": 0, "interrupted": 0, "cancelled": 0, "done": 0}
	for _, one := range all {
		want["done"] += float64(one.WindowsDone)
	}
	last := all[len(all)-1]
	if want[state] = float64(len(last.Windows) - last.WindowsDone); want[state] == 0 {
		s.t.Errorf("all windows of job %s are done", last.ID)
	}
	run := s.run()
	eventually(s.t, stepTimeout, fmt.Sprintf("windows %v", want), func() bool {
		for state, n := range want {
			if s.metric("backfill_windows", fmt.Sprintf("state=%q", state)) != n {
				return false
			}
		}
		return true
	})
	run.stop()
}

// A backfill publishes what is before the stream, beside it, and nothing that is
// the stream's.
func TestE2EBackfill(t *testing.T) {
	t.Parallel()
	const n, rate = 4000, 50
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Rate: rate, Latency: 2 * time.Millisecond})
	seam := s.firstAt(n * 3 / 4)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_START"] = "50", s.timeOf(seam)
	s.simulate()
	run := s.run()
	s.awaitPublished(n - seam)
	bounds := func(from, to int, more ...string) []string {
		return append([]string{"backfill", "--here", "--from", s.timeOf(from), "--to", s.timeOf(to), "--windows", "6",
			"--parallel", "3"}, more...)
	}
	p, _ := s.command(1, bounds(0, seam+1, "--execute")...)
	s.wantSaid(p, "stream events exports events from ", "has published them up to ", "--allow-overlap")
	if len(s.jobs()) > 0 {
		t.Error("a backfill that was refused left a job")
	}
	p, _ = s.command(0, bounds(0, seam+1, "--allow-overlap")...)
	s.wantSaid(p, "it is published again", "dry run: nothing was changed")

	p, _ = s.command(0, bounds(0, seam, "--execute", "--json")...)
	done := s.jobOf(p)
	if done.TotalEvents != seam || done.WindowsDone != 6 || done.Topic != s.topic {
		t.Errorf("backfill says %+v, want %d events", done, seam)
	}
	p, _ = s.command(1, bounds(10, 20, "--execute")...)
	s.wantSaid(p, "backfill "+done.ID+" (done) covers ")
	s.awaitPublished(s.published() + rate)
	run.stop()
	s.finish()
	c := s.readJob(s.topic, "live", "backfill")
	c.wantWindow(0, len(c.copies))
	if c.origins["backfill"] != seam || len(c.copies) <= n || c.origins["live"] != len(c.copies)-seam {
		t.Errorf("the topic has %v of %d events, want %d of the backfill", c.origins, len(c.copies), seam)
	}

	s.command(0, bounds(0, 100, "--allow-overlap", "--execute")...)
	again := s.readJob(s.topic, "live", "backfill")
	if got, want := again.records-c.records, s.firstAt(100); got != want || again.twice() != want {
		t.Errorf("--allow-overlap published %d records, %d are twice; want %d", got, again.twice(), want)
	}
	t.Logf("e2e: backfill: %v beside live", c.origins)
}

// Brokers that are away for longer than a session are waited for.
func TestE2EJobOutage(t *testing.T) {
	t.Parallel()
	n := int(size(t, "E2E_EVENTS", 4000, 20_000))
	s := newStage(t, startServers(t, owned{kafka: true, quick: true}),
		exportsim.Config{Events: n, Latency: 20 * time.Millisecond})
	s.settings["EXPORT_PAGE_SIZE"] = strconv.Itoa(n / 100)
	s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	s.simulate()
	s.command(0, "topics", "create", "--execute")
	// So slow that it is there when the brokers go: 100 pages take seven seconds.
	run := s.start("replay", "--from", s.timeOf(0), "--to", s.timeOf(n-1), "--windows", "4", "--parallel", "2",
		"--rate-limit", "15/s", "--execute", "--json")
	topic := s.topic + ".replay." + s.jobID(run)
	eventually(t, stepTimeout, "records", func() bool { return s.held(topic) > 0 })
	up := s.servers.kafkaDown()
	passes(4 * shortSession)
	flowing := run.running()
	up()
	run.wantExit(0, 2*outageTimeout)
	if !flowing {
		t.Error("the job ended before the outage was over")
	}
	if last := s.jobOf(run); last.State != "done" || last.TotalEvents != s.firstAt(n-1) {
		t.Errorf("the job says %+v", last)
	}
	s.readJob(topic, "replay").wantWindow(0, s.firstAt(n-1))
}

// A backfill of a list in numbered pages, killed in the flow, publishes each event once, and
// verify counts them.
func TestE2EBackfillNumbered(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"audit-list-pages", "audit-list-skip"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, kills := int(size(t, "E2E_EVENTS", 3000, 30_000)), int(size(t, "E2E_KILLS", 3, 6))
			form, _ := exportsim.FormNamed(name)
			s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Form: form, Events: n,
				Latency: 10 * time.Millisecond})
			s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
			s.simulateForm(name, "--fail", "500=1%")
			s.settings["EXPORT_PAGE_SIZE"] = strconv.Itoa(max(20, n/200))
			s.settings["EXPORT_PREFETCH_PAGES"], s.settings["EXPORT_PREFETCH_BYTES"] = "2", "200KiB"
			s.settings["EXPORT_START"] = s.timeOf(n - 1)
			s.command(0, "topics", "create", "--execute")
			run := s.start("backfill", "--windows", "3", "--parallel", "2", "--execute", "--from", s.timeOf(0), "--to",
				s.timeOf(n-1))
			id, flowing := s.jobID(run), 0
			for range kills {
				target := s.held(s.topic) + n/(kills+3)
				eventually(t, stepTimeout, "records, or the end", func() bool {
					return s.held(s.topic) >= target && s.committed(s.topic) > 0 || !run.running()
				})
				if run.running() {
					flowing++
				}
				run.kill()
				run = s.start("backfill", "--resume", id, "--execute", "--json")
			}
			run.wantExit(0, outageTimeout)
			if last, want := s.jobOf(run), s.firstAt(n-1); last.TotalEvents != want || last.State != "done" {
				t.Errorf("the job says %+v, want %d events", last, want)
			}
			s.readJob(s.topic, "backfill").wantWindow(0, s.firstAt(n-1))
			found := s.verify(0, s.truth.EventTime(0), s.truth.EventTime(n-1))
			if want := s.firstAt(n - 1); found.API != want || found.Held != want || found.Missing+found.Extra > 0 {
				t.Errorf("verify says %+v, want %d events", found, want)
			}
			t.Logf("e2e: backfill, %s: %d events, %d kills, %d of them in the flow", name, n, kills, flowing)
		})
	}
}
