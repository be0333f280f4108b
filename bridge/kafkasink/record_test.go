package kafkasink_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is a record as the golden files show it.
type golden struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Key       *string  `json:"key"`
	Time      string   `json:"time"`
	Headers   []string `json:"headers"`
	Value     string   `json:"value"`
}

func goldenOf(r *kgo.Record, cfg kafkastream.Config) golden {
	g := golden{
		Topic: strings.ReplaceAll(r.Topic, cfg.Topic, "TOPIC"), Partition: r.Partition, Value: string(r.Value),
		Time: r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if time.Since(r.Timestamp).Abs() < time.Hour {
		g.Time = "NOW"
	}
	if r.Key != nil {
		k := string(r.Key)
		g.Key = &k
	}
	for _, h := range r.Headers {
		g.Headers = append(g.Headers, h.Key+"="+strings.ReplaceAll(string(h.Value), cfg.Topic, "TOPIC"))
	}
	return g
}

// contractPages hold one event of each kind. Times are fixed: the topic keeps
// records for ever.
func contractPages() []*bridge.Page {
	const at = 1767225600123 // 2026-01-01T00:00:00.123Z
	croct := bridge.SourceIdentity{Organization: "acme", Workspace: "main", Application: "web shop"}
	known := page(
		bridge.Event{Raw: []byte(`{"eventId":"e-1", "userId" : "u-1","n":9007199254740993,` +
			`"timestamp":1767225600123,"payload":{"type":"orderPlaced"}}`),
			ID: []byte("e-1"), Key: []byte("u-1"), Subject: []byte("u-1"), Type: []byte("orderPlaced"), Time: at},
		bridge.Event{Raw: []byte(`{"id":"e-2","payload":{"@type":"goalCompleted"}}`), ID: []byte("e-2"),
			Type: []byte("goalCompleted"), Time: at + 877},
		bridge.Event{Raw: []byte(`{"s":"\ud800\u00e9é","dup":1,"dup":2}`), Key: []byte("ключ"),
			Subject: []byte("ключ"), Time: at},
		bridge.Event{Raw: []byte(`{"eventId":"e-4"}`), ID: []byte("e-4"), Key: []byte{}, Subject: []byte{},
			Type: []byte("userSignedUp"), Time: 0, Republished: true, Late: 90 * time.Second},
		bridge.Event{Raw: []byte(`17`), Defect: bridge.DefectNotObject},
		bridge.Event{Raw: []byte(`{"eventId":"e-6","userId":"u-1","timestamp":"x"}`), ID: []byte("e-6"), Key: []byte("u-1"),
			Subject: []byte("u-1"), Type: []byte("orderPlaced"), Defect: bridge.DefectTime},
		bridge.Event{Raw: []byte(`{"eventId":"e-7","big":"` + strings.Repeat("x", 2<<20) + `"}`), ID: []byte("e-7"),
			Key: []byte("u-1"), Subject: []byte("u-1"), Type: []byte("orderPlaced"), Time: at},
		bridge.Event{Raw: []byte(`{"eventId":"e-8"}`), ID: []byte("e-8"), Key: []byte("u-1"),
			Time: 400000000000000}, // year 14645
	)
	known.Source = croct
	return []*bridge.Page{known, page(bridge.Event{Raw: []byte(`{"eventId":"e-9"}`), ID: []byte("e-9"),
		Key: []byte("u-2"), Time: at})}
}

func TestRecordContract(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*kafkastream.Config){
		"cloudevents": func(*kafkastream.Config) {},
		"minimal":     withHeaders("minimal"),
		"none":        withHeaders("none"),
		"sessions":    func(c *kafkastream.Config) { c.Resource, c.Stream = "sessions", "sessions" },
		"users":       func(c *kafkastream.Config) { c.Resource, c.Stream = "users", "my users" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, change)
			pages := contractPages()
			if cfg.Resource != "events" { // their items have no types
				for i := range pages[0].Events {
					pages[0].Events[i].Type = nil
				}
			}
			receipt := publish(t, s, pages...)
			for _, p := range pages {
				poison(p) // what Publish still used would show
			}
			want := bridge.Receipt{
				Published: 6, Restamped: 1, Bytes: receipt.Bytes, Topics: receipt.Topics,
				DeadLettered: map[bridge.Defect]int{bridge.DefectNotObject: 1, bridge.DefectTime: 1, bridge.DefectTooLarge: 1},
			}
			if diff := cmp.Diff(want, receipt); diff != "" {
				t.Errorf("receipt differs (-want +got):\n%s", diff)
			}
			var got []golden
			for _, topic := range cfg.Needs().Topics.Published() {
				for _, r := range consume(t, cfg, topic) {
					got = append(got, goldenOf(r, cfg))
				}
			}
			for i := range got {
				if got[i].Key == nil {
					got[i].Partition = -1 // any will do
				}
			}
			slices.SortFunc(got, func(a, b golden) int {
				return strings.Compare(a.Topic+a.Value, b.Topic+b.Value)
			})
			compareGolden(t, filepath.Join("testdata", "record-v1-"+name+".json"), got)
		})
	}
}

