package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// loadFrom loads settings from an environment that names a key.
func loadFrom(t *testing.T, need Uses, environ ...string) (*Settings, error) {
	t.Helper()
	l := &loader{src: newSources(nil, nil, append([]string{"EXPORT_API_KEY=sesame"}, environ...), nil)}
	return l.load(need, testNow)
}

// problems returns the problems of err.
func problems(err error) Problems {
	all, _ := errors.AsType[Problems](err)
	return all
}

func messages(err error) (lines []string) {
	for _, p := range problems(err) {
		lines = append(lines, p.Message)
	}
	return lines
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	s := must.Get(loadFrom(t, UsesAll))(t)
	if len(s.Streams) != 1 || len(s.Warnings) > 0 {
		t.Fatalf("%d streams, warnings %q", len(s.Streams), s.Warnings)
	}
	st := s.Streams[0]
	if st.Name != "events" || st.Engine.Stream != "events" || st.Kafka.Stream != "events" ||
		st.Kafka.Topic != "export.events" ||
		st.Kafka.Resource != "events" || st.Export.KeyPointer != "/userId" {
		t.Errorf("stream %+v", st)
	}
	if !st.Engine.Origin.Request.Known() {
		t.Error("the request has no fingerprint")
	}
	if diff := cmp.Diff(bridge.Origin{Resource: "events", Request: st.Engine.Origin.Request},
		st.Engine.Origin); diff != "" {
		t.Errorf("origin (-want +got):\n%s", diff)
	}
	if st.Engine.Mode != bridge.ExactlyOnce || st.Kafka.Mode != bridge.ExactlyOnce || st.Engine.PageSize != 1000 ||
		st.Engine.FetchTimeout != 5*time.Minute || !strings.Contains(st.Engine.Owner, "-") {
		t.Errorf("mode %s, page size %d, owner %s", st.Engine.Mode, st.Engine.PageSize, st.Engine.Owner)
	}
	if st.Engine.Log != nil {
		t.Error("the walker made a logger")
	}
	if s.HTTP.Addr != "127.0.0.1:8080" || s.Cursor.HistoryAge != 720*time.Hour {
		t.Errorf("settings %+v", s)
	}
}

