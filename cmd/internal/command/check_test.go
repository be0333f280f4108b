package command

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/setup"
	"exportbridge/cursorstore"
)

// evict makes Redis report an eviction policy.
func evict(m *miniredis.Miniredis) {
	m.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if !strings.EqualFold(cmd, "info") {
			return false
		}
		c.WriteBulk("role:master\r\nmaxmemory:1000000\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n")
		return true
	})
}

// TestCheck: check names each problem and its remedy.
func TestCheck(t *testing.T) {
	t.Parallel()
	set := func(name, value string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.env[name] = value }
	}
	unreachable := func(name, format string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.env[name] = fmt.Sprintf(format, servers.FreeAddress(t)) }
	}
	otherEvents := func(t *testing.T, w *world) {
		w.runOnce(t)
		w.env["EXPORT_EVENTS"] = "orderPlaced"
	}
	for _, test := range []struct {
		name, args string
		prepare    func(t *testing.T, w *world)
	}{
		{"everything is well", "", func(*testing.T, *world) {}},
		{"an unknown variable", "--only api", set("EXPORT_PAGESIZE", "5")},
		{"reading by everybody", "--only api", set("HTTP_ADDR", ":8080")},
		{"wrong key", "", set("EXPORT_API_KEY", "wrong-key")},
		{"no item can be read", "--only api", func(t *testing.T, w *world) { w.env["EXPORT_URL"] = isoExport(t, 0) }},
		{"some items can be read", "--only api", func(t *testing.T, w *world) { w.env["EXPORT_URL"] = isoExport(t, 98) }},
		{"wrong host", "--only api", unreachable("EXPORT_URL", "http://%s")},
		{"wrong path", "--only api", set("EXPORT_PATH", "/nothing/here")},
		{"Kafka down", "", unreachable("KAFKA_BROKERS", "%s")},
		{"missing topic", "--only kafka", set("KAFKA_TOPIC", "nosuch")},
		{"misspelt topic", "--only kafka", set("KAFKA_TOPIC", "exprot.events")},
		{"missing ACL", "--only kafka", func(t *testing.T, w *world) { restrictedKafka(t, w.env) }},
		{"no ACL", "--only kafka", func(t *testing.T, w *world) { secureKafka(t, w.env) }},
		{"wrong Kafka password", "--only kafka", func(t *testing.T, w *world) {
			restrictedKafka(t, w.env)
			w.env["KAFKA_SASL_PASSWORD"] = "wrong-key"
		}},
		{"Redis down", "", unreachable("REDIS_URL", "redis://:"+secretPassword+"@%s/0")},
		{"wrong Redis password", "--only redis", set("REDIS_PASSWORD", "wrong-key")},
		{"other events than the checkpoint's", "--only kafka,redis", otherEvents},
		{"other events than those of Redis's checkpoint", "--only redis", otherEvents},
		{"other events before the first page", "--only kafka,redis", func(t *testing.T, w *world) {
			w.env["HTTP_ADDR"], w.env["EXPORT_API_KEY"] = "off", "wrong-key"
			runProgram(t, w.env, "run", "--once") // it commits the start
			w.env["EXPORT_EVENTS"], w.env["EXPORT_API_KEY"] = "orderPlaced", secretKey
			succeed(t, w.env, "cursor", "show")
		}},
		{"Redis with eviction", "--only redis", func(_ *testing.T, w *world) { evict(w.redis) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.prepare(t, w)
			before := w.redis.Dump()
			got := runProgram(t, w.env, append([]string{"check"}, strings.Fields(test.args)...)...)
			if (got.code == cli.ExitOK) != (got.stderr == "") {
				t.Errorf("exit code %d; stderr %q", got.code, got.stderr)
			}
			wantGolden(t, "check "+test.name, got)
			if after := w.redis.Dump(); after != before {
				t.Errorf("the check left in Redis\n%s", after)
			}
		})
	}
}

