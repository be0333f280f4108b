// Package kafkaadmin plans, makes and checks the topics and rights that a
// [Stream] needs. It publishes nothing.
package kafkaadmin
