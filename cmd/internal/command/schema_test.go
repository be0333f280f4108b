package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// schemaWorld is a Kafka with n events over three partitions, the first one with a member that
// the others lack.
func schemaWorld(t *testing.T, n int) (env map[string]string, client *kgo.Client) {
	t.Helper()
	addr := servers.EmbeddedKafka(t, kfake.SeedTopics(3, "export.events")).ListenAddrs()[0]
	client = servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var all []*kgo.Record
	for i := range n {
		all = append(all, eventRecord(int32(i%3), i, "k", fmt.Sprintf(`{"id":"%d","total":%d}`, i, i)))
	}
	all[0].Value = []byte(`{"id":"0","total":0,"first":true}`)
	produce(t, client, all...)
	tombstone := eventRecord(0, 0, "k", "")
	tombstone.Value = nil
	produce(t, client, tombstone)
	return map[string]string{"KAFKA_BROKERS": addr}, client
}

// infer writes the schema of the newest num records, and returns the file.
func infer(t *testing.T, env map[string]string, num string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events.schema.json")
	if got := runProgram(t, env, "schema", "infer", "-n", num, "-o", file); got.code != cli.ExitOK ||
		got.stderr != "inferred from "+num+" records\n" || got.stdout != "" {
		t.Fatalf("infer: %+v", got)
	}
	return file
}

