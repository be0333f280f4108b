package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// BenchmarkPublish publishes batches of ten pages of 1,000 events of 1 KB to
// an embedded broker that discards them. Allocations include the broker's.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		for _, compression := range []string{"none", "snappy"} {
			b.Run(string(mode)+"/"+compression, func(b *testing.B) { benchPublish(b, inMode(mode), compression) })
		}
	}
}

func benchPublish(b *testing.B, change func(*kafkastream.Config), compression string) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(2)))(b)
	defer cluster.Close()
	cfg := benchConfig(b, cluster.ListenAddrs(), compression)
	change(&cfg)
	s := must.Get(cfg.Sink())(b)
	defer s.Close()
	must.Get(cfg.Needs().Create(b.Context()))(b)
	discard(cluster, cfg)
	if _, err := s.Recover(b.Context(), nil); !errors.Is(err, bridge.ErrNoCheckpoint) {
		b.Fatal(err)
	}
	var load bridgetest.Load
	var bytes int64
	for p := range 10 {
		page := page(make([]bridge.Event, 1000)...)
		for i := range page.Events {
			ev := event(fmt.Sprintf("00000000-0000-0000-%04d-%012d", p, i), fmt.Sprintf("user-%d", i%97))
			ev.Raw = fmt.Appendf(nil, `{"eventId":%q,"payload":%q}`, ev.ID, strings.Repeat("event data ", 90))
			bytes += int64(len(ev.Raw))
			page.Events[i] = ev
		}
		load.Pages = append(load.Pages, page)
	}
	b.SetBytes(bytes)
	b.ReportAllocs()
	began, n := time.Now(), 0
	for b.Loop() {
		load.Checkpoint = checkpoint(cfg, n)
		must.Get(load.Publish(context.Background(), s))(b)
		n++
	}
	b.ReportMetric(float64(n)*10_000/time.Since(began).Seconds(), "events/s")
}

// discard has the broker acknowledge what is produced to the topic of the
// events, and drop it. The checkpoints are another broker's: a request has
// either.
func discard(c *kfake.Cluster, cfg kafkastream.Config) {
	for p := range cfg.Partitions {
		c.MoveTopicPartition(cfg.Topic, p, 0)
	}
	c.MoveTopicPartition(cfg.CheckpointTopic, kafkasink.CheckpointPartition(cfg.Stream), 1)
	ends := make(map[int32]int64) // of the partitions: the sink checks that offsets rise
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		if c.CurrentNode() != 0 {
			return nil, nil, false
		}
		c.KeepControl()
		resp := request.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range request.(*kmsg.ProduceRequest).Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.TopicID = t.TopicID
			for _, p := range t.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(p.Records); err != nil {
					return nil, err, true
				}
				part.Partition, part.BaseOffset = p.Partition, ends[p.Partition]
				ends[p.Partition] += int64(batch.NumRecords)
				answer.Partitions = append(answer.Partitions, part)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
}

func benchConfig(b *testing.B, brokers []string, compression string) kafkastream.Config {
	b.Helper()
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Resource, cfg.Topic = "events", "events", "export.events"
	cfg.Brokers, cfg.CreateTopics, cfg.Compression = brokers, true, compression
	return cfg
}
