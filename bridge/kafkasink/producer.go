package kafkasink

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/kafkaclient"
)

const (
	// transactionRetry outlasts the stalls of a degraded cluster.
	transactionRetry = 20 * time.Second
	produceTimeout   = 5 * time.Second
	// linger is how long records wait for those of the next pages, to leave in
	// fewer and larger requests. The end of a batch sends them at once.
	linger = 10 * time.Millisecond
	// unknownTopicTries, a quarter of a second each, is how long a topic may be
	// unknown to the brokers before its records fail.
	unknownTopicTries = 20
)

// producerOpts are the options of a session's client. The record limits of kgo
// stay unset: its delivery timeout counts from the event time, and a record
// given up on leaves doubt.
func (x *session) producerOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(codec(x.cfg.Compression)),
		kgo.ProducerBatchMaxBytesFn(x.batchLimit),
		kgo.MaxBufferedRecords(1 << 30), // Produce must never block: only Publish's own wait ends with ctx
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.RecordPartitioner(newPartitioner(x.cfg.CheckpointTopic, x)),
		kgo.ProducerOnDataLossDetected(x.noteLoss),
	}
}

// transactionOpts are the options of the client that writes checkpoints.
func (x *transactions) transactionOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.TransactionalID(x.cfg.TransactionalID()),
		kgo.TransactionTimeout(x.cfg.TransactionTimeout),
		kgo.RetryTimeoutFn(x.retryFor),
	}
	if x.patient {
		opts = append(opts, kgo.RequestTimeoutOverhead(transactionRetry))
	}
	return opts
}

// retryFor bounds the retries of a request after network errors. An EndTxn sent
// twice leaves a copy in flight, which could end the next transaction on
// brokers that do not distinguish them.
func (x *transactions) retryFor(key int16) time.Duration {
	switch kmsg.Key(key) {
	case kmsg.EndTxn:
		if !x.strict() {
			return time.Nanosecond // 0 would be for ever
		}
		return transactionRetry
	case kmsg.InitProducerID, kmsg.AddPartitionsToTxn:
		return transactionRetry
	default:
		return kafkaclient.RetryTimeout
	}
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	default:
		return kgo.NoCompression()
	}
}
