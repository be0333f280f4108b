package kafkaadmin

// ACLs returns the commands that grant what the stream needs, ready to paste.
// It asks nobody. The right to create topics is among them only where the
// stream itself creates them.
func (s *Stream) ACLs() []string {
	var all []string
	for _, topic := range s.Topics.Needed() {
		all = append(all, s.GrantWrite(topic), s.GrantRead(topic))
		if s.CreateTopics {
			all = append(all, s.GrantCreate(topic))
		}
	}
	return append(all, s.Grants...)
}

// JobACLs returns the commands that grant what replay, backfill and repairs
// need besides: they publish beside the stream, with ids of their own, and
// create the topics that are missing. It asks nobody.
func (s *Stream) JobACLs() []string {
	if s.Topics.Jobs == "" {
		return nil
	}
	topic, replays := s.Topics.Jobs, ReplayTopic(s.Topics.Events, "")
	return []string{
		s.GrantWrite(topic), s.GrantRead(topic), s.GrantCreate(topic),
		s.Grant("--operation Write --operation Describe --operation Read --operation DescribeConfigs --operation Create --resource-pattern-type prefixed --topic " + replays),
		s.Grant("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " + topic + "." + s.Name + "."),
		s.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group " + s.Group),
	}
}

// ReplayTopic is where a replay of a topic goes if nobody says where.
func ReplayTopic(topic, id string) string { return topic + ".replay." + id }
