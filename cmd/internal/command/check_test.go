package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/setup"
	"exportbridge/cursorstore"
)

// result is what a run of the program left.
type result struct {
	code           int
	stdout, stderr string
}

// runProgram runs the program in this process with exactly these variables.
func runProgram(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	code := Program.Run(t.Context(), args, environ, cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

// Values that no output may hold.
const (
	secretKey      = "sesame-key"
	secretPassword = "sesame-password"
)

func wantNoSecrets(t *testing.T, r result) {
	t.Helper()
	for _, secret := range []string{secretKey, secretPassword, "wrong-key"} {
		if strings.Contains(r.stdout+r.stderr, secret) {
			t.Errorf("the output holds the secret %q:\n%s%s", secret, r.stdout, r.stderr)
		}
	}
}

// world is a simulated export API, a Kafka with the default topics, and a
// Redis, with the variables that name them.
type world struct {
	env   map[string]string
	redis *miniredis.Miniredis
}

func newWorld(t *testing.T) *world {
	t.Helper()
	sim, err := exportsim.New(exportsim.Config{Events: 5, Seed: 1, APIKey: secretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	kafka := servers.EmbeddedKafka(t)
	for _, topic := range []string{"export.events", "dlq.export.events"} {
		if err := kafka.CreateTopic(topic, 2, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
	}
	createCheckpoints(t, kafka)
	redis := servers.EmbeddedRedis(t)
	redis.RequireAuth(secretPassword)
	return &world{redis: redis, env: map[string]string{
		"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey,
		"KAFKA_BROKERS": strings.Join(kafka.ListenAddrs(), ","),
		"REDIS_URL":     "redis://:" + secretPassword + "@" + redis.Addr() + "/0",
	}}
}

// createCheckpoints creates the checkpoint topic as topics create does.
func createCheckpoints(t *testing.T, kafka *servers.Cluster) {
	t.Helper()
	configs := map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"}
	if err := kafka.CreateTopic("exportbridge.checkpoints", 16, configs); err != nil {
		t.Fatal(err)
	}
}

// restrictedKafka is a Kafka where the user writer may only look at the topics.
func restrictedKafka(t *testing.T, env map[string]string) {
	t.Helper()
	var acls []kfake.ACL
	for _, prefix := range []string{"export.", "dlq.", "exportbridge."} {
		acls = append(acls, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: prefix, Pattern: kmsg.ACLResourcePatternTypePrefixed,
			Operation: kmsg.ACLOperationDescribe, Allow: true,
		})
	}
	cluster := servers.EmbeddedKafka(t, kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.SeedTopics(2, "export.events", "dlq.export.events"),
		kfake.User("SCRAM-SHA-256", "writer", secretPassword, acls...), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
	createCheckpoints(t, cluster)
	admin := servers.Client(t, cluster.ListenAddrs()[0], kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism()))
	produce(t, admin, eventRecord(0, 1, "k", "v"))
	env["KAFKA_BROKERS"] = strings.Join(cluster.ListenAddrs(), ",")
	env["KAFKA_SASL_MECHANISM"] = "SCRAM-SHA-256"
	env["KAFKA_SASL_USERNAME"] = "writer"
	env["KAFKA_SASL_PASSWORD"] = secretPassword
}

// evict makes the Redis say that it evicts.
func evict(m *miniredis.Miniredis) {
	m.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if !strings.EqualFold(cmd, "info") {
			return false
		}
		c.WriteBulk("role:master\r\nmaxmemory:1000000\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n")
		return true
	})
}

// TestCheck: whatever keeps the bridge from running is named, with what to do.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, w *world)
		args    []string
		code    int
		want    []string // regular expressions, in the order of the lines
	}{
		{
			name: "everything is well",
			want: []string{
				`^  config   ok   4 values set, `, `^  api      ok   127\.0\.0\.1:\d+ is reachable, without TLS`,
				`ok   key accepted, organization \S+ / workspace \S+ / application \S+, events, 1000 per page, `,
				`^  kafka    ok   `, `topic export.events: 2 partitions`, `^  redis    ok   `, `ok   scripts allowed, test key written and removed$`,
				`^  owner    info stream events is not running$`, `^  \d+ ok, 0 warnings, 0 failures$`,
			},
		},
		{
			name:    "an unknown variable",
			prepare: func(_ *testing.T, w *world) { w.env["EXPORT_PAGESIZE"] = "5" },
			args:    []string{"--only", "api"},
			want:    []string{`warn EXPORT_PAGESIZE is not a setting; did you mean EXPORT_PAGE_SIZE\?$`, ` 1 warning, 0 failures$`},
		},
		{
			name:    "reading by everybody",
			prepare: func(_ *testing.T, w *world) { w.env["HTTP_ADDR"] = ":8080" },
			args:    []string{"--only", "api"},
			want:    []string{`warn HTTP_ADDR lets every client that reaches it read `, `Try: restrict who reaches it`, ` 1 warning, 0 failures$`},
		},
		{
			name:    "wrong key",
			prepare: func(_ *testing.T, w *world) { w.env["EXPORT_API_KEY"] = "wrong-key" },
			code:    cli.ExitCheck,
			want:    []string{`^  api      FAIL .*\b403 Forbidden\b`, `Try: check EXPORT_API_KEY`, `^  kafka    ok`, `, 1 failure$`},
		},
		{
			name:    "no item can be read",
			prepare: func(t *testing.T, w *world) { w.env["EXPORT_URL"] = isoExport(t, 0) },
			args:    []string{"--only", "api"},
			code:    cli.ExitCheck,
			want:    []string{`^  api      ok `, `FAIL 100 of the first 100 items are unreadable; item 0 \(bad-timestamp\): its time at /timestamp is in the format rfc3339, not ms$`, `Try: set EXPORT_ITEM_TIME_FORMAT=rfc3339; .*dlq-all`, `, 1 failure$`},
		},
		{
			name:    "some items can be read",
			prepare: func(t *testing.T, w *world) { w.env["EXPORT_URL"] = isoExport(t, 98) },
			args:    []string{"--only", "api"},
			code:    cli.ExitCheck,
			want:    []string{`FAIL 2 of the first 100 items are unreadable; item 98 \(bad-timestamp\): `, ` 1 failure$`},
		},
		{
			name:    "wrong host",
			prepare: func(t *testing.T, w *world) { w.env["EXPORT_URL"] = "http://" + servers.FreeAddress(t) },
			args:    []string{"--only", "api"},
			code:    cli.ExitCheck,
			want:    []string{`^  api      FAIL .*connection refused`, `Try: check EXPORT_URL`},
		},
		{
			name:    "wrong path",
			prepare: func(_ *testing.T, w *world) { w.env["EXPORT_PATH"] = "/nothing/here" },
			args:    []string{"--only", "api"},
			code:    cli.ExitCheck,
			want:    []string{`^  api      FAIL .*404`, `Try: EXPORT_URL and EXPORT_PATH make the path /nothing/here`},
		},
		{
			name:    "Kafka down",
			prepare: func(t *testing.T, w *world) { w.env["KAFKA_BROKERS"] = servers.FreeAddress(t) },
			code:    cli.ExitCheck,
			want:    []string{`^  kafka    FAIL .*connection refused`, `Try: check that Kafka is running`, `^  redis    ok`},
		},
		{
			name:    "missing topic",
			prepare: func(_ *testing.T, w *world) { w.env["KAFKA_TOPIC"] = "nosuch" },
			args:    []string{"--only", "kafka"},
			code:    cli.ExitCheck,
			want:    []string{`FAIL .*topic nosuch does not exist$`, `Try: check the topic names, KAFKA_TOPIC .* topics create --execute`, `FAIL .*topic dlq.nosuch does not exist$`, `, 2 failures$`},
		},
		{
			name:    "misspelt topic",
			prepare: func(_ *testing.T, w *world) { w.env["KAFKA_TOPIC"] = "exprot.events" },
			args:    []string{"--only", "kafka"},
			code:    cli.ExitCheck,
			want:    []string{`FAIL .*topic exprot.events does not exist$`, `Try: check the topic names, KAFKA_TOPIC \(similar: export.events\) and KAFKA_DLQ_TOPIC;`},
		},
		{
			name:    "missing ACL",
			prepare: func(t *testing.T, w *world) { restrictedKafka(t, w.env) },
			args:    []string{"--only", "kafka"},
			code:    cli.ExitCheck,
			want:    []string{`FAIL .*topic export.events: no permission to write$`, `Try: kafka-acls.sh .*'User:writer' --operation Write .*--topic export.events$`},
		},
		{
			name: "wrong Kafka password",
			prepare: func(t *testing.T, w *world) {
				restrictedKafka(t, w.env)
				w.env["KAFKA_SASL_PASSWORD"] = "wrong-key"
			},
			args: []string{"--only", "kafka"},
			code: cli.ExitCheck,
			want: []string{`^  kafka    FAIL `, `Try: check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD; if the listener does not use SASL, unset KAFKA_SASL_MECHANISM$`},
		},
		{
			name: "Redis down",
			prepare: func(t *testing.T, w *world) {
				w.env["REDIS_URL"] = "redis://:" + secretPassword + "@" + servers.FreeAddress(t) + "/0"
			},
			code: cli.ExitCheck,
			want: []string{`^  redis    FAIL .*connection refused`, `Try: check that Redis runs at the address in REDIS_URL$`, `^  owner    info unknown: Redis is unreachable$`, `, 1 failure$`},
		},
		{
			name:    "wrong Redis password",
			prepare: func(_ *testing.T, w *world) { w.env["REDIS_PASSWORD"] = "wrong-key" },
			args:    []string{"--only", "redis"},
			code:    cli.ExitCheck,
			want:    []string{`^  redis    FAIL .*WRONGPASS`, `Try: check REDIS_USERNAME and REDIS_PASSWORD$`},
		},
		{
			name: "other events than the checkpoint's",
			prepare: func(t *testing.T, w *world) {
				w.env["HTTP_ADDR"] = "off"
				if got := runProgram(t, w.env, "run", "--once"); got.code != cli.ExitOK {
					t.Fatalf("run: %+v", got)
				}
				w.env["EXPORT_EVENTS"] = "orderPlaced"
			},
			args: []string{"--only", "kafka,redis"},
			code: cli.ExitCheck,
			want: []string{`FAIL the checkpoint was written with resource events, all events, .* the configuration has resource events, events orderPlaced`, `Try: restore the setting, .* cursor reset --to-current --execute`, `, 1 failure$`},
		},
		{
			name: "other events than those of Redis's checkpoint",
			prepare: func(t *testing.T, w *world) {
				w.env["HTTP_ADDR"] = "off"
				if got := runProgram(t, w.env, "run", "--once"); got.code != cli.ExitOK {
					t.Fatalf("run: %+v", got)
				}
				w.env["EXPORT_EVENTS"] = "orderPlaced"
			},
			args: []string{"--only", "redis"},
			code: cli.ExitCheck,
			want: []string{`ok   scripts allowed`, `FAIL the checkpoint was written with resource events, all events, .* the configuration has resource events, events orderPlaced`, `Try: restore the setting, .* cursor reset --to-current --execute`, `, 1 failure$`},
		},
		{
			name: "other events before the first page",
			prepare: func(t *testing.T, w *world) {
				w.env["HTTP_ADDR"], w.env["EXPORT_API_KEY"] = "off", "wrong-key"
				runProgram(t, w.env, "run", "--once") // it commits the start
				w.env["EXPORT_EVENTS"], w.env["EXPORT_API_KEY"] = "orderPlaced", secretKey
				if got := runProgram(t, w.env, "cursor", "show"); got.code != cli.ExitOK {
					t.Fatalf("cursor show: %+v", got)
				}
			},
			args: []string{"--only", "kafka,redis"},
			want: []string{`, 0 failures$`},
		},
		{
			name:    "Redis with eviction",
			prepare: func(_ *testing.T, w *world) { evict(w.redis) },
			args:    []string{"--only", "redis"},
			code:    cli.ExitCheck,
			want:    []string{`FAIL maxmemory-policy allkeys-lru evicts the checkpoint`, `Try: set maxmemory-policy noeviction`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.prepare != nil {
				test.prepare(t, w)
			}
			before := w.redis.Dump()
			got := runProgram(t, w.env, append([]string{"check"}, test.args...)...)
			if got.code != test.code || (got.code == cli.ExitOK) != (got.stderr == "") {
				t.Errorf("exit code %d, want %d; stderr %q", got.code, test.code, got.stderr)
			}
			wantLines(t, got.stdout, test.want)
			wantNoSecrets(t, got)
			if after := w.redis.Dump(); after != before {
				t.Errorf("the check left in Redis\n%s", after)
			}
		})
	}
}