// isoExport is an export whose times are text, except those of the first items.
func isoExport(t *testing.T, readable int) (url string) {
	t.Helper()
	return serveItems(t, func(r *http.Request) (items []string, next string) {
		size, err := strconv.Atoi(r.URL.Query().Get("pageSize"))
		if err != nil {
			t.Error(err)
		}
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
		return items, "null"
	})
}

func TestCheckOnRealRedisWithEviction(t *testing.T) {
	t.Parallel()
	servers.NeedReal(t)
	redis := servers.StartRedis(t, servers.RedisOptions{
		Own: true, Settings: map[string]string{"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"},
	})
	got := runProgram(t, map[string]string{"REDIS_URL": redis.URL()}, "check", "--only", "redis")
	if got.code != cli.ExitCheck {
		t.Errorf("exit code %d", got.code)
	}
	wantLines(t, got.stdout,
		[]string{`ok   primary$`, `FAIL maxmemory-policy allkeys-lru evicts`, `Try: set maxmemory-policy noeviction`,
			`ok   append-only on$`})
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
	if want := "config api kafka redis owner"; strings.Join(names, " ") != want || report.Failures != 1 ||
		report.OK == 0 || got.code != cli.ExitCheck {
		t.Errorf("sections %v, want %s; exit code %d: %+v", names, want, got.code, report)
	}
	wantNoSecrets(t, got)
}

func TestCheckUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--only", "foo"}, {"--timeout", "0s"}, {"--timeout", "10"}, {"extra"},
		{"--only", "api"}} {
		got := runProgram(t, nil, append([]string{"check"}, args...)...)
		if got.code != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, "Try: ") {
			t.Errorf("check %v: %+v", args, got)
		}
	}
	// Only the systems of --only must be configured.
	if got := runProgram(t, map[string]string{"REDIS_URL": "redis://" + servers.FreeAddress(t)}, "check", "--only",
		"redis"); got.code != cli.ExitCheck {
		t.Errorf("without a key: %+v", got)
	}
}

// TestCheckTimeout: each section reports a server that does not answer.
func TestCheckTimeout(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	servers.CloseAtEnd(t, l)
	silent := l.Addr().String()
	env := map[string]string{
		"EXPORT_URL": "http://" + silent, "EXPORT_API_KEY": secretKey,
		"KAFKA_BROKERS": silent, "REDIS_URL": "redis://" + silent,
	}
	got := runProgram(t, env, "check", "--timeout", "300ms")
	if got.code != cli.ExitCheck {
		t.Errorf("exit code %d", got.code)
	}
	wantLines(t, got.stdout,
		[]string{`^  api      FAIL the export API did not answer in time$`, `^  kafka    FAIL `, `Try: `,
			`^  redis    FAIL `, `Try: `, `, 3 failures$`})
}

func TestCheckOwner(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := newWorld(t)
	client := must.Get(cursorstore.Open(cursorstore.Config{
		URL: cursorstore.URL(w.env["REDIS_URL"]), Timeout: time.Second, Prefix: "exportbridge", HistoryAge: time.Hour,
	}))(t)
	servers.CloseAtEnd(t, client)
	for _, test := range []struct {
		status bridge.Status
		want   []string
	}{
		{bridge.Status{Owner: "pod-1", State: bridge.StateIdle, Since: now.Add(-3 * time.Hour),
			Version: bridge.Version{Epoch: 4}},
			[]string{`^  owner    info pod-1, epoch 4, caught up for 3h`, ` 0 warnings, 0 failures`}},
		{bridge.Status{Owner: "pod-1", State: bridge.StateBlocked, Reason: bridge.ReasonAuth, Error: "401 Unauthorized",
			Hint: "check EXPORT_API_KEY"},
			[]string{`^  owner    warn pod-1, epoch 0, blocked \(auth\): 401 Unauthorized$`, `Try: check EXPORT_API_KEY`,
				` 1 warning, 0 failures`}},
	} {
		test.status.Stream = "events"
		must.Do(t, client.PutStatuses(t.Context(), []*cursorstore.EncodedStatus{{Status: test.status}}))
		wantLines(t, runProgram(t, w.env, "check", "--only", "redis").stdout, test.want)
	}
}