func TestLoadStreams(t *testing.T) {
	t.Parallel()
	key := writeFile(t, "key", "other\n")
	s := must.Get(loadFrom(t, UsesAll,
		"BRIDGE_STREAMS=events, users,orders",
		"BRIDGE_INSTANCE_ID=bridge-0",
		"EXPORT_START=-24h",
		"STREAM_ORDERS_EXPORT_RESOURCE=events",
		"STREAM_ORDERS_EXPORT_EVENTS=orderPlaced",
		"STREAM_ORDERS_EXPORT_API_KEY_FILE="+key,
		"STREAM_ORDERS_KAFKA_TOPIC=orders",
		"STREAM_USERS_EXPORT_PAGE_SIZE=7",
		"STREAM_USERS_KAFKA_KEY=none",
		"STREAM_USERS_EXPORT_START=2026-11-01T00:00:00Z",
		"STREAM_USERS_EXPORT_END=2026-11-02T00:00:00Z",
		"KAFKA_RETENTION=30d",
	))(t)
	type row struct {
		Name, Resource, Topic, Key, KeyFile, Pointer, Owner, Retention string
		PageSize                                                       int
		Start, End                                                     int64
	}
	var got []row
	for _, st := range s.Streams {
		got = append(got, row{
			st.Name, st.Engine.Origin.Resource, st.Kafka.Topic, st.Export.APIKey.Reveal(), st.Export.APIKeyFile,
			st.Export.KeyPointer,
			st.Engine.Owner, st.Kafka.Retention, st.Engine.PageSize, st.Engine.Origin.Start, st.Engine.Origin.End,
		})
	}
	day := testNow.Add(-24 * time.Hour).UnixMilli()
	want := []row{
		{"events", "events", "export.events", "sesame", "", "/userId", "bridge-0", "720h0m0s", 1000, day, 0},
		{"users", "users", "export.users", "sesame", "", "none", "bridge-0", "720h0m0s", 7, 1793491200000, 1793577600000},
		{"orders", "events", "orders", "other", key, "/userId", "bridge-0", "720h0m0s", 1000, day, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadProblems(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		environ []string
		want    []string
	}{
		{
			"two streams, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events", "KAFKA_TOPIC=all"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source and topic, remove one or set " +
				"STREAM_MORE_KAFKA_TOPIC"},
		},
		{
			"two streams, one topic, different events",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"STREAM_MORE_EXPORT_EVENTS=a"},
			nil,
		},
		{
			"two hosts of one source, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"EXPORT_SOURCE=acme", "EXPORT_URL=https://one.example.com/v1", "STREAM_MORE_EXPORT_URL=https://two.example.com/v1/"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source and topic, remove one or set " +
				"STREAM_MORE_KAFKA_TOPIC"},
		},
		{
			"one address in two forms, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"EXPORT_URL=https://api.example.com/v1", "STREAM_EVENTS_EXPORT_PATH=/list",
				"STREAM_MORE_EXPORT_URL=https://API.example.com:443/", "STREAM_MORE_EXPORT_PATH=v1/list/"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source and topic, remove one or set " +
				"STREAM_MORE_KAFKA_TOPIC"},
		},
		{
			"the path of a resource, written out, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"EXPORT_URL=https://api.example.com", "STREAM_MORE_EXPORT_PATH=/events"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source and topic, remove one or set " +
				"STREAM_MORE_KAFKA_TOPIC"},
		},
		{
			"a path that ends in that of a resource, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"EXPORT_URL=https://api.example.com/acme", "STREAM_MORE_EXPORT_URL=https://api.example.com/",
				"STREAM_MORE_EXPORT_PATH=/acme"},
			nil,
		},
		{
			"two ports of one host, one topic",
			[]string{"BRIDGE_STREAMS=events,more", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"EXPORT_URL=https://api.example.com", "STREAM_MORE_EXPORT_URL=https://api.example.com:8443"},
			nil,
		},
		{
			"two sources, by host or name, one topic",
			[]string{"BRIDGE_STREAMS=a,b,c", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all", "EXPORT_URL=https://one.example.com/v1",
				"STREAM_B_EXPORT_URL=https://two.example.com/v1", "STREAM_C_EXPORT_URL=https://three.example.com/v1",
				"STREAM_C_EXPORT_SOURCE=acme"},
			nil,
		},
		{
			"streams of different tenants, one topic",
			[]string{"BRIDGE_STREAMS=a,b,c", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all",
				"STREAM_A_EXPORT_HEADERS=X-Tenant-Id: a", "STREAM_B_EXPORT_PARAMS=tenant=b"},
			nil,
		},
		{
			"streams whose tokens are of different tenants, one topic",
			[]string{"BRIDGE_STREAMS=a,b,c", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all", "EXPORT_AUTH=oauth2",
				"EXPORT_OAUTH2_CLIENT_ID=app", "EXPORT_OAUTH2_TOKEN_URL=https://login.example.com/a/token",
				"STREAM_B_EXPORT_OAUTH2_TOKEN_URL=https://login.example.com/b/token",
				"STREAM_C_EXPORT_OAUTH2_PARAMS=account_id=c"},
			nil,
		},
		{
			"two streams, one topic of routes",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events",
				"STREAM_EVENTS_KAFKA_ROUTES=a=shared,b=one", "STREAM_MORE_KAFKA_ROUTES=b=two,c=shared"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source, and both publish to topic shared, " +
				"remove one or set STREAM_MORE_KAFKA_ROUTES"},
		},
		{
			"two streams, a route to the other's topic",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events",
				"STREAM_MORE_KAFKA_ROUTES=b=export.events"},
			[]string{"BRIDGE_STREAMS: streams events and more have the same source, and both publish to topic " +
				"export.events, remove one or set STREAM_MORE_KAFKA_ROUTES"},
		},
		{
			"two sources, one topic of routes",
			[]string{"BRIDGE_STREAMS=events,users", "KAFKA_ROUTES=/a=b:shared"},
			nil,
		},
		{
			"routes that compare no types",
			[]string{"KAFKA_ROUTES=a=orders", "EXPORT_ITEM_TYPE=none"},
			[]string{"KAFKA_ROUTES: compares types, but EXPORT_ITEM_TYPE=none says that there are none; " +
				"use /POINTER=PATTERN:TOPIC"},
		},
		{
			"routes that drop, with windows",
			[]string{"KAFKA_ROUTES=a=drop", "EXPORT_FOLLOW=windows", "EXPORT_START=-90d"},
			[]string{"KAFKA_ROUTES: the topic drop is not possible with EXPORT_FOLLOW=windows, where the topics show which " +
				"events are new; name a topic with a short retention"},
		},
		{"routes with an attestation", []string{"KAFKA_ROUTES=a=orders", "BRIDGE_ATTEST=1h"}, nil},
		{
			"a route to the topic of the attestation",
			[]string{"KAFKA_ROUTES=a=export.events.attest", "BRIDGE_ATTEST=1h"},
			[]string{"BRIDGE_ATTEST publishes records to topic export.events.attest, which KAFKA_DLQ_TOPIC, " +
				"KAFKA_CHECKPOINT_TOPIC or KAFKA_ROUTES names too"},
		},
		{
			"two streams, one source",
			[]string{"BRIDGE_STREAMS=events,more", "STREAM_MORE_EXPORT_RESOURCE=events"},
			nil,
		},
		{
			"names of streams",
			[]string{"BRIDGE_STREAMS=events,events,a-b,a_b,-x," + strings.Repeat("y", 64), "EXPORT_RESOURCE=events"},
			[]string{
				`BRIDGE_STREAMS: "events" is listed twice, for example events,users`,
				`BRIDGE_STREAMS: "a-b" and "a_b" would share their variables STREAM_A_B_..., rename one`,
				`BRIDGE_STREAMS: "-x" is not a name of a-z, 0-9, _ and -, at most 63 long; commas are between names, for example events,users`,
				`BRIDGE_STREAMS: "` + strings.Repeat("y", 64) +
					`" is not a name of a-z, 0-9, _ and -, at most 63 long; commas are between names, for example events,users`,
			},
		},
		{
			"resource against the stream's name",
			[]string{"EXPORT_RESOURCE=users"},
			[]string{"EXPORT_RESOURCE: users is not for stream events, which is named after a resource; set " +
				"BRIDGE_STREAMS=users, or STREAM_EVENTS_EXPORT_RESOURCE=users"},
		},
		{"resource of a stream", []string{"STREAM_EVENTS_EXPORT_RESOURCE=users"}, nil},
		{
			"no resource",
			[]string{"BRIDGE_STREAMS=clicks,a-b"},
			[]string{
				"STREAM_CLICKS_EXPORT_RESOURCE: is required, because stream clicks is not named after a resource, for example events",
				"STREAM_A_B_EXPORT_RESOURCE: is required, because stream a-b is not named after a resource, for example events",
			},
		},
		{
			"one stream's mistake",
			[]string{"BRIDGE_STREAMS=events,users", "STREAM_USERS_EXPORT_PAGE_SIZE=0"},
			[]string{"stream users: EXPORT_PAGE_SIZE 0 is not within 1 to 1000 (EXPORT_MAX_PAGE_SIZE), for example 1000"},
		},
		{
			"everybody's mistake",
			[]string{"BRIDGE_STREAMS=events,users", "EXPORT_TIMEOUT=0s", "EXPORT_EMPTY_PAGES=x"},
			[]string{"EXPORT_TIMEOUT must be above 0, for example 30s",
				`EXPORT_EMPTY_PAGES: "x" is not a whole number, for example 5`},
		},
		{
			"a start in the future",
			[]string{"EXPORT_START=2099-11-02T00:00:00Z"},
			[]string{"EXPORT_START: 2099-11-02T00:00:00Z is in the future (2099-11-02T00:00:00Z): no event is there yet, and " +
				"those until then would be left out; for new events alone set EXPORT_START=now"},
		},
		{
			"a start in microseconds",
			[]string{"EXPORT_START=1793491200000000"},
			[]string{"EXPORT_START: 1793491200000000 is in the future (58803-06-23T00:00:00Z): no event is there yet, and " +
				"those until then would be left out; for new events alone set EXPORT_START=now"},
		},
		{
			"window",
			[]string{"EXPORT_START=2026-11-02T00:00:00Z", "EXPORT_END=2026-11-01T00:00:00Z"},
			[]string{"EXPORT_END must be after EXPORT_START"},
		},
		{
			"bounds that the API does not have",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_END=2026-11-02T00:00:00Z", "EXPORT_START_PARAM=none",
				"EXPORT_END_PARAM=none", "EXPORT_ON_INVALID_CURSOR=time"},
			[]string{
				"EXPORT_START is set, but the API has no parameter for a start (EXPORT_START_PARAM=none), so the export begins " +
					"at the earliest event only; set EXPORT_START=earliest",
				"EXPORT_END is set, but the API has no parameter for an end (EXPORT_END_PARAM=none), so a bounded range cannot " +
					"be read",
				"EXPORT_ON_INVALID_CURSOR is time, but the API has no parameter for a start (EXPORT_START_PARAM=none), so the " +
					"export begins at the earliest event only",
			},
		},
		{
			"an end inside of a value, in requests that have none",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_PARAMS=q={start}..{end}"},
			[]string{"EXPORT_PARAMS must suit a stream by its cursor, but the request has no end for {end} in \"q\" of " +
				"EXPORT_PARAMS; set EXPORT_START to a time, give each of {start} and {end} a parameter of its own, or set " +
				"EXPORT_FOLLOW=windows, whose requests have both"},
		},
		{
			"no bounds, by windows",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_START_PARAM=none", "EXPORT_END_PARAM=none",
				"EXPORT_FOLLOW=windows"},
			nil,
		},
		{
			"an end that a list without a start cannot have",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_START_PARAM=none", "EXPORT_PARAMS=q=<{end}",
				"EXPORT_FOLLOW=windows"},
			[]string{`EXPORT_FOLLOW is windows, but the request has no end for {end} in "q" of EXPORT_PARAMS`},
		},
		{
			"no bounds and no times, by windows",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_START_PARAM=none", "EXPORT_END_PARAM=none",
				"EXPORT_ITEM_TIME=none", "EXPORT_FOLLOW=windows"},
			[]string{"EXPORT_FOLLOW is windows, but EXPORT_ITEM_TIME says that items have no time to sort them by"},
		},
		{
			"bounds inside of a value, by windows",
			[]string{"EXPORT_START=2026-11-01T00:00:00Z", "EXPORT_PARAMS=q={start}..{end}", "EXPORT_FOLLOW=windows"},
			nil,
		},
		{
			"a window that would end elsewhere after a restart",
			[]string{"EXPORT_END=-1h"},
			[]string{`EXPORT_END: "-1h" is another time at every start, so the window until EXPORT_END could not be ` +
				`resumed; write it out, for example 2026-11-21T11:00:00Z`},
		},
		{
			"a window that would begin elsewhere after a restart",
			[]string{"EXPORT_START=now", "EXPORT_END=2099-01-01", "STREAM_EVENTS_EXPORT_START=-1d"},
			[]string{`STREAM_EVENTS_EXPORT_START: "-1d" is another time at every start, so the window until EXPORT_END could ` +
				`not be resumed; write it out, for example 2026-11-20T12:00:00Z`},
		},
		{"a window from the earliest event", []string{"EXPORT_END=2099-01-01"}, nil},
		{"delivery", []string{"KAFKA_DELIVERY=at-most-once"},
			[]string{`KAFKA_DELIVERY: "at-most-once" is not one of: exactly-once, at-least-once`}},
		{
			"a stream's file",
			[]string{"STREAM_EVENTS_EXPORT_PATH_FILE=/none/such"},
			[]string{"STREAM_EVENTS_EXPORT_PATH_FILE: stat /none/such: no such file or directory"},
		},
		{"address off", []string{"HTTP_ADDR=off"}, nil},
	} {
		_, err := loadFrom(t, UsesAll, test.environ...)
		if diff := cmp.Diff(test.want, messages(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		for _, p := range problems(err) {
			if !strings.Contains(p.Message, p.Variable) || p.Variable == "" {
				t.Errorf("%s: %q is about %q", test.name, p.Message, p.Variable)
			}
		}
	}
}

// A command works even if settings that it does not use are wrong.
func TestLoadOnlyWhatIsUsed(t *testing.T) {
	t.Parallel()
	environ := []string{"EXPORT_API_KEY=", "EXPORT_PAGE_SIZE=x", "KAFKA_PARTITIONS=x", "REDIS_TIMEOUT=x",
		"BRIDGE_STREAMS=orders"}
	for need, want := range map[Uses][]string{
		0: nil,
		UsesKafka: {
			`KAFKA_PARTITIONS: "x" is not a whole number, for example 6`,
		},
		UsesCursor: {
			`REDIS_TIMEOUT: "x" is not a duration (90s, 2h30m, 7d, PT2H), for example 2s`,
		},
	} {
		_, err := loadFrom(t, need, environ...)
		if diff := cmp.Diff(want, messages(err)); diff != "" {
			t.Errorf("uses %d (-want +got):\n%s", need, diff)
		}
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	s := must.Get(loadFrom(t, UsesAll, "BRIDGE_STREAMS=events,users", "STREAM_USERS_EXPORT_API_KEY=other",
		"STREAM_USERS_KAFKA_TOPIC=u",
		"REDIS_URL=redis://user:pass@host:6379/0", "EXPORT_PROXY=http://user:pass@proxy:3128"))(t)
	got := make(map[string]Setting)
	for _, row := range s.Effective {
		got[row.Variable] = row
	}
	for _, want := range []Setting{
		{Variable: "EXPORT_API_KEY", Value: "***", Origin: FromEnv, Secret: true},
		{Variable: "STREAM_USERS_EXPORT_API_KEY", Value: "***", Origin: FromEnv, Secret: true},
		{Variable: "EXPORT_PROXY", Value: "***", Origin: FromEnv, Secret: true},
		{Variable: "REDIS_URL", Value: "redis://user:***@host:6379/0", Origin: FromEnv, Secret: true},
		{Variable: "STREAM_EVENTS_KAFKA_TOPIC", Value: "export.events", Origin: FromDefault},
		{Variable: "STREAM_USERS_KAFKA_TOPIC", Value: "u", Origin: FromEnv},
		{Variable: "STREAM_EVENTS_KAFKA_DLQ_TOPIC", Value: "dlq.export.events", Origin: FromDefault},
		{Variable: "STREAM_USERS_KAFKA_DLQ_TOPIC", Value: "dlq.u", Origin: FromDefault},
		{Variable: "EXPORT_PREFETCH_BYTES", Value: "16MiB", Origin: FromDefault},
	} {
		if diff := cmp.Diff(want, got[want.Variable]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Variable, diff)
		}
	}
	if _, ok := got["KAFKA_TOPIC"]; ok {
		t.Error("KAFKA_TOPIC has a row beside those of the streams")
	}
}

// FuzzLoad looks for values that make the loader panic, silently accept nonsense, or print
// the key.
func FuzzLoad(f *testing.F) {
	names := []string{}
	for _, v := range Variables() {
		names = append(names, v.Name)
		f.Add(uint8(len(names)-1), v.example(), "events")
	}
	f.Add(uint8(0), "redis://a:b@c", "events,users")
	f.Fuzz(func(t *testing.T, index uint8, value, streams string) {
		const key = "correct-horse-battery"
		name := names[int(index)%len(names)]
		if strings.Contains(value, key) || strings.Contains(streams, key) {
			t.Skip()
		}
		l := &loader{src: newSources(map[string]string{name: value}, nil, []string{"EXPORT_API_KEY=" + key,
			"BRIDGE_STREAMS=" + streams}, nil)}
		s, err := l.load(UsesAll, testNow)
		if err != nil && len(problems(err)) == 0 {
			t.Errorf("%s=%q: %T is no error about settings: %v", name, value, err, err)
		}
		if err == nil && len(s.Streams) == 0 {
			t.Errorf("%s=%q: no streams and no error", name, value)
		}
		if err != nil && strings.Contains(err.Error(), key) {
			t.Errorf("the error holds the key: %v", err)
		}
		for _, row := range s.Effective {
			if strings.Contains(row.Value, key) {
				t.Errorf("%s shows the key", row.Variable)
			}
		}
	})
}

// TestResourceOfAllStreams: EXPORT_RESOURCE holds for each stream without its own.
func TestResourceOfAllStreams(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{
		{"BRIDGE_STREAMS=clicks,orders,users", "EXPORT_RESOURCE=events", "STREAM_ORDERS_EXPORT_RESOURCE=sessions",
			"STREAM_USERS_EXPORT_RESOURCE=users"},
		{"BRIDGE_STREAMS=clicks,orders,users", "EXPORT_RESOURCE=events", "STREAM_ORDERS_EXPORT_RESOURCE=sessions",
			"STREAM_USERS_EXPORT_RESOURCE_FILE=" + writeFile(t, "resource", "users")},
	} {
		s := must.Get(Load(Sources{Environ: append(environ, "EXPORT_API_KEY=k")}, UsesAll))(t)
		var got []string
		for _, st := range s.Streams {
			got = append(got, st.Export.Resource, st.Engine.Origin.Resource, st.Kafka.Resource)
		}
		want := []string{"events", "events", "events", "sessions", "sessions", "sessions", "users", "users", "users"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", environ, diff)
		}
	}
}

// The origin names the pointers of ids unless they are the default of the resource, so that
// older checkpoints, which name none, stay valid.
func TestOriginOfIDs(t *testing.T) {
	t.Parallel()
	const users = "BRIDGE_STREAMS=users"
	for want, environs := range map[string][][]string{
		"": {nil, {"EXPORT_ITEM_ID=/eventId,/id"}, {users}, {users, "EXPORT_ITEM_ID=none"}},
		"/id": {{"EXPORT_ITEM_ID=/id"}, {users, "EXPORT_ITEM_ID=/id"}, {"EXPORT_PROFILE=generic",
			"EXPORT_URL=https://api.example.com", "EXPORT_PATH=/log"}},
		"none":         {{"EXPORT_ITEM_ID=none"}},
		"/id,/eventId": {{"EXPORT_ITEM_ID=/id,/eventId"}},
	} {
		for _, environ := range environs {
			s := must.Get(loadFrom(t, UsesAll, environ...))(t)
			if got := s.Streams[0].Engine.Origin.ItemID; got != want {
				t.Errorf("%q: ids at %q, want %q", environ, got, want)
			}
		}
	}
}
