// Package kafkastream wires the Kafka side of one stream. From one [Config] it
// builds the stream's group ([Config.Ownership]), its requirements on the cluster
// ([Config.Needs]) and its readers ([Config.History], [Config.Published]). It
// gives sink, jobs and repairs of package kafkasink their port to the cluster
// ([Config.Wired]).
package kafkastream
