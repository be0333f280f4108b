package kafkasink_test

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// mostBatches is how many batches a test of enlist commits at most. A single one
// may miss the linger on a busy machine.
const mostBatches = 100

// TestEnlist: the coordinator gets all partitions of a batch at once.
func TestEnlist(t *testing.T) {
	t.Parallel()
	c, cfg, s := openSpread(t)
	var mu sync.Mutex
	var got map[string]int
	want := map[string]int{cfg.Topic: 3, cfg.CheckpointTopic: 1}
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true, When: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			got = map[string]int{}
			for _, topic := range req.(*kmsg.AddPartitionsToTxnRequest).Topics {
				got[topic.Topic] += len(topic.Partitions)
			}
			return true
		},
	})
	// The first records may leave before the client knows the partitions.
	batches := commitUntil(t, s, cfg, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(want, got)
	})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("partitions by topic (-want +got):\n%s", diff)
	}
	wantOnce(t, cfg, batches...)
}

// TestEnlistNobody: nothing is asked where leaders do not wait for each other, nor
// for records whose partitions are not known before they leave.
func TestEnlistNobody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		brokers int
		keys    bool
	}{"one broker": {1, true}, "no keys": {3, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Fake(t, kfake.NumBrokers(test.brokers))
			cfg := config(t, c.ListenAddrs(), exactly)
			s := recovered(t, cfg)
			enlisted := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true})
			for seq := range mostBatches {
				b := batch(cfg, seq)
				for i := range b.Pages[0].Events {
					if !test.keys {
						b.Pages[0].Events[i].Key = nil
					}
				}
				mustCommit(t, s, b)
			}
			if n := enlisted.Hits(); n > 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestEnlistLeaderless: a partition without a leader could not be told the end of
// a transaction.
func TestEnlistLeaderless(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(3))
	cfg := config(t, c.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	// The client takes a refusal for a reason to look for the leaders.
	gone := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: cfg.Topic, Partitions: []int32{0},
		Err: kerr.LeaderNotAvailable, Count: -1})
	moved := c.Fault(refuse(cfg.CheckpointTopic, kerr.NotLeaderForPartition, 1))
	b := batch(cfg, 0)
	b.Pages = nil
	if err := commit(t, s, b); err != nil || moved.Hits() != 1 || gone.Hits() == 0 {
		t.Fatalf("%v; %d refusals, %d descriptions", err, moved.Hits(), gone.Hits())
	}
	enlisted := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true})
	for seq := range mostBatches {
		mustCommit(t, s, batch(cfg, seq+1))
		if seq == mostBatches/2 {
			if n := enlisted.Hits(); n > 0 {
				t.Fatalf("%d requests", n)
			}
			gone.Remove()
		}
	}
}

// TestEnlistAgain: the end of a transaction is soon written.
func TestEnlistAgain(t *testing.T) {
	t.Parallel()
	const refusals = 2
	c, cfg, s := openSpread(t)
	var mu sync.Mutex
	var last kmsg.Request
	most, asked := 0, map[int16]int{} // by the epoch, which each transaction has of its own
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1,
		When: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			epoch := req.(*kmsg.AddPartitionsToTxnRequest).ProducerEpoch
			if req != last { // the same for each of its partitions
				asked[epoch]++
			}
			last = req
			most = max(most, asked[epoch])
			return asked[epoch] <= refusals
		},
	})
	// A busy machine may end a transaction before it asked as often.
	batches := commitUntil(t, s, cfg, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return most > refusals
	})
	mu.Lock()
	defer mu.Unlock()
	if most != refusals+1 {
		t.Errorf("a transaction asked %d times, want %d", most, refusals+1)
	}
	wantOnce(t, cfg, batches...)
}

// TestEnlistFails: leaders add what the coordinator did not.
func TestEnlistFails(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{
		kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable,
		kerr.InvalidTxnState, kerr.UnknownServerError,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			c, cfg, s := openSpread(t)
			refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: refusal, Count: -1})
			batches := commitUntil(t, s, cfg, func() bool { return refused.Hits() > 0 })
			recoverTo(t, s, cfg, len(batches)-1)
			wantOnce(t, cfg, batches...)
		})
	}
}

// openSpread returns a cluster of three brokers, and a sink that is ready to publish
// to a topic with a partition at each.
func openSpread(t *testing.T) (*kfake.Cluster, kafkastream.Config, *kafkasink.Sink) {
	t.Helper()
	c := kafkatest.Fake(t, kfake.NumBrokers(3))
	cfg := config(t, c.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	for id := range int32(3) {
		must.Do(t, c.MoveTopicPartition(cfg.Topic, id, id))
	}
	recoverTo(t, s, cfg, -1) // a new session, which knows the leaders
	return c, cfg, s
}

// commitUntil commits batches until done, and returns their numbers.
func commitUntil(t *testing.T, s *kafkasink.Sink, cfg kafkastream.Config, done func() bool) (batches []int) {
	t.Helper()
	for seq := range mostBatches {
		mustCommit(t, s, batch(cfg, seq))
		batches = append(batches, seq)
		if done() {
			return batches
		}
	}
	return batches
}

func TestEnlistStrict(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, append(versions["transaction.version 0"], kfake.NumBrokers(3))...)
	cfg := config(t, c.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	var added, together atomic.Int64
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true, When: func(req kmsg.Request) bool {
			added.Add(1)
			if len(req.(*kmsg.AddPartitionsToTxnRequest).Topics) > 1 {
				together.Add(1)
			}
			return true
		},
	})
	for seq := range mostBatches {
		mustCommit(t, s, batch(cfg, seq))
	}
	if added.Load() == 0 || together.Load() > 0 {
		t.Errorf("%d requests, %d for both topics; want those of the client", added.Load(), together.Load())
	}
}