// A schema that is inferred from some records is compared with all, in the document of the
// streams too.
func TestSchema(t *testing.T) {
	t.Parallel()
	env, _ := schemaWorld(t, 40)
	env["EVENT_SCHEMA_FILE"] = infer(t, env, "39")
	got := runProgram(t, env, "schema", "check", "-n", "39")
	if got.code != cli.ExitOK || got.stdout != "  39 records of topic export.events: no differences\n" {
		t.Errorf("the sample itself: %+v", got)
	}
	got = runProgram(t, env, "schema", "check")
	if got.code != cli.ExitCheck || !strings.Contains(got.stderr, "1 of 40 records differs from") {
		t.Errorf("all: %+v", got)
	}
	wantLines(t, got.stdout, []string{`^RECORDS +FIRST +MEMBER +DIFFERENCE$`, `^1 +0@0 +/first +is not in the schema$`})
	got = runProgram(t, env, "schema", "check", "--json")
	var report struct {
		Records, Differing int
		Differences        []map[string]any
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || report.Records != 40 || report.Differing != 1 ||
		fmt.Sprint(report.Differences) != "[map[difference:is not in the schema first:0@0 pointer:/first records:1]]" {
		t.Errorf("%v: %+v", err, got)
	}
	got = runProgram(t, env, "asyncapi", "--json")
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal([]byte(got.stdout), &document); err != nil || got.code != cli.ExitOK ||
		fmt.Sprint(document.Components.Schemas["events"]["required"]) != "[id total]" {
		t.Errorf("%v: %+v", err, got)
	}
	if got := runProgram(t, env, "schema", "types", "-n", "39"); got.code != cli.ExitOK {
		t.Errorf("types: %+v", got)
	} else {
		wantLines(t, got.stdout, []string{`^com.croct.event.linkOpened +20 +2026-11-01 12:00:39Z$`,
			`^com.croct.event.orderPlaced +19 +2026-11-01 12:00:38Z$`})
	}
}

// Wrong calls name the setting and the remedy.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	env, _ := schemaWorld(t, 1)
	file := filepath.Join(t.TempDir(), "a.json")
	must.Do(t, os.WriteFile(file, []byte(`{"$ref": "#a"}`), 0o600))
	for args, want := range map[string]string{
		"schema check":                              "or has no schema of topic export.events\nTry: exportbridge schema infer",
		"schema infer -n 0":                         "-n 0 is below 1",
		"schema check -n -1":                        "-n -1 is below 1",
		"schema types -n 0":                         "-n 0 is below 1",
		"schema infer --stream x":                   "unknown stream",
		"schema nosuch":                             "unknown command",
		"schema check --event-schema {":             "EVENT_SCHEMA",
		"schema check --event-schema a.json":        "for a file set EVENT_SCHEMA_FILE=events.schema.json",
		"asyncapi --event-schema 3":                 "a schema is an object",
		"asyncapi --set EVENT_SCHEMA_FILE=" + file:  "EVENT_SCHEMA (file " + file + ") is not a JSON Schema",
		"run --set EVENT_SCHEMA_FILE=" + file:       "correct the file, or write one: exportbridge schema infer",
		"run --bridge-on-schema-mismatch bad-event": "BRIDGE_ON_SCHEMA_MISMATCH is bad-event, but events have no schema",
	} {
		if got := runProgram(t, env, strings.Fields(args)...); got.code != cli.ExitUsage ||
			!strings.Contains(got.stderr, want) ||
			strings.Contains(got.stderr, "for a file set") != strings.HasSuffix(args, " a.json") {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	if got := runProgram(t, env, "schema", "infer", "--kafka-topic", "export.nosuch"); got.code != cli.ExitFailed ||
		!strings.Contains(got.stderr, "topic export.nosuch does not exist") {
		t.Errorf("missing topic: %+v", got)
	}
}

// With routes, one file has the schema of each topic, which the commands use. An empty topic has
// none.
func TestSchemaTopics(t *testing.T) {
	t.Parallel()
	addr := servers.EmbeddedKafka(t, kfake.SeedTopics(1, "export.events", "orders", "rare")).ListenAddrs()[0]
	var all []*kgo.Record
	for i := range shownUnreadable + 2 {
		r := eventRecord(0, i, "k", `{"total":1}`)
		r.Topic = "orders"
		bad := eventRecord(0, i, "k", "no JSON")
		all = append(all, r, bad)
	}
	produce(t, servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner())), append(all,
		eventRecord(0, 99, "k", `{"at":1}`))...)
	env := map[string]string{"KAFKA_BROKERS": addr, "KAFKA_ROUTES": "order*=orders,x=rare"}
	file := filepath.Join(t.TempDir(), "events.schema.json")
	got := runProgram(t, env, "schema", "infer", "-o", file)
	if got.code != cli.ExitOK || strings.Count(got.stderr, " of topic export.events left out: ") != shownUnreadable ||
		!strings.Contains(got.stderr, "\n2 records more of topic export.events left out\ntopic export.events: inferred from 1 record\ntopic orders: ") {
		t.Fatalf("infer: %+v", got)
	}
	env["EVENT_SCHEMA_FILE"] = file
	for args, want := range map[string]string{
		"schema check --topic orders":             "12 records of topic orders: no differences",
		"schema types --topic orders":             "12 records of topic orders",
		"schema check -n 1 --topic export.events": "1 record of topic export.events: no differences",
		"schema check":                            "publishes to several topics (KAFKA_ROUTES): export.events, orders, rare\nTry: add --topic orders",
		"schema check --topic rare":               "EVENT_SCHEMA_FILE is not set for stream events, or has no schema of topic rare",
		"schema register --topic rare":            "or has no schema of topic rare",
		"schema register":                         "publishes to several topics",
		"schema check --topic nosuch":             "topic nosuch is not one of stream events: export.events, orders, rare",
		"asyncapi --json":                         `"#/components/schemas/events.route-1"`,
		"asyncapi --json --bridge-attest 1h":      `"export.events.attest"`,
		"asyncapi --json --event-encrypt /email":  `"keysTopic": "export.events.keys"`,
	} {
		if got := runProgram(t, env, strings.Fields(args)...); !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
}

// shownUnreadable is how many unreadable records of a topic schema infer names.
const shownUnreadable = 10

// With --follow, a difference is printed when it first occurs, and counted until the end.
func TestSchemaFollow(t *testing.T) {
	t.Parallel()
	env, client := schemaWorld(t, 4)
	env["EVENT_SCHEMA_FILE"] = infer(t, env, "3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan result, 1)
	go func() {
		got := runOn(ctx, cli.Stdio{Stdout: &out, Stderr: w}, env, "schema", "check", "--follow")
		w.Close()
		done <- got
	}()
	lines := make(chan string)
	go func() {
		var text [4096]byte
		for {
			n, err := r.Read(text[:])
			if err != nil {
				close(lines)
				return
			}
			lines <- string(text[:n])
		}
	}()
	await := func(want string) {
		t.Helper()
		var text strings.Builder
		for line := range lines {
			text.WriteString(line)
			if strings.Contains(text.String(), want) {
				return
			}
		}
		t.Fatalf("stderr is %s, want %q", text.String(), want)
	}
	await("0@0: /first is not in the schema\n")
	produce(t, client, eventRecord(1, 5, "k", `{"id":"5","total":5,"first":1}`),
		eventRecord(1, 6, "k", `{"id":6,"total":6}`))
	await("1@2: /id is number, want string\n")
	cancel()
	for range lines { // the verdict
	}
	if got := <-done; got.code != cli.ExitCheck {
		t.Errorf("exit code %d, want %d", got.code, cli.ExitCheck)
	}
	wantLines(t, out.String(), []string{`^2 +0@0 +/first`, `^1 +1@2 +/id`})
}
