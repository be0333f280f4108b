package command

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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

// otherExport is an export of another vendor: three pages of four items, with
// their values elsewhere.
func otherExport(t *testing.T) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := 0
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			page, _ = strconv.Atoi(cursor)
		}
		var items []string
		if q := r.URL.Query(); q.Get("start") == "" || q.Get("end") != "" { // else from now on
			for n := 4 * page; n < 4*page+4; n++ {
				items = append(items, fmt.Sprintf(`{"uuid":"item-%d","meta":{"published":"2026-11-22T10:57:%02d.5-03:00"},"eventType":"user.login","actor":{"id":"a%d"}}`, n, n, n))
			}
		}
		next := "null"
		if page < 2 {
			next = strconv.Quote(strconv.Itoa(page + 1))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":%s}`, strings.Join(items, ","), next)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

var otherMapping = map[string]string{
	"EXPORT_ITEM_ID": "/uuid", "EXPORT_ITEM_TIME": "/meta/published", "EXPORT_ITEM_TIME_FORMAT": "rfc3339", "EXPORT_ITEM_TYPE": "/eventType",
	"EXPORT_ITEM_SUBJECT": "/actor/id", "KAFKA_KEY": "/actor/id", "KAFKA_CE_SOURCE": "https://login.example", "KAFKA_CE_TYPE_PREFIX": "com.example",
}

// TestRunMapped publishes the items of another vendor, with their times and
// without.
func TestRunMapped(t *testing.T) {
	t.Parallel()
	for name, timeless := range map[string]bool{"ISO times": false, "without times": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			maps.Copy(w.env, otherMapping)
			w.env["EXPORT_URL"], w.env["HTTP_ADDR"] = otherExport(t), "off"
			if timeless {
				delete(w.env, "EXPORT_ITEM_TIME")
				w.env["EXPORT_ITEM_TIME_FORMAT"] = "none"
			}
			began := time.Now()
			if got := runProgram(t, w.env, "run", "--once"); got.code != cli.ExitOK {
				t.Fatalf("run: %+v", got)
			}
			client := servers.Client(t, strings.Split(w.env["KAFKA_BROKERS"], ",")[0], kgo.ConsumeTopics("export.events"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
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
						"ce_specversion": "1.0", "ce_id": "item-" + n, "ce_source": "https://login.example", "ce_type": "com.example.user.login",
						"ce_time": at.Format("2006-01-02T15:04:05.000Z"), "ce_subject": "a" + n, "content-type": "application/json", "eb-stream": "events", "eb-origin": "live",
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
				wantLines(t, verify.stdout, []string{`export +12 events$`, `topic +12 of them in export\.events$`, `missing +0$`, `extra +unknown: the events have no time$`, `late +unknown: the events have no time$`})
				if verify.code != cli.ExitOK {
					t.Errorf("verify without times: %+v", verify)
				}
			}
		})
	}
}

// TestWithoutTimes: what goes by the time of items is refused where they have none.
func TestWithoutTimes(t *testing.T) {
	t.Parallel()
	env := map[string]string{"EXPORT_API_KEY": secretKey, "EXPORT_ITEM_TIME": "none"}
	if got := runProgram(t, env, "run", "--until", "2026-11-22"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "its items have no time (EXPORT_ITEM_TIME)") {
		t.Errorf("run --until: %+v", got)
	}
	env["EXPORT_ON_INVALID_CURSOR"] = "time"
	if got := runProgram(t, env, "config", "show"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "EXPORT_ON_INVALID_CURSOR is time, but EXPORT_ITEM_TIME says") {
		t.Errorf("EXPORT_ON_INVALID_CURSOR=time: %+v", got)
	}
}