// TestCheckLookBack: check reports that retention has deleted records that windows may list
// again. Such a stream is blocked.
func TestCheckLookBack(t *testing.T) {
	t.Parallel()
	w, at := newWorld(t), time.Now().Add(-10*time.Minute).UnixMilli()
	w.env["EXPORT_FOLLOW"], w.env["EXPORT_START"] = "windows", "-1h"
	w.env["EXPORT_URL"] = serveItems(t, func(r *http.Request) (items []string, next string) {
		start, _ := strconv.ParseInt(r.URL.Query().Get("start"), 10, 64)
		if end, _ := strconv.ParseInt(r.URL.Query().Get("end"), 10, 64); start <= at && at < end {
			items = append(items, fmt.Sprintf(`{"eventId":"e","timestamp":%d}`, at))
		}
		return items, "null"
	})
	w.runOnce(t)
	check := func(want string) {
		t.Helper()
		wantLines(t, runProgram(t, w.env, "check", "--only", "kafka").stdout, []string{want})
	}
	check(`, 0 failures`)
	admin := kadm.NewClient(servers.Client(t, w.env["KAFKA_BROKERS"]))
	ends := must.Get(admin.ListEndOffsets(t.Context(), "export.events"))(t)
	must.Get(admin.DeleteRecords(t.Context(), ends.Offsets()))(t)
	check(`FAIL partition \d of topic export.events begins at offset [12], ` +
		`but the events published since offset 0 must be known`)
}

// TestCheckStreams: a finding that all streams share is printed once.
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

// TestCheckSamplesWithinLimits: check waits for its second request as long as it may, and
// reports that it read no items. A rate limit that check itself has used up is no failure.
func TestCheckSamplesWithinLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reset string // how long the allowance is used up, in seconds
		env   map[string]string
		want  []string
	}{
		"no key": {"0", map[string]string{"EXPORT_AUTH": "none", "EXPORT_API_KEY": ""},
			[]string{`ok   response accepted, without a key, events`, `ok   1 item sampled`}},
		"a slow rate": {"0", map[string]string{"EXPORT_RATE_LIMIT": "1700/h"},
			[]string{`ok   key accepted, `, `ok   1 item sampled`}},
		"a slower rate": {"0", map[string]string{"EXPORT_RATE_LIMIT": "6/m"},
			[]string{`info no items sampled: EXPORT_RATE_LIMIT=6/m`, `Try: .*--sample 5`, ` 0 failures`}},
		"a short hold": {"1", nil, []string{`ok   1 item sampled`}},
		"a hold": {"3600", nil,
			[]string{`warn no items sampled: .*asked`, `Try: check again`, ` 2 warnings, 0 failures`}},
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

// TestCheckEndOfFullPage: a full page that names no next page may be due to a wrong setting.
func TestCheckEndOfFullPage(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("cursor") {
			_, _ = io.WriteString(w, `{"items":[],"more":false}`)
			return
		}
		_, _ = io.WriteString(w, `{"items":[{"eventId":"1","timestamp":1700000000000},`+
			`{"eventId":"2","timestamp":1700000000000}],"next_cursor":"MORE","more":false}`)
	}))
	t.Cleanup(api.Close)
	for setting, warns := range map[string]bool{
		"EXPORT_CURSOR_FIELD=/paging/next": true, "EXPORT_CURSOR_FIELD=next_cursor": false, "EXPORT_MORE_FIELD=more": false,
		"EXPORT_PAGE_SIZE=3": false,
	} {
		env := map[string]string{"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey, "EXPORT_PAGE_SIZE": "2"}
		name, value, _ := strings.Cut(setting, "=")
		env[name] = value
		got := runProgram(t, env, "check", "--only", "api")
		if told := strings.Contains(got.stdout, "warn the first page is full and names no next page"); told != warns ||
			got.code != cli.ExitOK {
			t.Errorf("%s: exit code %d, warns %t:\n%s", setting, got.code, told, got.stdout)
		}
	}
}
