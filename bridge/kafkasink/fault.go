package kafkasink

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
)

// fault says how the engine is to treat an error of Kafka. topic is the topic
// it was about, or empty.
func (s *Sink) fault(err error, topic string) *bridge.Fault {
	f := s.cfg.Fault(err, topic)
	if errors.As(err, new(*bridge.Fault)) {
		return f
	}
	block := func(reason bridge.Reason, hint string) {
		f.Class, f.Reason, f.Hint = bridge.Permanent, reason, hint
	}
	switch answer, _ := errors.AsType[*kerr.Error](err); answer {
	case kerr.TransactionalIDAuthorizationFailed:
		block(bridge.ReasonAuth, s.cfg.transactionGrant())
	case kerr.InvalidTransactionTimeout:
		block(bridge.ReasonConfig, "KAFKA_TRANSACTION_TIMEOUT is above the brokers' transaction.max.timeout.ms, which is 15m by default")
	case kerr.UnsupportedCompressionType:
		block(bridge.ReasonConfig, "the brokers do not know KAFKA_COMPRESSION="+s.cfg.Compression+"; snappy works everywhere")
	}
	return f
}

// isTopicGone reports whether a topic that was there when the session began is
// there no more, or is another one.
func isTopicGone(err error) bool {
	_, cut := errors.AsType[*bridge.CutOffError](err)
	return cut || errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// goneTopic is the fault then: the next session finds out what it means, and
// says so.
func goneTopic(err error) *bridge.Fault {
	return &bridge.Fault{Class: bridge.Transient, Code: "topic_changed", Err: err}
}
