package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
)

// lettersWorld is a Kafka of two brokers. Each has a partition with dead letters; the broker
// of partition 1 can be stalled.
func lettersWorld(t *testing.T, n int) (*servers.Cluster, map[string]string) {
	t.Helper()
	kafka := servers.EmbeddedKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "export.events", "dlq.export.events"))
	for p := range int32(2) {
		must.Do(t, kafka.MoveTopicPartition("dlq.export.events", p, p))
	}
	addr := kafka.ListenAddrs()[0]
	client := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var all []*kgo.Record
	for i := range n {
		all = append(all, &kgo.Record{
			Topic: "dlq.export.events", Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"id":"%d"}`, i),
			Timestamp: firstEvent.Add(time.Duration(i) * time.Second),
			Headers: []kgo.RecordHeader{{Key: "eb-stream", Value: []byte("events")},
				{Key: kafkarecord.HeaderReason, Value: []byte("bad-timestamp")}},
		})
	}
	produce(t, client, all...)
	return kafka, map[string]string{"KAFKA_BROKERS": addr, "EXPORT_URL": "http://127.0.0.1:1", "EXPORT_API_KEY": secretKey}
}

// countListed counts the letters that dlq list lists.
func countListed(t *testing.T, got result) int {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.code != cli.ExitOK {
		t.Fatalf("dlq list: %+v: %v", got, err)
	}
	return len(all)
}

// awaited is an output that calls seen at the first write that has the text.
type awaited struct {
	all  strings.Builder
	text string
	seen func()
}

func (w *awaited) Write(p []byte) (int, error) {
	if w.seen != nil && strings.Contains(string(p), w.text) {
		w.seen()
		w.seen = nil
	}
	return w.all.Write(p)
}

// TestLettersOfNoTopic: a topic that does not exist has no letters, but a wrong name is an
// error.
func TestLettersOfNoTopic(t *testing.T) {
	t.Parallel()
	_, env := lettersWorld(t, 1)
	env["KAFKA_TOPIC"] = "other"
	for _, args := range []string{"dlq list", "dlq retry --all", "dlq show 0:0"} {
		if got := runProgram(t, env, strings.Fields(args)...); got.code != cli.ExitFailed ||
			!strings.Contains(got.stderr, "topic other does not exist\n") {
			t.Errorf("%s: %+v, want an error that names the topic", args, got)
		}
	}
	env["KAFKA_TOPIC"], env["KAFKA_DLQ_TOPIC"] = "export.events", "dlq.other"
	for _, args := range []string{"dlq list", "dlq retry --all"} {
		if got := runProgram(t, env, strings.Fields(args)...); got.code != cli.ExitOK ||
			!strings.Contains(got.stdout+got.stderr, "dead letters in dlq.other, which does not exist\n") {
			t.Errorf("%s: %+v, want a note", args, got)
		}
	}
}

// A list without the letters of a stalled partition is an error.
func TestLettersOfAStalledPartition(t *testing.T) {
	t.Parallel()
	const n = 20
	kafka, env := lettersWorld(t, n)
	stderr := awaited{text: "waiting for Kafka: partition 1 of dlq.export.events is at offset 0 of 10: throttled by " +
		"the brokers' quota", seen: kafka.Stall(1)}
	got := runOn(t.Context(), cli.Stdio{Stderr: &stderr}, env, "dlq", "list", "--json")
	if listed := countListed(t, got); listed != n {
		t.Errorf("%d letters are listed, want %d", listed, n)
	}

	defer kafka.Stall(1)()
	var together sync.WaitGroup
	for _, args := range []string{"dlq list", "dlq retry --all", "dlq retry --all --execute", "dlq show 1:3",
		"dlq list --json"} {
		together.Go(func() {
			got := runProgram(t, env, append(strings.Fields(args), "--timeout", "8s")...)
			if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr,
				"dlq.export.events was not read to its end: partition 1 is at offset") ||
				!strings.Contains(got.stderr, "--timeout 10m") {
				t.Errorf("%s: %+v, want an error that says how far it came and what to do", args, got)
			}
		})
	}
	for _, args := range []string{"tail --dlq -n 100", "tail --dlq -n 100 -o start"} {
		together.Go(func() {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			stderr := awaited{text: "waiting for Kafka", seen: interrupt}
			if got := runOn(ctx, cli.Stdio{Stderr: &stderr}, env, strings.Fields(args)...); got.code != cli.ExitInterrupted {
				t.Errorf("%s that is interrupted: %+v %s, want exit code %d: it has not shown all", args, got,
					stderr.all.String(), cli.ExitInterrupted)
			}
		})
	}
	together.Wait()
}

// An incomplete list over HTTP is an error too.
func TestLettersOverHTTPOfAStalledPartition(t *testing.T) {
	t.Parallel()
	kafka, env := lettersWorld(t, 4)
	a := &cli.App{Environ: []string{"KAFKA_BROKERS=" + env["KAFKA_BROKERS"], "EXPORT_API_KEY=" + secretKey}}
	s := must.Get(a.Settings(config.UsesKafka, nil))(t)
	d := records.NewReader(s)
	found, err := d.DeadLetters(t.Context(), "events", 10)
	if err != nil || len(found) != 4 {
		t.Fatalf("%+v, %v", found, err)
	}
	defer kafka.Stall(1)()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	found, err = d.DeadLetters(ctx, "events", 10)
	if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); !ok ||
		!strings.Contains(err.Error(), "was not read to its end") {
		t.Errorf("%+v, %v; want an error that says so", found, err)
	}
}

// TestFormerLetters: an event in a former dead-letter topic is not missing.
func TestFormerLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"] = serveItems(t, func(*http.Request) ([]string, string) {
		return []string{event("a", 0), event("b", 1), strings.Replace(event("b", 1), `"b"`, `"b", "other": 1`, 1)}, "null"
	})
	w.env["BRIDGE_ON_SHARED_ID"], w.env["KAFKA_CREATE_TOPICS"] = "bad-event", "true"
	for _, topic := range []string{"dlq.old", "dlq.new"} {
		w.env["KAFKA_DLQ_TOPIC"] = topic
		w.runOnce(t)
	}
	for _, on := range []string{"dlq", "stop"} {
		w.env["BRIDGE_ON_BAD_EVENT"] = on
		got := runProgram(t, w.env, append([]string{"verify", "--json"}, aroundEvents()...)...)
		if got.code != cli.ExitOK || !strings.Contains(got.stdout, `"dead_lettered": 1,`) {
			t.Errorf("%+v, want one dead letter and no missing event", got)
		}
	}
}
