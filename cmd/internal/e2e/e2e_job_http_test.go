//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// httpJob is what the HTTP server says of a job, planned or begun.
type httpJob struct {
	ID, State, Process string
	Windows, Done      int
	Events             int
	Progress           float64
	PlanHash           string  `json:"plan_hash"`
	RateLimit          float64 `json:"rate_limit"`
	Notes              []string
	Trouble            string
}

// httpJob returns a job as the HTTP server lists it.
func (s *stage) httpJob(id string) httpJob {
	s.t.Helper()
	var all struct{ Jobs []httpJob }
	if code, answer := s.ask("/jobs", "", "", &all); code != 200 {
		s.t.Fatalf("jobs: %d %s", code, answer)
	}
	i := slices.IndexFunc(all.Jobs, func(j httpJob) bool { return j.ID == id })
	if i < 0 {
		s.t.Fatalf("job %s is not in %+v", id, all.Jobs)
	}
	return all.Jobs[i]
}

// startJob plans a job over HTTP, and starts it.
func (s *stage) startJob(kind string, from, to int, more string) (id string) {
	s.t.Helper()
	body := func(more string) string {
		return fmt.Sprintf(`{"stream":"events","kind":%q,"from":%q,"to":%q,"reason":"the vendor restored it"%s}`, kind,
			s.timeOf(from), s.timeOf(to), more)
	}
	var plan, begun httpJob
	if code, answer := s.ask("/jobs", adminToken, body(more), &plan); code != 200 || plan.State != "planned" {
		s.t.Fatalf("plan: %d %s", code, answer)
	}
	if code, answer := s.ask("/jobs", adminToken,
		body(more+fmt.Sprintf(`,"execute":true,"confirm":"events","id":%q,"plan_hash":%q`, plan.ID, plan.PlanHash)),
		&begun); code != 200 || begun.ID != plan.ID || begun.State != "running" {
		s.t.Fatalf("start: %d %s", code, answer)
	}
	return begun.ID
}

func (s *stage) awaitJob(id, state string) httpJob {
	s.t.Helper()
	var j httpJob
	eventually(s.t, stepTimeout, "job "+id+" "+state, func() bool {
		j = s.httpJob(id)
		return j.State == state
	})
	return j
}

// Jobs that are begun over HTTP run in the bridge's process, beside the stream: to
// their end, until somebody cancels them, or until the process ends, after which another
// one resumes them. Each event is published once.
func TestE2EJobsOverHTTP(t *testing.T) {
	t.Parallel()
	const n = 3000
	s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: n, Latency: 2 * time.Millisecond})
	seam := s.firstAt(n * 2 / 3)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_START"] = "20", s.timeOf(seam)
	s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	s.lock()
	s.simulate()
	run := s.run()
	s.awaitState("idle")

	if code, answer := s.ask("/jobs", "", `{"reason":"why"}`, nil); code != 401 {
		t.Errorf("without the token: %d %s", code, answer)
	}
	overlap := fmt.Sprintf(`{"stream":"events","kind":"backfill","from":%q,"to":%q,"reason":"why"}`, s.timeOf(0),
		s.timeOf(seam+1))
	if code, answer := s.ask("/jobs", adminToken, overlap, nil); code != 409 ||
		!bytes.Contains(answer, []byte("allow_overlap")) {
		t.Errorf("what the stream publishes: %d %s", code, answer)
	}
	if all := s.jobs(); len(all) > 0 {
		t.Errorf("a plan left %+v", all)
	}

	// To the end, beside the stream.
	half := s.firstAt(n / 3)
	id := s.startJob("backfill", 0, half, `,"windows":5,"parallel":4`)
	done := s.awaitJob(id, "done")
	if done.Events != half || done.Done != 5 || done.Progress != 1 {
		t.Errorf("the job says %+v, want %d events", done, half)
	}
	if own := s.jobs(); len(own) != 1 || own[0].ID != id || own[0].TotalEvents != half || own[0].State != "done" {
		t.Errorf("the command lists %+v", own)
	}

	// Cancelled; so slow that it is there when it is cancelled.
	slow := `,"windows":4,"parallel":2,"rate_limit":8`
	id = s.startJob("replay", 0, n-1, slow)
	topic := s.topic + ".replay." + id
	eventually(t, stepTimeout, "records", func() bool { return s.committed(topic) > 0 })
	if j := s.httpJob(id); j.State != "running" || j.Process == "" || j.RateLimit != 8 {
		t.Errorf("a running job is listed as %+v", j)
	}
	if code, answer := s.ask("/jobs/"+id+"/cancel", adminToken, `{"reason":"wrong month","execute":true}`,
		nil); code != 200 {
		t.Fatalf("cancel: %d %s", code, answer)
	}
	eventually(t, stepTimeout, "the log of the cancellation",
		func() bool { return bytes.Contains(run.stderr(), []byte(`"msg":"job cancelled"`)) })
	held := s.records(topic)
	if c := s.readJob(topic, "replay"); c.twice() > 0 || c.wrong > 0 || c.records == 0 || c.records >= n-1 {
		t.Errorf("a cancelled job left %d records, %d twice, %d wrong", c.records, c.twice(), c.wrong)
	}
	if code, answer := s.ask("/jobs/"+id+"/resume", adminToken, `{"reason":"why","execute":true}`, nil); code != 409 {
		t.Errorf("a cancelled job is resumed: %d %s", code, answer)
	}

	// The process is killed: the command goes on.
	id = s.startJob("backfill", half, seam, slow)
	eventually(t, stepTimeout, "events", func() bool { return s.httpJob(id).Events > 0 })
	run.kill()
	before := s.jobs()
	if last := before[len(before)-1]; last.ID != id || last.State != "running" || last.TotalEvents >= seam-half {
		t.Errorf("the command lists %+v of a job that was killed", last)
	}
	p, _ := s.command(0, "backfill", "--here", "--resume", id, "--rate-limit", "1000/s", "--execute", "--json")
	if last := s.jobOf(p); last.State != "done" || last.TotalEvents != seam-half {
		t.Errorf("the command says %+v, want %d events", last, seam-half)
	}

	// The process ends: the next one goes on, asked over HTTP.
	run = s.run()
	s.awaitState("idle")
	id = s.startJob("replay", 0, half, slow)
	topic2 := s.topic + ".replay." + id
	eventually(t, stepTimeout, "records", func() bool { return s.committed(topic2) > 0 })
	run.stop()
	s.wantSaid(run, `"msg":"job interrupted"`, "exportbridge replay --resume "+id+" --execute")
	run = s.run()
	s.awaitState("idle")
	if j := s.httpJob(id); j.State != "interrupted" || j.Process != "" {
		t.Errorf("an interrupted job is listed as %+v", j)
	}
	if code, answer := s.ask("/jobs/"+id+"/resume", adminToken, `{"reason":"after the upgrade","execute":true}`,
		nil); code != 200 {
		t.Fatalf("resume: %d %s", code, answer)
	}
	if j := s.awaitJob(id, "done"); j.Events != half {
		t.Errorf("the job says %+v, want %d events", j, half)
	}
	run.stop()

	s.readJob(topic2, "replay").wantWindow(0, half)
	c := s.readJob(s.topic, "live", "backfill")
	c.wantWindow(0, n)
	if c.origins["backfill"] != seam || c.origins["live"] != n-seam {
		t.Errorf("the topic has %v, want %s of the backfills", c.origins, strconv.Itoa(seam))
	}
	if after := s.records(topic); after != held {
		t.Errorf("a cancelled job's topic went from %d to %d records", held, after)
	}
}

