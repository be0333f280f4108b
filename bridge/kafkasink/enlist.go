package kafkasink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

const (
	// enlistTries times enlistRetry usually outlasts a transaction's end.
	enlistTries = 8
	enlistRetry = 4 * time.Millisecond
	// enlistTime bounds enlist where the coordinator does not answer: then
	// nothing is saved any more.
	enlistTime = 50 * time.Millisecond
	noLeader   = -1
)

// enlist adds the partitions of a batch whose records still linger to its
// transaction, in one request. Otherwise each leader adds its own when records
// reach it. The coordinator takes one leader at a time, and the others ask again
// after 20 ms (add.partitions.to.txn.retry.backoff.ms).
//
// It saves time only: what is not added here the leaders add, so that no error
// matters. Brokers must be strict: there each transaction has an epoch, and a request
// that arrives after its end adds nothing. One that outlives its session may open a
// transaction without records, which the next session or the timeout ends.
func (x *session) enlist(ctx context.Context) {
	topics, leaders := x.takeUsed()
	if !x.strict() || len(leaders) < 2 || leaders[noLeader] || time.Since(x.began) >= linger {
		return
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.cfg.TransactionalID(), x.open.producer, x.open.epoch
	req.Topics = topics
	ctx, cancel := context.WithTimeout(ctx, enlistTime)
	defer cancel()
	for range enlistTries {
		resp, err := req.RequestWith(ctx, x.writer)
		if err != nil || !isConcurrent(resp) {
			return
		}
		bridge.Sleep(ctx, enlistRetry) // the end of the last transaction is being written
	}
}

// takeUsed returns the partitions that keyed records of the batch went to, with
// that of the checkpoint, and their leaders. A partition without one could not be
// told the end of the transaction, which would never be complete.
func (x *session) takeUsed() (topics []kmsg.AddPartitionsToTxnRequestTopic, leaders map[int32]bool) {
	leaders = make(map[int32]bool)
	add := func(topic string, ids ...int32) {
		if len(ids) == 0 {
			return
		}
		topics = append(topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic, Partitions: ids})
		for _, id := range ids {
			leader, _, err := x.writer.PartitionLeader(topic, id)
			if err != nil {
				leader = noLeader
			}
			leaders[leader] = true
		}
	}
	for _, t := range x.reaches {
		var ids []int32
		for id := range t.used {
			if t.used[id].Swap(false) {
				ids = append(ids, int32(id))
			}
		}
		add(t.topic.Name, ids...)
	}
	add(x.cfg.CheckpointTopic, kafkaclient.CheckpointPartition(x.cfg.Stream))
	return topics, leaders
}

// isConcurrent reports whether the coordinator is not done with the transaction
// before.
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
