package command

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/setup"
)

func TestTopics(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	must.Do(t, kafka.CreateTopic("export.users", 1, map[string]string{"retention.ms": "604800000"}))
	env := map[string]string{"KAFKA_BROKERS": kafka.ListenAddrs()[0], "REDIS_URL": "redis://" + servers.FreeAddress(t),
		"BRIDGE_STREAMS": "events,users"}
	steps := []struct {
		args []string
		want []string
	}{
		{[]string{"plan"}, []string{
			`^TOPIC +STREAM +FOR +STATE +PARTITIONS +REPLICAS$`, `^export.events +events +events +missing +6 `,
			`^dlq.export.events +events +dead letters +missing `,
			`^exportbridge.checkpoints.jobs +events +jobs +on demand `, `^export.users +users +events +exists +1 +1$`,
			`^export.events keeps records forever$`, `retention.ms=-1`,
			`^export.users keeps records for 7d by event time`, `^  differs: partitions is 1, expected 6; left unchanged$`,
			`^Nothing was changed, 5 topics missing \(1 for jobs,` +
				` otherwise created on demand\). Try: exportbridge topics create --execute$`,
		}},
		{[]string{"create"}, []string{`^export.events .* missing `,
			`^dry run: nothing was changed, 5 topics missing \(1 for jobs,` +
				` otherwise created on demand\). Add --execute to create.$`}},
		{[]string{"create", "--stream", "users"}, []string{`^dry run: nothing was changed, 3 topics missing \(1 for jobs`}},
		{[]string{"create", "--execute", "--kafka-partitions", "2"},
			[]string{`^export.events .* created +2 `, `^export.users .* exists +1 `, `^5 topics created.$`}},
		{[]string{"create", "--execute"}, []string{`^export.events .* exists +2 `,
			`^Every topic exists; nothing was changed.$`}},
	}
	for _, step := range steps {
		if got := kafka.TopicInfo("export.events"); (got != nil) != (step.want[len(step.want)-1] == `^Every topic `+
			`exists; nothing was changed.$`) {
			t.Fatalf("before topics %v export.events is %+v", step.args, got)
		}
		got := runProgram(t, env, append([]string{"topics"}, step.args...)...)
		if got.code != cli.ExitOK || got.stderr != "" {
			t.Errorf("topics %v: %+v", step.args, got)
		}
		wantLines(t, got.stdout, step.want)
	}
	must.Do(t, kafka.DeleteTopic("exportbridge.checkpoints.jobs"))
	for command, want := range map[string]string{
		"plan":   `^Every required topic exists; nothing was changed. 1 topic for jobs will be created on demand.$`,
		"create": `^1 topic for jobs will be created on demand, or now with --execute.$`,
	} {
		wantLines(t, runProgram(t, env, "topics", command).stdout, []string{want})
	}
	if n := kafka.TopicInfo("export.users"); n == nil {
		t.Error("export.users is gone")
	}
}

func TestTopicsJSON(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	env := map[string]string{"KAFKA_BROKERS": kafka.ListenAddrs()[0], "REDIS_URL": "redis://" + servers.FreeAddress(t)}
	for _, test := range []struct {
		args    []string
		changed bool
	}{{[]string{"plan"}, false}, {[]string{"create"}, false}, {[]string{"create", "--execute"}, true},
		{[]string{"create", "--execute"}, false}} {
		got := runProgram(t, env, append(append([]string{"topics"}, test.args...), "--json")...)
		var report setup.TopicsReport
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%v: %v in %+v", test.args, err, got)
		}
		names := []string{"export.events", "dlq.export.events", "exportbridge.checkpoints", "exportbridge.checkpoints.jobs"}
		if report.Changed != test.changed || len(report.Topics) != 4 || report.Topics[0].Name != names[0] ||
			test.changed != slices.Equal(report.Created, names) {
			t.Errorf("%v: %+v", test.args, report)
		}
	}
}

func TestTopicsACLs(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KAFKA_BROKERS": servers.EmbeddedKafka(t).ListenAddrs()[0]}
	got := runProgram(t, env, "topics", "plan", "--acls")
	for line := range strings.Lines(got.stdout) {
		if !strings.HasPrefix(line, "kafka-acls.sh --bootstrap-server "+env["KAFKA_BROKERS"]) &&
			!strings.HasPrefix(line, "# for replay, backfill") {
			t.Errorf("line %q", line)
		}
	}
	if got.code != cli.ExitOK || strings.Count(got.stdout, "\n") != 8+1+7 || !strings.Contains(got.stderr, "<principal>") {
		t.Errorf("%+v", got)
	}
}

// TestTopicsWithoutJobs: a topic of jobs that may not be described is named beside the others.
func TestTopicsWithoutJobs(t *testing.T) {
	t.Parallel()
	env := map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t)}
	var acls []kfake.ACL
	for _, topic := range []string{"export.events", "dlq.export.events", "exportbridge.checkpoints"} {
		acls = append(acls, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationDescribe, Allow: true,
		})
	}
	secureKafka(t, env, acls...)
	for _, args := range []string{"plan", "create --execute"} {
		got := runProgram(t, env, append([]string{"topics"}, strings.Fields(args)...)...)
		if got.code != cli.ExitOK {
			t.Errorf("topics %s: %+v", args, got)
		}
		wantLines(t, got.stdout, []string{
			`^export.events .* exists `, `^exportbridge.checkpoints.jobs +events +jobs +denied +unknown +unknown$`,
			`^exportbridge.checkpoints.jobs may not be described, .* topics plan --acls$`,
			`^Every required topic exists; nothing was changed.$`,
		})
	}
}

