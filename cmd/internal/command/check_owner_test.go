package command

import (
	"context"
	"strings"
	"testing"

	"exportbridge/bridge/kafkastream"
)

// TestCheckUnseenOwner: a process owns the stream in Kafka, but reports to another
// Redis database.
func TestCheckUnseenOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wantLines(t, runProgram(t, w.env, "check", "--only", "redis").stdout, []string{`^  owner    info stream events has no status in Redis; whether it runs is unknown$`})
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Brokers = "events", strings.Split(w.env["KAFKA_BROKERS"], ",")
	group := cfg.Ownership().Owner()
	t.Cleanup(func() { _ = group.Close(context.Background()) })
	tenure, err := group.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tenure.Release)
	wantLines(t, runProgram(t, w.env, "check").stdout, []string{
		`^  owner    warn .* runs stream events, but this Redis has no status of it$`, `Try: set REDIS_URL, with its database, and CURSOR_PREFIX`,
	})
}
