package kafkasink

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// fault classifies an error of Kafka for the engine. topic is the topic
// concerned, or empty.
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
		block(bridge.ReasonAuth, c.TransactionGrant())
	case kerr.InvalidTransactionTimeout:
		block(bridge.ReasonConfig, "KAFKA_TRANSACTION_TIMEOUT is above the brokers' transaction.max.timeout.ms, which "+
			"is 15m by default")
	case kerr.InvalidTimestamp:
		if topic == c.CheckpointTopic { // its records have the present time
			block(bridge.ReasonConfig, "set the clock of this host, which shows "+bridge.InstantText(time.Now().UnixMilli())+
				", or those of the brokers: they refuse a record of that time")
		}
	case kerr.UnsupportedCompressionType:
		block(bridge.ReasonConfig, "the brokers do not support KAFKA_COMPRESSION="+c.Compression+"; all support snappy")
	}
	return f
}

// hiddenLimit is the hint for a record that is too large for a topic whose settings are not
// readable without grant.
func hiddenLimit(grant string) string {
	return "set KAFKA_MAX_MESSAGE_BYTES to the topic's max.message.bytes, or grant reading it: " + grant
}

// isTopicGone reports whether a topic of the session was deleted or recreated.
func isTopicGone(err error) bool {
	_, cut := errors.AsType[*bridge.CutOffError](err)
	return cut || kafkaclient.IsMissing(err) || errors.Is(err, kerr.UnknownTopicID)
}

// goneTopic is the fault of a topic that was deleted or recreated. The next session
// determines the consequences.
func goneTopic(err error) *bridge.Fault {
	return &bridge.Fault{Class: bridge.Transient, Code: "topic_changed", Err: err}
}

// explain turns a client error into a fault, and replaces a mere timeout by the
// connection error behind it.
func (c *Config) explain(err error, client *kafkaclient.Client) *bridge.Fault {
	return c.fault(client.Cause(err), c.Topic)
}
