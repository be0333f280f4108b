//go:build unix

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EProofTimes measures how long a stream stands still when its process
// ends in one way or another. The times are shown and not judged.
func TestE2EProofTimes(t *testing.T) {
	t.Parallel()
	rounds := int(size(t, "E2E_ROUNDS", 1, 6))
	v := startServers(t, owned{quick: true})
	steady := func(t *testing.T) *stage {
		t.Helper()
		s := proofStage(t, v, exportsim.Config{Events: 1000, Rate: 200})
		s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
		s.simulate()
		return s
	}
	t.Run("restart", func(t *testing.T) { steady(t).timeRestarts(5 * rounds) })
	t.Run("take-over", func(t *testing.T) { steady(t).timeTakeOvers(rounds) })
	for _, static := range []bool{true, false} {
		t.Run(fmt.Sprint("hand-over,static=", static), func(t *testing.T) { steady(t).timeHandOvers(rounds, static) })
	}
}

func (s *stage) timeRestarts(rounds int) {
	s.t.Helper()
	var all []time.Duration
	run := s.run()
	for range rounds {
		run.awaitMore(0)
		run.kill()
		died := time.Now()
		run = s.run()
		run.awaitMore(0)
		all = append(all, time.Since(died))
	}
	run.stop()
	n, c := s.drain()
	s.t.Logf("e2e: proof, times: kill -9 and restart with the same instance id, to the first new event: %s; %d lost, %d twice",
		quantiles(all), c.lost(n), c.twice())
}

func (s *stage) timeTakeOvers(rounds int) {
	s.t.Helper()
	var all []time.Duration
	first := s.bridgeNamed("")
	first.awaitMore(0)
	holder, other, _ := s.settle(first, s.bridgeNamed(""))
	for range rounds {
		holder.awaitMore(holder.published())
		had := other.published()
		holder.kill()
		died := time.Now()
		other.awaitMore(had)
		all = append(all, time.Since(died))
		holder, other, _ = s.settle(other, s.bridgeNamed(""))
	}
	holder.stop()
	other.stop()
	n, c := s.drain()
	s.t.Logf("e2e: proof, times: take-over by another process after kill -9, session time-out %s: %s; %d lost, %d twice",
		shortSession, quantiles(all), c.lost(n), c.twice())
}

// timeHandOvers stops and starts two bridges in turn, as a rolling update does.
func (s *stage) timeHandOvers(rounds int, static bool) {
	s.t.Helper()
	names := map[bool][]string{true: {"a", "b"}, false: {"", ""}}[static]
	pair := []*program{s.bridgeNamed(names[0]), nil}
	pair[0].awaitMore(0)
	pair[1] = s.bridgeNamed(names[1])
	s.settle(pair[0], pair[1])
	w := s.watch()
	var stops, starts []time.Duration
	for i := range 2 * rounds {
		old := i % 2
		left := pair[1-old]
		held := !pair[old].inState("standby")
		began := time.Now()
		pair[old].stop()
		eventually(s.t, outageTimeout, "the other one to run the stream", func() bool { return left.inState("running") || left.inState("idle") })
		left.awaitMore(left.published())
		joined := time.Now()
		if held { // else it stopped nothing
			stops = append(stops, w.gap(began, joined))
		}
		pair[old] = s.bridgeNamed(names[old])
		s.settle(pair[old], left)
		// Kafka may give the stream to the other one at any time.
		before := pair[old].published() + left.published()
		eventually(s.t, outageTimeout, "one of the two to publish", func() bool { return pair[old].published()+left.published() > before })
		starts = append(starts, w.gap(joined, time.Now()))
	}
	pair[0].stop()
	pair[1].stop()
	n, c := s.drain()
	s.t.Logf("e2e: proof, times: rolling update, static ids %t, longest gap at a SIGTERM of the owner: %s; at the start of another: %s; %d lost, %d twice",
		static, quantiles(stops), quantiles(starts), c.lost(n), c.twice())
}
