package command

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// encrypting are settings that encrypt a value.
func encrypting(url string, kafka *servers.Cluster) map[string]string {
	line := func(id string, b byte) string {
		return id + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
	}
	return map[string]string{
		"EXPORT_URL": url, "EXPORT_API_KEY": secretKey, "HTTP_ADDR": "off",
		"KAFKA_BROKERS": strings.Join(kafka.ListenAddrs(), ","), "EVENT_ENCRYPT": "/payload/email",
		"EVENT_HASH_KEY": line("k1", 3), "EVENT_ENCRYPT_KEY": line("m1", 1),
	}
}

// TestOtherSubject: a command that has another EVENT_SUBJECT than the stream, or has it by KAFKA_KEY, is
// rejected: it would encrypt the values of a person with the key of another one, and forget would not reach them.
func TestOtherSubject(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"EVENT_SUBJECT", "KAFKA_KEY"} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			kafka := servers.EmbeddedKafka(t)
			for _, topic := range []string{"export.events", "dlq.export.events"} {
				must.Do(t, kafka.CreateTopic(topic, 1, map[string]string{"retention.ms": "-1"}))
			}
			must.Do(t, kafka.CreateTopic("export.events.keys", 1, map[string]string{"cleanup.policy": "compact"}))
			createCheckpoints(t, kafka)
			url := serveItems(t, func(*http.Request) (items []string, next string) {
				return []string{fmt.Sprintf(`{"eventId":"e","userId":"company","person":"anna","timestamp":%d,`+
					`"payload":{"@type":"x","email":"anna@example.com"}}`, firstEvent.UnixMilli())}, "null"
			})
			env := encrypting(url, kafka)
			env["REDIS_URL"], env[variable] = "redis://"+servers.EmbeddedRedis(t).Addr()+"/0", "/person"
			if got := runProgram(t, env, "run", "--once"); got.code != cli.ExitOK {
				t.Fatalf("run: %+v", got)
			}
			verify := append([]string{"verify", "--repair"}, aroundEvents()...)
			delete(env, variable) // the shell of the operator lacks it: the subject is /userId
			if got := runProgram(t, env, verify...); got.code == cli.ExitOK ||
				!strings.Contains(got.stderr, "rules for private data") || !strings.Contains(got.stderr, bridge.SameRequestHint) {
				t.Errorf("%+v, want it rejected", got)
			}
			env["EVENT_SUBJECT"] = "/person"
			if got := runProgram(t, env, verify...); got.code != cli.ExitOK {
				t.Errorf("with the subject of the stream: %+v", got)
			}
		})
	}
}
