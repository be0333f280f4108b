//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// proxied returns servers whose Kafka bridges reach through a fault proxy.
// Everybody else reaches Apache Kafka directly.
func proxied(t *testing.T) (*backends, *faultproxy.KafkaProxy) {
	t.Helper()
	p := faultproxy.StartKafkaProxy(t)
	if servers.Real(t) {
		k := servers.StartKafka(t, servers.KafkaOptions{Own: true, Proxy: p})
		r := servers.StartRedis(t, servers.RedisOptions{})
		return &backends{brokers: strings.Join(k.Addrs(), ","), proxied: strings.Join(p.Addrs(), ","), redisURL: r.URL(),
			kafka: k}, p
	}
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
	r := servers.EmbeddedRedis(t)
	return &backends{brokers: strings.Join(p.Addrs(), ","), redisURL: "redis://" + r.Addr() + "/0"}, p
}

// networkFault breaks the network, and what it returns ends that and says how
// often it hit.
type networkFault struct {
	name  string
	begin func(p *faultproxy.KafkaProxy, random *rand.Rand) (end func() int)
}

// ruled is a fault of single requests for as long as it lasts.
func ruled(name string, fault faultproxy.KafkaFault, delay time.Duration, keys ...kmsg.Key) networkFault {
	return networkFault{name, func(p *faultproxy.KafkaProxy, random *rand.Rand) func() int {
		rule := faultproxy.KafkaRule{Fault: fault, Keys: keys, Times: -1, Seed: random.Uint64()}
		if delay > 0 {
			rule.Delay = time.Duration(random.Int64N(int64(delay)))
		}
		if random.IntN(2) == 0 {
			rule.Chance = 0.3
		}
		hits := p.Add(rule)
		return func() int { hits.Remove(); return hits.Count() }
	}}
}

// whole is a fault of all connections.
func whole(name string, set func(*faultproxy.KafkaProxy, bool)) networkFault {
	return networkFault{name, func(p *faultproxy.KafkaProxy, _ *rand.Rand) func() int {
		set(p, true)
		return func() int { set(p, false); return 1 }
	}}
}

var networkFaults = []networkFault{
	ruled("EndTxn executed, reply lost", faultproxy.DropReply, 0, kmsg.EndTxn),
	ruled("EndTxn lost", faultproxy.CutBeforeRequest, 0, kmsg.EndTxn),
	ruled("EndTxn late", faultproxy.LateRequest, 2*time.Second, kmsg.EndTxn),
	ruled("Produce appended, reply lost", faultproxy.DropReply, 0, kmsg.Produce),
	ruled("Produce late", faultproxy.LateRequest, time.Second, kmsg.Produce),
	ruled("InitProducerID executed, reply lost", faultproxy.DropReply, 0, kmsg.InitProducerID),
	ruled("InitProducerID late", faultproxy.LateRequest, 2*time.Second, kmsg.InitProducerID),
	ruled("JoinGroup late", faultproxy.LateRequest, 3*time.Second, kmsg.JoinGroup),
	ruled("Heartbeat and JoinGroup lost", faultproxy.CutBeforeRequest, 0, kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup),
	ruled("requests slow", faultproxy.DelayRequest, 200*time.Millisecond),
	ruled("replies slow", faultproxy.DelayReply, 200*time.Millisecond),
	whole("blackhole", (*faultproxy.KafkaProxy).Blackhole),
	whole("refused", (*faultproxy.KafkaProxy).Refuse),
}

func TestE2EProofProxy(t *testing.T) {
	t.Parallel()
	rounds, seed := int(size(t, "E2E_ROUNDS", 8, 12)), seedOf(t)
	v, p := proxied(t)
	s := proofStage(t, v, exportsim.Config{Events: rounds * 1000, Rate: 200, Latency: 5 * time.Millisecond})
	s.simulate()
	random := rand.New(rand.NewPCG(seed, 3))
	began, kills, hits := time.Now(), 0, make(map[string]int)
	run := s.run()
	run.awaitMore(0)
	for range rounds {
		fault := networkFaults[random.IntN(len(networkFaults))]
		end := fault.begin(p, random)
		passes(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
		if random.IntN(3) == 0 {
			run.kill()
			kills++
			run = s.run()
			passes(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		}
		hits[fault.name] += end()
		// A quiet gap: what is late arrives in it, and the bridge gets on.
		run.awaitMore(run.published())
	}
	took := time.Since(began)
	run.stop()
	n, c := s.drain()
	var text []string
	for _, fault := range networkFaults {
		if hits[fault.name] > 0 {
			text = append(text, fmt.Sprint(fault.name, " ", hits[fault.name]))
		}
	}
	t.Logf("e2e: proof, proxy: %d faults (%s) and %d kills among them in %.1f s, %d events: %d lost, %d twice, "+
		"E2E_SEED=%d",
		rounds, strings.Join(text, ", "), kills, took.Seconds(), n, c.lost(n), c.twice(), seed)
}
