package cursorstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

func TestMain(m *testing.M) {
	cursorstore.LogTo(nil)
	goleak.VerifyTestMain(m)
}

const (
	stream = "events"
	// patience is how long a test waits for what must happen.
	patience = 10 * time.Second
)

// server is a Redis behind a proxy that can cut it off.
type server struct {
	*faultproxy.TCPProxy
	mini     *miniredis.Miniredis // nil where the server is real
	raw      *redis.Client        // goes past the proxy
	username string
	password string
	db       int
	prefixes atomic.Int64
}

// onServers runs the test on the embedded server, and with TEST_REAL=1 or TEST_REDIS_URL on a
// real one.
func onServers(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, embedded(t)) })
	if wantReal() {
		s := realServer(t)
		t.Run("real", func(t *testing.T) { test(t, s) })
	}
}

func wantReal() bool { return os.Getenv("TEST_REAL") == "1" || os.Getenv("TEST_REDIS_URL") != "" }

// needReal skips, visibly, what no embedded server can show.
func needReal(t *testing.T) {
	t.Helper()
	if !wantReal() {
		t.Skip("needs a real redis-server: set TEST_REAL=1")
	}
}

func embedded(t *testing.T) *server {
	t.Helper()
	mini := miniredis.RunT(t)
	return newServer(t, &redis.Options{Addr: mini.Addr()}, mini)
}

func realServer(t *testing.T) *server {
	t.Helper()
	if url := os.Getenv("TEST_REDIS_URL"); url != "" {
		o, err := redis.ParseURL(url)
		if err != nil || o.TLSConfig != nil {
			t.Fatalf("TEST_REDIS_URL must be a redis:// or unix:// URL: %v", err)
		}
		return newServer(t, o, nil)
	}
	return newServer(t, &redis.Options{Addr: startRedis(t)}, nil)
}

func newServer(t *testing.T, o *redis.Options, mini *miniredis.Miniredis) *server {
	t.Helper()
	s := &server{TCPProxy: faultproxy.StartTCPProxy(t, o.Addr), mini: mini, username: o.Username, password: o.Password, db: o.DB,
		raw: redis.NewClient(o)}
	t.Cleanup(func() { closes(t, s.raw) })
	return s
}

// startRedis starts a redis-server that keeps its data as users are told to,
// and returns its socket.
func startRedis(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	launch(t, "unix", socket, append([]string{
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "yes",
	}, args...)...)
	return socket
}

func startSentinel(t *testing.T, file, port string) {
	t.Helper()
	launch(t, "tcp", "127.0.0.1:"+port, file, "--sentinel")
}

// launch runs redis-server until the test ends, and returns when it listens.
func launch(t *testing.T, network, addr string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, "redis-server", args...)
	// Asked first, not killed at once: its children would go on writing.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 3 * time.Second
	// However it ends, it was told to.
	t.Cleanup(func() { stop(); _ = command.Wait() })
	if err := command.Start(); err != nil {
		t.Fatalf("start redis-server (Debian package redis-server): %v", err)
	}
	eventually(t, func() error {
		conn, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// eventually waits until f succeeds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", patience, err)
		}
	}
}

func closes(t *testing.T, c io.Closer) {
	t.Helper()
	must.Do(t, c.Close())
}

// space is a prefix of its own on a server, opened by any number of clients.
type space struct {
	*server
	t      *testing.T
	prefix string
}

func (s *server) space(t *testing.T) *space {
	t.Helper()
	sp := &space{server: s, t: t, prefix: fmt.Sprintf("test:%d:%d", time.Now().UnixNano(), s.prefixes.Add(1))}
	t.Cleanup(sp.wipe)
	return sp
}

func (s *space) config() cursorstore.Config {
	return cursorstore.Config{
		URL:      cursorstore.URL(fmt.Sprintf("redis://%s/%d", s.Addr(), s.db)),
		Username: s.username, Password: bridge.Secret(s.password),
		Timeout: 2 * time.Second, Prefix: s.prefix, HistoryAge: 720 * time.Hour,
	}
}

func (s *space) client() *cursorstore.Client { return open(s.t, s.config()) }

func (s *space) open(stream string) *cursorstore.Store { return s.client().Stream(stream) }

func open(t *testing.T, cfg cursorstore.Config) *cursorstore.Client {
	t.Helper()
	c := must.Get(cursorstore.Open(cfg))(t)
	t.Cleanup(func() { closes(t, c) })
	return c
}

func (s *space) key(name string) string { return s.prefix + ":{" + stream + "}:" + name }

func (s *space) keys() []string {
	s.t.Helper()
	return must.Get(s.raw.Keys(context.Background(), s.prefix+":*").Result())(s.t)
}

func (s *space) wipe() {
	if keys := s.keys(); len(keys) > 0 {
		must.Do(s.t, s.raw.Del(context.Background(), keys...).Err())
	}
}

// cutOff makes the server unreachable until heal is called.
func (s *server) cutOff() (heal func()) {
	s.Refuse(true)
	return func() { s.Refuse(false) }
}

// attempts is how often the client sends a command: once and three times again.
const attempts = 4

// failScripts makes the next n scripts fail in a form.
func (s *server) failScripts(n int, form bridgetest.Failure) {
	s.CutRequests("evalsha", n, form == bridgetest.Persisted)
}

// versions returns the names of the stream's entries, oldest first.
func (s *space) versions() []bridge.Version {
	s.t.Helper()
	members := must.Get(s.raw.ZRange(s.t.Context(), s.key("history:index"), 0, -1).Result())(s.t)
	var versions []bridge.Version
	for _, m := range members {
		p := must.Get(bridge.ParseVersion(strings.TrimRight(m, "~!")))(s.t)
		versions = append(versions, p)
	}
	fields, err := s.raw.HKeys(s.t.Context(), s.key("history")).Result()
	if err != nil || len(fields) != len(slices.Compact(versions)) {
		s.t.Fatalf("the history has %d entries, its index %d: %v", len(fields), len(versions), err)
	}
	return versions
}
