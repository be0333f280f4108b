package records_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
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

// TestReaderJobsDenied: a stream whose groups may not be described hides no job of others.
func TestReaderJobsDenied(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	kafkatest.CreateCheckpointTopic(t, kafka.ListenAddrs(), kafkasink.JobsTopic("exportbridge.checkpoints"), nil)
	s := must.Get(config.Load(config.Sources{Environ: []string{
		"BRIDGE_STREAMS=a,b", "KAFKA_BROKERS=" + strings.Join(kafka.ListenAddrs(), ","),
	}}, config.UsesKafka))(t)
	for n, id := range []string{"aaaaaa", "bbbbbb"} {
		st := &s.Streams[n]
		plan := fmt.Sprintf(`{"v":1,"id":%q,"stream":%q,"state":"running","created":1}`, id, st.Name)
		must.Do(t, st.Kafka.Jobs(new(kafkasink.JobLogs)).Change(kafkatest.Context(t), id,
			func(*kgo.Record) ([]byte, []string, error) { return []byte(plan), nil, nil }))
	}
	kafka.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		kafka.KeepControl()
		group := req.(*kmsg.DescribeGroupsRequest).Groups[0]
		if !strings.HasPrefix(group, "exportbridge.a.") {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		denied := kmsg.NewDescribeGroupsResponseGroup()
		denied.Group, denied.ErrorCode = group, kerr.GroupAuthorizationFailed.Code
		resp.Groups = append(resp.Groups, denied)
		return resp, nil, true
	})
	all, err := records.NewReader(s).Jobs(kafkatest.Context(t))
	if len(all) != 1 || all[0].ID != "bbbbbb" || err == nil || !strings.Contains(err.Error(), "aaaaaa") {
		t.Errorf("%+v, %v; want the job of b, and an error that names the group of a", all, err)
	}
}

// TestJobsOfManyStreams: the list of the jobs of all streams, which each web UI asks for every
// few seconds, reads the topic of jobs once, not once for each stream.
func TestJobsOfManyStreams(t *testing.T) {
	kafka := servers.EmbeddedKafka(t)
	must.Do(t, kafka.CreateTopic("exportbridge.checkpoints.jobs", 16, map[string]string{"cleanup.policy": "compact"}))
	var connected atomic.Int64
	kafka.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		kafka.KeepControl()
		connected.Add(1)
		return nil, nil, false
	})
	const streams = 100
	var names []string
	for n := range streams {
		names = append(names, fmt.Sprintf("s%d", n))
	}
	s := must.Get(config.Load(config.Sources{Environ: []string{
		"BRIDGE_STREAMS=" + strings.Join(names, ","), "KAFKA_BROKERS=" + strings.Join(kafka.ListenAddrs(), ","),
	}}, config.UsesKafka))(t)
	must.Get(records.NewReader(s).Jobs(t.Context()))(t)
	if n := connected.Load(); n > 10 {
		t.Errorf("%d streams: %d connections to Kafka for one list of jobs", streams, n)
	}
}
