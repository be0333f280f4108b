package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// poison would change what a terminal shows. The word "evil" shows that it was printed.
const poison = "\x1b]0;evil\a\u009b31m\u202e\u2066\u200f\u2028\u2029\x7f\r\nfake line"

// rawPoison is no UTF-8 either, where a source may hold any bytes.
const rawPoison = poison + "\xed\xa0\x80\xff"

// poisonedExport is an export of five items, of which the last is unreadable. It rejects
// requests with a key in X-Bad.
func poisonedExport(t *testing.T) (url string) {
	t.Helper()
	text := must.Get(json.Marshal(poison))(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("X-Bad") != "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"title":%s,"detail":%[1]s}`, text)
			return
		}
		var items []string
		for i := range 5 {
			when := fmt.Sprint(firstEvent.UnixMilli() + int64(i)*1000)
			if i == 4 {
				when = string(text)
			}
			items = append(items,
				fmt.Sprintf(`{"eventId":%s,"userId":%[1]s,"timestamp":%[2]s,"payload":{"@type":%[1]s,"n":%[3]d}}`, text, when, i))
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":null}`, strings.Join(items, ","))
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// poisonedWorld is a world whose servers hold poison wherever they can.
func poisonedWorld(t *testing.T) (w *world, live func()) {
	t.Helper()
	w = newWorld(t)
	w.env["EXPORT_URL"] = poisonedExport(t)
	w.runOnce(t)
	client := servers.Client(t, strings.Split(w.env["KAFKA_BROKERS"], ",")[0],
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for _, topic := range []string{"export.events", "dlq.export.events"} {
		r := &kgo.Record{Topic: topic, Key: []byte(rawPoison), Value: []byte(rawPoison),
			Headers: []kgo.RecordHeader{{Key: rawPoison, Value: []byte(rawPoison)}}}
		for _, key := range []string{kafkarecord.HeaderType, kafkarecord.HeaderOrigin, kafkarecord.HeaderReason,
			kafkarecord.HeaderErrorMessage, kafkarecord.HeaderID, kafkarecord.HeaderCursorHash} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(rawPoison)})
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: kafkarecord.HeaderStream, Value: []byte("events")})
		records = append(records, r)
	}
	produce(t, client, records...)

	a := &cli.App{Environ: []string{"KAFKA_BROKERS=" + w.env["KAFKA_BROKERS"], "REDIS_URL=" + w.env["REDIS_URL"],
		"EXPORT_API_KEY=" + secretKey}}
	s := must.Get(a.Settings(config.UsesKafka|config.UsesCursor, nil))(t)
	ctx, from := t.Context(), firstEvent.Add(-time.Hour).UnixMilli()
	compact := map[string]*string{"cleanup.policy": new("compact"), "min.compaction.lag.ms": new("604800000")}
	must.Get(kadm.NewClient(client).CreateTopic(ctx, 16, 1, compact, "exportbridge.checkpoints.jobs"))(t)
	job := backfill.Job{
		Version: backfill.Version, ID: "aaaaaa", Kind: backfill.Backfill, Stream: "events", Resource: "events",
		Topic: "export.events",
		From:  from, To: from + 1000, Windows: backfill.Split(from, from+1000, 1), Who: poison, Reason: poison, Created: 1,
		State: backfill.Running,
	}
	must.Do(t, backfill.NewJobs(s.Streams[0].Kafka.Jobs(new(kafkasink.JobLogs)), "events").Begin(ctx, job, false))
	redis := must.Get(cursorstore.Open(s.Cursor))(t)
	servers.CloseAtEnd(t, redis)
	store := redis.Stream("events")
	was := must.Get(store.Load(ctx))(t)
	now := was
	now.Version, now.Kind = bridge.Version{Epoch: was.Epoch + 1}, bridge.KindReset
	now.Owner, now.Cursor = poison, poison
	now.Change = &bridge.Change{ID: poison, Kind: poison, Who: poison, Reason: poison, From: was.Version, At: 1}
	must.Do(t, store.Advance(ctx, was, now))
	put := func() error {
		return redis.PutStatuses(ctx, []*cursorstore.EncodedStatus{{Status: bridge.Status{
			Stream: "events", Owner: poison, State: bridge.StateBlocked, Reason: poison, Error: poison, Hint: poison,
			Leader: true, Version: now.Version, Contract: poison,
		}}})
	}
	var refreshing sync.WaitGroup // a status expires within cursorstore.StatusTTL
	refreshing.Go(func() {
		for ctx.Err() == nil {
			_ = put() // the next command that does not see it fails
			bridge.Sleep(ctx, cursorstore.StatusTTL/10)
		}
	})
	t.Cleanup(refreshing.Wait)
	return w, func() {
		t.Helper()
		must.Do(t, put())
	}
}

