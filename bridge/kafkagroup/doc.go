// Package kafkagroup assigns streams to processes by Kafka's group coordinator.
//
// [Group] is the consumer group of a stream, [Owner] the membership of this process in
// it (member.go). [Fleet] is its membership in the one group that shares the streams of
// all processes (fleetmember.go), [Seat] the Owner of a stream there. Package units
// plans who owns what. The membership of a job is always an Owner.
package kafkagroup
