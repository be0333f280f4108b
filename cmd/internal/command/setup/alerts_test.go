package setup

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/cmd/exportbridge/monitoring"
)

// healthy are the series of a stream that is idle and caught up for two and a half hours,
// scraped every 15 seconds. Time begins at 0.
var healthy = map[string]string{
	`build_info{instance="a"}`:                                        "1x600",
	`stream_owned{instance="a",stream="events"}`:                      "1x600",
	`state{instance="a",stream="events",state="idle"}`:                "1x600",
	`state{instance="a",stream="events",state="paused"}`:              "0x600",
	`state{instance="a",stream="events",state="blocked"}`:             "0x600",
	`source_position_timestamp_seconds{instance="a",stream="events"}`: "0+15x600",
	`last_poll_timestamp_seconds{instance="a",stream="events"}`:       "0+15x600",
	`source_requests_total{stream="events",code="200"}`:               "0+3x600",
	`source_requests_total{stream="events",code="401"}`:               "0x600",
	`source_requests_total{stream="events",code="500"}`:               "0x600",
	`transactions_total{stream="events",result="committed"}`:          "0+1x600",
	`transactions_total{stream="events",result="unknown"}`:            "0x600",
	`cursor_no_progress_total{stream="events",kind="cycle"}`:          "0x600",
	`cursor_no_progress_total{stream="events",kind="full-tail"}`:      "0x600",
	`cursor_no_progress_total{stream="events",kind="border_overlap"}`: "0x600",
	`events_unaccounted_total{stream="events",reason="unaccounted"}`:  "0x600",
	`events_dead_lettered_total{stream="events",reason="too-large"}`:  "0x600",
	`broker_data_losses_total{stream="events"}`:                       "0x600",
	`checkpoints_refused_total{stream="events"}`:                      "0x600",
	`cursor_store_lag_pages{stream="events",store="redis"}`:           "0x600",
	`dependency_up{instance="a",stream="events",dependency="redis"}`:  "1x600",
	`owner_transitions_total{stream="events",to="owner"}`:             "1x600",
}

// alertCase is a change of a healthy stream, and the alerts that it fires.
type alertCase struct {
	name    string
	changes map[string]string // of healthy; other series are added
	at      string            // how long to look
	want    []string          // the alerts that fire in that time; all others are silent
}

