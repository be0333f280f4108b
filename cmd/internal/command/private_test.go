package command

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
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
			succeed(t, env, "run", "--once")
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

// TestForgetNothing: a script can parse the result of streams that have never encrypted values.
func TestForgetNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range []string{"forget anna --json", "keys rewrap --json"} {
		got := runProgram(t, w.env, strings.Fields(args)...)
		if got.code != cli.ExitFailed || got.stdout != "[]\n" || !strings.Contains(got.stderr, "no stream encrypts values") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestForgetFormerTopic: the values in a former topic have their keys in a topic of keys of its own. forget and keys
// rewrap take it too, as long as it exists, and also if it is that of a route by now.
func TestForgetFormerTopic(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	keys := func(topic string) {
		must.Do(t, kafka.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"}))
	}
	env := encrypting(annasEvent(t), kafka)
	env["REDIS_URL"], env["KAFKA_CREATE_TOPICS"] = "redis://"+servers.EmbeddedRedis(t).Addr()+"/0", "true"
	env["KAFKA_TOPIC"] = "export.old"
	succeed(t, env, "run", "--once")
	keys("export.new.keys")
	env["KAFKA_TOPIC"] = "export.new"
	for _, routes := range []string{"order.*=export.old", ""} {
		env["KAFKA_ROUTES"] = routes
		wantLines(t, runProgram(t, env, "forget", "anna").stdout, []string{`^events +export.new.keys +0 +0 +no$`,
			`^events +export.old.keys +1 +0 +no$`})
		wantLines(t, runProgram(t, env, "keys", "rewrap").stdout, []string{`^events +export.old.keys +m1 +1 +1$`})
	}
	several := maps.Clone(env)
	several["BRIDGE_STREAMS"], several["STREAM_USERS_KAFKA_TOPIC"] = "events,users", "export.old"
	for _, several["KAFKA_ROUTES"] = range []string{"", "order.*=export.old"} {
		got := runProgram(t, several, "forget", "anna", "--stream", "events")
		if got.code != cli.ExitOK || strings.Contains(got.stdout, "export.old") {
			t.Errorf("with a former topic, or a route, that another stream has, routes %q: %+v", several["KAFKA_ROUTES"], got)
		}
	}
	for _, name := range []string{"EVENT_ENCRYPT", "EVENT_ENCRYPT_KEY", "EVENT_HASH_KEY"} {
		several["STREAM_EVENTS_"+name] = several[name]
		delete(several, name)
	}
	wantLines(t, runProgram(t, several, "forget", "anna").stdout, []string{`^events +export.old.keys +1 +0 +no$`})
	got := runProgram(t, env, "forget", "anna", "--execute")
	wantLines(t, got.stdout, []string{`^events +export.new.keys +0 +0 +20`, `^events +export.old.keys +1 +1 +20`})
	if got.code != cli.ExitOK {
		t.Errorf("forget: %+v", got)
	}
	keys("export.other.keys")
	env["KAFKA_TOPIC"], env["EVENT_ENCRYPT_KEY"] = "export.other", strings.ReplaceAll(env["EVENT_HASH_KEY"], "k1", "m1")
	got = runProgram(t, env, "forget", "anna", "--execute")
	wantLines(t, got.stdout, []string{`^events +export.other.keys +0 +0 +20`, `^events +export.old.keys .* first master key$`})
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "delete topic export.old.keys") {
		t.Errorf("with the master key of the new topic only: %+v, want a hint that leaves the key alone", got)
	}
	must.Do(t, kafka.DeleteTopic("export.old.keys"))
	if got = runProgram(t, env, "forget", "anna"); got.code != cli.ExitOK || strings.Contains(got.stdout, "export.old") {
		t.Errorf("without the former topic: %+v", got)
	}
}

// TestForgetAfterEncryption: the values of a stream whose EVENT_ENCRYPT was turned off are encrypted still. forget and
// keys rewrap take its keys, or say that they cannot.
func TestForgetAfterEncryption(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	env := encrypting(annasEvent(t), kafka)
	env["REDIS_URL"], env["KAFKA_CREATE_TOPICS"] = "redis://"+servers.EmbeddedRedis(t).Addr()+"/0", "true"
	env["BRIDGE_STREAMS"], env["EXPORT_RESOURCE"] = "was,never", "events"
	env["STREAM_WAS_EVENT_ENCRYPT"] = env["EVENT_ENCRYPT"]
	delete(env, "EVENT_ENCRYPT")
	succeed(t, env, "run", "--once")
	delete(env, "STREAM_WAS_EVENT_ENCRYPT")
	master := env["EVENT_ENCRYPT_KEY"]
	delete(env, "EVENT_ENCRYPT_KEY")
	got := runProgram(t, env, "forget", "anna", "--execute")
	wantLines(t, got.stdout, []string{`^was +export.was.keys +0 +0 +unknown +stream was: topic export.was.keys exists`})
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "export.was.keys exists") ||
		!strings.Contains(got.stderr, "EVENT_ENCRYPT_KEY_FILE") || strings.Contains(got.stderr, "never") {
		t.Errorf("without the master key: %+v", got)
	}
	env["EVENT_ENCRYPT_KEY"] = master
	wantLines(t, runProgram(t, env, "keys", "rewrap").stdout, []string{`^was +export.was.keys +m1 +1 +1$`})
	got = runProgram(t, env, "forget", "anna", "--execute")
	wantLines(t, got.stdout, []string{`^was +export.was.keys +1 +1 +20`})
	if got.code != cli.ExitOK || strings.Contains(got.stdout, "never") {
		t.Errorf("with the master key: %+v", got)
	}
	env["STREAM_NEVER_EVENT_ENCRYPT"], env["STREAM_NEVER_KAFKA_TOPIC"] = "/payload/email", "export.was"
	got = runProgram(t, env, "forget", "anna")
	if n := strings.Count(got.stdout, "export.was.keys"); n != 1 || got.code != cli.ExitOK {
		t.Errorf("with the topic of another stream, which encrypts: %+v", got)
	}
	env["BRIDGE_STREAMS"] = "never"
	delete(env, "STREAM_NEVER_EVENT_ENCRYPT")
	delete(env, "STREAM_NEVER_KAFKA_TOPIC")
	if got = runProgram(t, env, "forget", "anna"); got.code != cli.ExitFailed ||
		!strings.Contains(got.stderr, "no stream encrypts values") {
		t.Errorf("without keys: %+v", got)
	}
}

