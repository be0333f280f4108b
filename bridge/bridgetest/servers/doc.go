// Package servers starts Kafka and Redis for tests.
//
// [EmbeddedKafka] and [EmbeddedRedis] live in the test process. [StartKafka]
// and [StartRedis] start Apache Kafka and redis-server; [LaunchKafka] and
// [LaunchRedis] do so outside a test. [EmulateKafkaFencing] makes the embedded Kafka refuse
// what Apache Kafka refuses.
package servers
