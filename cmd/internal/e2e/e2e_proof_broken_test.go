//go:build unix

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/rules"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// brokenTries is how often a scenario may be played until it shows that a rule
// of the protocol is missing.
const brokenTries = 12

// scenario is a way to show that a rule of the protocol is needed. play makes a
// stage with the rule taken away, or with "" as the program is, and returns it
// with the number of kills when it is time to count the events.
type scenario struct {
	rule string
	play func(*testing.T, string, *rand.Rand) (s *stage, kills int)
	// weak scenarios run on brokers whose transactions cannot be told apart.
	weak bool
}

func (c scenario) String() string { return c.rule }

// scenarios are of the rules that take processes and servers to be missed. The
// engine's own tests are for the others: a command that is answered too early,
// and a checkpoint that counts too early, which the next session sets right.
var scenarios = []scenario{
	{rule: "save-before-commit", play: playKills},
	{rule: "forget-grown", play: playKills},
	{rule: "ignore-promise", play: playRefusedRecords},
	{rule: "heal-with-tryabort", play: playLostReply, weak: true},
	{rule: "go-on-from-memory", play: playLostReply, weak: true},
	{rule: "skip-barrier", play: playOpenTransaction},
	{rule: "read-before-init", play: playSlowInit},
	{rule: "trust-redis", play: playRolledBackRedis},
	{rule: "skip-tail", play: playGrowingTail},
}

// TestE2EProofBroken takes away one rule of the protocol after the other, and
// wants the oracle to notice. The same scenario with all rules must be clean. All
// servers are embedded, with TEST_REAL=1 too.
func TestE2EProofBroken(t *testing.T) {
	t.Parallel()
	want, played := rules.Names(rules.Processes), make([]string, 0, len(scenarios))
	for _, c := range scenarios {
		played = append(played, c.rule)
	}
	slices.Sort(want)
	slices.Sort(played)
	if diff := cmp.Diff(want, played); diff != "" {
		t.Errorf("the rules to notice (-) and the scenarios (+):\n%s", diff)
	}
	if !rules.Patched() {
		t.Skip("it is about the tests, not the program: run with make broken")
	}
	seed := seedOf(t)
	each(t, false, scenarios, func(t *testing.T, c scenario) {
		began, kills := time.Now(), 0
		whole, _ := c.play(t, "", rand.New(rand.NewPCG(seed, 0)))
		if complaints := whole.complaints(c.weak); len(complaints) > 0 {
			t.Fatalf("with all rules the oracle says:\n%s", strings.Join(complaints, "\n"))
		}
		for try := range uint64(brokenTries) {
			s, n := c.play(t, c.rule, rand.New(rand.NewPCG(seed, try)))
			kills += n
			if complaints := s.complaints(c.weak); len(complaints) > 0 {
				t.Logf("e2e: proof, broken: %s: caught at try %d after %d kills in %.1f s: %s, E2E_SEED=%d",
					c.rule, try+1, kills, time.Since(began).Seconds(), complaints[0], seed)
				return
			}
		}
		t.Errorf("%s: not noticed in %d tries with %d kills, E2E_SEED=%d", c.rule, brokenTries, kills, seed)
	})
}

// complaints drains the export and returns what the oracle finds wrong.
func (s *stage) complaints(weak bool) (all []string) {
	s.t.Helper()
	least := s.stock(0)
	once := s.run("--once")
	if code := once.wait(outageTimeout); code != 0 {
		all = append(all, fmt.Sprintf("run --once ends with exit code %d", code))
	}
	errorf := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	c, l := newContents(errorf), newLedger("events", errorf)
	s.eachRecord(s.topic, func(r *kgo.Record) {
		c.add(s.truth, s.config.Seed, r)
		l.addEvent(r)
	})
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	c.wantAll(max(least, len(c.copies)), 0)
	if !weak {
		l.judge()
	}
	return all
}

// brokenStage is a stage on embedded servers whose program lacks a rule. Its
// export grows, so that there always is something to wait for.
func brokenStage(t *testing.T, v *backends, rule string, config exportsim.Config) *stage {
	t.Helper()
	config.Rate = 200
	s := proofStageOf(t, buildBroken, v, config)
	s.settings["PROOF_BREAK"] = rule
	s.simulate()
	return s
}

// playKills kills the bridge between a commit and the next. Without the rule
// every even one is of a checkpoint whose events are still to come.
func playKills(t *testing.T, rule string, random *rand.Rand) (*stage, int) {
	s := brokenStage(t, embeddedServers(t), rule, exportsim.Config{Events: 3000, Latency: 5 * time.Millisecond})
	s.settings["PROOF_CRASH"] = fmt.Sprintf("%s:%d", pointEnded, 2+2*random.IntN(3))
	s.run().wait(outageTimeout)
	delete(s.settings, "PROOF_CRASH")
	return s, 1
}

// playRefusedRecords lets the broker refuse records: the topic takes only
// smaller batches from now on.
func playRefusedRecords(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	s := brokenStage(t, embeddedServers(t), rule, exportsim.Config{Events: 6000, Latency: 10 * time.Millisecond})
	s.settings["KAFKA_COMPRESSION"] = "none"
	run := s.run()
	run.awaitMore(1000)
	kafkatest.SetConfig(s.t, s.admin(), s.topic, "max.message.bytes", "20000")
	run.awaitMore(run.published())
	eventually(t, stepTimeout, "the end of the results", func() bool { return run.metric("caught_up") == 1 })
	run.stop()
	return s, 0
}

