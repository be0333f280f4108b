// Package kafkagroup assigns streams to processes by Kafka's group coordinator:
// [Group] is the consumer group of a stream, [Owner] the membership of this
// process (member.go).
package kafkagroup
