package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// firstEvent is the time of the first record of a test; the next ones are a
// second apart each.
var firstEvent = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// eventRecord is the nth event of a test.
func eventRecord(partition int32, n int, key, value string) *kgo.Record {
	return &kgo.Record{
		Topic: "export.events", Partition: partition, Key: []byte(key), Value: []byte(value),
		Timestamp: firstEvent.Add(time.Duration(n) * time.Second),
		Headers: []kgo.RecordHeader{
			{Key: "ce_type", Value: []byte("com.croct.event." + map[bool]string{true: "orderPlaced",
				false: "linkOpened"}[n%2 == 0])},
			{Key: "eb-origin", Value: []byte("live")},
		},
	}
}

// tailWorld is a Kafka with a topic of three partitions, the last one empty.
// Partition 0 ends in an aborted transaction, 1 in a committed one, so that
// both end in a control record.
func tailWorld(t *testing.T) (addr string) {
	t.Helper()
	kafka := servers.EmbeddedKafka(t, kfake.SeedTopics(3, "export.events"))
	addr = kafka.ListenAddrs()[0]
	client := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce(t, client,
		eventRecord(0, 1, "k1", "a"), eventRecord(1, 2, "k2", "b"), eventRecord(0, 3, "k1", "c"),
		eventRecord(1, 4, "k2", "d"), eventRecord(0, 5, "k3", "e"))
	tx := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("tail-test"))
	for _, end := range []struct {
		record *kgo.Record
		commit kgo.TransactionEndTry
	}{{eventRecord(1, 6, "k4", "f"), kgo.TryCommit}, {eventRecord(0, 7, "k4", "aborted"), kgo.TryAbort}} {
		must.Do(t, tx.BeginTransaction())
		produce(t, tx, end.record)
		must.Do(t, tx.EndTransaction(t.Context(), end.commit))
	}
	return addr
}

func produce(t *testing.T, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.Do(t, client.ProduceSync(ctx, records...).FirstErr())
}

func TestTail(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KAFKA_BROKERS": tailWorld(t)}
	for _, test := range []struct {
		args string
		want string
	}{
		{"-n 2", "e f"},
		{"-n 4", "c d e f"},
		{"-n 100", "a b c d e f"},
		{"-n 1 --type linkOpened", "e"},
		{"-n 2 --type com.croct.event.orderPlaced", "d f"},
		{"-n 9 --type orderPlaced,linkOpened --key k1", "a c"},
		{"-n 9 --key k", ""},
		{"-n 9 --type nosuch", ""},
		{"-o start -n 3", "a b c"},
		{"-o start -n 100", "a b c d e f"},
		{"-o -3 -n 100", "d e f"},
		{"-o -1 -n 100", ""},
		{"-o -1000 -n 100", "a b c d e f"},
		{"-o @2026-11-01T12:00:04Z -n 100", "d e f"},
		{"-o @2026-11-01T12:00:02Z -n 1", "b"},
		{"-o @2026-11-02T12:00:00Z -n 100", ""},
		{"-o @earliest -n 2", "a b"},
		{"-o start -n 2 --type orderPlaced", "b d"},
	} {
		got := runProgram(t, env, append([]string{"tail", "-f", `%v `}, strings.Fields(test.args)...)...)
		if got.code != cli.ExitOK || strings.TrimSpace(got.stdout) != test.want {
			t.Errorf("tail %s: %+v, want %q", test.args, got, test.want)
		}
		// It says so where it does not see the end of a partition.
		if silent := got.stderr == ""; silent != (test.want != "") {
			t.Errorf("tail %s: stderr %q", test.args, got.stderr)
		}
	}
}

