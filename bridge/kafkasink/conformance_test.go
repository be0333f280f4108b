package kafkasink_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkastream"
)

// versions are the kinds of transactions that brokers know: since Kafka 4, and
// before.
var versions = map[string][]kfake.Opt{
	"transaction.version 2": nil,
	"transaction.version 0": {kfake.MaxVersions(kversion.V3_5_0())},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, opts := range versions {
		for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				conformance.TestSink(t, func(t *testing.T) conformance.SinkFixture {
					srv := kafkatest.NewServer(t, opts...)
					f := sinkFixture(t, config(t, srv.Addr, inMode(mode)))
					f.ByName = opts != nil
					f.Break = func() func() {
						srv.Stop()
						return srv.Start
					}
					f.FailNext = func(form bridgetest.Failure) {
						if mode == bridge.ExactlyOnce && form == bridgetest.Persisted {
							loseEnd(t, srv.Cluster())
							return
						}
						failNext(srv.Cluster(), form)
					}
					return f
				})
			})
		}
	}
}

func inMode(mode bridge.Mode) func(*kafkastream.Config) {
	return func(c *kafkastream.Config) { c.Mode = mode }
}

// TestConformanceOnKafka runs the suite on Apache Kafka, which cannot be told
// to fail a Publish; it is unreachable while its process is stopped.
func TestConformanceOnKafka(t *testing.T) {
	t.Parallel() // it has its own broker
	servers.NeedReal(t)
	kafka := servers.StartKafka(t, servers.KafkaOptions{Own: true})
	// Before Kafka 4.1, a produce request does not name topics by their ids.
	byName := servers.MaxVersion(t, kafka.Addrs(), kmsg.Produce) < 13
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		t.Run(string(mode), func(t *testing.T) {
			conformance.TestSink(t, func(t *testing.T) conformance.SinkFixture {
				f := sinkFixture(t, config(t, kafka.Addrs(), inMode(mode)))
				f.ByName = byName
				f.Break = func() func() {
					// Killed, not paused: a paused broker later answers the
					// requests of a session that has ended since, and so
					// rightly fences the next session.
					must.Do(t, kafka.Kill(0))
					return func() {
						if err := kafka.Start(t.Context(), 0); err != nil {
							t.Error(err)
						}
					}
				}
				return f
			})
		})
	}
}

// recreate deletes a topic and makes it again.
func recreate(t *testing.T, brokers []string, topic string, partitions int32) {
	t.Helper()
	client := must.Get(kadm.NewOptClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	was := must.Get(client.ListTopics(t.Context(), topic))(t)
	if _, err := client.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatalf("delete topic %s: %v", topic, err)
	}
	forEver := "-1"
	kafkatest.Eventually(t, "have the topic made again", func() (bool, error) {
		_, err := client.CreateTopic(t.Context(), partitions, -1, map[string]*string{"retention.ms": &forEver}, topic)
		return err == nil, nil // the old one may still be on its way out
	})
	kafkatest.Eventually(t, "know of it on the broker", func() (bool, error) {
		now, err := client.ListTopics(t.Context(), topic)
		return err == nil && now[topic].Err == nil && now[topic].ID != was[topic].ID, nil
	})
}

func sinkFixture(t *testing.T, cfg kafkastream.Config) conformance.SinkFixture {
	return conformance.SinkFixture{
		Mode:     cfg.Mode,
		Recreate: func() { recreate(t, cfg.Brokers, cfg.Topic, cfg.Partitions) },
		Open: func(stream string) bridge.Sink {
			own := cfg
			own.Stream = stream
			return open(t, own)
		},
		Records: func() (all []bridgetest.Record) {
			for _, topic := range []string{cfg.Topic, "dlq." + cfg.Topic} {
				for _, r := range consume(t, cfg, topic) {
					h := headersOf(r)
					all = append(all, bridgetest.Record{
						Stream: h["eb-stream"], ID: h["ce_id"], Key: r.Key, Value: r.Value,
						Time: r.Timestamp.UnixMilli(), Defect: bridge.Defect(h["eb-reason"]),
					})
				}
			}
			return all
		},
	}
}

// failNext makes the next Publish fail. The client gives up on INVALID_RECORD
// and retries after REQUEST_TIMED_OUT, which a broker may answer to what it
// has appended.
func failNext(c *kfake.Cluster, f bridgetest.Failure) {
	refused := refuse("", kerr.InvalidRecord, 1)
	switch f {
	case bridgetest.Persisted:
		// The copy is refused, not just the next request: the client does not
		// heed the answer to a batch that was on its way behind the one which
		// it must send again.
		var first map[batchID]bool
		refused.When = func(req kmsg.Request) bool {
			for id := range batchesOf(req) {
				if first[id] {
					return true
				}
			}
			return false
		}
		c.Fault(kfake.Fault{
			Keys: refused.Keys, Err: kerr.RequestTimedOut, Count: 1,
			When: func(req kmsg.Request) bool {
				first = batchesOf(req)
				return true
			},
		}, refused)
	case bridgetest.Partly:
		refused.Partitions = []int32{0}
		c.Fault(refused)
	case bridgetest.Failed:
		c.Fault(refused)
	}
}

// A batchID tells a batch of records and its copies from all others of a
// topic.
type batchID struct {
	partition     int32
	producer      int64
	epoch         int16
	firstSequence int32
}

func batchesOf(req kmsg.Request) map[batchID]bool {
	ids := make(map[batchID]bool)
	for _, topic := range req.(*kmsg.ProduceRequest).Topics {
		for _, p := range topic.Partitions {
			var b kmsg.RecordBatch
			if b.ReadFrom(p.Records) == nil {
				ids[batchID{p.Partition, b.ProducerID, b.ProducerEpoch, b.FirstSequence}] = true
			}
		}
	}
	return ids
}
