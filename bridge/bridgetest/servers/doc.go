// Package servers starts Kafka and Redis for tests.
//
// [EmbeddedKafka] and [EmbeddedRedis] run in the test process. [StartKafka] and
// [StartRedis] start Apache Kafka and redis-server; [LaunchKafka] and [LaunchRedis] do so
// outside a test. [EmulateKafkaFencing] makes the embedded Kafka reject what Apache Kafka
// rejects.
package servers
