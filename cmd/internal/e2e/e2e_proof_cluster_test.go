//go:build unix

package e2e_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

const (
	// faultEvery is how far apart the faults of a cluster begin.
	faultEvery = 30 * time.Second
	// deadFor is how long a killed broker is away, pausedFor how long a paused
	// one is: longer than any client waits for it.
	deadFor   = 10 * time.Second
	pausedFor = 20 * time.Second
)

// TestE2EProofCluster kills, pauses and restarts one of three brokers after
// the other, and moves leaders.
func TestE2EProofCluster(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) || os.Getenv("E2E_MINUTES") == "" {
		t.Skip("it takes minutes: run with TEST_REAL=1 E2E_MINUTES=10")
	}
	length := time.Duration(size(t, "E2E_MINUTES", 0, 0) * float64(time.Minute))
	seed := seedOf(t)
	k := servers.StartKafka(t, servers.KafkaOptions{Own: true, Brokers: 3})
	r := servers.StartRedis(t, servers.RedisOptions{Own: true})
	v := &backends{brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL(), kafka: k, redis: r}
	s := proofStage(t, v, exportsim.Config{Events: 5000, Rate: 200})
	s.settings["KAFKA_REPLICATION"] = "3"
	s.simulate()
	random := rand.New(rand.NewPCG(seed, 4))
	run := s.run()
	run.awaitMore(0)
	w := s.watch()
	gaps := make(map[string][]time.Duration)
	began := time.Now()
	for n := 0; time.Since(began) < length; n++ {
		at := time.Now()
		what := s.breakBroker(random.IntN(3), n)
		run.awaitMore(run.published())
		passes(time.Until(at.Add(faultEvery)))
		gaps[what] = append(gaps[what], w.gap(at, time.Now()))
	}
	longest := w.gap(began, time.Now())
	run.stop()
	n, c := s.drain()
	for what, all := range gaps {
		t.Logf("e2e: proof, cluster: a broker %s: gaps %s", what, quantiles(all))
	}
	t.Logf("e2e: proof, cluster: three brokers for %s, a fault every %s, %d events: %d lost, %d twice, longest gap "+
		"%s, E2E_SEED=%d",
		length, faultEvery, n, c.lost(n), c.twice(), longest.Round(time.Millisecond), seed)
}

// breakBroker breaks a broker in one of four ways, in turn, and mends it.
func (s *stage) breakBroker(broker, turn int) (what string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*outageTimeout)
	defer cancel()
	k := s.servers.kafka
	worked := func(err error) {
		if err != nil {
			s.t.Error(err)
		}
	}
	switch turn % 4 {
	case 0:
		worked(k.Kill(broker))
		passes(deadFor)
		worked(k.Start(ctx, broker))
		return "killed"
	case 1:
		worked(k.Pause(broker))
		passes(pausedFor)
		worked(k.Continue(broker))
		return "paused"
	case 2:
		worked(k.Stop(ctx, broker))
		worked(k.Start(ctx, broker))
		return "restarted"
	default:
		s.moveLeaders(ctx)
		return "with its leaders moved"
	}
}

// moveLeaders has the preferred replicas of all partitions lead again, which a
// broker that was away does not by itself.
func (s *stage) moveLeaders(ctx context.Context) {
	s.t.Helper()
	if _, err := s.admin().ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
		s.t.Errorf("move leaders: %v", err)
	}
}