// TestTailFollows: tail prints the newest records, then new ones, until it is interrupted, its
// output is closed, or it has printed enough.
func TestTailFollows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		old  string // the records that were there before
		end  func(cancel context.CancelFunc, r *io.PipeReader)
	}{
		{"interrupted", nil, "abcdef", func(cancel context.CancelFunc, _ *io.PipeReader) { cancel() }},
		{"pipe closed", nil, "abcdef", func(_ context.CancelFunc, r *io.PipeReader) { r.Close() }},
		{"from a place", []string{"-o", "-2"}, "f", func(cancel context.CancelFunc, _ *io.PipeReader) { cancel() }},
		{"enough", []string{"-o", "end", "-n", "2"}, "", func(context.CancelFunc, *io.PipeReader) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addr := tailWorld(t)
			client := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, w := io.Pipe()
			defer r.Close()
			code := make(chan int, 1)
			var stderr bytes.Buffer
			args := append([]string{"tail", "-f", `%v\n`}, test.args...)
			go func() {
				code <- runOn(ctx, cli.Stdio{Stdout: w, Stderr: &stderr}, map[string]string{"KAFKA_BROKERS": addr}, args...).code
				w.Close()
			}()
			lines := bufio.NewScanner(r)
			for _, want := range test.old {
				if !lines.Scan() || lines.Text() != string(want) {
					t.Fatalf("read %q, want %q; %v", lines.Text(), want, lines.Err())
				}
			}
			// At the end it shows only what comes after it has begun, which
			// nothing tells us.
			stop := make(chan struct{})
			fed := make(chan struct{})
			go func() {
				defer close(fed)
				feed(ctx, client, stop)
			}()
			for range 2 {
				if !lines.Scan() || lines.Text() != "new" {
					t.Errorf("read %q, %v", lines.Text(), lines.Err())
				}
			}
			test.end(cancel, r)
			if got := <-code; got != cli.ExitOK || stderr.Len() > 0 {
				t.Errorf("exit code %d, stderr %q", got, stderr.String())
			}
			close(stop)
			<-fed
		})
	}
}

// feed produces a record from time to time until stop is closed.
func feed(ctx context.Context, client *kgo.Client, stop <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 10; ; n++ {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			client.ProduceSync(ctx, eventRecord(2, n, "k", "new"))
		}
	}
}

// TestTailMergesInBounds: a partition waits for another one whose records are all earlier, and
// every record is printed.
func TestTailMergesInBounds(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t, kfake.SeedTopics(2, "export.events"))
	client := servers.Client(t, kafka.ListenAddrs()[0], kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const each = 15_000
	var records []*kgo.Record
	for n := range 2 * each {
		records = append(records, eventRecord(int32(n/each), n, "k", fmt.Sprint(n)))
	}
	produce(t, client, records...)
	var want strings.Builder
	for n := range 2 * each {
		fmt.Fprintln(&want, n)
	}
	got := runProgram(t, map[string]string{"KAFKA_BROKERS": kafka.ListenAddrs()[0]}, "tail", "-o", "start", "-n",
		"1000000", "-f", `%v\n`)
	if got.code != cli.ExitOK || got.stdout != want.String() {
		t.Errorf("exit code %d, %d lines, want %d in order", got.code, strings.Count(got.stdout, "\n"), 2*each)
	}
}

// TestTailDeleted: tail finds the end of a partition whose first records, or all, are deleted.
func TestTailDeleted(t *testing.T) {
	t.Parallel()
	addr := tailWorld(t)
	admin := kadm.NewClient(servers.Client(t, addr))
	offsets := kadm.Offsets{}
	offsets.AddOffset("export.events", 0, 2, -1)
	offsets.AddOffset("export.events", 1, 4, -1)
	must.Get(admin.DeleteRecords(t.Context(), offsets))(t)
	for _, args := range [][]string{{"-n", "9"}, {"-n", "9", "-o", "start"}} {
		got := runProgram(t, map[string]string{"KAFKA_BROKERS": addr}, append([]string{"tail", "-f", "%v "}, args...)...)
		if got.code != cli.ExitOK || got.stdout != "e " {
			t.Errorf("tail %v: %+v", args, got)
		}
	}
}

