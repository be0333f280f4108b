package kafkaadmin

import (
	"context"

	"exportbridge/bridge/kafkaclient"
)

// Rights are what a stream uses besides its topics.
type Rights struct {
	// TransactionalID is the stream's transactional id. Transactions is the command that
	// allows using this id, Group the command that allows joining the stream's group.
	TransactionalID, Transactions, Group string
	// CheckGroup returns the name of the group that assigns the stream, and a Fault if the
	// right to join is missing.
	CheckGroup func(context.Context, *kafkaclient.Client) (string, error)
	// JobGroups is the prefix of the groups of the stream's jobs.
	JobGroups string
}

// ACLs returns the commands that grant what the stream needs, ready to paste. It makes no
// request. The creation of topics is included only if the stream creates topics.
func (s *Stream) ACLs() []string {
	var all []string
	if login := s.GrantLogin(); login != "" {
		all = append(all, login)
	}
	for _, topic := range s.Topics.Needed() {
		all = append(all, s.grants(topic, s.CreateTopics)...)
	}
	all = append(all, s.Rights.Transactions, s.Rights.Group)
	if keys := s.Topics.Keys; keys != "" {
		all = append(all, s.grants(keys, s.CreateTopics)...)
	}
	if attest := s.Topics.Attest; attest != "" {
		all = append(append(all, s.grants(attest, s.CreateTopics)...), s.marksACLs()...)
	}
	return all
}

// grants returns the grants of a topic that is written and read back.
func (s *Stream) grants(topic string, create bool) []string {
	all := []string{s.GrantWrite(topic), s.GrantRead(topic)}
	if create {
		all = append(all, s.GrantCreate(topic))
	}
	return all
}

// marksACLs returns the grants of the job topic and its transactions, which hold the marks
// of repairs.
func (s *Stream) marksACLs() []string {
	topic := s.Topics.Jobs
	return append(s.grants(topic, true),
		s.Grant("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id "+topic+
			"."+s.Name+"."))
}

// JobACLs returns the additional grants of replay, backfill and repairs, which use their
// own ids and create missing topics. It makes no request.
func (s *Stream) JobACLs() []string {
	if s.Topics.Jobs == "" {
		return nil
	}
	all := s.marksACLs()
	replays := []string{ReplayTopic(s.Topics.Events, "")}
	if s.Topics.DeadLetters != "" {
		replays = append(replays, kafkaclient.DeadTopic(replays[0]))
	}
	for _, prefix := range replays {
		all = append(all, s.Grant("--operation Write --operation Describe --operation Read --operation DescribeConfigs "+
			"--operation Create --resource-pattern-type prefixed --topic "+prefix))
	}
	return append(all,
		s.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group "+s.Rights.JobGroups))
}

// ReplayTopic is the default topic of a replay.
func ReplayTopic(topic, id string) string { return topic + ".replay." + id }
