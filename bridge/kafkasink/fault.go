package kafkasink

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// fault says how the engine is to treat an error of Kafka. topic is the topic
// it was about, or empty.
func (c *Config) fault(err error, topic string) *bridge.Fault {
	f := c.Fault(err, topic)
	if errors.As(err, new(*bridge.Fault)) {
		return f
	}
	block := func(reason bridge.Reason, hint string) {
		f.Class, f.Reason, f.Hint = bridge.Permanent, reason, hint
	}
	switch answer, _ := errors.AsType[*kerr.Error](err); answer {
	case kerr.TransactionalIDAuthorizationFailed:
		block(bridge.ReasonAuth, c.transactionGrant())
	case kerr.InvalidTransactionTimeout:
		block(bridge.ReasonConfig, "KAFKA_TRANSACTION_TIMEOUT is above the brokers' transaction.max.timeout.ms, which is 15m by default")
	case kerr.UnsupportedCompressionType:
		block(bridge.ReasonConfig, "the brokers do not support KAFKA_COMPRESSION="+c.Compression+"; all support snappy")
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

// explain turns an error of a client into a fault. An error that only says
// that time is up is replaced by what the connections know.
func (c *Config) explain(err error, client *kafkaclient.Client) *bridge.Fault {
	return c.fault(client.Cause(err), c.Topic)
}