// playLostReply commits without an answer. Only with brokers that do not tell
// transactions apart the client gives up at once. They let it heal itself, as
// Apache Kafka does after a time-out.
func playLostReply(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	p := faultproxy.StartKafkaProxy(t)
	k := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(p.Listen), kfake.MaxVersions(kversion.V3_5_0())))(t)
	t.Cleanup(k.Close)
	v := &backends{brokers: strings.Join(p.Addrs(), ","), redisURL: "redis://" + servers.EmbeddedRedis(t).Addr() + "/0"}
	s := brokenStage(t, v, rule, exportsim.Config{Events: 3000, Latency: 5 * time.Millisecond})
	run := s.run()
	run.awaitMore(0)
	lost := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.EndTxn}, Times: -1})
	eventually(t, stepTimeout, "a reply to be lost", func() bool { return lost.Count() > 0 })
	lost.Remove()
	run.awaitMore(run.published())
	run.stop()
	return s, 0
}

// playOpenTransaction kills the bridge while somebody else's open transaction
// hides its newest checkpoints.
func playOpenTransaction(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	s := brokenStage(t, embeddedServers(t), rule, exportsim.Config{Events: 6000, Latency: 10 * time.Millisecond})
	run := s.run()
	run.awaitMore(0)
	end := s.openTransaction()
	run.awaitMore(run.published() + 500)
	run.kill()
	run = s.run()
	began := time.Now()
	eventually(t, stepTimeout, "the bridge to begin or to wait",
		func() bool { return run.published() > 0 || time.Since(began) > time.Second })
	end()
	run.awaitMore(0)
	run.stop()
	return s, 1
}

// openTransaction opens one on the partition of the checkpoints.
func (s *stage) openTransaction() (end func()) {
	s.t.Helper()
	topic, partition := s.settings["KAFKA_CHECKPOINT_TOPIC"], int32(-1)
	s.eachRecord(topic, func(r *kgo.Record) { partition = r.Partition })
	client := servers.Client(s.t, s.servers.brokers, kgo.TransactionalID(s.topic+"-foreign"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must.Do(s.t, client.BeginTransaction())
	r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("somebody"), Value: []byte("else")}
	must.Do(s.t, client.ProduceSync(s.t.Context(), r).FirstErr())
	return func() {
		if err := client.EndTransaction(s.t.Context(), kgo.TryCommit); err != nil {
			s.t.Error(err)
		}
	}
}

// playSlowInit lets a second bridge, of another group and with another Redis,
// take over from one that runs, with the network slow at the worst time.
func playSlowInit(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen), kfake.BrokerConfigs(quickSessions))
	v := &backends{brokers: strings.Join(p.Addrs(), ","), redisURL: "redis://" + servers.EmbeddedRedis(t).Addr() + "/0"}
	s := brokenStage(t, v, rule, exportsim.Config{Events: 8000, Latency: 10 * time.Millisecond})
	s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	old := s.bridgeNamed("old")
	old.awaitMore(0)
	s.settings["BRIDGE_GROUP"] += "-other"
	s.settings["CURSOR_PREFIX"] += "-other"
	s.settings["KAFKA_CLIENT_ID"] = "slow"
	slow := p.Add(faultproxy.KafkaRule{
		Fault: faultproxy.DelayRequest, Delay: 300 * time.Millisecond, Keys: []kmsg.Key{kmsg.InitProducerID}, Client: "slow",
	})
	fresh := s.bridgeNamed("new")
	eventually(t, stepTimeout, "the slow request", func() bool { return slow.Count() > 0 || fresh.published() > 0 })
	fresh.awaitMore(0)
	old.signal(syscall.SIGKILL)
	<-old.done
	fresh.kill()
	return s, 2
}

// playRolledBackRedis restarts the bridge with a Redis that has fallen back.
func playRolledBackRedis(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	s := brokenStage(t, embeddedServers(t), rule, exportsim.Config{Events: 6000, Latency: 10 * time.Millisecond})
	s.store = s.redis()
	run := s.run()
	run.awaitMore(200)
	key := s.topic + ":{events}:checkpoint"
	eventually(t, stepTimeout, "a checkpoint in Redis", func() bool { return s.mirrored().Events > 0 })
	old := s.store.HGetAll(t.Context(), key).Val()
	run.awaitMore(run.published() + 500)
	run.kill()
	must.Do(t, s.store.Del(t.Context(), key).Err())
	must.Do(t, s.store.HSet(t.Context(), key, old).Err())
	return s, 1
}

// playGrowingTail follows the end of the results and starts again there.
func playGrowingTail(t *testing.T, rule string, _ *rand.Rand) (*stage, int) {
	s := brokenStage(t, embeddedServers(t), rule, exportsim.Config{Events: 150})
	for range 2 {
		run := s.run()
		run.awaitMore(30)
		run.kill()
	}
	return s, 2
}
