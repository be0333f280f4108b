//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EProofLanes hands a backfill over to three processes, of which E2E_KILLS end in every
// way while they run its lanes. Each event is published once.
func TestE2EProofLanes(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 2, 6)), seedOf(t)
	n := 2000 + 300*kills
	s := proofStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: n})
	seam := s.firstAt(n - 200)
	s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_START"] = "20", s.timeOf(seam)
	s.settings["BRIDGE_SESSION_TIMEOUT"] = manySession.String()
	s.only(privacy{drop: "/context", hash: "/userId,/payload/session/userId", mask: "/sessionId:last4", keys: 1})
	s.simulate()
	c := newCrowd(s, []string{"events"}, seed, "killed", "killed", "stopped")
	eventually(t, outageTimeout, "the stream to be published", func() bool { return s.committed(s.topic) >= n-seam })
	p, _ := s.command(0, "backfill", "--from", s.timeOf(0), "--to", s.timeOf(seam), "--windows", "12", "--parallel", "6",
		"--rate-limit", "5/s", "--execute") // it lasts longer than the turns
	s.wantSaid(p, "handed over to 3 processes", "in 6 lanes")
	id := s.jobs()[0].ID
	watch := s.start("backfill", "watch", id)
	c.reached = 10
	for range kills {
		had := s.committed(s.topic + ".checkpoints.jobs")
		eventually(t, 2*outageTimeout, "the lanes to run", func() bool {
			c.restart()
			return s.committed(s.topic+".checkpoints.jobs") > had
		})
		c.one()
	}
	eventually(t, outageTimeout, "the command to see lanes", func() bool {
		c.restart()
		return strings.Contains(string(watch.stderr()), " runs lane")
	})
	p, _ = s.command(0, "backfill", "pause", id, "--reason", "a test", "--execute")
	s.wantSaid(p, "paused with", "backfill resume "+id)
	watch.wantExit(1, outageTimeout)
	s.wantSaid(watch, "the job was paused by ")
	c.stop()
	passes(2 * manySession) // killed processes and static members leave the group
	p, _ = s.command(0, "backfill", "resume", id, "--rate-limit", "50/s", "--execute")
	s.wantSaid(p, "the job keeps its lanes without --here", "in 6 lanes", "handed over.")
	watch = s.start("backfill", "watch", id)
	for i := range c.slots {
		c.start(i)
	}
	eventually(t, 2*outageTimeout, "the job to be done", func() bool { c.restart(); return !watch.running() })
	watch.wantExit(0, stepTimeout)
	s.wantSaid(watch, "done: 12 of 12 windows")
	c.stop()
	all := s.readJob(s.topic, "live", "backfill")
	all.wantWindow(0, n)
	s.private.wantAll()
	s.wantHidden(n)
	if all.origins["backfill"] != seam {
		t.Errorf("the topic has %v, want %d of the backfill", all.origins, seam)
	}
	t.Logf("e2e: proof, lanes: 6 in three processes, %d turns (%v), %d events, E2E_SEED=%d", kills, c.ways, n, seed)
}
