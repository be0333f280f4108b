package command

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// otherExport is an export of another vendor: three pages of four items, whose values are at
// other places.
func otherExport(t *testing.T) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		page := 0
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			page, _ = strconv.Atoi(cursor)
		}
		if q := r.URL.Query(); q.Get("start") == "" || q.Get("end") != "" { // else from now on
			for n := 4 * page; n < 4*page+4; n++ {
				items = append(items,
					fmt.Sprintf(`{"uuid":"item-%d","meta":{"published":"2026-11-22T10:57:%02d.5-03:00"},`+
						`"eventType":"user.login","actor":{"id":"a%d"}}`, n, n, n))
			}
		}
		next = "null"
		if page < 2 {
			next = strconv.Quote(strconv.Itoa(page + 1))
		}
		return items, next
	})
}

var otherMapping = map[string]string{
	"EXPORT_ITEM_ID": "/uuid", "EXPORT_ITEM_TIME": "/meta/published", "EXPORT_ITEM_TIME_FORMAT": "rfc3339",
	"EXPORT_ITEM_TYPE":    "/eventType",
	"EXPORT_ITEM_SUBJECT": "/actor/id", "KAFKA_KEY": "/actor/id", "KAFKA_CE_SOURCE": "https://login.example",
	"KAFKA_CE_TYPE_PREFIX": "com.example",
}

// TestRunMapped publishes the items of another vendor, with and without their times.
func TestRunMapped(t *testing.T) {
	t.Parallel()
	for name, timeless := range map[string]bool{"ISO times": false, "without times": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			maps.Copy(w.env, otherMapping)
			w.env["EXPORT_URL"] = otherExport(t)
			if timeless {
				delete(w.env, "EXPORT_ITEM_TIME")
				w.env["EXPORT_ITEM_TIME_FORMAT"] = "none"
			}
			began := time.Now()
			w.runOnce(t)
			client := servers.Client(t, strings.Split(w.env["KAFKA_BROKERS"], ",")[0], kgo.ConsumeTopics("export.events"),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			seen := make(map[string]bool)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for len(seen) < 12 {
				fetched := client.PollFetches(ctx)
				if ctx.Err() != nil {
					t.Fatalf("%d of 12 records after a minute", len(seen))
				}
				fetched.EachRecord(func(r *kgo.Record) {
					headers := make(map[string]string)
					for _, h := range r.Headers {
						headers[h.Key] = string(h.Value)
					}
					n := strings.TrimPrefix(headers["ce_id"], "item-")
					second, err := strconv.Atoi(n)
					if err != nil || seen[n] {
						t.Fatalf("a record with id %q", headers["ce_id"])
					}
					seen[n] = true
					at := time.Date(2026, 11, 22, 13, 57, second, 500e6, time.UTC)
					want := map[string]string{
						"ce_specversion": "1.0", "ce_id": "item-" + n, "ce_source": "https://login.example",
						"ce_type": "com.example.user.login",
						"ce_time": at.Format("2006-01-02T15:04:05.000Z"), "ce_subject": "a" + n, "content-type": "application/json",
						"eb-stream": "events", "eb-origin": "live",
					}
					if timeless {
						delete(want, "ce_time")
						if r.Timestamp.Before(began.Add(-time.Second)) || r.Timestamp.After(time.Now().Add(time.Second)) {
							t.Errorf("record %s has the time %s, want that of publishing", n, r.Timestamp)
						}
					} else if !r.Timestamp.Equal(at) && at.Before(began) { // a time in the future becomes that of publishing
						t.Errorf("record %s has the time %s, want %s", n, r.Timestamp.UTC(), at)
					}
					if diff := cmp.Diff(want, headers); diff != "" || string(r.Key) != "a"+n {
						t.Errorf("record %s with key %q (-want +got):\n%s", n, r.Key, diff)
					}
				})
			}
			status := runProgram(t, w.env, "status")
			if !strings.Contains(status.stdout, "at the end of what was read") {
				t.Errorf("status after the end:\n%s%s", status.stdout, status.stderr)
			}
			if timeless {
				verify := runProgram(t, w.env, "verify", "--from", "-1h", "--to", "now")
				wantLines(t, verify.stdout, []string{`export +12 events$`, `topic +12 of them in export\.events$`,
					`missing +0$`, `extra +unknown: the events have no time$`, `late +unknown: the events have no time$`})
				if verify.code != cli.ExitOK {
					t.Errorf("verify without times: %+v", verify)
				}
			}
		})
	}
}

// TestWithoutTimes: commands that use the time of items are rejected if items have none.
func TestWithoutTimes(t *testing.T) {
	t.Parallel()
	env := map[string]string{"EXPORT_API_KEY": secretKey, "EXPORT_ITEM_TIME": "none"}
	if got := runProgram(t, env, "run", "--until", "2026-11-22"); got.code != cli.ExitUsage ||
		!strings.Contains(got.stderr, "its items have no time (EXPORT_ITEM_TIME)") {
		t.Errorf("run --until: %+v", got)
	}
	env["EXPORT_ON_INVALID_CURSOR"] = "time"
	if got := runProgram(t, env, "config", "show"); got.code != cli.ExitUsage ||
		!strings.Contains(got.stderr, "EXPORT_ON_INVALID_CURSOR is time, but EXPORT_ITEM_TIME says") {
		t.Errorf("EXPORT_ON_INVALID_CURSOR=time: %+v", got)
	}
}

