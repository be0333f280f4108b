package kafkasink_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkasink"
)

// mostBatches is how many batches a test of enlist commits at most. A single one
// may miss the linger on a busy machine.
const mostBatches = 100

// TestEnlist: the coordinator gets all partitions of a batch at once.
func TestEnlist(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(3))
	cfg := config(t, c.ListenAddrs(), exactly)
	s := open(t, cfg)
	recoverTo(t, s, cfg, -1)
	var mu sync.Mutex
	var got map[string]int
	enlisted := c.Fault(kfake.Fault{
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
	batches := commitUntil(t, s, cfg, func() bool { return enlisted.Hits() > 0 })
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{cfg.Topic: 3, cfg.CheckpointTopic: 1}, got); diff != "" {
		t.Errorf("partitions by topic (-want +got):\n%s", diff)
	}
	wantOnce(t, cfg, batches...)
}

// TestEnlistNobody: where leaders do not wait for each other nothing is asked.
func TestEnlistNobody(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	cfg := config(t, c.ListenAddrs(), exactly)
	s := open(t, cfg)
	recoverTo(t, s, cfg, -1)
	enlisted := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true})
	commitUntil(t, s, cfg, func() bool { return false })
	if n := enlisted.Hits(); n > 0 {
		t.Errorf("%d requests to one broker", n)
	}
}

// TestEnlistAgain: the end of a transaction is soon written.
func TestEnlistAgain(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(3))
	cfg := config(t, c.ListenAddrs(), exactly)
	s := open(t, cfg)
	recoverTo(t, s, cfg, -1)
	var mu sync.Mutex
	asked := map[int16]int{} // by the epoch, which each transaction has of its own
	refused := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: 3, When: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			asked[req.(*kmsg.AddPartitionsToTxnRequest).ProducerEpoch]++
			return true
		},
	})
	batches := commitUntil(t, s, cfg, func() bool { return refused.Hits() == 3 })
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 {
		t.Errorf("refused requests by transaction: %v, want all in one", asked)
	}
	wantOnce(t, cfg, batches...)
}

// TestEnlistFails: leaders add what the coordinator did not.
func TestEnlistFails(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{
		kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.InvalidTxnState, kerr.UnknownServerError,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Fake(t, kfake.NumBrokers(3))
			cfg := config(t, c.ListenAddrs(), exactly)
			s := open(t, cfg)
			recoverTo(t, s, cfg, -1)
			refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: refusal, Count: -1})
			batches := commitUntil(t, s, cfg, func() bool { return refused.Hits() > 0 })
			recoverTo(t, s, cfg, len(batches)-1)
			wantOnce(t, cfg, batches...)
		})
	}
}

// commitUntil commits batches until done, and returns their numbers.
func commitUntil(t *testing.T, s *kafkasink.Sink, cfg kafkasink.Config, done func() bool) (batches []int) {
	t.Helper()
	for seq := range mostBatches {
		if err := commit(t, s, batch(cfg, seq)); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, seq)
		if done() {
			return batches
		}
	}
	return batches
}
