package cursorstore_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// wantFinding looks for a finding of this level with these words.
func wantFinding(t *testing.T, findings []cursorstore.Finding, level cursorstore.Level, text, hint string) {
	t.Helper()
	for _, f := range findings {
		if f.Level == level && strings.Contains(f.Text, text) && strings.Contains(f.Hint, hint) {
			return
		}
	}
	t.Errorf("no finding is %s with %q, hint %q: %+v", level, text, hint, findings)
}

func wantFault(t *testing.T, err error, class bridge.Class, hint string) {
	t.Helper()
	f, ok := errors.AsType[*bridge.Fault](err)
	if !ok || f.Class != class || !strings.Contains(f.Hint, hint) {
		t.Errorf("error is %v (%+v), want a fault of class %d with the hint %q", err, f, class, hint)
		return
	}
	if f.Code == "" || class == bridge.Permanent && f.Reason != bridge.ReasonConfig {
		t.Errorf("fault %v has code %q and reason %q", err, f.Code, f.Reason)
	}
}

func TestCheckEmbedded(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	sp := s.space(t)
	client := sp.client()
	for _, f := range client.Check(t.Context()) {
		if f.Level == cursorstore.Fail {
			t.Errorf("finding %+v", f)
		}
	}
	if keys := sp.keys(); len(keys) > 0 {
		t.Errorf("check left %v", keys)
	}
	sp.cutOff()
	wantFinding(t, client.Check(t.Context()), cursorstore.Fail, s.Addr(), "REDIS_URL")
}

// TestFaults: each error of a server has its class and a hint.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		class  bridge.Class
		hint   string
	}{
		{"READONLY You can't write against a read only replica.", bridge.Transient, "replica"},
		{"ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write against a read only replica.",
			bridge.Transient, "replica"},
		{"NOAUTH Authentication required.", bridge.Permanent, "REDIS_PASSWORD"},
		{"WRONGPASS invalid username-password pair or user is disabled.", bridge.Permanent, "REDIS_USERNAME"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", bridge.Permanent, "+evalsha"},
		{"ERR The user executing the script can't run this command or subcommand script: 4cb5, on @user_script:5.",
			bridge.Permanent, "+hset"},
		{"ERR ACL failure in script: User u has no permissions to run the 'hset' command script: 4cb5", bridge.Permanent, "+hset"},
		{"OOM command not allowed when used memory > 'maxmemory'.", bridge.Transient, "maxmemory"},
		{"LOADING Redis is loading the dataset in memory", bridge.Transient, "loaded its data"},
		{"NOREPLICAS Not enough good replicas to write.", bridge.Transient, "min-replicas-to-write"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", bridge.Transient,
			"disk"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", bridge.Transient, "primary"},
		{"CLUSTERDOWN Hash slot not served", bridge.Transient, "slots"},
		{"ERR max number of clients reached", bridge.Transient, "maxclients"},
		{"ERR DB index is out of range", bridge.Permanent, "/0"},
		{"ERR unknown command 'EVALSHA'", bridge.Permanent, "scripts"},
		{"ERR something new", bridge.Transient, ""},
	} {
		t.Run(c.answer, func(t *testing.T) {
			t.Parallel()
			s := embedded(t)
			sp := s.space(t)
			var reported error
			cfg := sp.config()
			cfg.Report = func(_ string, err error) { reported = err }
			store := open(t, cfg).Stream(stream)
			if _, err := store.Load(t.Context()); !errors.Is(err, bridge.ErrNoCheckpoint) || reported != nil {
				t.Fatalf("load: %v, reported %v", err, reported)
			}
			s.mini.SetError(c.answer)
			_, err := store.Load(t.Context())
			wantFault(t, err, c.class, c.hint)
			if reported == nil {
				t.Error("not reported")
			}
			err = store.Advance(t.Context(), bridge.Checkpoint{}, at(0, 1))
			wantFault(t, err, c.class, c.hint)
			s.mini.SetError("")
			mustAdvance(t, store, bridge.Checkpoint{}, at(0, 1))
			if reported != nil {
				t.Errorf("reported %v after it was over", reported)
			}
		})
	}
}

// TestTimeout: an operation on a server that does not answer ends after REDIS_TIMEOUT.
func TestTimeout(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		cfg := sp.config()
		cfg.Timeout = 3 * time.Second
		store := open(t, cfg).Stream(stream)
		mustAdvance(t, store, bridge.Checkpoint{}, at(0, 1))
		s.Blackhole(true)
		began := time.Now()
		_, err := store.Load(t.Context())
		wantFault(t, err, bridge.Transient, "REDIS_TIMEOUT")
		if took := time.Since(began); took >= 2*cfg.Timeout {
			t.Errorf("took %s: it was tried again", took)
		}
		s.Blackhole(false)
		eventually(t, func() error { return reaches(t.Context(), store, at(0, 1).Version) })
	})
}

