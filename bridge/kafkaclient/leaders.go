package kafkaclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// agreeTimeout bounds the wait for brokers that do not answer.
const agreeTimeout = 3 * time.Second

// leadership is the leader of a partition as a broker knows it.
type leadership struct{ broker, epoch int32 }

// AgreeOnLeaders returns a Transient Fault if a broker knows a newer leader of a partition than
// another broker. A former leader that the controllers cannot reach still names itself, answers
// with its own end of the log, and may lack the newest records. Brokers that do not answer do
// not count: one that has committed a transaction lately knows the leaders. Each change of the
// leader raises the epoch. Within an epoch the names may differ: where any broker serves any
// partition, as on object storage, they do.
func (c *Client) AgreeOnLeaders(ctx context.Context, topics ...string) error {
	return agreeOnLeaders(ctx, c.Client, topics)
}

func agreeOnLeaders(ctx context.Context, c *kgo.Client, topics []string) error {
	if len(c.DiscoveredBrokers()) == 0 { // a new client knows none
		if _, err := metadataRequest(topics).RequestWith(ctx, c); err != nil {
			return fmt.Errorf("describe topics: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	var asking sync.WaitGroup
	known := leaders{at: make(map[string]leadership)}
	for _, broker := range c.DiscoveredBrokers() {
		asking.Go(func() {
			if resp, err := metadataRequest(topics).RequestWith(ctx, broker); err == nil {
				known.compare(resp)
			}
		})
	}
	asking.Wait()
	if known.differ == nil {
		return nil
	}
	return &bridge.Fault{Class: bridge.Transient, Code: "leaders_differ", Err: known.differ,
		Hint: "check that all brokers reach the controllers"}
}

// leaders are what the brokers know.
type leaders struct {
	mu     sync.Mutex // guards all below
	at     map[string]leadership
	differ error // nil while the brokers agree
}

func (l *leaders) compare(answer *kmsg.MetadataResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range answer.Topics {
		t := &answer.Topics[i]
		if t.Topic == nil {
			continue
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			where := fmt.Sprintf("partition %d of topic %s", p.Partition, *t.Topic)
			now := leadership{p.Leader, p.LeaderEpoch}
			if was, told := l.at[where]; told && was.epoch != now.epoch {
				l.differ = fmt.Errorf("brokers name different leaders of %s: broker %d (epoch %d) and broker %d (epoch %d)",
					where, was.broker, was.epoch, now.broker, now.epoch)
			}
			l.at[where] = now
		}
	}
}
