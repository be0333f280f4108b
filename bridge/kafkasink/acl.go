package kafkasink

import (
	"fmt"
	"strings"
)

// The commands below are for people to paste: what this program may do is for
// the cluster's administrators to grant.

func (s *Sink) acl(grant string) string {
	who := "<principal>"
	if s.cfg.SASLUsername != "" {
		who = s.cfg.SASLUsername
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal 'User:%s' %s",
		strings.Join(s.cfg.Brokers, ","), who, grant)
}

// writeACL lets us publish to a topic.
func (s *Sink) writeACL(topic string) string {
	return s.acl("--operation Write --operation Describe --topic " + topic)
}

// readACL lets us look whether a topic holds records of ours, and learn its
// settings.
func (s *Sink) readACL(topic string) string {
	return s.acl("--operation Read --operation DescribeConfigs --topic " + topic)
}

// createACL lets us create a topic.
func (s *Sink) createACL(topic string) string {
	return s.acl("--operation Create --topic " + topic)
}

// transactionACL lets us use the stream's transactional id.
func (s *Sink) transactionACL() string {
	if p := s.cfg.Part; p != nil { // each window has an id of its own
		return s.acl("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " + s.cfg.CheckpointTopic + "." + p.Stream + ".")
	}
	return s.acl("--operation Write --operation Describe --transactional-id " + s.cfg.transactionalID())
}

// idempotentACL is only needed by brokers before 2.8, which ask for it from
// every idempotent producer.
func (s *Sink) idempotentACL() string {
	return s.acl("--operation IdempotentWrite --cluster")
}

// ACLs returns the commands that grant what the stream needs, ready to paste.
// It asks nobody. The right to create topics is among them only where the
// stream itself creates them.
func (s *Sink) ACLs() []string {
	var all []string
	for _, topic := range s.cfg.allTopics() {
		all = append(all, s.writeACL(topic), s.readACL(topic))
		if s.cfg.CreateTopics {
			all = append(all, s.createACL(topic))
		}
	}
	return append(all, s.transactionACL(), s.groupACL())
}

// JobACLs returns the commands that grant what replay, backfill and repairs
// need besides: they publish beside the stream, with ids of their own, and
// create the topics that are missing. It asks nobody.
func (s *Sink) JobACLs() []string {
	if s.cfg.Part != nil {
		return nil
	}
	topic, replays := s.cfg.jobsTopic(), s.cfg.Topic+replayInfix
	return []string{
		s.writeACL(topic), s.readACL(topic), s.createACL(topic),
		s.acl("--operation Write --operation Describe --operation Read --operation DescribeConfigs --operation Create --resource-pattern-type prefixed --topic " + replays),
		s.acl("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " + topic + "." + s.cfg.Stream + "."),
		s.acl("--operation Read --operation Describe --resource-pattern-type prefixed --group " + s.cfg.Group + "." + s.cfg.Stream + "."),
	}
}
