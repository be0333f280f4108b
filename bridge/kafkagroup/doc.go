// Package kafkagroup learns from Kafka's group coordinator which streams this
// process owns: [Group] is the consumer group of a stream, [Owner] this process's
// place in it (member.go).
package kafkagroup
