package kafkasink_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
)

// TestFormerLeader: neither a second look at the topics of a session, nor the index of published
// events, nor the search for them takes the answer of a leader that another broker has replaced.
func TestFormerLeader(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(2))
	cfg := config(t, c.ListenAddrs())
	s := recovered(t, cfg)
	must.Get(s.Topics(t.Context()))(t)
	must.Get(s.Topics(t.Context()))(t)
	must.Get(s.Index(t.Context(), anHour(), bridge.SourceIdentity{}))(t)

	former := c.LeaderFor(cfg.Topic, 0)
	ask, topic := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	topic.Topic = new(cfg.Topic)
	ask.Topics = append(ask.Topics, topic)
	client := connect(t, cfg)
	must.Do(t, client.Ping(t.Context()))
	outdated := must.Get(ask.RequestWith(t.Context(), client.Broker(int(former))))(t)
	must.Do(t, c.MoveTopicPartition(cfg.Topic, 0, 1-former))
	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.MetadataRequest)
		return outdated, nil, c.CurrentNode() == former && len(asked.Topics) > 0 && !asked.IncludeTopicAuthorizedOperations
	})
	_, indexed := s.Index(t.Context(), anHour(), bridge.SourceIdentity{})
	_, searched := s.Holds(t.Context())
	_, found := s.Topics(t.Context())
	for _, err := range []error{indexed, searched, found} {
		if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "leaders_differ" {
			t.Errorf("%+v", f)
		}
	}
}
