//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// The proof: the program is killed, paused and cut off in every way that there
// is, and the oracle finds every event once. Longer runs are:
//
//	TEST_REAL=1 E2E_KILLS=1000 go test -run TestE2EProofCrashes -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_KILLS=1000 E2E_CHAOS=1 go test -run TestE2EProofChaos -timeout 2h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_KILLS=1000 go test -run TestE2EProofWindows -timeout 2h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_KILLS=200 go test -run TestE2EProofLate -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_KILLS=200 go test -run TestE2EProofRoutes -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_ZOMBIES=30 go test -run TestE2EProofZombies -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_ZOMBIES=10 go test -run TestE2EProofPair -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_UPGRADE=100 go test -run TestE2EProofUpgrade -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_STREAMS=50 E2E_KILLS=200 E2E_UPGRADE_FROM=f54da5f2 \
//	go test -run TestE2EProofFleet -timeout 3h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_ROUNDS=300 go test -run TestE2EProofProxy -timeout 1h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_MINUTES=10 go test -run TestE2EProofCluster -timeout 1h -v ./cmd/internal/e2e
//	E2E_MINUTES=10 go test -run TestE2EProofRest -timeout 1h -v ./cmd/internal/e2e
//
// E2E_SEED repeats the choices of a run.

// proofStage is a stage in exactly-once mode whose program has the crash points, with
// an export that keeps growing.
func proofStage(t *testing.T, v *backends, config exportsim.Config) *stage {
	t.Helper()
	return proofStageOf(t, buildProof, v, config)
}

func proofStageOf(t *testing.T, build func() (string, error), v *backends, config exportsim.Config) *stage {
	t.Helper()
	s := stageOf(t, build, v, config)
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "50ms", "50ms"
	s.settings["EXPORT_RETRY_MAX_INTERVAL"] = "1s"
	return s
}

// seedOf returns the seed of a test's choices.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	return uint64(size(t, "E2E_SEED", float64(rand.Uint32()), float64(rand.Uint32())))
}

// deaths kills the bridge of a stage again and again.
type deaths struct {
	s      *stage
	random *rand.Rand
	points []string // that are reached
	deck   []string // the points that come before one comes again
	turn   int      // odd before a death at a point
	// burst is about how many events a bridge may publish before it dies.
	burst    int
	most     int            // how often a point is reached before it is deadly
	ways     map[string]int // how often it died how
	restarts []time.Duration
	died     time.Time // the last time
}

func newDeaths(s *stage, seed uint64, burst int) *deaths {
	random := rand.New(rand.NewPCG(seed, 1))
	return &deaths{s: s, random: random, points: points, turn: random.IntN(2), burst: burst, most: 6,
		ways: make(map[string]int)}
}

// one starts a bridge and has it die: each other time at the next of the points, else
// at some moment, which may be during its start, or after some events.
func (d *deaths) one() {
	d.s.t.Helper()
	d.turn++
	switch {
	case d.turn%2 == 0:
		if len(d.deck) == 0 {
			d.deck = slices.Clone(d.points)
			d.random.Shuffle(len(d.deck), func(a, b int) { d.deck[a], d.deck[b] = d.deck[b], d.deck[a] })
		}
		p := d.deck[0]
		d.deck = d.deck[1:]
		d.atPoint(p)
	case d.random.IntN(5) < 3:
		d.after(time.Duration(d.random.Int64N(int64(400 * time.Millisecond))))
	default:
		d.afterEvents(1 + d.random.IntN(d.burst))
	}
	d.died = time.Now()
}

// pick returns one of several.
func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// nthOf names a point and how often it is to be reached first, at most so often.
func nthOf(random *rand.Rand, p string, most int) string {
	if p == pointInit || p == pointBarrier { // once a session
		most = 1
	}
	return fmt.Sprintf("%s:%d", p, 1+random.IntN(most))
}

func (d *deaths) atPoint(p string) {
	d.s.t.Helper()
	d.ways[p]++
	d.s.settings["PROOF_CRASH"] = nthOf(d.random, p, d.most)
	defer delete(d.s.settings, "PROOF_CRASH")
	run := d.s.run()
	d.restarted(run)
	if code := run.wait(outageTimeout); code != -1 {
		d.s.t.Fatalf("%s ended with exit code %d, want SIGKILL at %s\n%s", run.name, code, p, tail(run.stderr()))
	}
}

