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
// waits until the barrier is readable, and reads the newest checkpoint backwards from
// there (newest.go). It knows the topics, the end of each (topics.go, reach.go), and the
// records that are not acknowledged yet (delivery.go). If an open transaction hides the
// barrier for long, the fault names that transaction (blockingtxn.go). Any error ends the
// session: its clients are discarded, and the next session finds out what was committed.
//
// Records follow contract v1: the value is the item as the API sent it, the
// key is the event's, the timestamp is the event time, and CloudEvents headers have
// the rest (record.go). An event that the topic cannot take goes to the dead-letter
// topic or stops the stream (deadletter.go). Event times that the topic would
// not keep are replaced. Checkpoints have a compacted topic of
// their own (checkpoints.go).
//
// Readers need no Sink: [CheckpointHistory] reads the checkpoints, package kafkarecord
// the topics. Jobs and repairs publish beside the stream ([Jobs], [Repair]). A [Cluster]
// tells them which topics there are, and who runs a stream: package kafkastream has it.
package kafkasink
