package kafkasink_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
)

// TestFormerLeader: a second look at the topics of a session does not take the answer of a
// leader that another broker has replaced.
func TestFormerLeader(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(2))
	cfg := config(t, c.ListenAddrs())
	s := recovered(t, cfg)
	must.Get(s.Topics(t.Context()))(t)
	must.Get(s.Topics(t.Context()))(t)

	former := c.LeaderFor(cfg.Topic, 0)
	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != former {
			return nil, nil, false
		}
		resp, topic := req.ResponseKind().(*kmsg.MetadataResponse), kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.Partitions = new(cfg.Topic), []kmsg.MetadataResponseTopicPartition{{Leader: former, LeaderEpoch: -7}}
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	_, err := s.Topics(t.Context())
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "leaders_differ" {
		t.Errorf("%+v", f)
	}
}
