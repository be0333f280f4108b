// Package kafkaclient connects to Kafka, and knows what all who do have in
// common: which broker keeps a wait waiting (monitor.go), how the engine is to
// treat an error (fault.go), what a topic allows (topic.go, usable.go).
//
// [Log] is the only reader of a topic: it knows where each partition begins and
// ends, and that silence is no end.
package kafkaclient