func TestTailErrors(t *testing.T) {
	t.Parallel()
	addr := tailWorld(t)
	restricted := map[string]string{}
	restrictedKafka(t, restricted)
	env := map[string]string{"KAFKA_BROKERS": addr}
	for _, test := range []struct {
		env    map[string]string
		args   string
		code   int
		stderr string
	}{
		{env, "--topic nosuch", cli.ExitFailed,
			"topic nosuch does not exist\nTry: check --topic; the stream's topics: exportbridge topics plan\n"},
		{env, "--dlq", cli.ExitFailed,
			"topic dlq.export.events does not exist\nTry: check the name, KAFKA_DLQ_TOPIC; if it is right: exportbridge " +
				"topics create --execute\n"},
		{map[string]string{"KAFKA_BROKERS": addr, "KAFKA_TOPIC": "nosuch"}, "", cli.ExitFailed,
			"topic nosuch does not exist\nTry: check the name, KAFKA_TOPIC; if it is right: exportbridge topics create " +
				"--execute\n"},
		{map[string]string{"KAFKA_BROKERS": servers.FreeAddress(t)}, "", cli.ExitFailed, "Try: check that Kafka is running"},
		{map[string]string{"KAFKA_BROKERS": addr, "BRIDGE_STREAMS": "events,users"}, "", cli.ExitUsage,
			"Try: --stream events"},
		{restricted, "-n 1", cli.ExitRefused, "Try: exportbridge topics plan --acls"},
		{env, "-n 0", cli.ExitUsage, "-n 0 is below 1"},
		{env, "-o 5", cli.ExitUsage, "is not start, end, -N"},
		{env, "-o -10m", cli.ExitUsage, "a time starts with @: @-10m"},
		{env, "-o @soon", cli.ExitUsage, "is not a time"},
		{env, "-f %z", cli.ExitUsage, "-f: "},
		{env, "--json -f %v", cli.ExitUsage, "--json and -f are mutually exclusive"},
		{env, "--meta -f %v", cli.ExitUsage, "--meta and -f are mutually exclusive"},
		{env, "--dlq --topic x", cli.ExitUsage, "--dlq and --topic are mutually exclusive"},
		{env, "--topic a/b", cli.ExitUsage, "is not a topic name"},
	} {
		got := runProgram(t, test.env, append([]string{"tail"}, strings.Fields(test.args)...)...)
		if got.code != test.code || got.stdout != "" || !strings.Contains(got.stderr, test.stderr) {
			t.Errorf("tail %s: %+v, want code %d and %q", test.args, got, test.code, test.stderr)
		}
		wantNoSecrets(t, got)
	}
}

// TestTailSince: event times need not rise: after the first record at or after a time, others
// can be older.
func TestTailSince(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t)
	must.Do(t, kafka.CreateTopic("export.events", 1, map[string]string{"retention.ms": "-1"}))
	now, client := time.Now(), servers.Client(t, kafka.ListenAddrs()[0])
	for i, age := range []time.Duration{time.Hour, time.Minute, 50 * time.Minute, 30 * time.Second} {
		r := eventRecord(0, i, "k", fmt.Sprint(i))
		r.Timestamp = now.Add(-age)
		produce(t, client, r)
	}
	got := runProgram(t, map[string]string{"KAFKA_BROKERS": kafka.ListenAddrs()[0]}, "tail", "-n", "10", "-o", "@-2m",
		"-f", `%v\n`)
	if got.code != cli.ExitOK || got.stdout != "1\n3\n" {
		t.Errorf("%+v, want the records 1 and 3", got)
	}
}

// A bounded tail that is interrupted before it has connected has not printed its records.
func TestTailInterruptedEarly(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for args, want := range map[string]int{"tail -n 1": cli.ExitInterrupted, "tail": cli.ExitOK} {
		env := map[string]string{"KAFKA_BROKERS": servers.FreeAddress(t)}
		if got := runOn(ctx, cli.Stdio{}, env, strings.Fields(args)...); got.code != want {
			t.Errorf("%s: %+v, want exit code %d", args, got, want)
		}
	}
}
