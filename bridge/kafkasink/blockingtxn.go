package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// blockingTxn is the producer whose open transaction holds back the last stable
// offset of a partition.
type blockingTxn struct {
	producer int64
	epoch    int16
	id       string // the transactional id, empty if unknown
}

// HeldBack is the code of the fault that another producer's open transaction hides records.
const HeldBack = "held_back"

// errNoBlockingTxn: no open transaction starts at the last stable offset. It
// may have ended meanwhile.
var errNoBlockingTxn = errors.New("no open transaction found there")

// explainBlocked finds the transaction that hides the barrier, and returns a fault that
// says how to end it. If it is that of an exportbridge stream without an owner,
// explainBlocked aborts it.
func (p *txnProducer) explainBlocked(
	ctx context.Context, l *kafkaclient.PartitionLog, stable int64, waited time.Duration,
) *bridge.Fault {
	ctx, cancel := context.WithTimeout(ctx, 2*lookTimeout) // of two lists of all brokers, and of the abort
	defer cancel()
	where := fmt.Sprintf("partition %d of %s", l.Partition, l.Topic())
	f := &bridge.Fault{
		Class: bridge.Transient, Code: HeldBack,
		Hint: fmt.Sprintf("kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
			strings.Join(p.cfg.Brokers, ","), l.Topic(), l.Partition, stable),
	}
	h, err := findBlockingTxn(ctx, p.client, l, stable)
	if err != nil {
		f.Err = fmt.Errorf("an open transaction of an unknown producer has blocked %s at offset %d for %s: %w",
			where, stable, waited.Round(time.Second), err)
		return f
	}
	who := fmt.Sprintf("producer %d (epoch %d)", h.producer, h.epoch)
	if h.id != "" {
		who += " with transactional id " + h.id
	}
	f.Err = fmt.Errorf("an open transaction of %s has blocked %s at offset %d for %s",
		who, where, stable, waited.Round(time.Second))
	if err := p.cfg.abortUnowned(ctx, h); err != nil {
		f.Err = fmt.Errorf("%w; %w", f.Err, err)
	}
	return f
}

// findBlockingTxn finds the producer whose transaction starts at the last
// stable offset.
func findBlockingTxn(
	ctx context.Context, client *kafkaclient.Client, l *kafkaclient.PartitionLog, stable int64,
) (blockingTxn, error) {
	admin := kadm.NewClient(client.Client)
	set := make(kadm.TopicsSet)
	set.Add(l.Topic(), l.Partition)
	described, err := admin.DescribeProducers(ctx, set)
	if err != nil {
		return blockingTxn{}, fmt.Errorf("describe producers: %w", err)
	}
	var h blockingTxn
	found := false
	described.EachPartition(func(p kadm.DescribedProducersPartition) {
		if p.Err != nil {
			err = fmt.Errorf("describe producers: %w", p.Err)
		}
	})
	described.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset == stable {
			h, found = blockingTxn{producer: p.ProducerID, epoch: p.ProducerEpoch}, true
		}
	})
	if err != nil || !found {
		return blockingTxn{}, errors.Join(err, errNoBlockingTxn)
	}
	// Each broker knows the transactions that it coordinates. One that is away leaves time for the rest.
	asking, cancel := context.WithTimeout(ctx, lookTimeout/2)
	defer cancel()
	listed, _ := admin.ListTransactions(asking, []int64{h.producer}, nil) // the producer id is enough to end it
	for id, t := range listed {
		if t.ProducerID == h.producer {
			h.id = id
		}
	}
	return h, nil
}

// abortUnowned aborts the transaction of a stream that no process runs, by
// initializing the stream's transactional id. A running stream ends its transactions
// itself, and taking its id would fence a healthy process. Repairs have no group: a repair
// that has blocked others for this long was killed, or learns from its mark that it
// was fenced and published nothing.
func (c *Config) abortUnowned(ctx context.Context, h blockingTxn) error {
	stream, ours := strings.CutPrefix(h.id, c.CheckpointTopic+".")
	if !ours || h.id == c.TransactionalID() {
		return nil
	}
	other := *c
	other.Stream, other.job = stream, "" // stream includes the job, if any
	client, err := other.Open((&txnProducer{cfg: &other}).opts()...)
	if err != nil {
		return err
	}
	defer client.Close()
	switch run, err := c.Cluster.MayRun(ctx, &other); {
	case err != nil:
		return fmt.Errorf("list the processes of stream %s: %w", stream, err)
	case run:
		return nil // the transaction timeout ends it in any case
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		return fmt.Errorf("abort the transaction of stream %s, which has no owner: %w", stream, err)
	}
	if c.Log != nil {
		c.Log.Info("aborted the open transaction of a stream without an owner", "of", stream, "producer", h.producer,
			"epoch", h.epoch)
	}
	return nil
}
