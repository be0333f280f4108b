package cursorstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Info Level = "info" // unknown: the server does not report it
	Warn Level = "warn" // works, but may lose the checkpoint
	Fail Level = "fail" // broken, or will lose the checkpoint
)

// Finding is one result of Check.
type Finding struct {
	// Level is the severity, Text the observation.
	Level Level
	Text  string
	// Hint is the remedy; empty if none is needed.
	Hint string
}

// Check verifies that Redis can hold the checkpoint: that it is reachable, the
// primary, durable, and runs scripts. It writes only one key, which it deletes
// and which expires after ten seconds. In a cluster it checks every primary.
func (c *Client) Check(ctx context.Context) []Finding {
	var mu sync.Mutex // guards findings: a cluster's nodes are asked together
	var findings []Finding
	add := func(found ...Finding) {
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
	}
	err := c.eachPrimary(ctx, func(ctx context.Context, node redis.Cmdable) error {
		found, err := c.checkNode(ctx, node)
		add(found...)
		return err
	})
	if err == nil {
		add(c.checkScripts(ctx))
	} else {
		add(failure(err))
	}
	return findings
}

func failure(err error) Finding {
	f := Finding{Level: Fail, Text: err.Error()}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		f.Hint = fault.Hint
	}
	return f
}

// checkNode checks one server.
func (c *Client) checkNode(ctx context.Context, node redis.Cmdable) ([]Finding, error) {
	latency, err := c.latency(ctx, node)
	if err != nil {
		return nil, err
	}
	info, err := c.info(ctx, node)
	if err != nil {
		return nil, err
	}
	where := c.where
	if member, ok := node.(*redis.Client); ok && node != redis.Cmdable(c.rdb) {
		where = member.Options().Addr // a node of a cluster
	}
	answers := fmt.Sprintf("%s answers in %.1f ms, version %s", where, float64(latency.Microseconds())/1000,
		cmp.Or(info["valkey_version"], info["redis_version"], "unknown"))
	return []Finding{{Level: OK, Text: answers}, roleOf(info), evictionOf(info), c.persistence(ctx, node, info)}, nil
}