// TestSourceAndType: what ce_source and ce_type say by the settings and by the
// metadata of the page.
func TestSourceAndType(t *testing.T) {
	t.Parallel()
	whole := bridge.SourceIdentity{Organization: "acme", Workspace: "main", Application: "web"}
	workspace := bridge.SourceIdentity{Organization: "acme", Workspace: "main"}
	for name, tc := range map[string]struct {
		resource, source, prefix string
		of                       bridge.SourceIdentity
		kind                     string
		wantSource, wantType     string
	}{
		"events": {resource: "events", of: whole, kind: "a", wantSource: "/acme/web/events",
			wantType: "com.croct.event.a"},
		"events without metadata": {resource: "events", wantSource: "/stream", wantType: "com.croct.event"},
		"events of a workspace":   {resource: "events", of: workspace, wantSource: "/stream", wantType: "com.croct.event"},
		"users of a workspace": {resource: "users", of: workspace, wantSource: "/acme/main/users",
			wantType: "com.croct.user"},
		"sessions of a workspace": {resource: "sessions", of: workspace, wantSource: "/acme/main/sessions",
			wantType: "com.croct.session"},
		"users without metadata": {resource: "users", wantSource: "/stream", wantType: "com.croct.user"},
		"users, source set": {resource: "users", source: "/acme/main/users", wantSource: "/acme/main/users",
			wantType: "com.croct.user"},
		"source before metadata": {resource: "events", source: "https://api.example/orders?a=1", of: whole,
			wantSource: "https://api.example/orders?a=1", wantType: "com.croct.event"},
		"type prefix": {resource: "events", prefix: "com.example.order", kind: "placed",
			wantSource: "/stream", wantType: "com.example.order.placed"},
		"type prefix without types": {resource: "users", prefix: "com.example.member", wantSource: "/stream",
			wantType: "com.example.member"},
		"a type of a session": {resource: "sessions", kind: "closed", wantSource: "/stream",
			wantType: "com.croct.session.closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, kafkatest.Brokers(t), func(c *kafkastream.Config) {
				c.Stream, c.Resource, c.Source, c.TypePrefix = "stream", tc.resource, tc.source, tc.prefix
			})
			s := recovered(t, cfg)
			p := page(bridge.Event{Raw: []byte(`{}`), Type: []byte(tc.kind), Time: time.Now().UnixMilli()})
			p.Source = tc.of
			publish(t, s, p)
			headers := map[string]string{}
			for _, r := range consume(t, cfg, cfg.Topic) {
				for _, h := range r.Headers {
					headers[h.Key] = string(h.Value)
				}
			}
			if got := [2]string{headers["ce_source"], headers["ce_type"]}; got != [2]string{tc.wantSource, tc.wantType} {
				t.Errorf("ce_source and ce_type are %q, want %q and %q", got, tc.wantSource, tc.wantType)
			}
		})
	}
}

func TestSourceAndTypeAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ source, prefix, want string }{
		{source: "a b", want: "KAFKA_CE_SOURCE"}, {source: "/a\n", want: "KAFKA_CE_SOURCE"},
		{source: "/é", want: "KAFKA_CE_SOURCE"}, {source: "/%zz", want: "KAFKA_CE_SOURCE"},
		{source: strings.Repeat("a", 1001), want: "KAFKA_CE_SOURCE"},
		{prefix: "com.example.", want: "KAFKA_CE_TYPE_PREFIX"}, {prefix: ".a", want: "KAFKA_CE_TYPE_PREFIX"},
		{prefix: "a b", want: "KAFKA_CE_TYPE_PREFIX"}, {prefix: "a..b", want: "KAFKA_CE_TYPE_PREFIX"},
	} {
		cfg := config(t, []string{"127.0.0.1:9092"},
			func(c *kafkastream.Config) { c.Source, c.TypePrefix = bad.source, bad.prefix })
		must.Be(t, cfg.Validate(), nil, bad.want)
	}
}