// A process whose jobs wait for Kafka ends in time, and another one resumes them.
func TestE2EJobsEndWithoutKafka(t *testing.T) {
	t.Parallel()
	const n, grace = 1500, 15 * time.Second
	kafka, proxy := proxied(t)
	s := newStage(t, kafka, exportsim.Config{Events: n, Latency: 2 * time.Millisecond})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_START"] = "20", s.timeOf(n-1)
	s.settings["BRIDGE_SHUTDOWN_TIMEOUT"], s.settings["KAFKA_TRANSACTION_TIMEOUT"] = grace.String(), "10s"
	s.lock()
	s.simulate()
	run := s.run()
	s.awaitState("idle")
	id := s.startJob("replay", 0, n-1, `,"windows":30,"parallel":4`) // whose ends are most of the work
	eventually(t, stepTimeout, "windows", func() bool { return s.httpJob(id).Done > 4 })
	proxy.Blackhole(true)
	passes(2 * time.Second)
	took := run.stop()
	if took > grace+stopMargin+loaded {
		t.Errorf("without Kafka, SIGTERM took %s, want at most BRIDGE_SHUTDOWN_TIMEOUT, %s", took, grace)
	}
	s.wantSaid(run, `"msg":"job interrupted"`)
	proxy.Blackhole(false)
	p, _ := s.command(0, "replay", "--here", "--resume", id, "--execute", "--json")
	if last := s.jobOf(p); last.State != "done" || last.TotalEvents != n-1 {
		t.Errorf("the command says %+v, want %d events", last, n-1)
	}
	s.readJob(s.topic+".replay."+id, "replay").wantWindow(0, n-1)
	t.Logf("e2e: without Kafka: SIGTERM ended a process with a job in %s", took.Round(time.Millisecond))
}

// A stream and the jobs beside it stay together below EXPORT_RATE_LIMIT.
func TestE2EJobsShareTheRateLimit(t *testing.T) {
	t.Parallel()
	const n = 100_000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_RATE_LIMIT"] = "20", "20/s"
	s.lock()
	s.simulate("--rate-limit", "30/s")
	run := s.run()
	s.awaitState("running")
	var ids []string
	for range 4 {
		ids = append(ids, s.startJob("replay", 0, n/2, `,"windows":1`))
	}
	busy := s.published() + 60*20
	eventually(t, stepTimeout, "the stream beside its jobs", func() bool { return s.published() > busy })
	events := 0
	for _, id := range ids {
		j := s.httpJob(id)
		events += j.Events
		if j.State != "running" || j.Trouble != "" || j.Events == 0 {
			t.Errorf("job %s is %s with %d events: %s", id, j.State, j.Events, j.Trouble)
		}
	}
	if throttled := s.metric("source_requests_total", `code="429"`); throttled > 0 || events > busy*3/2 {
		t.Errorf("%.0f requests of the stream were throttled; its jobs read %d events", throttled, events)
	}
	run.stop()
}