// TestCheckSample shows how items are read, and what is wrong with it.
func TestCheckSample(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for name, test := range map[string]struct {
		items string
		env   map[string]string
		args  []string
		code  int
		want  []string
	}{
		"read": {
			items: `{"uuid":"` + long + `","meta":{"published":"2026-11-22T10:57:00Z"},"eventType":"` + long + `","actor":{"id":"` + long + `"}},{"meta":{"published":"2026-11-22T10:57:01Z"}}`,
			env:   otherMapping, args: []string{"--sample", "5"},
			want: []string{`ok   2 items sampled, all readable$`, `^ITEM +ID +TIME +TYPE +KEY +TOPIC$`, `^0 +x+… +2026-11-22 10:57:00Z +x+… +x+… +export\.events$`, `^1 +\(hash\) +2026-11-22 10:57:01Z +- +- +export\.events$`},
		},
		"ISO times by default": {
			items: `{"eventId":"a","timestamp":"2026-11-22T10:57:00Z"}`, args: []string{"--sample", "5"}, code: cli.ExitCheck,
			want: []string{`FAIL 1 of the first 1 item are unreadable; item 0 \(bad-timestamp\): its time`, `Try: set EXPORT_ITEM_TIME_FORMAT=rfc3339;`, `^0 +a +- +- +- +dlq\.export\.events$`},
		},
		"ISO times elsewhere": {
			items: `{"id":"a","actor":{"createdAt":1},"updated":"2026-11-22T10:57:00Z","published":"2026-11-22T10:57:00Z"}`, code: cli.ExitCheck,
			want: []string{`item 0 \(bad-timestamp\): it has no time at`, `Try: set EXPORT_ITEM_TIME=/published and EXPORT_ITEM_TIME_FORMAT=rfc3339;`},
		},
		"seconds": {
			items: `{"id":"a","timestamp":1790000000}`,
			want:  []string{`warn 1 of the first 1 item are read with an unlikely time; item 0: its time at /timestamp is in the format s, not ms$`, `Try: set EXPORT_ITEM_TIME_FORMAT=s$`},
		},
		"a shared id": {
			items: `{"id":"a","timestamp":1790000000000},{"id":"a","timestamp":1790000000001}`,
			want:  []string{`ok   2 items sampled`, `warn 1 of the first 2 items have the id of another one$`, `Try: set EXPORT_ITEM_ID`},
		},
		"no id":         {items: `{"timestamp":1790000000000}`, want: []string{`info items have no id: the hash of their bytes identifies them$`, `Try: set EXPORT_ITEM_ID`}},
		"no id, none":   {items: `{"timestamp":1790000000000}`, env: map[string]string{"EXPORT_ITEM_ID": "none"}, want: []string{`ok   1 item sampled`, `^  \d ok, 0 warnings, 0 failures$`}},
		"one exception": {items: `{"id":"a","timestamp":1790000000000},17`, code: cli.ExitCheck, want: []string{`FAIL 1 of the first 2 items are unreadable; item 1 \(not-an-object\): it is not an object$`, `Try: set EXPORT_ITEMS_FIELD`, `dlq-all$`}},
		"accepted":      {items: `{"id":"a","timestamp":1790000000000},17`, env: map[string]string{"BRIDGE_ON_BAD_EVENT": "dlq-all"}, want: []string{`warn 1 of the first 2 items`}},
		"without times": {items: `{"id":"a"}`, env: map[string]string{"EXPORT_ITEM_TIME": "none"}, want: []string{`ok   1 item sampled, all readable, without a time: records carry the publish time$`}},
		"few with a time": {
			items: `{"id":"a","timestamp":1790000000000},{"id":"b","timestamp":null},{"id":"c"}`, env: map[string]string{"EXPORT_ITEM_TIME": "/timestamp,none"}, args: []string{"--sample", "5"},
			want: []string{`ok   3 items sampled, all readable, 2 without a time: their records carry the publish time$`, `^1 +b +- +- +- +export\.events$`},
		},
		"no time yet": {
			items: `{"id":"a"},{"id":"b"}`, env: map[string]string{"EXPORT_ITEM_TIME": "/timestamp,none"},
			want: []string{`ok   2 items sampled, all readable, without a time: records carry the publish time$`, `Try: set EXPORT_ITEM_TIME if they have one$`},
		},
		"nothing to show":  {args: []string{"--sample", "5"}, want: []string{`warn no items from the earliest event on: `, `Try: set an earlier EXPORT_START`}},
		"a sample of none": {args: []string{"--sample", "0"}, code: cli.ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				items := test.items
				if r.URL.Query().Get("start") != "" {
					items = ""
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":null}`, items)
			}))
			t.Cleanup(api.Close)
			env := []string{"EXPORT_API_KEY=" + secretKey, "EXPORT_URL=" + api.URL}
			for name, value := range test.env {
				env = append(env, name+"="+value)
			}
			var stdout, stderr bytes.Buffer
			args := slices.Concat([]string{"check", "--only", "api"}, test.args)
			if code := Program.Run(t.Context(), args, env, cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Columns: 200}); code != test.code {
				t.Errorf("exit code %d, want %d; stderr %q", code, test.code, stderr.String())
			}
			wantLines(t, stripColour(stdout.String()), test.want)
			stdout.Reset()
			Program.Run(t.Context(), args, env, cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Columns: 80})
			for line := range strings.Lines(stripColour(stdout.String())) {
				if process.Width(strings.TrimRight(line, "\n")) > 80 {
					t.Errorf("wider than 80 columns: %q", line)
				}
				if strings.Contains(line, "2026-11-22 10:57:00Z") && !strings.HasSuffix(line, "  export.events\n") {
					t.Errorf("the topic is cut: %q", line)
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

// TestStatusWithoutTimes: the position of a stream without times is known at
// the end of the export alone, that of one that was moved from the next page on.
func TestStatusWithoutTimes(t *testing.T) {
	t.Parallel()
	const undated, moved = "unknown until the end of the export: no event has had a time", "unknown until the next page"
	for kind, want := range map[bridge.Kind]string{bridge.KindData: undated, bridge.KindReset: moved, bridge.KindPause: moved} {
		c := bridge.Checkpoint{Kind: kind, Cursor: "c", Pages: 7, Events: 7000}
		if got := positionText(&c, nil, time.Now()); got != want {
			t.Errorf("after a %s, the position is %q, want %q", kind, got, want)
		}
	}
}

// TestRunOfDeadLetters: a bounded run that publishes nothing but dead letters says
// so by its exit code, and one that has nothing to publish does not.
func TestRunOfDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["HTTP_ADDR"] = otherExport(t), "off"
	got := runProgram(t, w.env, "run", "--once")
	if got.code != cli.ExitCheck || !strings.Contains(got.stderr, "stream events: all 12 items of this run are dead letters, no event was published") || !strings.Contains(got.stderr, "dlq list --stream events") {
		t.Errorf("run: %+v, want exit code %d", got, cli.ExitCheck)
	}
	if got := runProgram(t, w.env, "run", "--once"); got.code != cli.ExitOK {
		t.Errorf("run without new items: %+v", got)
	}
}
