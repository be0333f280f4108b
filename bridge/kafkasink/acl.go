package kafkasink

// createACL lets us create a topic.
func (s *Sink) createACL(topic string) string {
	return s.cfg.Grant("--operation Create --topic " + topic)
}

// transactionACL lets us use the stream's transactional id.
func (s *Sink) transactionACL() string {
	if p := s.cfg.Part; p != nil { // each window has an id of its own
		return s.cfg.Grant("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " + s.cfg.CheckpointTopic + "." + p.Stream + ".")
	}
	return s.cfg.Grant("--operation Write --operation Describe --transactional-id " + s.cfg.transactionalID())
}

// ACLs returns the commands that grant what the stream needs, ready to paste.
// It asks nobody. The right to create topics is among them only where the
// stream itself creates them.
func (s *Sink) ACLs() []string {
	var all []string
	for _, topic := range s.cfg.allTopics() {
		all = append(all, s.cfg.GrantWrite(topic), s.cfg.GrantRead(topic))
		if s.cfg.CreateTopics {
			all = append(all, s.createACL(topic))
		}
	}
	return append(all, s.transactionACL(), s.cfg.Ownership().Grants())
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
		s.cfg.GrantWrite(topic), s.cfg.GrantRead(topic), s.createACL(topic),
		s.cfg.Grant("--operation Write --operation Describe --operation Read --operation DescribeConfigs --operation Create --resource-pattern-type prefixed --topic " + replays),
		s.cfg.Grant("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " + topic + "." + s.cfg.Stream + "."),
		s.cfg.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group " + s.cfg.Group + "." + s.cfg.Stream + "."),
	}
}
