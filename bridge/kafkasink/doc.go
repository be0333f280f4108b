// Package kafkasink publishes the events of a bridge to a Kafka topic.
//
// A [Sink] delivers at least once: an idempotent producer, acks from all
// in-sync replicas, no transactions. Sink.Recover begins a session, which is
// one Kafka client and what it learned about the topics. Any error ends the
// session: the client is thrown away, never healed, and what was under way is
// unknown until the next session.
//
// Records follow contract v1: the value is the item as the API sent it, the
// key is the event's, the time is the event time, and CloudEvents headers say
// the rest (record.go). What the topic cannot take goes to the dead-letter
// topic or stops the stream (deadletter.go). Event times that the topic would
// not keep are replaced (timestamp.go).
package kafkasink