// TestCheckSample shows how items are read, and the problems, in 80 and in 200 columns.
func TestCheckSample(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	const a, noTime = `{"id":"a","timestamp":1790000000000}`, `{"timestamp":1790000000000}`
	for _, test := range []struct {
		name, items, args string
		env               map[string]string
	}{
		{
			"read", `{"uuid":"` + long + `","meta":{"published":"2026-11-22T10:57:00Z"},"eventType":"` + long +
				`","actor":{"id":"` + long + `"}},` +
				`{"meta":{"published":"2026-11-22T10:57:01Z"}}`, "--sample 5", otherMapping,
		},
		{"ISO times by default", `{"eventId":"a","timestamp":"2026-11-22T10:57:00Z"}`, "--sample 5", nil},
		{"ISO times elsewhere",
			`{"id":"a","actor":{"createdAt":1},"updated":"2026-11-22T10:57:00Z","published":"2026-11-22T10:57:00Z"}`, "", nil},
		{"seconds", `{"id":"a","timestamp":1790000000}`, "", nil},
		{"a shared id", a + `,{"id":"a","timestamp":1790000000001}`, "", nil},
		{"no id", noTime, "", nil},
		{"no id, none", noTime, "--set EXPORT_ITEM_ID=none", nil},
		{"one exception", a + `,17`, "", nil},
		{"accepted", a + `,17`, "--set BRIDGE_ON_BAD_EVENT=dlq-all", nil},
		{"without times", `{"id":"a"}`, "--set EXPORT_ITEM_TIME=none", nil},
		{"few with a time", a + `,{"id":"b","timestamp":null},{"id":"c"}`,
			"--set EXPORT_ITEM_TIME=/timestamp,none --sample 5", nil},
		{"no time yet", `{"id":"a"},{"id":"b"}`, "--set EXPORT_ITEM_TIME=/timestamp,none", nil},
		{"nothing to show", "", "--sample 5", nil},
		{"a sample of none", "", "--sample 0", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := maps.Clone(test.env)
			if env == nil {
				env = make(map[string]string)
			}
			env["EXPORT_API_KEY"] = secretKey
			env["EXPORT_URL"] = serveItems(t, func(r *http.Request) ([]string, string) {
				if r.URL.Query().Get("start") != "" {
					return nil, "null"
				}
				return []string{test.items}, "null"
			})
			args := append([]string{"check", "--only", "api"}, strings.Fields(test.args)...)
			for _, columns := range []int{80, 200} {
				var stdout bytes.Buffer
				got := runOn(t.Context(), cli.Stdio{Stdout: &stdout, Columns: columns}, env, args...)
				got.stdout = stdout.String()
				wantGolden(t, fmt.Sprintf("check sample %s %d", test.name, columns), got)
				for line := range strings.Lines(stripColour(got.stdout)) {
					if process.Width(strings.TrimRight(line, "\n")) > columns {
						t.Errorf("wider than %d columns: %q", columns, line)
					}
				}
			}
		})
	}
}

func stripColour(text string) string {
	for _, code := range []string{"\x1b[32m", "\x1b[33m", "\x1b[1;31m", "\x1b[0m"} {
		text = strings.ReplaceAll(text, code, "")
	}
	return text
}

// TestStatusWithoutTimes: the position of a stream without times is known only at the end of
// the export. The position of a stream that was moved is known from the next page on.
func TestStatusWithoutTimes(t *testing.T) {
	t.Parallel()
	const undated, moved = "unknown until the end of the export: no event has had a time", "unknown until the next page"
	for kind, want := range map[bridge.Kind]string{bridge.KindData: undated, bridge.KindReset: moved,
		bridge.KindPause: moved} {
		c := bridge.Checkpoint{Kind: kind, Cursor: "c", Pages: 7, Events: 7000}
		if got := positionText(&c, nil, time.Now()); got != want {
			t.Errorf("after a %s, the position is %q, want %q", kind, got, want)
		}
	}
}

// TestRunOfDeadLetters: a bounded run that publishes only dead letters has an exit code of its
// own. A run that has nothing to publish succeeds.
func TestRunOfDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["HTTP_ADDR"] = otherExport(t), "off"
	got := runProgram(t, w.env, "run", "--once")
	if got.code != cli.ExitCheck || !strings.Contains(got.stderr,
		"stream events: all 12 items of this run are dead letters, no event was published") ||
		!strings.Contains(got.stderr, "dlq list --stream events") {
		t.Errorf("run: %+v, want exit code %d", got, cli.ExitCheck)
	}
	succeed(t, w.env, "run", "--once")
}
