package command

import (
	"context"
	"strings"
	"testing"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
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

// TestUngrantedGroup: whoever may use the group of the stream, but not the one that all streams
// share, learns which command grants it, and which setting does without it.
func TestUngrantedGroup(t *testing.T) {
	t.Parallel()
	all := func(kind kmsg.ACLResourceType, name string) kfake.ACL {
		return kfake.ACL{
			Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationAll, Allow: true,
		}
	}
	w := newWorld(t)
	group := kmsg.ACLResourceTypeGroup
	admin := secureKafka(t, w.env, all(kmsg.ACLResourceTypeTopic, "*"), all(kmsg.ACLResourceTypeTransactionalId, "*"),
		all(group, "exportbridge.events"))
	w.env["HTTP_ADDR"] = "off"
	want := []string{
		`group exportbridge.FLEET: .*GROUP_AUTHORIZATION_FAILED`,
		`run this, or set BRIDGE_OWNERSHIP=stream until the group is granted: kafka-acls.sh .*` +
			`--operation Read --operation Describe --group exportbridge.FLEET("}|$)`,
	}
	run := func() string {
		t.Helper()
		got := runProgram(t, w.env, "check", "--only", "kafka")
		once := runProgram(t, w.env, "run", "--once")
		if (got.code == cli.ExitOK) != (once.code == cli.ExitOK) {
			t.Errorf("check: %+v\nrun: %+v", got, once)
		}
		if once.code != cli.ExitOK {
			wantLines(t, got.stdout, want)
			wantLines(t, once.stderr, want)
		}
		return got.stdout
	}
	if said := run(); !strings.Contains(said, "FAIL") {
		t.Errorf("check finds nothing:\n%s", said)
	}
	w.env["BRIDGE_OWNERSHIP"] = kafkagroup.OwnedByStream
	wantLines(t, run(), []string{`ok   group exportbridge.events can be joined`})
	delete(w.env, "BRIDGE_OWNERSHIP")
	acls := kadm.NewACLs().Allow("User:writer").AllowHosts().ResourcePatternType(kadm.ACLPatternLiteral).
		Groups("exportbridge.FLEET").Operations(kadm.OpRead)
	must.Get(kadm.NewClient(admin).CreateACLs(t.Context(), acls))(t)
	wantLines(t, run(), []string{`ok   group exportbridge.FLEET can be joined`})
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