func TestTopicsErrors(t *testing.T) {
	t.Parallel()
	restricted := map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t)}
	restrictedKafka(t, restricted)
	for _, test := range []struct {
		env    map[string]string
		args   []string
		code   int
		stderr string
	}{
		{map[string]string{"KAFKA_BROKERS": servers.FreeAddress(t)}, []string{"plan"}, cli.ExitFailed,
			"Try: check that Kafka is running"},
		{nil, []string{"plan", "--stream", "x"}, cli.ExitUsage, "unknown stream"},
		{nil, []string{"plan", "--execute"}, cli.ExitUsage, "unknown flag: --execute"},
		{restricted, []string{"create", "--execute", "--kafka-topic", "export.new"}, cli.ExitRefused,
			"--operation Create --topic export.new"},
	} {
		got := runProgram(t, test.env, append([]string{"topics"}, test.args...)...)
		if got.code != test.code || got.stdout != "" || !strings.Contains(got.stderr, test.stderr) {
			t.Errorf("topics %v: %+v, want code %d and %q", test.args, got, test.code, test.stderr)
		}
		wantNoSecrets(t, got)
	}
}

// TestTopicsBeyondAFailure: a topic that may not be created keeps topics create from no other one. What was created is
// listed beside the error.
func TestTopicsBeyondAFailure(t *testing.T) {
	t.Parallel()
	var acls []kfake.ACL
	for _, topic := range []string{"export.first", "dlq.export.first", "dlq.export.second", "export.third", "dlq.export.third",
		"exportbridge.checkpoints.jobs"} {
		for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe} {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic,
				Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
	}
	for _, topic := range []string{"export.second", "exportbridge.checkpoints"} {
		acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic,
			Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true})
	}
	for _, flags := range []string{"", " --json"} {
		env := map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t), "BRIDGE_STREAMS": "first,second,third"}
		secureKafka(t, env, acls...)
		got := runProgram(t, env, strings.Fields("topics create --execute"+flags)...)
		if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "stream second: ") ||
			!strings.Contains(got.stderr, "--operation Create --topic export.second") {
			t.Errorf("%+v, want the command that grants the topic of stream second", got)
		}
		created := []string{"export.first", "dlq.export.first", "exportbridge.checkpoints.jobs", "dlq.export.second",
			"export.third", "dlq.export.third"}
		if flags != "" {
			var report setup.TopicsReport
			must.Do(t, json.Unmarshal([]byte(got.stdout), &report))
			if !slices.Equal(report.Created, created) || !report.Changed {
				t.Errorf("created are %v, want %v", report.Created, created)
			}
			continue
		}
		wantLines(t, got.stdout, []string{`^export.first .* created `, `^export.second .* missing `,
			`^dlq.export.second .* created `, `^export.third .* created `, `^6 topics created, 1 still missing.$`})
	}
}

// TestTopicsUnknown: topics do not all exist as far as is known if a stream could not be planned.
func TestTopicsUnknown(t *testing.T) {
	t.Parallel()
	var acls []kfake.ACL
	for _, topic := range []string{"export.first", "dlq.export.first", "exportbridge.checkpoints", "exportbridge.checkpoints.jobs"} {
		for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe} {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic,
				Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
	}
	env := map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t), "BRIDGE_STREAMS": "first"}
	secureKafka(t, env, acls...)
	succeed(t, env, "topics", "create", "--execute")
	env["BRIDGE_STREAMS"] = "first,second"
	got := runProgram(t, env, "topics", "plan")
	if got.code != cli.ExitRefused || strings.Contains(got.stdout, "topic exists") ||
		!strings.Contains(got.stderr, "stream second: ") {
		t.Errorf("%+v", got)
	}
	wantLines(t, got.stdout, []string{`^export.first .* exists `, `^Nothing was changed; other streams failed.$`})
	env["KAFKA_BROKERS"] = servers.FreeAddress(t)
	if got = runProgram(t, env, "topics", "plan"); got.code != cli.ExitFailed || got.stdout != "" {
		t.Errorf("without brokers: %+v", got)
	}
}

// TestTopicsWait: topics create waits for brokers that are still starting.
func TestTopicsWait(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	start := kafka.Break()
	env := map[string]string{"KAFKA_BROKERS": kafka.ListenAddrs()[0], "REDIS_URL": "redis://" + servers.FreeAddress(t)}
	args := []string{"topics", "create", "--execute"}
	if got := runProgram(t, env, args...); got.code != cli.ExitFailed {
		t.Errorf("without --wait: %+v", got)
	}
	said := startsOn{prefix: "waiting for Kafka: ", start: start}
	got := runOn(t.Context(), cli.Stdio{Stderr: &said}, env, append(args, "--wait", "5m")...)
	if got.code != cli.ExitOK || !strings.Contains(got.stdout, " created.") || strings.Count(said.text, "\n") != 1 {
		t.Errorf("with --wait: %+v, stderr %q", got, said.text)
	}
	if got := runProgram(t, env, append(args, "--wait", "-1s")...); got.code != cli.ExitUsage {
		t.Errorf("--wait -1s: %+v", got)
	}
}

// startsOn starts the brokers when the program prints that it waits for them.
type startsOn struct {
	prefix, text string
	start        func()
}

func (s *startsOn) Write(p []byte) (int, error) {
	if s.text += string(p); strings.HasPrefix(s.text, s.prefix) {
		s.start()
	}
	return len(p), nil
}