var alertCases = []alertCase{
	{"idle and caught up", nil, "2h", nil},

	{"no process", map[string]string{`build_info{instance="a"}`: "1x40 stale"}, "20m", []string{"Down page"}},
	{"a restart of two minutes", map[string]string{
		`build_info{instance="a"}`:                                        "1x40 stale _x8 1x1000",
		`stream_owned{instance="a",stream="events"}`:                      "1x40 stale _x8 0x2 1x1000",
		`source_position_timestamp_seconds{instance="a",stream="events"}`: "0+15x40 stale _x8 0x3 795+15x1000",
		`last_poll_timestamp_seconds{instance="a",stream="events"}`:       "0+15x40 stale _x8 0x3 795+15x1000",
		`source_requests_total{stream="events",code="200"}`:               "0+3x40 stale _x8 0+3x1000",
		`transactions_total{stream="events",result="committed"}`:          "0+1x40 stale _x8 0+1x1000",
		`transactions_total{stream="events",result="unknown"}`:            "0x40 stale _x8 0 1x1000",
		`owner_transitions_total{stream="events",to="owner"}`:             "1x40 stale _x8 0 1x1000",
	}, "14m", nil},
	{"one scrape with counts from before", map[string]string{
		`source_requests_total{stream="events",code="200"}`:              "_x40 3 stale",
		`source_requests_total{stream="events",code="401"}`:              "_x40 50 stale",
		`source_requests_total{stream="events",code="500"}`:              "_x40 500 stale",
		`transactions_total{stream="events",result="committed"}`:         "_x40 3 stale",
		`transactions_total{stream="events",result="unknown"}`:           "_x40 500 stale",
		`cursor_no_progress_total{stream="events",kind="cycle"}`:         "_x40 5 stale",
		`events_unaccounted_total{stream="events",reason="unaccounted"}`: "_x40 5 stale",
		`events_dead_lettered_total{stream="events",reason="too-large"}`: "_x40 5 stale",
		`broker_data_losses_total{stream="events"}`:                      "_x40 5 stale",
		`owner_transitions_total{stream="events",to="owner"}`:            "_x40 50 stale",
	}, "10m15s", nil},

	{"the process of another stream is gone",
		map[string]string{`stream_owned{instance="b",stream="users"}`: "1x40 stale"}, "20m", []string{"StreamGone page"}},
	{"one process of two is gone", map[string]string{`stream_owned{instance="b",stream="events"}`: "0x40 stale"},
		"20m", nil},
	{"another stream is away for four minutes",
		map[string]string{`stream_owned{instance="b",stream="users"}`: "1x4 stale _x16 1x1000"}, "20m", nil},
	{"all stand by", map[string]string{`stream_owned{instance="a",stream="events"}`: "0x600"}, "3m",
		[]string{"NoOwner page"}},
	{"a stream has come to its EXPORT_END", map[string]string{
		`stream_owned{instance="a",stream="march"}`:                      "1x40 0x1000",
		`stream_ended{instance="a",stream="march"}`:                      "_x40 1x1000",
		`state{instance="a",stream="march",state="running"}`:             "1x40 0x1000",
		`state{instance="a",stream="march",state="stopped"}`:             "0x40 1x1000",
		`source_position_timestamp_seconds{instance="a",stream="march"}`: "0+15x40 stale",
		`last_poll_timestamp_seconds{instance="a",stream="march"}`:       "0+15x40 stale",
	}, "1h", nil},
	{"handed over in a minute", map[string]string{
		`stream_owned{instance="a",stream="events"}`: "1x20 0x1000",
		`stream_owned{instance="b",stream="events"}`: "0x24 1x1000",
	}, "7m", nil},
	{"two leaders", map[string]string{`stream_owned{instance="b",stream="events"}`: "1x600"}, "3m",
		[]string{"TwoOwners page"}},
	{"two leaders for half a minute",
		map[string]string{`stream_owned{instance="b",stream="events"}`: "0x20 1x2 0x1000"}, "7m", nil},
	{"leaders of two streams", map[string]string{`stream_owned{instance="b",stream="users"}`: "1x600"}, "3m", nil},

	{"blocked", map[string]string{`stream_blocked{stream="events",reason="auth"}`: "1x600"}, "3m",
		[]string{"Blocked page"}},
	{"blocked for a minute", map[string]string{`stream_blocked{stream="events",reason="auth"}`: "1x4 stale"}, "2m", nil},
	{"blocked, and so without answers", map[string]string{
		`stream_blocked{stream="events",reason="auth"}`:             "1x600",
		`state{instance="a",stream="events",state="blocked"}`:       "1x600",
		`last_poll_timestamp_seconds{instance="a",stream="events"}`: "0x600",
	}, "30m", []string{"Blocked page"}},
	{"the checkpoint is gone", map[string]string{`stream_blocked{stream="events",reason="checkpoint-lost"}`: "1x600"},
		"3m", []string{"CheckpointLost page"}},

	{"paused for fifty minutes", paused, "50m", nil},
	{"paused for an hour", paused, "1h5m", []string{"PausedLong ticket"}},
	{"a new owner each minute", map[string]string{`owner_transitions_total{stream="events",to="owner"}`: "0+0.25x600"},
		"20m", []string{"OwnerFlapping ticket"}},
	{"two takeovers", map[string]string{`owner_transitions_total{stream="events",to="owner"}`: "1x40 2x4 3x1000"},
		"15m", nil},

	{"stuck for twenty minutes", stuck, "20m", []string{"LagHigh ticket"}},
	{"stuck for an hour", stuck, "1h", []string{"LagHigh page", "LagHigh ticket"}},
	{"four minutes behind all the time",
		map[string]string{`source_position_timestamp_seconds{instance="a",stream="events"}`: "0x16 0+15x1000"}, "1h", nil},
	{"behind for five minutes",
		map[string]string{`source_position_timestamp_seconds{instance="a",stream="events"}`: "0+15x40 600x40 1230+15x1000"},
		"21m", nil},
	{"nothing answers", map[string]string{`last_poll_timestamp_seconds{instance="a",stream="events"}`: "0x600"}, "12m",
		[]string{"Stalled page"}},
	{"nothing answers for four minutes",
		map[string]string{`last_poll_timestamp_seconds{instance="a",stream="events"}`: "0+15x40 600x16 870+15x1000"},
		"20m", nil},
	{"the cursor leads back",
		map[string]string{`cursor_no_progress_total{stream="events",kind="cycle"}`: "0x20 1 2 3x1000"},
		"6m", []string{"CursorNotAdvancing page"}},
	{"a full tail for half an hour",
		map[string]string{`cursor_no_progress_total{stream="events",kind="full-tail"}`: "0+1x120 120x1000"}, "45m", nil},
	{"a full tail for two hours",
		map[string]string{`cursor_no_progress_total{stream="events",kind="full-tail"}`: "0+1x600"}, "2h",
		[]string{"CursorNotAdvancing ticket"}},
	{"a border overflows",
		map[string]string{`cursor_no_progress_total{stream="events",kind="border_overlap"}`: "0x20 1x1000"},
		"10m", []string{"BorderOverlap ticket"}},
	{"a full page without a next one",
		map[string]string{`stream_warning{instance="a",stream="events",code="full_page_without_next"}`: "1x600"}, "2h",
		[]string{"Warning ticket"}},
	{"a full page for half an hour",
		map[string]string{`stream_warning{instance="a",stream="events",code="full_page_without_next"}`: "1x120 stale"},
		"2h", nil},
	{"a file with a mistake", map[string]string{
		`config_last_reload_successful{instance="a"}`:                       "1x20 0x1000",
		`stream_warning{instance="a",stream="events",code="config_reload"}`: "1x600",
	}, "2h", []string{"ConfigNotReloaded ticket"}},
	{"a mistake is mended",
		map[string]string{`config_last_reload_successful{instance="a"}`: "1x20 0x16 1x1000"}, "2h", nil},
	{"an event is dropped",
		map[string]string{`events_unaccounted_total{stream="events",reason="unaccounted"}`: "0x20 1x1000"},
		"8m", []string{"EventsUnaccounted page"}},
	{"a backfill at work", map[string]string{`backfill_windows{stream="events",state="running"}`: "8x600"}, "1h", nil},
	{"a backfill was killed", map[string]string{`backfill_windows{stream="events",state="interrupted"}`: "0x20 3x1000"},
		"25m", []string{"BackfillInterrupted ticket"}},
	{"a backfill was killed and goes on",
		map[string]string{`backfill_windows{stream="events",state="interrupted"}`: "0x20 3x40 0x1000"}, "1h", nil},
	{"an event that differs from its schema", map[string]string{`events_schema_mismatched_total{stream="events"}`: "0x20 1x1000"},
		"10m", []string{"SchemaMismatch ticket"}},
	{"a dead letter", map[string]string{`events_dead_lettered_total{stream="events",reason="too-large"}`: "0x20 1x1000"},
		"8m", []string{"DeadLetters ticket"}},
	{"the last attested period lacks events", map[string]string{
		`attested_missing_events{stream="events"}`:                           "0x20 2x1000",
		`stream_warning{instance="a",stream="events",code="attest_missing"}`: "_x20 1x1000",
	}, "2h", []string{"EventsMissing ticket"}},
	{"each attested period is complete",
		map[string]string{`attested_missing_events{stream="events"}`: "0x600"}, "2h", nil},
	{"the attestation does not keep up", map[string]string{`attest_pending_periods{stream="events"}`: "0x20 3x1000"}, "2h",
		[]string{"AttestationBehind ticket"}},
	{"the attestation makes up for a stop",
		map[string]string{`attest_pending_periods{stream="events"}`: "24x160 0x1000"}, "2h", nil},
	{"two periods are due", map[string]string{`attest_pending_periods{stream="events"}`: "2x1000"}, "2h", nil},
	{"no period is attested for two hours",
		map[string]string{`stream_warning{instance="a",stream="events",code="attest_failed"}`: "1x600"}, "2h",
		[]string{"Warning ticket"}},

	{"the key is refused", map[string]string{`source_requests_total{stream="events",code="401"}`: "0+0.25x600"}, "15m",
		[]string{"AuthRejected page"}},
	{"the key is refused once",
		map[string]string{`source_requests_total{stream="events",code="401"}`: "0x20 1x1000"}, "8m", nil},
	{"every third request fails", map[string]string{`source_requests_total{stream="events",code="500"}`: "0+1.5x600"},
		"40m", []string{"SourceErrors ticket"}},
	{"one of thirty requests fails", map[string]string{`source_requests_total{stream="events",code="500"}`: "0+0.1x600"},
		"40m", nil},
	{"a few requests, and all fail", map[string]string{
		`source_requests_total{stream="events",code="200"}`: "0x600",
		`source_requests_total{stream="events",code="500"}`: "0+0.1x600",
	}, "1h", nil},

	{"every tenth transaction fails",
		map[string]string{`transactions_total{stream="events",result="unknown"}`: "0+0.1x600"}, "40m",
		[]string{"TransactionsFail ticket"}},
	{"a transaction fails", map[string]string{`transactions_total{stream="events",result="unknown"}`: "0x100 1x1000"},
		"30m", nil},
	{"Redis is away", map[string]string{`cursor_store_lag_pages{stream="events",store="redis"}`: "0+10x600"}, "20m",
		[]string{"CursorStoreBehind ticket"}},
	{"Redis is away from a quiet stream", map[string]string{
		`cursor_store_lag_pages{stream="events",store="redis"}`:          "1x600",
		`dependency_up{instance="a",stream="events",dependency="redis"}`: "0x600",
	}, "20m", []string{"RedisAway ticket"}},
	{"Redis is away from who stands by", map[string]string{
		`stream_owned{instance="b",stream="events"}`:                     "0x600",
		`dependency_up{instance="b",stream="events",dependency="redis"}`: "0x600",
	}, "20m", nil},
	{"Redis is away for five minutes",
		map[string]string{`cursor_store_lag_pages{stream="events",store="redis"}`: "0+50x20 0x1000"}, "11m", nil},
	{"Kafka lost records", map[string]string{`broker_data_losses_total{stream="events"}`: "0x20 1x1000"}, "8m",
		[]string{"BrokerLostData page"}},
	{"few series", few(nil), "2h", nil},
	{"a dead letter, few series",
		few(map[string]string{`events_dead_lettered_total{stream="events",reason="too-large"}`: "_x40 0x4 1x600"}),
		"14m", []string{"DeadLetters ticket"}},
	{"paused, few series", few(map[string]string{
		`state{instance="a",stream="events",state="idle"}`:                "1x40 stale",
		`state{instance="a",stream="events",state="paused"}`:              "_x40 1x600",
		`source_position_timestamp_seconds{instance="a",stream="events"}`: "0+15x40 600x600",
		`last_poll_timestamp_seconds{instance="a",stream="events"}`:       "0+15x40 600x600",
	}), "2h", []string{"PausedLong ticket"}},
	{"somebody writes a checkpoint", map[string]string{`checkpoints_refused_total{stream="events"}`: "0x20 1x1000"}, "8m",
		[]string{"ForgedCheckpoint page"}},
}