// TestForgetFormerTopicUnseen: a former topic of keys that may not be looked up is an error, since it may exist. A
// route has no keys, and needs no grant for them.
func TestForgetFormerTopicUnseen(t *testing.T) {
	t.Parallel()
	var acls []kfake.ACL
	for _, prefix := range []string{"export.new", "exportbridge."} {
		for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite,
			kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs} {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: prefix,
				Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true})
		}
	}
	env := encrypting(annasEvent(t), servers.EmbeddedKafka(t))
	secureKafka(t, env, acls...)
	writer := maps.Clone(env)
	env["KAFKA_SASL_USERNAME"], env["KAFKA_SASL_PASSWORD"] = "admin", "admin"
	env["REDIS_URL"], env["KAFKA_CREATE_TOPICS"] = "redis://"+servers.EmbeddedRedis(t).Addr()+"/0", "true"
	for _, step := range []struct{ topic, command string }{{"export.old", "run --once"}, {"export.new", "topics create --execute"}} {
		env["KAFKA_TOPIC"] = step.topic
		succeed(t, env, strings.Fields(step.command)...)
	}
	writer["KAFKA_TOPIC"] = "export.new"
	got := runProgram(t, writer, "forget", "anna", "--execute")
	wantLines(t, got.stdout, []string{`^events +export.new.keys +0 +0 +20`})
	if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "--topic export.old.keys") {
		t.Errorf("%+v, want the command that grants the topic", got)
	}
	for _, command := range []string{"forget anna --json", "keys rewrap --json"} {
		var all []struct{ Stream, Topic, Error string }
		got = runProgram(t, writer, strings.Fields(command)...)
		if must.Do(t, json.Unmarshal([]byte(got.stdout), &all)); len(all) != 2 || all[1].Stream != "events" ||
			!strings.Contains(all[1].Error, "export.old.keys") {
			t.Errorf("%s: %+v, want the error of the former topic in a line of its own", command, all)
		}
	}
	writer["KAFKA_ROUTES"] = "order.*=export.old"
	if got = runProgram(t, writer, "forget", "anna"); got.code != cli.ExitOK {
		t.Errorf("with a route: %+v", got)
	}
	writer["BRIDGE_STREAMS"], writer["STREAM_PLAIN_EXPORT_RESOURCE"] = "events,plain", "events"
	writer["STREAM_EVENTS_EVENT_ENCRYPT"], writer["STREAM_EVENTS_KAFKA_TOPIC"] = writer["EVENT_ENCRYPT"], "export.new"
	delete(writer, "EVENT_ENCRYPT")
	delete(writer, "KAFKA_TOPIC")
	if got = runProgram(t, writer, "forget", "anna"); got.code != cli.ExitOK ||
		!strings.Contains(got.stderr, "stream plain encrypts no values now, and its keys were not searched") {
		t.Errorf("beside a stream without encryption: %+v, want it named", got)
	}
}

