package dev

import (
	"strings"
	"testing"

	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev/embedded"
)

// What the demo suggests works as it is: each command names the servers that are not
// where it looks for them, and the stream where there are several.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	suggested := func(streams ...string) []string {
		s := new(config.Settings)
		for _, name := range streams {
			st := config.Stream{Name: name}
			st.Kafka.Brokers, st.Kafka.Topic = []string{"127.0.0.1:7"}, "export."+name
			s.Streams = append(s.Streams, st)
		}
		var b strings.Builder
		suggest(&b, s, &demoServers{kafka: &embedded.Kafka{Addr: "127.0.0.1:7"}, redis: &embedded.Redis{Addr: "127.0.0.1:8", URL: "redis://127.0.0.1:8/0"}})
		return strings.Split(strings.TrimSpace(strings.TrimPrefix(b.String(), "  try:")), "\n")
	}
	for _, streams := range [][]string{{"events"}, {"users", "events"}} {
		lines := suggested(streams...)
		if len(lines) != 3 {
			t.Fatalf("suggested %q", lines)
		}
		for _, line := range lines {
			ours, rewinds := strings.Contains(line, "exportbridge "), strings.Contains(line, "cursor rewind")
			if !strings.Contains(line, "127.0.0.1:7") || rewinds != strings.Contains(line, "REDIS_URL=redis://127.0.0.1:8/0 ") || ours && strings.Contains(line, "--stream users") != (len(streams) > 1) {
				t.Errorf("%d streams: %q", len(streams), line)
			}
		}
	}
}
