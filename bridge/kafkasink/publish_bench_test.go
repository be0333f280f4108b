package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sethvargo/go-envconfig"
	"github.com/twmb/franz-go/pkg/kfake"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

// BenchmarkPublish publishes batches of ten pages of 1,000 events of 1 KB to
// an embedded broker that discards them. Allocations include the broker's.
func BenchmarkPublish(b *testing.B) {
	for _, compression := range []string{"none", "snappy"} {
		b.Run(compression, func(b *testing.B) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BlackholeProduce())
			if err != nil {
				b.Fatal(err)
			}
			defer cluster.Close()
			s := benchSink(b, cluster.ListenAddrs(), compression)
			defer s.Close()
			batch := bridge.Batch{}
			var bytes int64
			for p := range 10 {
				events := make([]bridge.Event, 1000)
				for i := range events {
					events[i] = event(fmt.Sprintf("00000000-0000-0000-%04d-%012d", p, i), fmt.Sprintf("user-%d", i%97))
					events[i].Raw = fmt.Appendf(nil, `{"eventId":%q,"payload":%q}`, events[i].ID, strings.Repeat("event data ", 90))
					bytes += int64(len(events[i].Raw))
				}
				batch.Pages = append(batch.Pages, page(events...))
			}
			b.SetBytes(bytes)
			b.ReportAllocs()
			began, n := time.Now(), 0
			for b.Loop() {
				if _, err := s.Publish(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)*10_000/time.Since(began).Seconds(), "events/s")
		})
	}
}

func benchSink(b *testing.B, brokers []string, compression string) *kafkasink.Sink {
	b.Helper()
	var cfg kafkasink.Config
	if err := envconfig.ProcessWith(b.Context(), &envconfig.Config{Target: &cfg, DefaultNoInit: true, Lookuper: envconfig.MapLookuper(nil)}); err != nil {
		b.Fatal(err)
	}
	cfg.Stream, cfg.Resource, cfg.Brokers, cfg.CreateTopics, cfg.Compression = "events", "events", brokers, true, compression
	s, err := kafkasink.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Recover(b.Context(), nil); !errors.Is(err, bridge.ErrNoCheckpoint) {
		b.Fatal(err)
	}
	return s
}
