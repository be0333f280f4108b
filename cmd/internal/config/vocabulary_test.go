package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnknown(t *testing.T) {
	t.Parallel()
	voc := newVocabulary(Variables(), []string{"events", "my-users"})
	for _, test := range []struct{ name, value, want string }{
		{"EXPORT_URL", "x", ""},
		{"EXPORT_URL_FILE", "x", ""},
		{"EXPORT_PAGESIZE", "", ""},
		{"EXPORT_PAGESIZE", "5", "EXPORT_PAGESIZE is not a setting; did you mean EXPORT_PAGE_SIZE?"},
		{"EXPORT_API_KEYFILE", "x", "EXPORT_API_KEYFILE is not a setting; did you mean EXPORT_API_KEY_FILE?"},
		{"EXPORT_SOMETHING_ELSE", "x", "EXPORT_SOMETHING_ELSE is not a setting"},
		{"REDIS_URI", "x", "REDIS_URI is not a setting; did you mean REDIS_URL?"},
		{"REDIS_PORT", "6379", "REDIS_PORT is not a setting; did you mean REDIS_URL?"},
		{"REDIS_PORT", "tcp://10.0.0.1:6379", ""},
		{"REDIS_SERVICE_HOST", "10.0.0.1", ""},
		{"REDIS_SERVICE_PORT_REDIS", "6379", ""},
		{"REDIS_PORT_6379_TCP_PROTO", "tcp", ""},
		{"KAFKA_BROKER", "x", "KAFKA_BROKER is not a setting; did you mean KAFKA_BROKERS?"},
		{"KAFKA_BOOTSTRAP_SERVERS", "x", "KAFKA_BOOTSTRAP_SERVERS is not a setting; did you mean KAFKA_BROKERS?"},
		{"KAFKA_PASSWORD_FILE", "x", "KAFKA_PASSWORD_FILE is not a setting; did you mean KAFKA_SASL_PASSWORD_FILE?"},
		{"KAFKA_SECURITY_PROTOCOL", "x", "KAFKA_SECURITY_PROTOCOL is not a setting; did you mean KAFKA_TLS_ENABLED?"},
		{"HTTP_TOKEN", "x", "HTTP_TOKEN is not a setting; did you mean HTTP_TOKENS?"},
		{"EXPORT_KEY_FILE", "x", "EXPORT_KEY_FILE is not a setting; did you mean EXPORT_API_KEY_FILE?"},
		{"REDIS_DB", "1", "REDIS_DB is not a setting; did you mean REDIS_URL?"},
		{"STREAM_EVENTS_KAFKA_BOOTSTRAP_SERVERS", "x", "STREAM_EVENTS_KAFKA_BOOTSTRAP_SERVERS is not a setting of stream " +
			"events; did you mean KAFKA_BROKERS?"},
		{"KAFKA_LISTENERS", "x", ""},
		{"KAFKA_HEAP_OPTS", "x", ""},
		{"HTTP_PROXY", "x", ""},
		{"HTTP_ADR", "x", "HTTP_ADR is not a setting; did you mean HTTP_ADDR?"},
		{"LOG_DIR", "x", ""},
		{"LOGNAME", "x", ""},
		{"STREAM_EVENTS_KAFKA_TOPIC", "x", ""},
		{"STREAM_MY_USERS_EXPORT_API_KEY_FILE", "x", ""},
		{"STREAM_EVENTS_KAFKA_TOPICS", "x", "STREAM_EVENTS_KAFKA_TOPICS is not a setting of stream events; did you mean " +
			"STREAM_EVENTS_KAFKA_TOPIC?"},
		{"STREAM_EVENTS_NOTHING", "x", "STREAM_EVENTS_NOTHING is not a setting of stream events"},
		{"STREAM_EVENTS_LOG_LEVEL", "x", "STREAM_EVENTS_LOG_LEVEL cannot be set per stream; set LOG_LEVEL"},
		{"STREAM_EVENT_KAFKA_TOPIC", "x", "STREAM_EVENT_KAFKA_TOPIC names no stream of BRIDGE_STREAMS; did you mean " +
			"STREAM_EVENTS_KAFKA_TOPIC?"},
		{"STREAM_OTHERS_KAFKA_TOPIC", "x", "STREAM_OTHERS_KAFKA_TOPIC names no stream of BRIDGE_STREAMS"},
		{"STREAM_X", "x", "STREAM_X is not a setting; per-stream variables are STREAM_<NAME>_<VARIABLE>"},
		{"KAKFA_TOPIC", "x", "KAKFA_TOPIC is not a setting; did you mean KAFKA_TOPIC?"},
		{"EXPORTS_API_KEY_FILE", "x", "EXPORTS_API_KEY_FILE is not a setting; did you mean EXPORT_API_KEY_FILE?"},
		{"KAKFA_HOME", "x", ""},
		{"BLOG_LEVEL", "x", ""},
		{"PATH", "x", ""},
	} {
		var want []string
		if test.want != "" {
			want = []string{test.want}
		}
		if diff := cmp.Diff(want, voc.unknown(map[string]string{test.name: test.value})); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", test.name, test.value, diff)
		}
	}
}

