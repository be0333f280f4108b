package command

import (
	"context"
	"strings"
	"testing"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/cli"
)

// own makes a process the stream's owner in Kafka. The process reports nothing to Redis.
func (w *world) own(t *testing.T) {
	t.Helper()
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Brokers = "events", strings.Split(w.env["KAFKA_BROKERS"], ",")
	group := cfg.Ownership().Owner()
	t.Cleanup(func() { _ = group.Close(context.Background()) })
	tenure := must.Get(group.Acquire(t.Context()))(t)
	t.Cleanup(tenure.Release)
}

// TestCheckUnseenOwner: a process owns the stream in Kafka, but reports to another
// Redis database.
func TestCheckUnseenOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wantLines(t, runProgram(t, w.env, "check", "--only", "redis").stdout,
		[]string{`^  owner    info stream events has no status in Redis; whether it runs is unknown$`})
	w.own(t)
	wantLines(t, runProgram(t, w.env, "check").stdout, []string{
		`^  owner    warn .* runs stream events, but this Redis has no status of it$`,
		`Try: set REDIS_URL, with its database, and CURSOR_PREFIX`,
	})
}

// TestStatusOfAFullRedis: Redis at its maxmemory rejects the status of a stream. The command
// names the memory, not the settings.
func TestStatusOfAFullRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.own(t)
	for memory, full := range map[string]bool{
		"maxmemory:1000000\r\nused_memory:1000100\r\n": true,
		"maxmemory:1000000\r\nused_memory:500000\r\n":  false,
		"maxmemory:0\r\nused_memory:500000\r\n":        false,
	} {
		w.redis.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
			info := strings.EqualFold(cmd, "info")
			if info {
				c.WriteBulk(memory)
			}
			return info
		})
		got := runProgram(t, w.env, "status")
		if got.code != cli.ExitOK || strings.Contains(got.stdout, "try        raise maxmemory of Redis") != full ||
			strings.Contains(got.stdout, "REDIS_URL") == full {
			t.Errorf("%q: %+v", memory, got)
		}
	}
}
