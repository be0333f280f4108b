//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkarecord"
)

// wantJoined wants the events up to n once each in the topic that routedTo names, those of
// the first up to seam of a backfill, and nothing else. It returns how many of the first a
// route drops.
func (s *stage) wantJoined(seam, n int) (dropped int) {
	s.t.Helper()
	copies := make(map[string][]string) // the origins by the topic and the id of the event
	for _, suffix := range []string{"", ".pages", ".orders", ".changes"} {
		s.eachRecord(s.topic+suffix, func(r *kgo.Record) {
			at := r.Topic + " " + deadletter.Header(r, kafkarecord.HeaderID)
			copies[at] = append(copies[at], deadletter.Header(r, kafkarecord.HeaderOrigin))
		})
	}
	wrong := 0
	for i := range n {
		topic, origin := routedTo(s.topic, typeOf(s.t, s.truth.Event(i))), "live"
		if i < seam {
			origin = "backfill"
		}
		if topic == "" {
			if i < seam {
				dropped++
			}
			continue
		}
		at := topic + " " + exportsim.EventID(s.config.Seed, i)
		if got := copies[at]; len(got) != 1 || got[0] != origin {
			if wrong++; wrong < 4 {
				s.t.Errorf("event %d is in %s from %v, want it once from %s", i, topic, got, origin)
			}
		}
		delete(copies, at)
	}
	if len(copies) > 0 || wrong > 0 {
		s.t.Errorf("%d of %d events are wrong, %d are in other topics", wrong, n, len(copies))
	}
	return dropped
}

// TestE2ERoutesBackfill kills a backfill of a stream with routes and resumes it under other
// routes: each event is once in the topic that its plan says.
func TestE2ERoutesBackfill(t *testing.T) {
	t.Parallel()
	const n, seam = 3000, 2000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["KAFKA_ROUTES"] = "20", s.testRoutes()
	s.settings["EXPORT_START"] = s.timeOf(seam)
	s.simulate()
	s.finish()
	plan := []string{"backfill", "--from", s.timeOf(0), "--to", s.timeOf(seam), "--windows", "4"}
	p, _ := s.command(0, plan...)
	s.wantSaid(p, s.topic+", "+s.topic+".pages, "+s.topic+".orders, "+s.topic+".changes")
	had := s.committed(s.topic + ".pages")
	job := s.start(append(plan, "--rate-limit", "20/s", "--execute")...)
	id := s.jobID(job)
	eventually(t, outageTimeout, "events of the job", func() bool { return s.committed(s.topic+".pages") > had })
	job.kill()
	s.settings["KAFKA_ROUTES"] = strings.ReplaceAll("*=T.changes", "T", s.topic)
	p, _ = s.command(0, "backfill", "--resume", id, "--rate-limit", "1000/s", "--execute", "--json")
	var done struct {
		State   string
		Dropped int `json:"total_dropped_by_route"`
	}
	decode(t, p.stdout(), &done)
	if dropped := s.wantJoined(seam, n); done.State != "done" || done.Dropped != dropped || dropped == 0 {
		t.Errorf("the job says %+v, want %d dropped", done, dropped)
	}

	s.settings["KAFKA_ROUTES"] = s.testRoutes()
	job = s.start(append(plan, "--allow-overlap", "--rate-limit", "2/s", "--execute")...)
	id = s.jobID(job)
	job.kill()
	s.deleteTopic(s.topic + ".orders")
	must.Get(s.admin().CreateTopic(t.Context(), 3, 1, nil, s.topic+".orders"))(t)
	p, _ = s.command(5, "backfill", "--resume", id, "--rate-limit", "1000/s", "--execute")
	s.wantSaid(p, "topic "+s.topic+".orders was deleted and recreated", "backfill cancel "+id)
	if held := s.records(s.topic + ".orders"); held > 0 {
		t.Errorf("%d records are in the new topic", held)
	}
	s.command(0, "backfill", "cancel", id, "--execute")
}

// TestE2ERoutesLanes kills one of two processes that run a backfill in lanes: each event is once in
// the topic of its route.
func TestE2ERoutesLanes(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: n})
	seam := s.firstAt(n - 200)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["KAFKA_ROUTES"] = "20", s.testRoutes()
	s.settings["EXPORT_START"] = s.timeOf(seam)
	s.settings["BRIDGE_OWNERSHIP"], s.settings["BRIDGE_SESSION_TIMEOUT"] = "group", manySession.String()
	s.simulate()
	killed, other := s.bridgeNamed("a"), s.bridgeNamed("b")
	eventually(t, outageTimeout, "an owner", func() bool { return s.committed(s.topic+".pages") > 0 })
	p, _ := s.command(0, "backfill", "--from", s.timeOf(0), "--to", s.timeOf(seam), "--windows", "8", "--parallel", "4",
		"--rate-limit", "5/s", "--execute")
	s.wantSaid(p, "handed over to ", "in 4 lanes")
	had := s.committed(s.topic + ".pages")
	watch := s.start("backfill", "watch", s.jobs()[0].ID)
	eventually(t, outageTimeout, "events of the job", func() bool { return s.committed(s.topic+".pages") > had })
	killed.kill()
	watch.wantExit(0, 2*outageTimeout)
	s.wantSaid(watch, "done: 8 of 8 windows")
	eventually(t, outageTimeout, "the events of the stream", func() bool { return int(s.checkpoint().Events) == n-seam })
	other.stop()
	if s.wantJoined(seam, n) == 0 {
		t.Error("no event of the job is dropped")
	}
}