// TestForeignIsHealthy: a server with a foreign value is healthy.
func TestForeignIsHealthy(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	reports := 0
	cfg := sp.config()
	cfg.Report = func(_ string, err error) {
		if reports++; err != nil {
			t.Errorf("reported %v", err)
		}
	}
	sp.raw.Set(t.Context(), sp.key("checkpoint"), "x", 0)
	if _, err := open(t, cfg).Stream(stream).Load(t.Context()); !errors.Is(err, bridge.ErrForeign) || reports != 1 {
		t.Errorf("load: %v, %d reports", err, reports)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, cfg).Stream(stream).Load(ctx); !errors.Is(err, context.Canceled) || reports != 1 {
		t.Errorf("load by a caller that gave up: %v, %d reports", err, reports)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.URL = cursorstore.URL("redis://127.0.0.1:" + freePort(t))
	store := open(t, cfg).Stream(stream)
	_, err := store.Load(t.Context())
	wantFault(t, err, bridge.Transient, "check that Redis runs")
	if !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v does not say where", err)
	}
}

func TestLogTo(t *testing.T) {
	var log strings.Builder
	cursorstore.LogTo(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer cursorstore.LogTo(nil)
	cfg := valid()
	cfg.URL, cfg.MasterName = cursorstore.URL("redis://127.0.0.1:"+freePort(t)), "m"
	client := must.Get(cursorstore.Open(cfg))(t)
	if _, err := client.Stream(stream).Load(t.Context()); err == nil {
		t.Error("loaded from nobody")
	}
	closes(t, client)
	if !strings.Contains(log.String(), "level=DEBUG") || !strings.Contains(log.String(), "sentinel") {
		t.Errorf("the log is %q", log.String())
	}
}

// TestSilentServer: Redis without TLS waits for the rest of a TLS handshake, and says nothing.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	for scheme, want := range map[string]bool{"redis://": false, "rediss://": true} {
		cfg := cursorstore.DefaultConfig()
		cfg.URL, cfg.Timeout = cursorstore.URL(scheme+l.Addr().String()), 100*time.Millisecond
		_, err := open(t, cfg).Stream(stream).Load(t.Context())
		f, ok := errors.AsType[*bridge.Fault](err)
		if !ok || f.Code != "timeout" || strings.Contains(f.Hint, "if the server does not use TLS, use redis://") != want {
			t.Errorf("%s: %v, %+v", scheme, err, f)
		}
	}
}

// TestClosedConnections: Redis in protected mode, or at its maxclients, writes why and
// closes the connection, but go-redis takes that for an answer to HELLO and returns
// only EOF.
func TestClosedConnections(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.\r\n",
		"-ERR max number of clients reached\r\n", "",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(said))
				_, _ = c.Read(make([]byte, 1024)) // so that closing does not reset the connection
				c.Close()
			}
		}()
		cfg := cursorstore.DefaultConfig()
		cfg.URL = cursorstore.URL("rediss://" + l.Addr().String())
		_, err = open(t, cfg).Stream(stream).Load(t.Context())
		if f, ok := errors.AsType[*bridge.Fault](err); !ok || said == "" &&
			!strings.Contains(f.Hint, "if the server does not use TLS, redis://") {
			t.Errorf("with TLS, after %q: %v, %+v", said, err, f)
		}
		cfg.URL = cursorstore.URL("redis://" + l.Addr().String())
		_, err = open(t, cfg).Stream(stream).Load(t.Context())
		if f, ok := errors.AsType[*bridge.Fault](err); !ok || !strings.Contains(f.Hint, "protected") &&
			!strings.Contains(f.Hint, "maxclients") {
			t.Errorf("after %q: %v, %+v", said, err, f)
		} else if said == "" && (!strings.Contains(err.Error(), "closed the connection") || f.Class != bridge.Transient) {
			t.Errorf("after nothing: %v, %+v", err, f)
		}
	}
}
