package process

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/config"
)

// TestComparedTopics: the readers of a comparison do not take the end of a log of a former leader.
func TestComparedTopics(t *testing.T) {
	t.Parallel()
	st := &config.Stream{Name: "events", Kafka: kafkastream.DefaultConfig()}
	k := &st.Kafka
	k.Stream, k.Topic, k.Mode = "events", "T", bridge.ExactlyOnce
	k.Brokers = kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "T", "dlq.T", k.CheckpointTopic)).ListenAddrs()
	events, dead, err := ComparedTopics(t.Context(), st, kafkaclient.TopicReader{Open: k.Open})
	if err != nil || events.Topic() != "T" || dead.Topic() != "dlq.T" || !events.Current || !dead.Current {
		t.Errorf("%+v, %+v, %v", events, dead, err)
	}
}
