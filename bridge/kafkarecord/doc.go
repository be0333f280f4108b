// Package kafkarecord names the parts of a stream's records in Kafka, and reads back which
// events the topics hold ([Published]). Package kafkasink writes the records by contract
// v1: headers (header.go), ce_source ([Naming]), and the substitute of an item that is too
// large ([Substitute]).
package kafkarecord
