//go:build unix

package e2e_test

import (
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EProofLanes hands a backfill over to three processes, of which E2E_KILLS end in every
// way while they run its lanes. Each event is published once.
func TestE2EProofLanes(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 2, 10)), seedOf(t)
	n := 2000 + 300*kills
	s := proofStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: n})
	seam := s.firstAt(n - 200)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_START"] = "20", s.timeOf(seam)
	s.settings["BRIDGE_OWNERSHIP"], s.settings["BRIDGE_SESSION_TIMEOUT"] = "group", shortSession.String()
	s.simulate()
	l := &laneCrew{s: s, random: rand.New(rand.NewPCG(seed, 7))}
	for i := range l.runs {
		l.start(i)
	}
	eventually(t, outageTimeout, "the stream to be published", func() bool { return s.committed(s.topic) >= n-seam })
	p, _ := s.command(0, "backfill", "--from", s.timeOf(0), "--to", s.timeOf(seam), "--windows", "12", "--parallel", "6",
		"--rate-limit", "50/s", "--execute")
	s.wantSaid(p, "handed over to 3 processes", "in 6 lanes")
	id := s.jobs()[0].ID
	for range kills {
		had := s.committed(s.topic + ".checkpoints.jobs")
		eventually(t, 2*outageTimeout, "the lanes to run", func() bool {
			l.restart()
			return s.committed(s.topic+".checkpoints.jobs") > had
		})
		l.one()
	}
	p, _ = s.command(0, "backfill", "pause", id, "--reason", "a test", "--execute")
	s.wantSaid(p, "paused with", "backfill resume "+id)
	p, _ = s.command(1, "backfill", "watch", id)
	s.wantSaid(p, "the job was paused by ")
	s.wantSaid(l.resume(id), "handed over to")
	watch := s.start("backfill", "watch", id)
	eventually(t, 2*outageTimeout, "the job to be done", func() bool { l.restart(); return !watch.running() })
	watch.wantExit(0, stepTimeout)
	s.wantSaid(watch, " runs lane", "done: 12 of 12 windows")
	l.stop()
	c := s.readJob(s.topic, "live", "backfill")
	c.wantWindow(0, n)
	if c.origins["backfill"] != seam {
		t.Errorf("the topic has %v, want %d of the backfill", c.origins, seam)
	}
	t.Logf("e2e: proof, lanes: 6 in three processes, %d turns (%s), %d events, E2E_SEED=%d", kills, strings.Join(l.ways, ", "),
		n, seed)
}

// resume resumes a job. It tries again while the group is rebalancing, which hides the processes.
func (l *laneCrew) resume(id string) (p *program) {
	l.s.t.Helper()
	eventually(l.s.t, 2*outageTimeout, "the group to be stable", func() bool {
		l.restart()
		p = l.s.start("backfill", "resume", id, "--execute")
		code, said := p.wait(outageTimeout), string(p.stderr())
		if code != 0 && !strings.Contains(said, "is rebalancing") {
			l.s.t.Fatalf("%s ended with exit code %d\n%s", p.name, code, said)
		}
		return code == 0
	})
	return p
}

// laneCrew is the processes of a fleet, which come and go.
type laneCrew struct {
	s      *stage
	random *rand.Rand
	runs   [3]*program
	ways   []string
	deadly [3]bool // the process is to die at some point of the protocol
}

func (l *laneCrew) start(i int) {
	l.s.t.Helper()
	was := maps.Clone(l.s.settings)
	defer func() { l.s.settings = was }()
	if l.deadly[i] = len(l.ways) > 0 && l.random.IntN(3) == 0; l.deadly[i] {
		l.s.settings["PROOF_CRASH"] = nthOf(l.random, pick(l.random, points), 10)
	}
	l.runs[i] = l.s.bridgeNamed("")
}

// one has one of the processes end and start.
func (l *laneCrew) one() {
	l.s.t.Helper()
	passes(time.Duration(l.random.Int64N(int64(300 * time.Millisecond))))
	i := l.random.IntN(len(l.runs))
	by := pick(l.random, []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM})
	l.runs[i].end(by, l.deadly[i])
	l.ways = append(l.ways, by.String())
	l.start(i)
	l.restart()
}

// restart starts processes again that have died at a point.
func (l *laneCrew) restart() {
	l.s.t.Helper()
	for i, run := range l.runs {
		if l.deadly[i] && !run.running() {
			l.ways = append(l.ways, "at a point")
			l.deadly[i] = false
			l.runs[i] = l.s.bridgeNamed("")
		}
	}
}

func (l *laneCrew) stop() {
	l.s.t.Helper()
	for i := range l.runs {
		l.runs[i].end(syscall.SIGTERM, l.deadly[i])
	}
}