// TestTraceparent: the records of a traced page carry its context, those of the
// page after it do not, and none do where headers are not wanted.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for headers, traced := range map[string]int{"cloudevents": 3, "minimal": 3, "none": 0} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, withHeaders(headers))
			event := func(id string) bridge.Event {
				return bridge.Event{Raw: []byte(`{"eventId":"` + id + `"}`), ID: []byte(id), Key: []byte("u"),
					Subject: []byte("u"), Time: time.Now().UnixMilli()}
			}
			first := page(event("a"), event("b"), bridge.Event{Raw: []byte(`17`), Defect: bridge.DefectNotObject})
			first.Traceparents = []string{parent}
			publish(t, s, first)
			publish(t, s, page(event("c"), event("d")))
			seen, records := 0, 0
			for _, topic := range cfg.Needs().Topics.Published() {
				for _, r := range consume(t, cfg, topic) {
					records++
					for _, h := range r.Headers {
						if h.Key == "traceparent" && string(h.Value) == parent {
							seen++
						}
					}
				}
			}
			if seen != traced || records != 5 {
				t.Errorf("%d of %d records carry the context, want %d of 5", seen, records, traced)
			}
		})
	}
}

func compareGolden(t *testing.T, file string, got []golden) {
	t.Helper()
	b := must.Get(json.MarshalIndent(got, "", "  "))(t)
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, append(b, '\n'), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(b)); diff != "" {
		t.Errorf("records differ from %s (-want +got):\n%s", file, diff)
	}
}

// TestPartitioner compares with values that Java's default partitioner gives
// for 3 partitions (murmur2 of the key, positive, modulo).
func TestPartitioner(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, func(c *kafkastream.Config) { c.Partitions = 3 })
	want := map[string]int32{"21": murmur2("21"), "foobar": murmur2("foobar"),
		"a-little-bit-long-string": murmur2("a-little-bit-long-string"), "abc": murmur2("abc")}
	var events []bridge.Event
	for key := range want {
		events = append(events, event("id-"+key, key))
	}
	publish(t, s, page(events...))
	for _, r := range consume(t, cfg, cfg.Topic) {
		if p := want[string(r.Key)] % 3; r.Partition != p {
			t.Errorf("key %s is in partition %d, want %d", r.Key, r.Partition, p)
		}
	}
}

// murmur2 returns the hashes that Kafka's own UtilsTest.testMurmur2 lists,
// made positive as its partitioner does.
func murmur2(key string) int32 {
	return map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107,
	}[key] & 0x7fffffff
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	const day = 24 * time.Hour
	week := map[string]*string{"retention.ms": new("604800000")}
	forEver := map[string]*string{"retention.ms": new("-1")}
	appended := map[string]*string{"retention.ms": new("604800000"), "message.timestamp.type": new("LogAppendTime")}
	cases := []struct {
		name      string
		topic     map[string]*string
		timestamp string
		age       time.Duration // of the event; negative is the future
		restamped bool
		published bool // carries the time of publishing
	}{
		{"fresh", week, "event", 0, false, false},
		{"within half the retention", week, "event", 3*day + 11*time.Hour, false, false},
		{"older than half the retention", week, "event", 3*day + 13*time.Hour, true, true},
		{"older than the retention", week, "event", 30 * day, true, true},
		{"50 minutes ahead", week, "event", -50 * time.Minute, false, false},
		{"2 hours ahead", week, "event", -2 * time.Hour, true, true},
		{"old, kept for ever", forEver, "event", 3000 * day, false, false},
		{"2 hours ahead, kept for ever", forEver, "event", -2 * time.Hour, true, true},
		{"before 1970", forEver, "event", 60 * 365 * day, true, true},
		{"append time", appended, "event", 30 * day, false, true},
		{"publish", week, "publish", 30 * day, false, true},
	}
	for _, c := range cases {
		for _, onExpired := range []string{"publish-time", "stop"} {
			t.Run(c.name+" "+onExpired, func(t *testing.T) {
				t.Parallel()
				cfg := config(t, addrs, func(cfg *kafkastream.Config) { cfg.Timestamp, cfg.OnExpired = c.timestamp, onExpired })
				kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, c.topic)
				s := recovered(t, cfg)
				when := time.Now().Add(-c.age)
				ev := event("e", "u")
				ev.Time = when.UnixMilli()
				receipt, err := tryPublish(t, s, page(event("first", "u"), ev))
				if c.restamped && onExpired == "stop" {
					f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonRetention)
					if !strings.Contains(f.Error(), `item 1 of the page`) || f.Hint == "" {
						t.Errorf("fault %v (hint %q) does not name item and repair", f, f.Hint)
					}
					if got := consume(t, cfg, cfg.Topic); len(got) != 0 {
						t.Errorf("%d records were produced before the stop", len(got))
					}
					return
				}
				if err != nil {
					t.Fatalf("publish: %v", err)
				}
				if (receipt.Restamped == 1) != c.restamped {
					t.Errorf("restamped %d, want %v", receipt.Restamped, c.restamped)
				}
				checkStamp(t, consume(t, cfg, cfg.Topic), when, c.published)
			})
		}
	}
}

