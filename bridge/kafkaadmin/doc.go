// Package kafkaadmin plans, creates and checks the topics and ACLs that a
// [Stream] needs. It publishes nothing.
package kafkaadmin
