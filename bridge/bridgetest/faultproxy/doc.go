// Package faultproxy stands between a client and a server and cuts, delays or
// loses what they say: [StartKafkaProxy] knows Kafka's requests and replies,
// [StartTCPProxy] any bytes.
package faultproxy
