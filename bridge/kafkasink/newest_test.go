package kafkasink_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// writeCheckpoints commits records to the stream's partition of the checkpoint topic, in one
// transaction of another producer and in small batches, as many transactions would leave
// them.
func writeCheckpoints(t *testing.T, cfg kafkastream.Config, records ...*kgo.Record) {
	t.Helper()
	batch := int32(10_000) // as many batches as fit
	if len(records) > 10_000 {
		batch *= 20 // so that a million take seconds
	}
	client := connect(t, cfg, kgo.TransactionalID("writer."+cfg.Topic),
		kgo.ProducerBatchMaxBytes(batch), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<20))
	must.Do(t, client.BeginTransaction())
	for _, r := range records {
		r.Topic, r.Partition = cfg.CheckpointTopic, kafkasink.CheckpointPartition(cfg.Stream)
	}
	must.Do(t, client.ProduceSync(t.Context(), records...).FirstErr())
	must.Do(t, client.EndTransaction(t.Context(), kgo.TryCommit))
}

// others are records of other streams, whose names begin as ours, or contain it.
func others(n int) (all []*kgo.Record) {
	for i := range n {
		key := []string{"events2", "events/barrier", "other", "events/mirror2", "event"}[i%5]
		all = append(all, kgo.KeyStringRecord(key, `{"v":1,"stream":"other","epoch":900}`))
	}
	return all
}

// TestBackwards finds the newest checkpoint before any number of other records, with any
// steps.
func TestBackwards(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	for _, n := range []int{0, 1, 61, 62, 63, 64, 65, 127, 128, 190, 191, 192, 193, 448, 449, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, exactly)
			s := recovered(t, cfg)
			for seq := range 3 {
				mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(cfg, seq)}})
			}
			if n > 0 {
				writeCheckpoints(t, cfg, others(n)...)
			}
			recoverTo(t, s, cfg, 2)
			recoverTo(t, open(t, cfg), cfg, 2)
			if n > 0 {
				writeCheckpoints(t, cfg, others(n)...)
			}
			recoverTo(t, s, cfg, 2)
			none := cfg
			none.Stream = otherStream(cfg.Stream)
			recoverTo(t, open(t, none), none, -1)
		})
	}
}

// otherStream returns another stream of the same partition.
func otherStream(stream string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("s", i); kafkasink.CheckpointPartition(name) == kafkasink.CheckpointPartition(stream) {
			return name
		}
	}
}

// TestBackwardsInPieces: a start that ran out of time goes on where it was.
func TestBackwardsInPieces(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cfg := config(t, cluster.ListenAddrs(), exactly)
	recovered(t, cfg)
	writeCheckpoints(t, cfg, others(20_000)...)
	reads := countFetches(cluster)
	recoverTo(t, open(t, cfg), cfg, -1)
	whole := reads()
	s := recovered(t, cfg)
	reads()
	recoverTo(t, s, cfg, -1)
	if again := reads(); again >= whole/2 {
		t.Errorf("the second start fetched %d times, the first one %d times", again, whole)
	}
	mustCommit(t, s, batch(cfg, 0))
	writeCheckpoints(t, cfg, others(3000)...)
	recoverTo(t, s, cfg, 0)
}

// TestForeignCheckpoint: what cannot be read is never gone over.
func TestForeignCheckpoint(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	for name, c := range map[string]struct{ key, value string }{
		"newer":               {"events", `{"v":99,"stream":"events","epoch":1,"seq":2}`},
		"no checkpoint":       {"events", `hello`},
		"another stream":      {"events", `{"v":1,"stream":"other","epoch":1,"seq":2}`},
		"newer in the mirror": {"events/mirror", `{"v":99,"stream":"events","epoch":1,"seq":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, exactly)
			s := recovered(t, cfg)
			mustCommit(t, s, batch(cfg, 0))
			writeCheckpoints(t, cfg, kgo.KeyStringRecord(c.key, c.value))
			err := tryRecover(t, s)
			kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonCheckpoint)
			must.Be(t, err, bridge.ErrForeign)
			repaired := checkpoint(cfg, 9) // somebody went on from it
			value := must.Get(repaired.Encode())(t)
			writeCheckpoints(t, cfg, kgo.KeyStringRecord(c.key, string(value)))
			recoverTo(t, s, cfg, 9)
		})
	}
}

// TestAudit: checkpoints that do not rise are reported, and the greatest counts.
func TestAudit(t *testing.T) {
	t.Parallel()
	var log logs
	cfg, s := ready(t, exactly, logTo(&log))
	mustCommit(t, s, batch(cfg, 5))
	recoverTo(t, s, cfg, 5)
	if strings.Contains(log.text(), "non-monotonic checkpoints") {
		t.Errorf("alarm without a reason: %s", log.text())
	}
	late := checkpoint(cfg, 3)
	value := must.Get(late.Encode())(t)
	writeCheckpoints(t, cfg, kgo.KeyStringRecord(cfg.Stream, string(value)))
	recoverTo(t, s, cfg, 5)
	if got := log.text(); !strings.Contains(got, "non-monotonic checkpoints") || !strings.Contains(got, "later=1.3") {
		t.Errorf("the log does not say that 1.3 came after 1.5: %s", got)
	}
}

// logs collects what is logged.
type logs struct {
	mu  sync.Mutex // guards all
	all strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestStartAfterAMillion measures a start with a partition of a million
// records, of which the newest of ours is the first, or there is none.
func TestStartAfterAMillion(t *testing.T) {
	t.Parallel()
	servers.NeedReal(t)
	cfg, s := ready(t, exactly)
	mustCommit(t, s, batch(cfg, 0))
	s.Close()
	value := strings.Repeat("x", 600)
	for range 10 {
		var all []*kgo.Record
		for range 100_000 {
			all = append(all, kgo.KeyStringRecord("other", value))
		}
		writeCheckpoints(t, cfg, all...)
	}
	for name, first := range map[string]int{"ours is the oldest": 0, "none is ours": -1} {
		own := cfg
		if first < 0 {
			own.Stream = otherStream(cfg.Stream)
		}
		s := open(t, own)
		began := time.Now()
		recoverTo(t, s, own, first)
		t.Logf("%s: %s", name, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(own, 1)}})
		recoverTo(t, s, own, 1)
		t.Logf("%s, with one at the end: %s", name, time.Since(began).Round(time.Millisecond))
	}
}
