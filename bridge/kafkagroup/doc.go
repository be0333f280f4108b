// Package kafkagroup assigns streams to processes by Kafka's group coordinator.
//
// [Group] is the consumer group of a stream, [Owner] the membership of this process in
// it (member.go). [Fleet] is its membership in the one group that shares the streams of
// all processes (fleetmember.go), [Seat] the Owner of a stream or of a lane of a job
// there (lane.go). Package units plans who owns what. A job that runs in a terminal, or in
// one process by HTTP, has an Owner.
package kafkagroup