// TestResumeIntoFormerTopic: a job that is resumed after a change of KAFKA_TOPIC encrypts with the keys of the topic of when it
// began. Readers of the topic that it publishes to have no others.
func TestResumeIntoFormerTopic(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	env := encrypting(annasEvent(t), kafka)
	env["REDIS_URL"], env["KAFKA_CREATE_TOPICS"] = "redis://"+servers.EmbeddedRedis(t).Addr()+"/0", "true"
	env["KAFKA_TOPIC"] = "export.old"
	succeed(t, env, "run", "--once")
	a := &cli.App{Environ: []string{"KAFKA_BROKERS=" + env["KAFKA_BROKERS"], "EXPORT_API_KEY=" + secretKey}}
	s := must.Get(a.Settings(config.UsesKafka, nil))(t)
	from := firstEvent.Add(-time.Hour).UnixMilli()
	compact := map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"}
	must.Do(t, kafka.CreateTopic("exportbridge.checkpoints.jobs", 16, compact))
	for _, topic := range []string{"export.old.replay.bbbbbb", "dlq.export.old.replay.bbbbbb"} {
		must.Do(t, kafka.CreateTopic(topic, 1, nil))
	}
	jobs := backfill.NewJobs(s.Streams[0].Kafka.Jobs(new(kafkasink.JobLogs)), "events")
	for _, job := range []backfill.Job{
		{ID: "aaaaaa", Kind: backfill.Backfill, Topic: "export.old"},
		{ID: "bbbbbb", Kind: backfill.Replay, Topic: "export.old.replay.bbbbbb"},
	} {
		job.Version, job.Stream, job.Resource, job.Created, job.State = 1, "events", "events", 1, backfill.Running
		job.From, job.To = from, from+2*time.Hour.Milliseconds()
		job.Windows = backfill.Split(job.From, job.To, 1)
		must.Do(t, jobs.Begin(t.Context(), job, false))
	}
	env["KAFKA_TOPIC"] = "export.new"
	for _, args := range []string{"topics create --execute", "backfill resume aaaaaa --here --execute",
		"backfill resume bbbbbb --here --execute"} {
		succeed(t, env, strings.Fields(args)...)
	}
	got := runProgram(t, env, "forget", "anna")
	wantLines(t, got.stdout, []string{`^events +export.new.keys +0 +0 +no$`, `^events +export.old.keys +1 +0 +no$`})
}

// annasEvent serves an export of one event with a value of anna, and returns its URL.
func annasEvent(t *testing.T) string {
	t.Helper()
	return serveItems(t, func(*http.Request) (items []string, next string) {
		return []string{fmt.Sprintf(`{"eventId":"e","userId":"anna","timestamp":%d,`+
			`"payload":{"@type":"x","email":"anna@example.com"}}`, firstEvent.UnixMilli())}, "null"
	})
}

// TestForgetInput: an empty line on standard input is no subject, and two lines are not taken for the first one.
func TestForgetInput(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"": "no subject\n", "\r\n": "no subject\n", "anna\nben\n": "several lines, one is a subject\n",
	} {
		got := runOn(t.Context(), cli.Stdio{Stdin: strings.NewReader(input)}, nil, "forget", "-")
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "error: standard input has "+want) {
			t.Errorf("%q: %+v", input, got)
		}
	}
}
