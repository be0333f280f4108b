package records_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
)

// TestReaderJobs: a job of one stream that this version cannot read hides no job of others.
func TestReaderJobs(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Brokers(t)
	kafkatest.CreateCheckpointTopic(t, brokers, kafkasink.JobsTopic("exportbridge.checkpoints"), nil)
	s := must.Get(config.Load(config.Sources{Environ: []string{
		"EXPORT_API_KEY=x", "KAFKA_BROKERS=" + strings.Join(brokers, ","), "BRIDGE_STREAMS=a,b,c",
		"EXPORT_RESOURCE=events",
	}}, config.UsesAll))(t)
	plan := func(stream int, id, text string) {
		st := &s.Streams[stream]
		err := st.Kafka.Jobs(new(kafkasink.JobLogs)).Change(kafkatest.Context(t), id,
			func(*kgo.Record) ([]byte, []string, error) { return []byte(text), nil, nil })
		must.Do(t, err)
	}
	plan(0, "aaaaaa", `{"v":99,"id":"aaaaaa","stream":"a"}`)
	plan(2, "cccccc", `{"v":1,"id":"cccccc","stream":"c","state":"done","created":1,"changed":1}`)
	all, err := records.NewReader(s).Jobs(kafkatest.Context(t))
	if len(all) != 1 || all[0].ID != "cccccc" || err == nil || !strings.Contains(err.Error(), "job/a/aaaaaa") {
		t.Errorf("%+v, %v; want the job of c, and an error that names the job of a", all, err)
	}
}