// No command prints characters of a server that change what a terminal shows. JSON is exact.
func TestPoison(t *testing.T) {
	t.Parallel()
	w, live := poisonedWorld(t)
	health := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = rw.Write([]byte(rawPoison))
	}))
	t.Cleanup(health.Close)
	hour := "--from " + firstEvent.Add(-time.Hour).UTC().Format(time.RFC3339) + " --to " +
		firstEvent.Add(time.Hour).UTC().Format(time.RFC3339)
	bad := "--export-key-header X-Bad"
	commands := []struct {
		args  string
		shown bool // the poison must be seen
	}{
		{"status", true}, {"cursor show", true}, {"cursor list", true}, {"cursor history", true},
		{"cursor rewind --to-entry 0.0", false}, {"cursor reset --to-current", false}, {"cursor import -", false},
		{"pause --timeout 1s", true}, {"resume --timeout 1s", true},
		{"tail -n 10", true}, {"tail -n 10 --meta", true}, {"tail --dlq -n 10", true},
		{"dlq list", true}, {"dlq show 0:0", true}, {"dlq retry --all", true},
		{"backfill list", true}, {"backfill cancel aaaaaa", false},
		{"backfill watch aaaaaa", false}, {"backfill pause aaaaaa", false}, {"backfill resume aaaaaa", false},
		{"backfill --allow-overlap " + hour + " " + bad, true}, {"replay " + hour + " " + bad, true},
		{"attest", false}, {"forget x", false}, {"keys rewrap", false},
		{"verify " + hour, false}, {"verify " + hour + " " + bad, true}, {"check", true}, {"check " + bad, true},
		{"topics plan", false}, {"topics create", false},
		{"schema types", true}, {"schema infer", false}, {"schema check --event-schema {}", false},
		{"schema register --event-schema {} --schema-registry-url " + health.URL, true},
		{"learn -- curl -H X-Bad:1 " + w.env["EXPORT_URL"] + "/events", true},
		{"healthcheck " + health.URL, true}, {"run --once " + bad, true}, {"run --once --log-format text " + bad, true},
		// the last: it moves the stream
	}
	for _, args := range []string{"status --json", "cursor history --json", "cursor show --raw", "tail --json -n 10",
		"dlq show 0:0 --raw"} {
		live()
		if got := runProgram(t, w.env, strings.Fields(args)...); !strings.Contains(got.stdout, "\u202e") {
			t.Errorf("%s is not exact: %+v", args, got)
		}
	}
	for _, command := range commands {
		live()
		got := runProgram(t, w.env, strings.Fields(command.args)...)
		output := got.stdout + got.stderr
		text := strings.ReplaceAll(output, "\n", "")
		if strings.ContainsFunc(text, bridge.Misleads) || !utf8.ValidString(text) || strings.Contains(output, "\nfake line") {
			t.Errorf("%s: exit code %d, misleads: %q", command.args, got.code, output)
		}
		if shown := strings.Contains(output, "evil"); shown != command.shown {
			t.Errorf("%s: exit code %d, poison seen %t, want %t: %q", command.args, got.code, shown, command.shown, output)
		}
	}
	// Their output does not contain text of servers, or is for programs.
	others := []string{"version", "help", "completion", "config", "alerts", "dashboard", "token", "cursor export", "asyncapi"}
	for _, cmd := range everyCommand(Program.Root()) {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		tested := !cmd.Runnable() || cmd.HasSubCommands()
		for _, command := range commands {
			tested = tested || strings.HasPrefix(command.args+" ", path+" ")
		}
		for _, other := range others {
			tested = tested || strings.HasPrefix(path+" ", other+" ")
		}
		if !tested {
			t.Errorf("%s is not tested", path)
		}
	}
}