var (
	paused = map[string]string{
		`state{instance="a",stream="events",state="idle"}`:                "0x600",
		`state{instance="a",stream="events",state="paused"}`:              "1x600",
		`source_position_timestamp_seconds{instance="a",stream="events"}`: "0x600",
		`last_poll_timestamp_seconds{instance="a",stream="events"}`:       "0x600",
	}
	stuck = map[string]string{`source_position_timestamp_seconds{instance="a",stream="events"}`: "0x600"}
)

// few are the changes of a healthy stream in a process with many streams: a series is absent
// instead of 0, unless it must be 0.
func few(changes map[string]string) map[string]string {
	all := make(map[string]string)
	for series, values := range healthy {
		if values == "0x600" &&
			!regexp.MustCompile("^(events_unaccounted|broker|checkpoints|cursor_store)").MatchString(series) {
			all[series] = "_x600"
		}
	}
	maps.Copy(all, changes)
	return all
}

// TestAlertRules: promtool checks the rules and runs the cases.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("TEST_PROMTOOL") == "1" {
			t.Fatal("promtool is not there: install prometheus")
		}
		t.Skip("promtool is not there: install prometheus to test the alert rules")
	}
	rules := mustAlertRules(t)
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "rules.yml"), rules)
	writeText(t, filepath.Join(dir, "test.yml"), promtoolTests(t))
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	fired := make(map[string]bool)
	for _, c := range alertCases {
		for _, alert := range c.want {
			fired[alert] = true
		}
	}
	if diff := cmp.Diff(alertsOf(rules), slices.Sorted(maps.Keys(fired))); diff != "" {
		t.Errorf("the rules, and the alerts that fire in a case (-rules +cases):\n%s", diff)
	}
}

