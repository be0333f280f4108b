package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/attest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// TestAttestAlter: the command that has a topic keep its records names the brokers, as kafka-configs.sh requires.
func TestAttestAlter(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	broker := kafka.ListenAddrs()[0]
	must.Do(t, kafka.CreateTopic("export.events.attest", 1, map[string]string{"cleanup.policy": "compact"}))
	value := must.Get(json.Marshal(attest.Record{Format: 1, Stream: "events", Seq: 3}))(t)
	produce(t, servers.Client(t, broker), &kgo.Record{Topic: "export.events.attest", Key: []byte("events"), Value: value})
	got := runProgram(t, map[string]string{"KAFKA_BROKERS": broker}, "attest")
	want := "keep them: kafka-configs.sh --bootstrap-server " + broker +
		" --alter --topic export.events.attest --add-config cleanup.policy=delete,retention.ms=-1,retention.bytes=-1\n"
	if got.code != cli.ExitOK || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("%+v, want %q", got, want)
	}
}
