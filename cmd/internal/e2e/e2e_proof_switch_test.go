//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EProofSwitch changes the guarantee of a stream and back.
func TestE2EProofSwitch(t *testing.T) {
	t.Parallel()
	s := proofStage(t, startServers(t, owned{}), exportsim.Config{Events: 6000, Rate: 100, Latency: 5 * time.Millisecond})
	s.simulate()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce, bridge.ExactlyOnce, bridge.AtLeastOnce} {
		s.deliver(mode)
		run := s.run()
		run.awaitMore(1000)
		run.stop()
		if c := s.checkpoint(); c.Mode != mode {
			t.Errorf("the checkpoint says %s, want %s", c.Mode, mode)
		}
	}
	s.deliver(bridge.ExactlyOnce)
	s.finish()
	c, l := s.auditModes(t.Errorf)
	n := int(s.checkpoint().Events)
	c.wantAll(n, 0)
	t.Logf("e2e: proof, switch: both modes in turn, each stopped in order: %d events, %d of "+
		"them in at-least-once mode, epoch %d: %d lost, %d twice",
		n, l.foreign, s.checkpoint().Epoch, c.lost(n), c.twice())

	// A kill in at-least-once mode repeats what came after the last commit, once, and nothing else.
	s.deliver(bridge.AtLeastOnce)
	run := s.run()
	run.awaitMore(0)
	run.kill()
	committed := int(s.checkpoint().Events)
	s.deliver(bridge.ExactlyOnce)
	s.finish()
	c, _ = s.auditModes(t.Errorf)
	n = int(s.checkpoint().Events)
	c.wantAll(n, n-committed)
	for i, copies := range c.copies {
		if copies > 2 || copies == 2 && i < committed {
			t.Fatalf("event %d, %d were committed before the kill: %d times in the topic", i, committed, copies)
		}
	}
	t.Logf("e2e: proof, switch: killed in at-least-once, then in exactly-once mode: %d events, %d lost, %d twice",
		n, c.lost(n), c.twice())
}