// promtoolTests returns the cases as a test file of promtool, in JSON, which is YAML too.
func promtoolTests(t *testing.T) string {
	t.Helper()
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type question struct {
		Expr       string   `json:"expr"`
		EvalTime   string   `json:"eval_time"`
		ExpSamples []sample `json:"exp_samples"`
	}
	type test struct {
		Name           string     `json:"name"`
		Interval       string     `json:"interval"`
		InputSeries    []series   `json:"input_series"`
		PromqlExprTest []question `json:"promql_expr_test"`
	}
	var tests []test
	for _, c := range alertCases {
		all := maps.Clone(healthy)
		maps.Copy(all, c.changes)
		q := question{Expr: `count by (alertname, severity) (last_over_time(ALERTS{alertstate="firing"}[3h]))`,
			EvalTime: c.at, ExpSamples: []sample{}}
		for _, alert := range c.want {
			name, severity, _ := strings.Cut(alert, " ")
			q.ExpSamples = append(q.ExpSamples,
				sample{fmt.Sprintf(`{alertname="Exportbridge%s", severity=%q}`, name, severity), 1})
		}
		one := test{Name: c.name, Interval: "15s", PromqlExprTest: []question{q}}
		for _, id := range slices.Sorted(maps.Keys(all)) {
			one.InputSeries = append(one.InputSeries, series{"exportbridge_" + id, all[id]})
		}
		tests = append(tests, one)
	}
	text := must.Get(json.Marshal(map[string]any{"rule_files": []string{"rules.yml"}, "evaluation_interval": "30s",
		"tests": tests}))(t)
	return string(text)
}

