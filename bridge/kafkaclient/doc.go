// Package kafkaclient reads Kafka's logs. [Log] is the only reader of a topic:
// it knows where each partition begins and ends, and that silence is no end.
package kafkaclient
