package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// lettersWorld is a Kafka of two brokers with dead letters in a partition of
// each; that of partition 1 can be stalled.
func lettersWorld(t *testing.T, n int) (*servers.Cluster, map[string]string) {
	t.Helper()
	kafka := servers.EmbeddedKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "export.events", "dlq.export.events"))
	for p := range int32(2) {
		if err := kafka.MoveTopicPartition("dlq.export.events", p, p); err != nil {
			t.Fatal(err)
		}
	}
	addr := kafka.ListenAddrs()[0]
	client := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var all []*kgo.Record
	for i := range n {
		all = append(all, &kgo.Record{
			Topic: "dlq.export.events", Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"id":"%d"}`, i),
			Timestamp: firstEvent.Add(time.Duration(i) * time.Second),
			Headers:   []kgo.RecordHeader{{Key: "eb-stream", Value: []byte("events")}, {Key: kafkasink.HeaderReason, Value: []byte("bad-timestamp")}},
		})
	}
	produce(t, client, all...)
	return kafka, map[string]string{"KAFKA_BROKERS": addr, "EXPORT_URL": "http://127.0.0.1:1", "EXPORT_API_KEY": secretKey}
}

// listedLettersOf returns what dlq list lists.
func listedLettersOf(t *testing.T, got result) []shownLetter {
	t.Helper()
	var all []shownLetter
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.code != cli.ExitOK {
		t.Fatalf("dlq list: %+v: %v", got, err)
	}
	return all
}

// A partition that shows nothing for a while holds its letters all the same,
// and a list without them is an error.
func TestLettersOfAStalledPartition(t *testing.T) {
	t.Parallel()
	const n = 20
	kafka, env := lettersWorld(t, n)
	release := kafka.Stall(1)
	time.AfterFunc(7*time.Second, release)
	got := runProgram(t, env, "dlq", "list", "--json")
	if all := listedLettersOf(t, got); len(all) != n {
		t.Errorf("%d letters are listed, want %d", len(all), n)
	}
	if !strings.Contains(got.stderr, "waiting for Kafka: partition 1 of dlq.export.events is at offset 0 of 10: throttled by the brokers' quota") {
		t.Errorf("stderr: %s", got.stderr)
	}

	defer kafka.Stall(1)()
	for _, args := range []string{"dlq list", "dlq retry --all", "dlq retry --all --execute", "dlq show 1:3", "dlq list --json"} {
		got := runProgram(t, env, append(strings.Fields(args), "--timeout", "3s")...)
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, "dlq.export.events was not read to its end: partition 1 is at offset") ||
			!strings.Contains(got.stderr, "--timeout 10m") {
			t.Errorf("%s: %+v, want an error that says how far it came and what to do", args, got)
		}
	}
	for _, args := range []string{"tail --dlq -n 100", "tail --dlq -n 100 -o start"} {
		var stdout, stderr bytes.Buffer
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(6*time.Second, interrupt)
		code := Program.Run(ctx, strings.Fields(args), []string{"KAFKA_BROKERS=" + env["KAFKA_BROKERS"]}, cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
		got := result{code, stdout.String(), stderr.String()}
		if got.code != cli.ExitInterrupted {
			t.Errorf("%s that is interrupted: %+v, want exit code %d: it has not shown all", args, got, cli.ExitInterrupted)
		}
	}
}

// The list over HTTP is an error too where it is not complete.
func TestLettersOverHTTPOfAStalledPartition(t *testing.T) {
	t.Parallel()
	kafka, env := lettersWorld(t, 4)
	a := &cli.App{Environ: []string{"KAFKA_BROKERS=" + env["KAFKA_BROKERS"], "EXPORT_API_KEY=" + secretKey}}
	s, err := a.Settings(config.UsesKafka, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &records{all: unwatched(s)}
	found, err := d.DeadLetters(t.Context(), "events", 10)
	if err != nil || len(found) != 4 {
		t.Fatalf("%+v, %v", found, err)
	}
	defer kafka.Stall(1)()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err = d.DeadLetters(ctx, "events", 10)
	if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); !ok || !strings.Contains(err.Error(), "was not read to its end") {
		t.Errorf("%+v, %v; want an error that says so", found, err)
	}
}
