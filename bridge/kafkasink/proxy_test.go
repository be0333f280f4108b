package kafkasink_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkastream"
)

// eachProxied runs a test on brokers behind a proxy: embedded ones of both
// kinds and, with TEST_REAL, Apache Kafka.
func eachProxied(t *testing.T, test func(t *testing.T, p *faultproxy.KafkaProxy, cfg kafkastream.Config)) {
	t.Parallel()
	for name, opts := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.StartKafkaProxy(t)
			c := kafkatest.Fake(t, append([]kfake.Opt{kfake.ListenFn(p.Listen)}, opts...)...)
			test(t, p, config(t, c.ListenAddrs(), exactly))
		})
	}
	t.Run("on Kafka", func(t *testing.T) {
		servers.NeedReal(t)
		t.Parallel()
		must.Do(t, behindProxy.start())
		cfg := config(t, behindProxy.proxy.Addrs(), exactly)
		cfg.ClientID = cfg.Topic // rules are for one test
		test(t, behindProxy.proxy, cfg)
	})
}

// behindProxy is one Apache Kafka for all tests that break single requests.
var behindProxy proxied

type proxied struct {
	once  sync.Once
	proxy *faultproxy.KafkaProxy
	kafka *servers.Kafka
	err   error
}

func (p *proxied) start() error {
	p.once.Do(func() {
		p.proxy = faultproxy.NewKafkaProxy()
		p.kafka, p.err = servers.LaunchKafka(context.Background(),
			servers.KafkaOptions{Own: true, Proxy: p.proxy, Properties: map[string]string{
				"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
			}})
	})
	return p.err
}

// stop ends it, if it was started, after all tests.
func (p *proxied) stop() error {
	if p.kafka == nil {
		return nil
	}
	return errors.Join(p.kafka.Close(), p.proxy.Close())
}

// ends matches the ends of transactions of one process.
func ends(fault faultproxy.KafkaFault, client string) faultproxy.KafkaRule {
	return faultproxy.KafkaRule{Fault: fault, Keys: []kmsg.Key{kmsg.EndTxn}, Client: client}
}

// TestEndReplyLost: the transaction is committed, and the connection cut in
// place of the answer. Brokers since Kafka 4 tell a repetition from a new end.
func TestEndReplyLost(t *testing.T) {
	eachProxied(t, func(t *testing.T, p *faultproxy.KafkaProxy, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		version, err := s.TransactionVersion(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := p.Add(ends(faultproxy.DropReply, cfg.ClientID))
		err = commit(t, s, batch(cfg, 0))
		if lost.Count() != 1 || (err == nil) != (version >= 2) {
			t.Errorf("version %d, %d replies lost: publish returned %v", version, lost.Count(), err)
		}
		recoverTo(t, s, cfg, 0)
		wantOnce(t, cfg, 0)
	})
}

// TestEndRequestLost: the brokers never hear of the end.
func TestEndRequestLost(t *testing.T) {
	eachProxied(t, func(t *testing.T, p *faultproxy.KafkaProxy, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		p.Add(ends(faultproxy.CutBeforeRequest, cfg.ClientID))
		if err := commit(t, s, batch(cfg, 0)); err != nil {
			recoverTo(t, s, cfg, -1)
			mustCommit(t, s, batch(cfg, 0))
		}
		recoverTo(t, s, cfg, 0)
		wantOnce(t, cfg, 0)
	})
}

// TestEndStalls: a coordinator that takes ten seconds makes no doubt.
func TestEndStalls(t *testing.T) {
	eachProxied(t, func(t *testing.T, p *faultproxy.KafkaProxy, cfg kafkastream.Config) {
		var seen kafkatest.Reports
		cfg.Report = seen.Add
		s := recovered(t, cfg)
		until := make(chan struct{})
		rule := ends(faultproxy.DelayReply, cfg.ClientID)
		rule.Until, rule.Times = until, -1 // the client asks again
		p.Add(rule)
		result := started(func() error { return commit(t, s, batch(cfg, 0)) })
		seen.Await(t, "the stall", kafkatest.Mentions("commit a transaction of "+cfg.CheckpointTopic))
		close(until)
		must.Do(t, <-result)
		recoverTo(t, s, cfg, 0)
		wantOnce(t, cfg, 0)
	})
}

// TestEndTooLate: a zombie ends its transaction after another session began,
// or after the brokers gave up on it.
func TestEndTooLate(t *testing.T) {
	for name, fenced := range map[string]bool{"fenced": true, "timed out": false} {
		t.Run(name, func(t *testing.T) {
			eachProxied(t, func(t *testing.T, p *faultproxy.KafkaProxy, cfg kafkastream.Config) {
				cfg.TransactionTimeout = 5 * time.Second
				zombie, next := cfg, cfg
				zombie.ClientID += ".zombie"
				older, newer := open(t, zombie), open(t, next)
				recoverTo(t, older, cfg, -1)
				mustCommit(t, older, batch(cfg, 0))
				until := make(chan struct{})
				rule := ends(faultproxy.DelayRequest, zombie.ClientID)
				rule.Until, rule.Times = until, -1 // the client asks again
				p.Add(rule)
				result := started(func() error { return commit(t, older, batch(cfg, 1)) })
				awaitState(t, cfg, "Ongoing")
				if fenced {
					recoverTo(t, newer, cfg, 0)
				} else {
					awaitState(t, cfg, "Empty", "CompleteAbort")
				}
				close(until)
				err := <-result
				f := kafkatest.AsFault(t, err, bridge.Transient, "")
				if errors.Is(err, bridge.ErrFenced) != fenced {
					t.Errorf("publish returned %v with code %s", err, f.Code)
				}
				t.Log(f.Code, err)
				if !fenced {
					recoverTo(t, newer, cfg, 0)
				}
				mustCommit(t, newer, batch(cfg, 1))
				wantOnce(t, cfg, 0, 1)
			})
		})
	}
}
