package cursorstore_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// permitted returns the commands of the ACL user that the documents advise.
func permitted(t *testing.T) []string {
	t.Helper()
	text := must.Get(os.ReadFile("../cmd/exportbridge/docs/permissions.md"))(t)
	commands := regexp.MustCompile(`\+[a-z@|]+`).FindAllString(string(text), -1)
	if want := cursorstore.Permissions + " +cluster|slots +command"; strings.Join(commands, " ") != want {
		t.Fatalf("the documents permit %q, want %s", commands, want)
	}
	return commands
}

// permit makes the ACL user, who may run these commands on the keys of the documents.
func permit(t *testing.T, raw *redis.Client, commands ...string) {
	t.Helper()
	rules := append([]string{"on", ">secret", "resetkeys", "~p:*", "resetchannels", "-@all"}, commands...)
	must.Do(t, raw.ACLSetUser(t.Context(), "exportbridge", rules...).Err())
}

// TestPermissions: the user in the documents may do all that the program does, and
// nothing that it does not need.
func TestPermissions(t *testing.T) {
	t.Parallel()
	needReal(t)
	allowed := permitted(t)
	used := make(map[string]bool)
	for _, cluster := range []bool{false, true} {
		t.Run(map[bool]string{false: "server", true: "cluster"}[cluster],
			func(t *testing.T) { usePermitted(t, allowed, cluster, used) })
	}
	for _, command := range allowed {
		if !used[command] {
			t.Errorf("%s is permitted and not used", command)
		}
	}
}

// usePermitted does everything as a user with these commands, and notes which the
// server has run.
func usePermitted(t *testing.T, allowed []string, cluster bool, used map[string]bool) {
	port := freePort(t)
	args, url := []string{"--port", port, "--bind", "127.0.0.1"}, "redis://127.0.0.1:"+port+"/1"
	if cluster {
		args, url = append(args, "--cluster-enabled", "yes", "--cluster-port", freePort(t)),
			"redis://127.0.0.1:"+port+",127.0.0.1:"+port
	}
	raw := redis.NewClient(&redis.Options{Addr: startRedis(t, args...)})
	defer closes(t, raw)
	if cluster {
		must.Do(t, raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		eventually(t, func() error { return raw.Set(t.Context(), "ready", "yes", 0).Err() })
	}
	permit(t, raw, allowed...)
	must.Do(t, raw.ConfigResetStat(t.Context()).Err())
	cfg := valid()
	cfg.Timeout, cfg.Username, cfg.Password, cfg.URL = 5*time.Second, "exportbridge", "secret", cursorstore.URL(url)
	client := open(t, cfg)
	for _, name := range names {
		everything(t, client, name)
	}
	wantStreams(t, client)
	for _, f := range client.Check(t.Context()) {
		if f.Level != cursorstore.OK {
			t.Errorf("check says %+v", f)
		}
	}
	denied := must.Get(raw.ACLLog(t.Context(), 100).Result())(t)
	for _, d := range denied {
		t.Errorf("%s %s is denied", d.Reason, d.Object)
	}
	stats := must.Get(raw.Info(t.Context(), "commandstats").Result())(t)
	for _, m := range regexp.MustCompile(`cmdstat_([a-z|]+):`).FindAllStringSubmatch(stats, -1) {
		used["+"+m[1]] = true
	}
}

// TestCheckNeeds: check names a command that a user may not run, and leaves no key.
func TestCheckNeeds(t *testing.T) {
	t.Parallel()
	needReal(t)
	raw := redis.NewClient(&redis.Options{Addr: startRedis(t)})
	defer closes(t, raw)
	allowed := permitted(t)
	cfg := valid()
	cfg.Timeout, cfg.Username, cfg.Password = 5*time.Second, "exportbridge", "secret"
	cfg.URL = cursorstore.URL("unix://" + raw.Options().Addr)
	for _, command := range []string{"get", "set", "del", "pexpire", "hset", "hmget", "hgetall", "hexists", "hdel", "zadd",
		"zrem", "zscan", "zrangebyscore", "zrevrangebyscore", "time", "evalsha"} {
		permit(t, raw, append(allowed, "-"+command)...)
		if !slices.ContainsFunc(open(t, cfg).Check(t.Context()), func(f cursorstore.Finding) bool {
			return f.Level == cursorstore.Fail && strings.Contains(f.Hint, "+"+command)
		}) {
			t.Errorf("check does not say that %s is not permitted", command)
		}
	}
	for _, key := range must.Get(raw.Keys(t.Context(), "*").Result())(t) {
		if left := raw.PTTL(t.Context(), key).Val(); left < 0 {
			t.Errorf("key %s stays for ever", key)
		}
	}
}

// TestDenied: the user in the documents may not empty, stop or spy on the server.
func TestDenied(t *testing.T) {
	t.Parallel()
	needReal(t)
	raw := redis.NewClient(&redis.Options{Addr: startRedis(t)})
	defer closes(t, raw)
	permit(t, raw, permitted(t)...)
	for _, line := range []string{
		"FLUSHALL", "FLUSHDB", "SHUTDOWN", "KEYS *", "CONFIG SET save x", "CONFIG GET requirepass", "CLIENT KILL ID 1",
		"CLIENT PAUSE 1", "CLIENT LIST", "SCRIPT FLUSH", "SCRIPT KILL",
		"FUNCTION FLUSH", "FUNCTION KILL", "ACL LIST", "DEBUG SLEEP 1", "MONITOR", "REPLICAOF NO ONE", "SWAPDB 0 1", "SAVE",
		"PUBLISH a b", "RENAME p:a p:b", "GET other:key",
	} {
		words := []any{"ACL", "DRYRUN", "exportbridge"}
		for word := range strings.FieldsSeq(line) {
			words = append(words, word)
		}
		if said, err := raw.Do(t.Context(), words...).Text(); err != nil || said == "OK" {
			t.Errorf("%s: %s %v", line, said, err)
		}
	}
}
