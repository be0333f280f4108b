// Package kafkagroup assigns streams to processes through Kafka's group coordinator.
//
// [Group] is the consumer group of a stream, and [Owner] the membership of this process in
// that group (member.go). [Fleet] is the membership in the one group that shares the
// streams of all processes (fleetmember.go), and [Seat] the Owner of a stream, or of a lane
// of a job, in that group (lane.go). Package units plans which process owns which unit. A
// job that runs in a terminal, or over HTTP in one process, has an Owner.
package kafkagroup
