package command

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

// TestRun: the program uses only the environment and the streams that it is given.
func TestRun(t *testing.T) {
	t.Parallel()
	got := runProgram(t, map[string]string{"EXPORT_API_KEY": secretKey}, "config", "show", "--json",
		"--export-page-size", "5")
	if got.code != cli.ExitOK || got.stderr != "" || !strings.Contains(got.stdout, `"value": "5"`) {
		t.Errorf("%+v", got)
	}
	wantNoSecrets(t, got)
}

// TestCompletionOfOtherShells: a shell without completion is wrong usage.
func TestCompletionOfOtherShells(t *testing.T) {
	t.Parallel()
	if got := runProgram(t, nil, "completion", "tcsh"); got.code != cli.ExitUsage || got.stdout != "" ||
		!strings.Contains(got.stderr, `unknown command "tcsh"`) {
		t.Errorf("%+v", got)
	}
	if got := runProgram(t, nil, "completion"); got.code != cli.ExitOK || !strings.Contains(got.stdout, "bash") {
		t.Errorf("%+v", got)
	}
}

// TestRunEndsInItsLog: with a JSON log, warnings and the error that ends the command
// are JSON lines too; otherwise they are text.
func TestRunEndsInItsLog(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, test := range []struct {
		env       map[string]string
		json      bool
		said, try string
	}{
		{map[string]string{"LOG_FORMAT": "json"}, true, "EXPORT_API_KEY is not set", "config docs"},
		{map[string]string{}, true, "EXPORT_API_KEY is not set", "config docs"},
		{map[string]string{"LOG_FORMAT": "text"}, false, "EXPORT_API_KEY is not set", "config docs"},
		{map[string]string{"LOG_FORMAT": "json", "EXPORT_API_KEY": "k", "HTTP_ADDR": taken.Addr().String()}, true,
			"address already in use", "HTTP_ADDR"},
		{map[string]string{"LOG_FORMAT": "json", "EXPORT_API_KEY": "k", "HTTP_ADDR": "off", "HTTP_PROBE_ADDR": taken.Addr().String()},
			true, "address already in use", "choose another HTTP_PROBE_ADDR"},
		{map[string]string{"LOG_FORMAT": "json", "EXPORT_API_KEY": "k", "HTTP_AUDIT_LOG": "/nonexist/dir/log"}, true,
			"HTTP_AUDIT_LOG", "create the directory /nonexist/dir, or name another file in HTTP_AUDIT_LOG"},
	} {
		test.env["EXPORT_PAGESIZE"] = "5" // looks like a setting
		got := runProgram(t, test.env, "run")
		lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
		if got.code != cli.ExitUsage || !strings.Contains(lines[0], "EXPORT_PAGESIZE") ||
			!strings.Contains(got.stderr, test.said) || !strings.Contains(lines[len(lines)-1], test.try) {
			t.Errorf("%v: %+v", test.env, got)
		}
		for _, line := range lines {
			if json.Valid([]byte(line)) != test.json {
				t.Errorf("%v: the line %q is JSON: %v", test.env, line, !test.json)
			}
		}
	}
}

// An empty --until, as of a variable that is not set, is no run without an end.
func TestRunUntilNothing(t *testing.T) {
	t.Parallel()
	env := map[string]string{"EXPORT_API_KEY": secretKey, "EXPORT_URL": "http://127.0.0.1:1", "HTTP_ADDR": "nonsense"}
	for _, until := range []string{"", "earliest", "0"} {
		if got := runProgram(t, env, "run", "--until", until); got.code != cli.ExitUsage ||
			!strings.Contains(got.stderr, "--until") {
			t.Errorf("run --until %q: %+v", until, got)
		}
	}
}

// TestRunDenied: a start names all topics of records that may not be written, so that their grants are asked for once.
func TestRunDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["HTTP_ADDR"] = "off"
	allow := func(kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	secureKafka(t, w.env, allow(kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationRead),
		allow(kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationDescribeConfigs),
		allow(kmsg.ACLResourceTypeTopic, "exportbridge.checkpoints", kmsg.ACLOperationWrite),
		allow(kmsg.ACLResourceTypeTransactionalId, "*", kmsg.ACLOperationAll),
		allow(kmsg.ACLResourceTypeGroup, "*", kmsg.ACLOperationAll))
	got := runProgram(t, w.env, "run", "--once")
	if got.code != cli.ExitRefused ||
		!strings.Contains(got.stderr, "topics export.events, dlq.export.events: no permission to write") ||
		!strings.Contains(got.stderr, "--topic export.events --topic dlq.export.events") {
		t.Errorf("%+v", got)
	}
}
