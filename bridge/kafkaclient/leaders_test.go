package kafkaclient_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

// TestAgreeOnLeaders: a former leader that still names itself is noticed, whichever broker the
// client asks otherwise.
func TestAgreeOnLeaders(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "events"))
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = c.ListenAddrs()
	client := must.Get(cfg.Open())(t)
	t.Cleanup(client.Close)
	must.Get(client.Identify(t.Context(), "events"))(t)
	must.Do(t, client.AgreeOnLeaders(t.Context(), "events"))

	former := c.LeaderFor("events", 0)
	req, topic := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	topic.Topic = new("events")
	req.Topics = append(req.Topics, topic)
	stuck := must.Get(req.RequestWith(t.Context(), client.Broker(int(former))))(t)
	must.Do(t, c.MoveTopicPartition("events", 0, (former+1)%3))
	must.Do(t, client.AgreeOnLeaders(t.Context(), "events"))

	epoch := must.Get(req.RequestWith(t.Context(), client.Broker(int(former))))(t).Topics[0].Partitions[0].LeaderEpoch
	c.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return stuck, nil, c.CurrentNode() == former
	})
	fault := kafkatest.AsFault(t, client.AgreeOnLeaders(t.Context(), "events"), bridge.Transient, "")
	if fault.Code != "leaders_differ" {
		t.Errorf("%+v", fault)
	}
	for _, current := range []bool{false, true} {
		r := kafkaclient.TopicReader{Open: cfg.Open, Name: "events", Current: current}
		if _, err := r.Ends(t.Context()); (err != nil) != current {
			t.Errorf("a reader, current ends: %t: %v", current, err)
		}
	}
	stuck.Topics[0].Partitions[0].LeaderEpoch = epoch // brokers may all serve a partition
	must.Do(t, client.AgreeOnLeaders(t.Context(), "events"))
}