// checkStamp checks the second record's time, and that ce_time is exact.
func checkStamp(t *testing.T, records []*kgo.Record, when time.Time, published bool) {
	t.Helper()
	if len(records) != 2 {
		t.Fatalf("%d records, want 2", len(records))
	}
	r := records[1]
	want := when
	if published {
		want = time.Now()
	}
	if off := r.Timestamp.Sub(want).Abs(); off > time.Minute {
		t.Errorf("record has time %s, want about %s", r.Timestamp, want)
	}
	if got, want := headersOf(r)["ce_time"], when.UTC().Format("2006-01-02T15:04:05.000Z"); got != want {
		t.Errorf("ce_time is %s, want %s", got, want)
	}
}

func TestHeaderValuesStay(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	for round := range 5 { // the second round reuses the first one's memory
		var events []bridge.Event
		for i := range 500 {
			events = append(events, event(fmt.Sprintf("r%d-e%d", round, i), fmt.Sprintf("u%d", i%7)))
		}
		p := page(events...)
		publish(t, s, p)
		poison(p)
	}
	seen := map[string]bool{}
	for _, r := range consume(t, cfg, cfg.Topic) {
		var value struct{ EventID, UserID string }
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatalf("value %q: %v", r.Value, err)
		}
		h := headersOf(r)
		if h["ce_id"] != value.EventID || h["ce_subject"] != value.UserID || string(r.Key) != value.UserID {
			t.Errorf("record %s has id %s, subject %s, key %s", r.Value, h["ce_id"], h["ce_subject"], r.Key)
		}
		seen[value.EventID] = true
	}
	if len(seen) != 2500 {
		t.Errorf("%d different events arrived, want 2500", len(seen))
	}
}

// TestTimeHeader compares with the standard library around the edges of days,
// of years and of what RFC 3339 can say.
func TestTimeHeader(t *testing.T) {
	t.Parallel()
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	last := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		ms := first + rnd.Int64N(last-first+1)
		day := ms - ms%(24*60*60*1000)
		for _, ms := range []int64{ms, day, day - 1, max(first, min(last, ms)), first, last} {
			want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
			if ms < first || ms > last {
				want = ""
			}
			if got := kafkasink.TimeHeader(ms); got != want {
				t.Fatalf("the ce_time of %d is %q, want %q", ms, got, want)
			}
		}
	}
	for _, ms := range []int64{first - 1, last + 1, math.MinInt64, math.MaxInt64} {
		if got := kafkasink.TimeHeader(ms); got != "" {
			t.Errorf("the ce_time of %d is %q, want none", ms, got)
		}
	}
}

// TestEventWithoutTime: an event without a time carries the time of publishing,
// which is nothing to count or to stop for, and no ce_time.
func TestEventWithoutTime(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, func(c *kafkastream.Config) { c.OnExpired = "stop" })
	open := bridge.Event{Raw: []byte(`{"userId":"u-1"}`), Key: []byte("u-1"), Subject: []byte("u-1"), Time: bridge.NoTime}
	began := time.Now()
	receipt := publish(t, s, page(open))
	want := bridge.Receipt{Published: 1, Bytes: int64(len(open.Raw)), Topics: receipt.Topics}
	if cmp.Diff(want, receipt) != "" {
		t.Errorf("receipt differs (-want +got):\n%s", cmp.Diff(want, receipt))
	}
	for _, r := range consume(t, cfg, cfg.Topic) {
		if r.Timestamp.Before(began.Add(-time.Second)) || r.Timestamp.After(time.Now()) {
			t.Errorf("the record's time is %v, want that of publishing", r.Timestamp)
		}
		for _, h := range r.Headers {
			if h.Key == "ce_time" {
				t.Errorf("ce_time is %q", h.Value)
			}
		}
	}
}