// isoExport is an export whose times are text, but for the first ones.
func isoExport(t *testing.T, readable int) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("pageSize"))
		if err != nil {
			t.Error(err)
		}
		items := []string{}
		for i := range size {
			when := `"2026-11-01T00:00:00Z"`
			if i < readable {
				when = "1790000000000"
			}
			items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%s}`, i, when))
		}
		if r.URL.Query().Get("start") != "" {
			items = nil // from now on
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":null}`, strings.Join(items, ","))
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// wantLines looks for lines that match the expressions, one after the other.
func wantLines(t *testing.T, text string, want []string) {
	t.Helper()
	rest := strings.Split(text, "\n")
	for _, expression := range want {
		re := regexp.MustCompile(expression)
		for {
			if len(rest) == 0 {
				t.Errorf("no line matches %s after the ones before:\n%s", expression, text)
				return
			}
			line := rest[0]
			rest = rest[1:]
			if re.MatchString(line) {
				break
			}
		}
	}
}

func TestCheckOnRealRedisWithEviction(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("run with make test-real")
	}
	redis := servers.StartRedis(t, servers.RedisOptions{
		Own: true, Settings: map[string]string{"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"},
	})
	got := runProgram(t, map[string]string{"REDIS_URL": redis.URL()}, "check", "--only", "redis")
	if got.code != cli.ExitCheck {
		t.Errorf("exit code %d", got.code)
	}
	wantLines(t, got.stdout, []string{`ok   primary$`, `FAIL maxmemory-policy allkeys-lru evicts`, `Try: set maxmemory-policy noeviction`, `ok   append-only on$`})
}

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_API_KEY"] = "wrong-key"
	got := runProgram(t, w.env, "check", "--json")
	var report setup.CheckReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v in %s", err, got.stdout)
	}
	var names []string
	for _, s := range report.Sections {
		names = append(names, s.Name)
	}
	if want := "config api kafka redis owner"; strings.Join(names, " ") != want || report.Failures != 1 || report.OK == 0 || got.code != cli.ExitCheck {
		t.Errorf("sections %v, want %s; exit code %d: %+v", names, want, got.code, report)
	}
	wantNoSecrets(t, got)
}

func TestCheckUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--only", "foo"}, {"--timeout", "0s"}, {"--timeout", "10"}, {"extra"}, {"--only", "api"}} {
		got := runProgram(t, nil, append([]string{"check"}, args...)...)
		if got.code != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, "Try: ") {
			t.Errorf("check %v: %+v", args, got)
		}
	}
	// Only what is asked for must be configured.
	if got := runProgram(t, map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t)}, "check", "--only", "redis"); got.code != cli.ExitCheck {
		t.Errorf("without a key: %+v", got)
	}
}

// TestCheckTimeout: a server that says nothing holds the check up no longer
// than it was told to wait.
func TestCheckTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	servers.CloseAtEnd(t, l)
	silent := l.Addr().String()
	env := map[string]string{
		"EXPORT_URL": "http://" + silent, "EXPORT_API_KEY": secretKey, "KAFKA_BROKERS": silent, "REDIS_URL": "redis://" + silent,
	}
	began := time.Now()
	got := runProgram(t, env, "check", "--timeout", "300ms")
	if took := time.Since(began); took > 5*time.Second || got.code != cli.ExitCheck {
		t.Errorf("took %s, exit code %d", took, got.code)
	}
	wantLines(t, got.stdout, []string{`^  api      FAIL the export API did not answer in time$`, `^  kafka    FAIL `, `Try: `, `^  redis    FAIL `, `Try: `, `, 3 failures$`})
}

