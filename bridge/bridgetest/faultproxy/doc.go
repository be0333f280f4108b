// Package faultproxy has proxies that cut connections, and delay or lose data between a
// client and a server. [StartKafkaProxy] knows Kafka's requests and replies,
// [StartTCPProxy] takes any bytes.
package faultproxy
