// Package kafkarecord names the parts of a stream's records in Kafka, and reads back
// which events its topics hold ([Published]). Records follow contract v1, which
// package kafkasink writes: headers (header.go), ce_source ([Naming]) and the
// substitute of an item that is too large ([Substitute]).
package kafkarecord
