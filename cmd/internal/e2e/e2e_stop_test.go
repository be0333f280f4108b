//go:build unix

package e2e_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/exportapi/exportsim"
)

// stopMargin is what a stop may take beyond BRIDGE_SHUTDOWN_TIMEOUT, as the documents say.
const stopMargin = 3 * time.Second

// loaded is what a loaded machine may add to a stop. One that waits for a server takes
// longer.
const loaded = 15 * time.Second

// A stream whose commit waits for Kafka ends in time, wherever it waits, and the next
// start settles its transaction: every event is published once.
func TestE2EStreamEndsWithoutKafka(t *testing.T) {
	t.Parallel()
	slow := func(keys ...kmsg.Key) func(*faultproxy.KafkaProxy) func() {
		return func(p *faultproxy.KafkaProxy) func() {
			hits := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DelayReply, Delay: time.Minute, Keys: keys, Times: -1})
			return hits.Remove
		}
	}
	for name, away := range map[string]func(*faultproxy.KafkaProxy) (back func()){
		"any answer": func(p *faultproxy.KafkaProxy) func() {
			p.Blackhole(true)
			return func() { p.Blackhole(false) }
		},
		"ends of transactions":                    slow(kmsg.EndTxn),
		"ends of transactions and of memberships": slow(kmsg.EndTxn, kmsg.LeaveGroup),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, timeout = 3000, 5 * time.Second
			kafka, proxy := proxied(t)
			s := newStage(t, kafka,
				exportsim.Config{Events: n, Latency: 50 * time.Millisecond}) // not at its end when Kafka goes away
			s.settings["EXPORT_PAGE_SIZE"], s.settings["BRIDGE_SHUTDOWN_TIMEOUT"] = "20", timeout.String()
			s.simulate()
			run := s.run()
			s.awaitPublished(100)
			back := away(proxy)
			passes(2 * time.Second)
			asked := time.Now()
			run.signal(syscall.SIGTERM)
			code := run.wait(stepTimeout)
			took := time.Since(asked)
			if took > timeout+stopMargin+loaded {
				t.Errorf("SIGTERM took %s, want at most BRIDGE_SHUTDOWN_TIMEOUT, %s, and %s", took, timeout, stopMargin)
			}
			back()
			s.run()
			s.awaitPublished(1)
			s.awaitState("idle")
			c := s.read()
			c.wantAll(n, 0)
			t.Logf("e2e: without %s: SIGTERM ended a process in %s with %d", name, took.Round(time.Millisecond), code)
		})
	}
}
