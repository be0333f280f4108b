package command

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// TestTailRoutes: without --topic, tail reads all topics of a stream with routes in one order,
// follows all of them, and names the topic of each record.
func TestTailRoutes(t *testing.T) {
	t.Parallel()
	kafka := servers.EmbeddedKafka(t, kfake.SeedTopics(2, "export.events", "export.orders"))
	addr := kafka.ListenAddrs()[0]
	env := map[string]string{"KAFKA_BROKERS": addr, "KAFKA_ROUTES": "order*=export.orders,*.debug=drop"}
	client := servers.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	order := func(partition int32, n int, value string) *kgo.Record {
		r := eventRecord(partition, n, "k", value)
		r.Topic = "export.orders"
		return r
	}
	produce(t, client, eventRecord(0, 1, "k", "a"), order(0, 2, "b"), eventRecord(1, 3, "k", "c"), order(1, 4, "d"),
		order(0, 5, "e"), eventRecord(0, 6, "k", "f"))
	const events, orders = "export.events", "export.orders"
	for args, want := range map[string]string{
		"-f %v\\n -n 3":                             "d\ne\nf",
		"-f %v\\n -n 100":                           "a\nb\nc\nd\ne\nf",
		"-f %v\\n -n 2 --type orderPlaced":          "d\nf",
		"-f %t:%v\\n -n 2 -o start":                 events + ":a\n" + orders + ":b",
		"-f %v\\n -n 100 -o start":                  "a\nb\nc\nd\ne\nf",
		"-f %v\\n -n 100 -o -1":                     "c\nd\ne\nf",
		"-f %v\\n -n 100 -o @2026-11-01T12:00:04Z":  "d\ne\nf",
		"-f %v\\n -n 100 --topic export.orders":     "b\nd\ne",
		"-f %t:%p:%o\\n -n 1 --topic export.events": events + ":0:1",
		"-n 1 -o start --type linkOpened":           "2026-11-01T12:00:01.000Z  " + events + "  0@0  k  linkOpened  live  a",
		"-n 1 -o @2026-11-01T12:00:05Z":             "2026-11-01T12:00:05.000Z  " + orders + "  0@1  k  linkOpened  live  e",
		"-n 1 --topic export.orders":                "2026-11-01T12:00:05.000Z  0@1  k  linkOpened  live  e",
	} {
		got := runProgram(t, env, append([]string{"tail"}, strings.Fields(args)...)...)
		if got.code != cli.ExitOK || strings.TrimSpace(got.stdout) != want || got.stderr != "" {
			t.Errorf("tail %s: %+v, want %q", args, got, want)
		}
	}
	if got := runProgram(t, env, "tail", "--json", "-n", "1", "-o", "@2026-11-01T12:00:05Z"); !strings.Contains(got.stdout,
		`"topic":"export.orders","partition":0,"offset":1`) {
		t.Errorf("%+v", got)
	}
	env["KAFKA_ROUTES"] = "order*=export.orders,a*=export.none"
	if got := runProgram(t, env, "tail"); got.code != cli.ExitFailed || !strings.Contains(got.stderr,
		"topic export.none does not exist") || !strings.Contains(got.stderr, "KAFKA_ROUTES") {
		t.Errorf("%+v", got)
	}

	env["KAFKA_ROUTES"] = "order*=export.orders"
	done := make(chan result, 1)
	go func() { done <- runProgram(t, env, "tail", "-o", "end", "-n", "1", "-f", "%t") }()
	for {
		select {
		case got := <-done:
			if got.code != cli.ExitOK || strings.TrimSpace(got.stdout) != orders {
				t.Errorf("followed: %+v", got)
			}
			return
		default:
			produce(t, client, order(0, 9, "new"))
		}
	}
}