func TestCheckOwner(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := newWorld(t)
	client, err := cursorstore.Open(cursorstore.Config{
		URL: cursorstore.URL(w.env["REDIS_URL"]), Timeout: time.Second, Prefix: "exportbridge", HistoryAge: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	servers.CloseAtEnd(t, client)
	for _, test := range []struct {
		status bridge.Status
		want   []string
	}{
		{bridge.Status{Owner: "pod-1", State: bridge.StateIdle, Since: now.Add(-3 * time.Hour), Version: bridge.Version{Epoch: 4}},
			[]string{`^  owner    info pod-1, epoch 4, caught up for 3h`, ` 0 warnings, 0 failures`}},
		{bridge.Status{Owner: "pod-1", State: bridge.StateBlocked, Reason: bridge.ReasonAuth, Error: "401 Unauthorized", Hint: "check EXPORT_API_KEY"},
			[]string{`^  owner    warn pod-1, epoch 0, blocked \(auth\): 401 Unauthorized$`, `Try: check EXPORT_API_KEY`, ` 1 warning, 0 failures`}},
	} {
		if err := client.Stream("events").PutStatus(t.Context(), test.status); err != nil {
			t.Fatal(err)
		}
		wantLines(t, runProgram(t, w.env, "check", "--only", "redis").stdout, test.want)
	}
}

// TestCheckStreams: what streams have in common is said once.
func TestCheckStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["BRIDGE_STREAMS"] = "events,users"
	got := runProgram(t, w.env, "check", "--only", "kafka")
	if n := strings.Count(got.stdout, "the only broker is reachable"); n != 1 || got.code != cli.ExitCheck {
		t.Errorf("the broker is named %d times, exit code %d:\n%s", n, got.code, got.stdout)
	}
	wantLines(t, got.stdout, []string{`events: topic export.events: `, `FAIL users: topic export.users does not exist`})
}

// TestCheckSamplesWithinLimits: check waits for its second request as long as it
// may, and says where it reads no items. An allowance that it has used up itself
// is no failure.
func TestCheckSamplesWithinLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reset string // how long the allowance is used up, in seconds
		env   map[string]string
		want  []string
	}{
		"no key":        {"0", map[string]string{"EXPORT_AUTH": "none", "EXPORT_API_KEY": ""}, []string{`ok   response accepted, without a key, events`, `ok   1 item sampled`}},
		"a slow rate":   {"0", map[string]string{"EXPORT_RATE_LIMIT": "1700/h"}, []string{`ok   key accepted, `, `ok   1 item sampled`}},
		"a slower rate": {"0", map[string]string{"EXPORT_RATE_LIMIT": "6/m"}, []string{`info no items sampled: EXPORT_RATE_LIMIT=6/m`, `Try: .*--sample 5`, ` 0 failures`}},
		"a short hold":  {"1", nil, []string{`ok   1 item sampled`}},
		"a hold":        {"3600", nil, []string{`warn no items sampled: .*asked`, `Try: check again`, ` 2 warnings, 0 failures`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if test.reset != "0" {
					w.Header().Set("X-RateLimit-Remaining", "0")
					w.Header().Set("X-RateLimit-Reset", test.reset)
				}
				_, _ = io.WriteString(w, `{"items":[{"eventId":"1","timestamp":1700000000000}],"nextCursor":null}`)
			}))
			t.Cleanup(api.Close)
			env := map[string]string{"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey}
			maps.Copy(env, test.env)
			got := runProgram(t, env, "check", "--only", "api")
			wantLines(t, got.stdout, test.want)
			if got.code != cli.ExitOK {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
		})
	}
}

// TestCheckEndOfFullPage: a full page that names no next one may be the work of a
// wrong setting.
func TestCheckEndOfFullPage(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("cursor") {
			_, _ = io.WriteString(w, `{"items":[],"more":false}`)
			return
		}
		_, _ = io.WriteString(w, `{"items":[{"eventId":"1","timestamp":1700000000000},{"eventId":"2","timestamp":1700000000000}],"next_cursor":"MORE","more":false}`)
	}))
	t.Cleanup(api.Close)
	for setting, warns := range map[string]bool{
		"EXPORT_CURSOR_FIELD=/paging/next": true, "EXPORT_CURSOR_FIELD=next_cursor": false, "EXPORT_MORE_FIELD=more": false, "EXPORT_PAGE_SIZE=3": false,
	} {
		env := map[string]string{"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey, "EXPORT_PAGE_SIZE": "2"}
		name, value, _ := strings.Cut(setting, "=")
		env[name] = value
		got := runProgram(t, env, "check", "--only", "api")
		if told := strings.Contains(got.stdout, "warn the first page is full and names no next page"); told != warns || got.code != cli.ExitOK {
			t.Errorf("%s: exit code %d, warns %t:\n%s", setting, got.code, told, got.stdout)
		}
	}
}