// latency returns the best of three round trips: the first one also connects.
func (c *Client) latency(ctx context.Context, node redis.Cmdable) (time.Duration, error) {
	best := time.Duration(-1)
	for range 3 {
		began := time.Now()
		err := c.call(ctx, "ping", func(ctx context.Context) error { return node.Ping(ctx).Err() })
		if err != nil {
			return 0, err
		}
		if took := time.Since(began); best < 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// info returns the server's INFO by field.
func (c *Client) info(ctx context.Context, node redis.Cmdable) (map[string]string, error) {
	var text string
	err := c.call(ctx, "info", func(ctx context.Context) (err error) {
		text, err = node.Info(ctx).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// Full reports whether a server is known to be at its maxmemory, where it rejects writes.
// It writes nothing.
func (c *Client) Full(ctx context.Context) bool {
	var full atomic.Bool // a cluster's nodes are asked together
	_ = c.eachPrimary(ctx, func(ctx context.Context, node redis.Cmdable) error {
		info, err := c.info(ctx, node)
		most, _ := strconv.ParseInt(info["maxmemory"], 10, 64) // 0 if it is not reported
		used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
		if most > 0 && used >= most {
			full.Store(true)
		}
		return err
	}) // an unreachable server is not known to be full
	return full.Load()
}

func roleOf(info map[string]string) Finding {
	switch info["role"] {
	case "":
		return Finding{Level: Info, Text: "role unknown"}
	case "master":
		return Finding{Level: OK, Text: "primary"}
	}
	return Finding{Fail, "replica: writes are rejected or lost",
		"name the primary in REDIS_URL, or use REDIS_MASTER_NAME with sentinels"}
}

// evictionOf checks the eviction policy. allkeys policies can evict the
// checkpoint; volatile policies can evict only status and answers, which have a
// TTL.
func evictionOf(info map[string]string) Finding {
	policy := info["maxmemory_policy"]
	hint := "set maxmemory-policy noeviction, for example: redis-cli config set maxmemory-policy noeviction"
	switch {
	case policy == "":
		return Finding{Level: Info, Text: "eviction policy unknown; it must be noeviction"}
	case policy == "noeviction":
		return Finding{Level: OK, Text: "noeviction"}
	case strings.HasPrefix(policy, "volatile-"):
		return Finding{Warn,
			"maxmemory-policy " + policy + " evicts requests, answers and the live status when memory is full", hint}
	case info["maxmemory"] == "0":
		return Finding{Warn, "maxmemory-policy " + policy + " would evict the checkpoint if maxmemory were set", hint}
	}
	return Finding{Fail, "maxmemory-policy " + policy + " evicts the checkpoint when memory is full", hint}
}

// persistence checks what a restart of the server loses.
func (c *Client) persistence(ctx context.Context, node redis.Cmdable, info map[string]string) Finding {
	switch {
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		return Finding{Fail, "append-only on, but the last write failed", "check the server's disk and log"}
	case info["aof_enabled"] == "1":
		return Finding{Level: OK, Text: "append-only on"}
	case info["aof_enabled"] == "":
		return Finding{Level: Info, Text: "persistence unknown"}
	}
	hint := "set appendonly yes, for example: redis-cli config set appendonly yes"
	var values map[string]string
	err := c.call(ctx, "config get save", func(ctx context.Context) (err error) {
		values, err = node.ConfigGet(ctx, "save").Result()
		return err
	})
	save := values["save"]
	switch {
	case err != nil: // managed servers refuse CONFIG
		return Finding{Warn, "append-only off, snapshots unknown: a restart may lose the last commits", hint}
	case save == "":
		return Finding{Warn, "no persistence: a restart loses the history and, in at-least-once mode, the checkpoint", hint}
	}
	return Finding{Warn, "snapshots only (save " + save + "): a restart loses the last commits", hint}
}

// probe calls each command that needs a key: an ACL user may lack one.
var probe = redis.NewScript(`
local key, id = KEYS[1], ARGV[1]
redis.call('SET', key, id, 'PX', ARGV[2])
redis.call('PEXPIRE', key, ARGV[2])
local stored, deleted = redis.call('GET', key), redis.call('DEL', key)
redis.call('HSET', key, 'f', id)
redis.call('PEXPIRE', key, ARGV[2]) -- a command below may fail
for _, name in ipairs({'HMGET', 'HEXISTS', 'HDEL'}) do redis.call(name, key, 'f') end
redis.call('HGETALL', key)
redis.call('ZADD', key, 1, id)
redis.call('PEXPIRE', key, ARGV[2])
redis.call('ZRANGEBYSCORE', key, 1, 1)
redis.call('ZREVRANGEBYSCORE', key, 1, 1)
redis.call('ZSCAN', key, 0)
redis.call('ZREM', key, id)
redis.call('TIME')
return {stored, tostring(deleted)}
`)

const probeTTL = 10 * time.Second

// checkScripts writes, reads and deletes a key in a script.
func (c *Client) checkScripts(ctx context.Context) Finding {
	id := rand.Text()[:12]
	var reply []string
	err := c.call(ctx, "run a script", func(ctx context.Context) (err error) {
		keys := []string{c.prefix + ":check:" + id}
		reply, err = probe.Run(ctx, c.rdb, keys, id, decimal(probeTTL.Milliseconds())).StringSlice()
		return err
	})
	switch {
	case err != nil:
		return failure(err)
	case len(reply) != 2 || reply[0] != id || reply[1] != "1":
		return Finding{Fail, fmt.Sprintf("test key not stored: %v", reply), "check whether the server has reached maxmemory"}
	}
	return Finding{Level: OK, Text: "scripts allowed, test key written and removed"}
}
