// Package kafkaclient connects to Kafka, and has what all Kafka packages share: the cause
// of a stall (monitor.go), the classification of errors (fault.go), and topic settings
// (topic.go, usable.go).
//
// [Log] is the only topic reader. It knows the start and end of each partition, and never
// takes silence for the end.
package kafkaclient
