package kafkasink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

const (
	// enlistTries times enlistRetry usually outlasts a transaction's end.
	enlistTries = 8
	enlistRetry = 4 * time.Millisecond
	// enlistTime bounds enlist where the coordinator does not answer: a longer wait
	// saves no time.
	enlistTime = 50 * time.Millisecond
	noLeader   = -1
)

// enlist adds the partitions of a batch, whose records still linger, to its transaction
// in one request. Otherwise each leader adds its own partitions when records reach it.
// The coordinator takes one leader at a time, and the others ask again after 20 ms
// (add.partitions.to.txn.retry.backoff.ms).
//
// Errors do not matter: the leaders add the partitions that enlist did not. The brokers
// must be strict: each transaction then has an epoch, and a request that arrives after
// the end of its transaction adds nothing. A request that outlives its session may open a
// transaction without records, which the next session or the transaction timeout ends.
func (p *txnProducer) enlist(ctx context.Context, of producerID, used partitions) {
	if !p.strict() || len(used.leaders) < 2 || used.leaders[noLeader] || time.Since(p.began) >= linger {
		return
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.cfg.TransactionalID(), of.id, of.epoch
	req.Topics = used.topics
	ctx, cancel := context.WithTimeout(ctx, enlistTime)
	defer cancel()
	for range enlistTries {
		resp, err := req.RequestWith(ctx, p.client)
		if err != nil || !isConcurrent(resp) {
			return
		}
		bridge.Sleep(ctx, enlistRetry) // the end of the last transaction is being written
	}
}

// partitions are those of a batch, and their leaders. A partition without a leader must
// not be added: it could not take the end of the transaction.
type partitions struct {
	topics  []kmsg.AddPartitionsToTxnRequestTopic
	leaders map[int32]bool
}

// takeUsed returns the partitions of the batch's keyed records and of the checkpoint, and
// resets them.
func (t *topics) takeUsed(cfg *Config) partitions {
	used := partitions{leaders: make(map[int32]bool)}
	add := func(topic string, ids ...int32) {
		if len(ids) == 0 {
			return
		}
		used.topics = append(used.topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic, Partitions: ids})
		for _, id := range ids {
			leader, _, err := t.client.PartitionLeader(topic, id)
			if err != nil {
				leader = noLeader
			}
			used.leaders[leader] = true
		}
	}
	for _, r := range t.reaches {
		var ids []int32
		for id := range r.used {
			if r.used[id].Swap(false) {
				ids = append(ids, int32(id))
			}
		}
		add(r.topic.Name, ids...)
	}
	add(cfg.CheckpointTopic, cfg.partition())
	return used
}

// isConcurrent reports whether the coordinator is still ending the previous transaction.
func isConcurrent(resp *kmsg.AddPartitionsToTxnResponse) bool {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == kerr.ConcurrentTransactions.Code {
				return true
			}
		}
	}
	return false
}