func mustAlertRules(t *testing.T) string {
	t.Helper()
	rules := must.Get(alertRules(monitoring.Groups))(t)
	return rules
}

func writeText(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}

// alertsOf returns the alerts of a rule file with their severities.
func alertsOf(rules string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?s)alert: Exportbridge(\w+).*?severity: (\w+)`).FindAllStringSubmatch(rules,
		-1) {
		all = append(all, m[1]+" "+m[2])
	}
	slices.Sort(all)
	return all
}

// Every metric of the rules and of the dashboard must exist.
func TestMonitoredMetricsExist(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Build{Version: "1"}, metrics.DetailAuto, []string{"events"}, func() []bridge.Status {
		return []bridge.Status{{
			Stream: "events", Leader: true, State: bridge.StateBlocked, Reason: bridge.ReasonAuth,
			Dependencies: map[string]bridge.Dependency{bridge.DependencySink: {}},
			Warnings:     []bridge.Warning{{Code: bridge.StuckFullPage}},
			Attested:     &bridge.Attested{Seq: 1},
		}, {Stream: "march", State: bridge.StateStopped, Ended: "the window ended"}}
	})
	m.CountLosses("events", func() int64 { return 0 })
	m.CountRefused("events", func() int64 { return 0 })
	m.Reloaded(true)
	m.Windows("events", map[string]int{})
	families := must.Get(m.Gather())(t)
	known := make(map[string]bool)
	for _, f := range families {
		known[f.GetName()] = true
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name, text := range map[string]string{"rules": mustAlertRules(t), "dashboard": monitoring.Dashboard,
		"cases": promtoolTests(t)} {
		asked := regexp.MustCompile(`exportbridge_[a-z_]+`).FindAllString(text, -1)
		if len(asked) < 20 {
			t.Errorf("%s: asks for %d metrics only", name, len(asked))
		}
		for _, metric := range asked {
			if !known[metric] && !known[suffix.ReplaceAllString(metric, "")] {
				t.Errorf("%s: there is no metric %s", name, metric)
			}
		}
	}
}

// TestMonitoringOfManyStreams: no rule uses a metric that is of all streams together by
// default. The dashboard shows such a metric for each choice of streams.
func TestMonitoringOfManyStreams(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Build{Version: "1"}, metrics.DetailProcess, []string{"events"},
		func() []bridge.Status { return nil })
	families := must.Get(m.Gather())(t)
	rules, shown := mustAlertRules(t), 0
	for _, f := range families {
		series := f.GetMetric()[0].GetLabel()
		if !slices.ContainsFunc(series,
			func(l *dto.LabelPair) bool { return l.GetName() == "stream" && l.GetValue() == "" }) {
			continue
		}
		if strings.Contains(rules, f.GetName()) {
			t.Errorf("a rule asks for %s, which no stream has by default", f.GetName())
		}
		asked := regexp.MustCompile(f.GetName()+`\w*\{([^}]*)\}`).FindAllStringSubmatch(monitoring.Dashboard, -1)
		for _, match := range asked {
			if match[1] != `stream=~\"$stream|\"` {
				t.Errorf("the dashboard asks for %s, which is empty by default", match[0])
			}
		}
		shown += len(asked)
	}
	if shown == 0 {
		t.Error("the dashboard shows no metric of all streams together")
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating  struct{ List []struct{ Name string } }
		Annotations struct{ List []struct{ Expr string } }
	}
	must.Do(t, json.Unmarshal([]byte(monitoring.Dashboard), &d))
	if len(d.Panels) != 8 || len(d.Templating.List) != 2 || len(d.Annotations.List) != 1 {
		t.Errorf("%d panels, %d variables, %d annotations", len(d.Panels), len(d.Templating.List), len(d.Annotations.List))
	}
	var exprs []string
	ids, places := make(map[int]bool), make(map[string]bool)
	for _, p := range d.Panels {
		ids[p.ID], places[fmt.Sprint(p.GridPos)] = true, true
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	if len(ids) != len(d.Panels) || len(places) != len(d.Panels) {
		t.Error("two panels have one id or one place")
	}
	exprs = append(exprs, d.Annotations.List[0].Expr)
	for _, expr := range exprs {
		if !strings.Contains(expr, `{stream=~"$stream"`) && !strings.Contains(expr, `{stream=~"$stream|"`) {
			t.Errorf("%s does not go by the stream variable", expr)
		}
	}
	checkExpressions(t, exprs)
}

// checkExpressions parses PromQL with promtool, if promtool is installed.
func checkExpressions(t *testing.T, exprs []string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not there: the expressions are not parsed")
		return
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, expr := range exprs {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$stream", "events").Replace(expr)
		rules += fmt.Sprintf("  - record: dashboard:%d\n    expr: %q\n", i, expr)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	writeText(t, path, strings.ReplaceAll(rules, "dashboard:", "dashboard:expr"))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