// A variable of a stream is not taken for that of a stream whose name is its beginning.
func TestStreamNamesAlike(t *testing.T) {
	t.Parallel()
	voc := newVocabulary(Variables(), []string{"acme", "acme-eu", "acme-eu-2"})
	for name, want := range map[string]string{
		"STREAM_ACME_KAFKA_TOPIC":      "",
		"STREAM_ACME_EU_KAFKA_TOPIC":   "",
		"STREAM_ACME_EU_2_KAFKA_TOPIC": "",
		"STREAM_ACME_EU_LOG_LEVEL":     "STREAM_ACME_EU_LOG_LEVEL cannot be set per stream; set LOG_LEVEL",
		"STREAM_ACME_EU_KAFKA_TOPICS": "STREAM_ACME_EU_KAFKA_TOPICS is not a setting of stream acme-eu; did you mean " +
			"STREAM_ACME_EU_KAFKA_TOPIC?",
		"STREAM_ACME_KAFKA_TOPICS": "STREAM_ACME_KAFKA_TOPICS is not a setting of stream acme; did you mean " +
			"STREAM_ACME_KAFKA_TOPIC?",
	} {
		if got := voc.explain(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCheckGiven(t *testing.T) {
	t.Parallel()
	voc := newVocabulary(shopVariables(), []string{"a"})
	for name, want := range map[string]string{
		"SHOP_NAME":              "",
		"SHOP_NAME_FILE":         "",
		"SHOP_KEY_FILE":          "",
		"STREAM_A_SHOP_COUNT":    "",
		"STREAM_A_SHOP_KEY_FILE": "",
		"SHOP_KEY":               "SHOP_KEY is a secret and has no place on the command line; set SHOP_KEY_FILE",
		"STREAM_A_SHOP_KEY": "STREAM_A_SHOP_KEY is a secret and has no place on the command line; set " +
			"STREAM_A_SHOP_KEY_FILE",
		"SHOP_NAMES":          "SHOP_NAMES is not a setting; did you mean SHOP_NAME?",
		"OTHER":               "OTHER is not a setting",
		"STREAM_B_SHOP_COUNT": "STREAM_B_SHOP_COUNT names no stream of BRIDGE_STREAMS; did you mean STREAM_A_SHOP_COUNT?",
	} {
		var l loader
		voc.checkGiven(&l, map[string]string{name: "x"})
		got := ""
		if len(l.problems) > 0 {
			got = l.problems[0].Message
		}
		if got != want || len(l.problems) > 1 {
			t.Errorf("--set %s: %q, want %q", name, l.problems, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abc", "acb", 2},
		{"flaw", "lawn", 2}} {
		if got, back := editDistance(test.a, test.b), editDistance(test.b, test.a); got != test.want || back != test.want {
			t.Errorf("editDistance(%q, %q) = %d and %d, want %d", test.a, test.b, got, back, test.want)
		}
	}
}
