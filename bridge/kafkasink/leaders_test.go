package kafkasink_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
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

	replaceLeader(t, c, cfg, cfg.Topic)
	_, indexed := s.Index(t.Context(), anHour(), bridge.SourceIdentity{})
	_, searched := s.Holds(t.Context())
	_, found := s.Topics(t.Context())
	for _, err := range []error{indexed, searched, found} {
		if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "leaders_differ" {
			t.Errorf("%+v", f)
		}
	}
}

// replaceLeader moves partition 0 of a topic of the two brokers. The former leader does not know it.
func replaceLeader(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config, name string) {
	t.Helper()
	former := c.LeaderFor(name, 0)
	ask, topic := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	topic.Topic = new(name)
	ask.Topics = append(ask.Topics, topic)
	client := connect(t, cfg)
	must.Do(t, client.Ping(t.Context()))
	outdated := must.Get(ask.RequestWith(t.Context(), client.Broker(int(former))))(t)
	must.Do(t, c.MoveTopicPartition(name, 0, 1-former))
	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.MetadataRequest)
		about := len(asked.Topics) > 0 && *asked.Topics[0].Topic == name
		return outdated, nil, c.CurrentNode() == former && about && !asked.IncludeTopicAuthorizedOperations
	})
}

// TestBeginBesideAFormerLeader: a backfill does not begin by what a former leader knows of the other jobs, whose plans
// are in all partitions.
func TestBeginBesideAFormerLeader(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(2))
	cfg := config(t, c.ListenAddrs())
	jobs, _ := oneJob(t, cfg, backfill.Backfill)
	replaceLeader(t, c, cfg, kafkasink.JobsTopic(cfg.CheckpointTopic))
	err := jobs.log.Begin(t.Context(), "bbbbbb", func(map[string]*kgo.Record) ([]byte, error) {
		t.Error("a job began while brokers knew different leaders")
		return nil, nil
	})
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "leaders_differ" {
		t.Errorf("%+v", f)
	}
}