func (d *deaths) after(delay time.Duration) {
	d.s.t.Helper()
	d.ways["some moment"]++
	run := d.s.run()
	passes(delay)
	d.end(run)
}

func (d *deaths) afterEvents(events int) {
	d.s.t.Helper()
	d.ways["some events"]++
	run := d.s.run()
	d.restarted(run)
	d.awaitEvents(run, events)
	passes(time.Duration(d.random.Int64N(int64(pollInterval))))
	d.end(run)
}

func (d *deaths) awaitEvents(run *program, events int) {
	d.s.t.Helper()
	eventually(d.s.t, outageTimeout, fmt.Sprintf("%d events", events),
		func() bool { return run.published() >= events || !run.running() })
}

// restarted measures how long the stream stood still since the last death.
func (d *deaths) restarted(run *program) {
	d.s.t.Helper()
	if d.died.IsZero() {
		return
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for run.published() == 0 {
		if !run.running() || time.Since(d.died) > outageTimeout {
			return // it died before
		}
		<-tick.C
	}
	d.restarts = append(d.restarts, time.Since(d.died))
}

func (d *deaths) end(run *program) {
	d.s.t.Helper()
	if !run.running() {
		d.s.t.Fatalf("%s ended by itself\n%s", run.name, tail(run.stderr()))
	}
	run.kill()
}

// quantiles describes durations: how many, the middle, nearly all, the longest.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(share float64) time.Duration {
		return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(0.5), at(0.99), at(1), len(all))
}

// plainPoints are those that are reached at least once.
var plainPoints = []string{pointInit, pointBarrier, pointFetched, pointProduced, pointAcked}

func TestE2EProofCrashes(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 24, 40)), seedOf(t) // 40: each end dies at each point
	v := startServers(t, owned{})
	all := []delivery{
		{bridge.ExactlyOnce, exportsim.EmptyCursor}, {bridge.ExactlyOnce, exportsim.EmptyItems},
		{bridge.AtLeastOnce, exportsim.EmptyCursor},
	}
	each(t, servers.Real(t), all, func(t *testing.T, to delivery) {
		const burst = 1500
		kills := (kills + 1) / 2
		if to.mode == bridge.AtLeastOnce {
			kills = (kills + 1) / 2 // of five points
		}
		s := proofStage(t, v, exportsim.Config{Events: kills * burst / 3, Rate: 200, EndOfResults: to.end,
			Latency: 2 * time.Millisecond})
		s.deliver(to.mode)
		s.simulate()
		began, d := time.Now(), newDeaths(s, seed+uint64(slices.Index(all, to)), burst)
		if to.mode == bridge.AtLeastOnce {
			d.points = plainPoints
		}
		for range kills {
			d.one()
		}
		took := time.Since(began)
		n, c := s.drain()
		t.Logf("e2e: proof, crashes: %s, %d kills in %.1f s (%s), %d events: %d lost, %d twice; restart to first new "+
			"event: %s, E2E_SEED=%d",
			to, kills, took.Seconds(), ways(d.ways), n, c.lost(n), c.twice(), quantiles(d.restarts), seed)
		if copies := s.copies(kills * 8 * 100); c.twice() > copies {
			t.Errorf("%d records are copies, at most %d were in flight", c.twice(), copies)
		}
	})
}

func ways(all map[string]int) string {
	var text []string
	for _, p := range append(slices.Clone(points), "some moment", "some events") {
		if n := all[p]; n > 0 {
			text = append(text, fmt.Sprint(p, " ", strconv.Itoa(n)))
		}
	}
	return fmt.Sprint(text)
}

// drain runs the bridge until the export has nothing more, and audits all
// events up to there. Copies are an error in exactly-once mode only.
func (s *stage) drain() (n int, c *contents) {
	s.t.Helper()
	least := s.stock(0)
	s.finish()
	n = int(s.checkpoint().Events)
	if n < least {
		s.t.Errorf("%d events are committed, the export had %d before", n, least)
	}
	if s.settings["KAFKA_DELIVERY"] == string(bridge.ExactlyOnce) {
		return n, s.audit(n)
	}
	c, _ = s.auditModes(s.t.Errorf)
	c.wantAll(n, c.twice())
	return n, c
}
