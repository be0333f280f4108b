package command

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// TestRetryLetterOfFirstPage: a letter without its item is published once the topic takes the item, also if it is from
// the first page of a backfill's window, or of a stream that was reset since.
func TestRetryLetterOfFirstPage(t *testing.T) {
	t.Parallel()
	at := func(n int) string { return firstEvent.Add(time.Duration(n) * time.Second).Format(time.RFC3339) }
	for name, test := range map[string]struct {
		command []string
		letters int
	}{
		"a backfill": {[]string{"backfill", "--from", at(0), "--to", at(10), "--here", "--execute"}, 2},
		"a reset":    {[]string{"cursor", "reset", "--to-datetime", at(15), "--reason", "test", "--execute"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafka := servers.EmbeddedKafka(t)
			must.Do(t, kafka.CreateTopic("export.events", 1, map[string]string{"retention.ms": "-1",
				"max.message.bytes": "20000"}))
			must.Do(t, kafka.CreateTopic("dlq.export.events", 1, map[string]string{"retention.ms": "-1"}))
			createCheckpoints(t, kafka)
			env := map[string]string{
				"EXPORT_URL": boundedExport(t, large), "EXPORT_API_KEY": secretKey, "HTTP_ADDR": "off", "EXPORT_START": at(10),
				"KAFKA_BROKERS": strings.Join(kafka.ListenAddrs(), ","),
				"REDIS_URL":     "redis://" + servers.EmbeddedRedis(t).Addr() + "/0",
			}
			for _, args := range [][]string{{"run", "--once"}, test.command} {
				succeed(t, env, args...)
			}
			admin := kadm.NewClient(servers.Client(t, kafka.ListenAddrs()[0]))
			most := "1000000"
			must.Get(admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes",
				Value: &most}}, "export.events"))(t)
			got := runProgram(t, env, "dlq", "retry", "--all", "--execute")
			if got.code != cli.ExitOK || strings.Count(got.stdout, "  published") != test.letters {
				t.Errorf("%+v, want %d published letters", got, test.letters)
			}
		})
	}
}
