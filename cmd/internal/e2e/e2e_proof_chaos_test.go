//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// chaosSeeds is how many runs, each with its own seed, share the kills.
const chaosSeeds = 3

// TestE2EProofChaos kills the bridge while Kafka, Redis, the network and the
// API are broken too.
func TestE2EProofChaos(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) || os.Getenv("E2E_CHAOS") == "" {
		t.Skip("it takes long: run with TEST_REAL=1 E2E_CHAOS=1")
	}
	kills, seed := int(size(t, "E2E_KILLS", 0, 1000)), seedOf(t)
	for i := range chaosSeeds {
		end := []exportsim.EndOfResults{exportsim.EmptyCursor, exportsim.EmptyItems}[i%2]
		t.Run(fmt.Sprint(i), func(t *testing.T) { chaos(t, (kills+chaosSeeds-1)/chaosSeeds, seed+uint64(i), end) })
	}
}

func chaos(t *testing.T, kills int, seed uint64, end exportsim.EndOfResults) {
	const burst = 1500
	v, p := proxied(t)
	r := servers.StartRedis(t, servers.RedisOptions{Own: true})
	v.redisURL, v.redis = r.URL(), r
	v.redisDown = outage(t, r.Kill, r.Start)
	s := proofStage(t, v, exportsim.Config{Events: kills * burst / 3, Rate: 200, EndOfResults: end,
		Latency: 2 * time.Millisecond})
	s.store = s.redis()
	s.simulate()
	api := faultproxy.StartTCPProxy(t, strings.TrimPrefix(s.api, "http://"))
	s.settings["EXPORT_URL"] = "http://" + api.Addr()
	w := &weather{s: s, kafka: p, api: api, random: rand.New(rand.NewPCG(seed, 5)), count: make(map[string]int)}
	d := newDeaths(s, seed, burst)
	began := time.Now()
	for range kills {
		if w.random.IntN(3) == 0 {
			w.turn()
		}
		d.one()
	}
	w.clear()
	took := time.Since(began)
	n, c := s.drain()
	t.Logf("e2e: proof, chaos: %s, %d kills in %.0f s (%s) with %v, %d events: %d lost, %d twice; restart to first "+
		"new event: %s, E2E_SEED=%d",
		end, kills, took.Seconds(), ways(d.ways), w.count, n, c.lost(n), c.twice(), quantiles(d.restarts), seed)
}

// weather breaks one thing at a time, for a while.
type weather struct {
	s      *stage
	kafka  *faultproxy.KafkaProxy
	api    *faultproxy.TCPProxy
	random *rand.Rand
	count  map[string]int
	until  sync.WaitGroup // the present fault
}

// turn waits until the last fault has passed and begins another.
func (w *weather) turn() {
	w.until.Wait()
	hold := time.Duration(w.random.Int64N(int64(2 * time.Second)))
	name, end := w.begin()
	w.count[name]++
	w.until.Go(func() {
		passes(hold)
		end()
	})
}

// clear waits until nothing is broken any more.
func (w *weather) clear() { w.until.Wait() }

func (w *weather) begin() (name string, end func()) {
	s := w.s
	switch n := w.random.IntN(100); {
	case n < 50:
		fault := networkFaults[w.random.IntN(len(networkFaults))]
		mend := fault.begin(w.kafka, w.random)
		return "kafka: " + fault.name, func() { mend() }
	case n < 60:
		return "broker paused", w.held(s.servers.kafka.Pause(0), func() error { return s.servers.kafka.Continue(0) })
	case n < 63:
		return "broker killed", w.held(s.servers.kafka.Kill(0), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), outageTimeout)
			defer cancel()
			return s.servers.kafka.Start(ctx, 0)
		})
	case n < 85:
		faults := s.redisFaults()
		fault := faults[w.random.IntN(len(faults)-1)] // not the last: a fail-over waits for the bridge
		return "redis " + fault.name, fault.begin()
	case n < 95:
		w.api.Refuse(true)
		return "api refused", func() { w.api.Refuse(false) }
	default:
		w.api.Blackhole(true)
		return "api silent", func() { w.api.Blackhole(false) }
	}
}

// held is the end of a fault that began with an error or none.
func (w *weather) held(begun error, end func() error) func() {
	if begun != nil {
		w.s.t.Error(begun)
	}
	return func() {
		if err := end(); err != nil {
			w.s.t.Error(err)
		}
	}
}
