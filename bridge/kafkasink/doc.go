// Package kafkasink publishes the events of a bridge to a Kafka topic.
//
// In exactly-once mode, a [Sink] publishes each batch and its checkpoint in one
// transaction (transaction.go); where there are several brokers, it adds the
// partitions in one request (enlist.go). In at-least-once mode, it uses an
// idempotent producer, acks from all in-sync replicas, no transactions, and
// copies checkpoints into the checkpoint topic every few seconds (copier.go). In
// both modes the stream's transactional id fences older sessions.
//
// A Sink begins and ends sessions; a session publishes, with new Kafka clients
// (session.go, recover.go). It takes the producer id (producer.go), commits a barrier,
// waits until that is readable, and reads the newest checkpoint backwards from there
// (newest.go). It knows its topics as they were described and how far each goes
// (topics.go, reach.go), and what of a batch is not acknowledged (delivery.go). The
// fault of a barrier that stays hidden names the transaction that hides it
// (blockingtxn.go). Any error ends the session: its clients are discarded, and the
// next session finds out what was committed.
//
// Records follow contract v1: the value is the item as the API sent it, the
// key is the event's, the time is the event time, and CloudEvents headers say
// the rest (record.go). What the topic cannot take goes to the dead-letter
// topic or stops the stream (deadletter.go). Event times that the topic would
// not keep are replaced (timestamp.go). Checkpoints have a compacted topic of
// their own (checkpoints.go).
//
// Readers need no Sink: [CheckpointHistory] has the checkpoints, package kafkarecord
// what the topics hold. Jobs and repairs publish beside the stream
// ([Jobs], [Repair]). Which topics there are, and who runs a stream, they ask their
// [Cluster]: package kafkastream wires it.
package kafkasink
