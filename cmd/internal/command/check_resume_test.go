package command

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cursorstore"
)

// loseCheckpoints deletes the records of the checkpoint topic.
func (w *world) loseCheckpoints(t *testing.T) {
	t.Helper()
	admin := kadm.NewClient(servers.Client(t, w.env["KAFKA_BROKERS"]))
	ends := must.Get(admin.ListEndOffsets(t.Context(), "exportbridge.checkpoints"))(t)
	must.Get(admin.DeleteRecords(t.Context(), ends.Offsets()))(t)
}

// aheadInRedis makes the checkpoint in Redis newer than that in Kafka.
func (w *world) aheadInRedis(t *testing.T) {
	t.Helper()
	client := must.Get(cursorstore.Open(cursorstore.Config{
		URL: cursorstore.URL(w.env["REDIS_URL"]), Timeout: time.Second, Prefix: "exportbridge", HistoryAge: time.Hour,
	}))(t)
	servers.CloseAtEnd(t, client)
	store := client.Stream("events")
	from := must.Get(store.Load(t.Context()))(t)
	to := from
	to.Seq += 3
	must.Do(t, store.Advance(t.Context(), from, to))
}

// TestCheckResumption: check says how a run resumes where Kafka's checkpoint and that of Redis differ,
// and fails where a run is blocked.
func TestCheckResumption(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy  string
		prepare func(*world, *testing.T)
		want    []string
		blocked bool
	}{
		"Redis is ahead": {"stop", (*world).aheadInRedis, []string{
			`^  kafka    ok `, `FAIL data lost in Kafka: it has checkpoint 0\.\d+, but 0\.\d+ \(last change: none\) `,
			`Try: find out what Kafka lost, then set BRIDGE_ON_CHECKPOINT_LOSS=kafka`}, true},
		"Redis is ahead, kafka": {"kafka", (*world).aheadInRedis, []string{`warn data lost in Kafka: .*; a run resumes ` +
			`from Kafka's checkpoint 0\.\d+, and later events may be published twice`}, false},
		"Redis is ahead, redis": {"redis", (*world).aheadInRedis, []string{`warn data lost in Kafka: .*; a run resumes ` +
			`from the checkpoint of Redis, 0\.\d+, and events that Kafka lost are not published again`}, false},
		"Kafka has none": {"stop", (*world).loseCheckpoints, []string{
			`FAIL data lost in Kafka: it has no checkpoint, but 0\.\d+ \(last change: none\) `, `Try: find out what Kafka lost`}, true},
		"neither has any": {"kafka", func(w *world, t *testing.T) {
			w.loseCheckpoints(t)
			w.redis.FlushAll()
		}, []string{`FAIL the checkpoint is lost: the topic holds events of this stream`,
			`Try: set the position: exportbridge cursor reset`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.runOnce(t)
			if got := runProgram(t, w.env, "check", "--only", "kafka,redis"); got.code != cli.ExitOK ||
				strings.Contains(got.stdout, "lost") {
				t.Fatalf("before: %+v", got)
			}
			w.env["BRIDGE_ON_CHECKPOINT_LOSS"] = tc.policy
			tc.prepare(w, t)
			before := w.redis.Dump()
			got := runProgram(t, w.env, "check", "--only", "kafka,redis")
			if w.redis.Dump() != before {
				t.Error("check changed Redis")
			}
			wantLines(t, got.stdout, tc.want)
			once := runProgram(t, w.env, "run", "--once")
			if (got.code == cli.ExitCheck) != tc.blocked || (once.code != cli.ExitOK) != tc.blocked {
				t.Errorf("check: %+v\nrun: %+v", got, once)
			}
		})
	}
}

// TestCheckNewStream: a stream whose topics a run creates has lost nothing.
func TestCheckNewStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["KAFKA_TOPIC"], w.env["KAFKA_CREATE_TOPICS"] = "new", "true"
	succeed(t, w.env, "check", "--only", "kafka,redis")
}
