package command

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
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

// TestForgetBeyondABrokenStream: a stream that has no topic of keys keeps forget and keys rewrap from no other stream.
// What was done is shown, beside the error.
func TestForgetBeyondABrokenStream(t *testing.T) {
	t.Parallel()
	for _, streams := range []string{"young,old", "old,young"} {
		t.Run(streams, func(t *testing.T) {
			t.Parallel()
			kafka := servers.EmbeddedKafka(t)
			must.Do(t, kafka.CreateTopic("export.old.keys", 1, map[string]string{"cleanup.policy": "compact"}))
			env := encrypting("http://127.0.0.1:1", kafka)
			env["BRIDGE_STREAMS"], env["EXPORT_RESOURCE"], env["EVENT_SUBJECT"] = streams, "events", "/person"
			cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: "export.old.keys",
				Master: must.Get(seal.ParseMaster(env["EVENT_ENCRYPT_KEY"]))(t)}
			cfg.Kafka.Brokers = kafka.ListenAddrs()
			ring := keyring.New(cfg)
			defer ring.Close()
			must.Get(ring.Of([]string{"anna"}))(t)
			for _, args := range [][]string{{"keys", "rewrap", "--execute"}, {"forget", "anna", "--execute"}} {
				got := runProgram(t, env, args...)
				if got.code != cli.ExitFailed || !strings.Contains(got.stdout, "ERROR") ||
					!strings.Contains(got.stdout, "export.old.keys") || !strings.Contains(got.stderr, "stream young: ") {
					t.Errorf("%s: %+v, want the stream old in the output, and the error of stream young", args, got)
				}
			}
			if found := must.Get(keyring.Forget(t.Context(), cfg, "anna", false))(t); found.Forgotten == nil || found.Keys > 0 {
				t.Errorf("anna has a key of stream old: %+v", found)
			}
			got := runProgram(t, env, "forget", "anna", "--json")
			var all []struct{ Stream, Error string }
			must.Do(t, json.Unmarshal([]byte(got.stdout), &all))
			for _, one := range all {
				if (one.Error == "") != (one.Stream == "old") {
					t.Errorf("%+v", one)
				}
			}
			got = runProgram(t, env, "forget", "anna", "--stream", "old")
			if got.code != cli.ExitOK || strings.Contains(got.stdout, "ERROR") {
				t.Errorf("without a failure: %+v", got)
			}
		})
	}
}

// TestForgetEmptyInput: an empty line on standard input is no subject.
func TestForgetEmptyInput(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"", "\n"} {
		got := runOn(t.Context(), cli.Stdio{Stdin: strings.NewReader(input)}, nil, "forget", "-")
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "error: standard input has no subject\n") {
			t.Errorf("%q: %+v", input, got)
		}
	}
}
