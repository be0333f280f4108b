package cursorstore_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cursorstore"
)

// everything uses each operation of a store once.
func everything(t *testing.T, client *cursorstore.Client, name string) {
	t.Helper()
	ctx, store := t.Context(), client.Stream(name)
	start := at(0, 0)
	start.Stream = name
	mustAdvance(t, store, bridge.Checkpoint{}, start)
	w := &writer{t: t, store: store, now: start}
	w.page(1000)
	w.page(1000)
	target := w.entry(bridge.Version{Seq: 1})
	w.reset(1000, target.Target())
	mustRequest(t, store, reset("r1"), time.Minute)
	_, err := store.Next(ctx)
	_, claimErr := store.Claim(ctx, reset("r1"), claimBy("pod-1"))
	_, answerErr := store.Answer(ctx, reset("r1"), claimBy("pod-1"), bridge.Answer{Applied: true})
	_, waitErr := store.Wait(ctx, "r1")
	mustRequest(t, store, reset("r2"), time.Minute)
	_, withdrawErr := store.Withdraw(ctx, "r2")
	_, historyErr := store.History(ctx, bridge.HistoryQuery{})
	_, _, backErr := store.Back(ctx, w.now.Pages, 1)
	_, _, atErr := store.EntryAt(ctx, time.UnixMilli(w.now.WrittenAt))
	statusErr := store.PutStatus(ctx, bridge.Status{Stream: name})
	_, alive, getErr := store.Status(ctx)
	_, nowErr := store.Now(ctx)
	_, thinErr := store.Thin(ctx, time.UnixMilli(w.now.WrittenAt).Add(1000*time.Hour))
	if err := errors.Join(err, claimErr, answerErr, waitErr, withdrawErr, historyErr, backErr, atErr, statusErr, getErr,
		nowErr, thinErr); err != nil || !alive {
		t.Errorf("%s: alive %v, %v", name, alive, err)
	}
	wantStored(t, store, w.now)
}

var names = []string{"events", "a{b}c", "}", "{}", "100%7B", "users.eu-1"}

func TestStreams(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		client := sp.client()
		for _, name := range names {
			everything(t, client, name)
		}
		wantStreams(t, client)
		for _, key := range sp.keys() {
			name, _, ok := strings.Cut(strings.TrimPrefix(key, sp.prefix+":{"), "}:")
			if !ok || strings.ContainsAny(name, "{}") || name == "" {
				t.Errorf("a cluster would not hash the stream's name in %s", key)
			}
		}
	})
}

func wantStreams(t *testing.T, client *cursorstore.Client) {
	t.Helper()
	got, err := client.Streams(t.Context())
	if err != nil || fmt.Sprint(got) != "[100%7B a{b}c events users.eu-1 {} }]" {
		t.Errorf("streams are %q: %v", got, err)
	}
}

// TestCluster runs everything on a cluster of one node, which refuses scripts
// and transactions over more than one slot.
func TestCluster(t *testing.T) {
	t.Parallel()
	needReal(t)
	port := freePort(t)
	socket := startRedis(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes",
		"--cluster-port", freePort(t))
	raw := redis.NewClient(&redis.Options{Addr: socket})
	defer closes(t, raw)
	must.Do(t, raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	eventually(t, func() error { return raw.Set(t.Context(), "ready", "yes", 0).Err() })
	cfg := valid()
	cfg.Timeout, cfg.URL = 5*time.Second, cursorstore.URL("redis://127.0.0.1:"+port+",127.0.0.1:"+port)
	client := open(t, cfg)
	for _, name := range names {
		everything(t, client, name)
		slots := map[int64]bool{}
		keys, err := raw.Keys(t.Context(), "p:{*").Result()
		if err != nil || len(keys) < 6 {
			t.Fatalf("%d keys: %v", len(keys), err)
		}
		for _, key := range keys {
			slots[raw.ClusterKeySlot(t.Context(), key).Val()] = true
		}
		if len(slots) != 1 {
			t.Errorf("the keys of %s are in %d slots", name, len(slots))
		}
		raw.FlushAll(t.Context())
	}
	for _, name := range names {
		everything(t, client, name)
	}
	wantStreams(t, client)
	wantFinding(t, client.Check(t.Context()), cursorstore.OK, "append-only on", "")
	// Without the list the client does not follow the cluster.
	cfg.URL = cursorstore.URL("redis://127.0.0.1:" + port + "/1")
	_, err := open(t, cfg).Stream(stream).Load(t.Context())
	wantFault(t, err, bridge.Permanent, "cluster has only database 0")
}

func TestClusterThatIsNone(t *testing.T) {
	t.Parallel()
	needReal(t)
	s := realServer(t)
	sp := s.space(t)
	cfg := sp.config()
	cfg.URL = cursorstore.URL(fmt.Sprintf("redis://%s,%s", s.Addr(), s.Addr()))
	_, err := open(t, cfg).Stream(stream).Load(t.Context())
	wantFault(t, err, bridge.Permanent, "REDIS_MASTER_NAME")
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(servers.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	needReal(t)
	cfg := valid()
	cfg.URL = cursorstore.URL("unix://" + startRedis(t) + "?db=3")
	everything(t, open(t, cfg), stream)
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	needReal(t)
	port, sentinel := freePort(t), freePort(t)
	startRedis(t, "--port", port, "--bind", "127.0.0.1")
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	conf := fmt.Sprintf("sentinel monitor mymaster 127.0.0.1 %s 1\nbind 127.0.0.1\nport %s\n", port, sentinel)
	must.Do(t, os.WriteFile(file, []byte(conf), 0o600))
	startSentinel(t, file, sentinel)
	cfg := valid()
	cfg.Timeout, cfg.URL, cfg.MasterName = 5*time.Second, cursorstore.URL("redis://127.0.0.1:"+sentinel+"/1"), "mymaster"
	client := open(t, cfg)
	eventually(t, func() error {
		_, err := client.Streams(t.Context())
		return err
	})
	everything(t, client, stream)

	cfg.MasterName = "nobody"
	_, err := open(t, cfg).Stream(stream).Load(t.Context())
	wantFault(t, err, bridge.Transient, "sentinels")
}

// TestTLSAndPassword runs everything over TLS with a user of few rights, and
// names what is wrong when something is.
func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	needReal(t)
	const rights = cursorstore.Permissions
	ca, cert, key := certificate(t)
	port := freePort(t)
	startRedis(t, strings.Fields("--tls-port "+port+" --bind 127.0.0.1 --tls-cert-file "+cert+" --tls-key-file "+key+
		" --tls-auth-clients no --requirepass h8n7 --user ann on >s3cr ~p:* "+rights+" --user bob on >s3cr ~q:* +@all")...)
	base := valid()
	base.Timeout, base.URL, base.TLSCA = 5*time.Second, cursorstore.URL("rediss://localhost:"+port), ca
	with := func(user, password string) cursorstore.Config {
		c := base
		c.Username, c.Password = user, bridge.Secret(password)
		return c
	}
	everything(t, open(t, with("", "h8n7")), "admin")
	everything(t, open(t, with("ann", "s3cr")), stream)
	for _, f := range open(t, with("ann", "s3cr")).Check(t.Context()) {
		if f.Level == cursorstore.Fail {
			t.Errorf("check: %+v", f)
		}
	}
	overridden := with("", "h8n7")
	overridden.URL = cursorstore.URL("rediss://:wr0ng@localhost:" + port)
	everything(t, open(t, overridden), "overridden")

	plain, unknown := with("", "h8n7"), with("", "h8n7")
	plain.URL, plain.TLSCA = cursorstore.URL("redis://localhost:"+port), ""
	unknown.TLSCA = ""
	other := with("", "h8n7")
	other.URL = cursorstore.URL("rediss://127.0.0.2:" + port)
	for _, c := range []struct {
		cfg   cursorstore.Config
		class bridge.Class
		hint  string
	}{
		{with("", ""), bridge.Permanent, "set REDIS_PASSWORD"},
		{with("", "wr0ng"), bridge.Permanent, "check REDIS_USERNAME"},
		{with("carl", "s3cr"), bridge.Permanent, "check REDIS_USERNAME"},
		{with("bob", "s3cr"), bridge.Permanent, rights},
		{unknown, bridge.Permanent, "REDIS_TLS_CA"},
		{plain, bridge.Transient, "REDIS_URL"},
	} {
		client := open(t, c.cfg)
		_, err := client.Stream(stream).Load(t.Context())
		wantFault(t, err, c.class, c.hint)
		err = client.Stream(stream).Advance(t.Context(), bridge.Checkpoint{}, at(0, 1))
		wantFault(t, err, c.class, c.hint)
		findings := client.Check(t.Context())
		wantFinding(t, findings, cursorstore.Fail, "", c.hint)
		shown := fmt.Sprintf("%v %v %+v", err, findings, c.cfg)
		for _, secret := range []string{"h8n7", "s3cr", "wr0ng"} {
			if strings.Contains(shown, secret) {
				t.Errorf("a password shows in %s", shown)
			}
		}
	}
	_, err := open(t, other).Stream(stream).Load(t.Context())
	if err == nil {
		t.Error("connected to a host that the certificate is not for")
	}
}

// certificate makes a self-signed certificate of localhost and returns it as
// PEM, its file and its key's file.
func certificate(t *testing.T) (ca, cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	rawKey, err2 := x509.MarshalPKCS8PrivateKey(private)
	must.Do(t, errors.Join(err, err2))
	dir := t.TempDir()
	write := func(name, kind string, raw []byte) (string, []byte) {
		file, text := filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
		must.Do(t, os.WriteFile(file, text, 0o600))
		return file, text
	}
	cert, text := write("cert", "CERTIFICATE", raw)
	key, _ = write("key", "PRIVATE KEY", rawKey)
	return string(bytes.TrimSpace(text)), cert, key
}

// TestFailOver loses acknowledged commits to a replica that was promoted too
// early: the store goes back, and the writer either goes on from what it knows
// or hears that somebody else moved the stream.
func TestFailOver(t *testing.T) {
	t.Parallel()
	needReal(t)
	port := freePort(t)
	old := redis.NewClient(&redis.Options{Addr: startRedis(t, "--port", port, "--bind", "127.0.0.1")})
	defer closes(t, old)
	replicaPort := freePort(t)
	socket := startRedis(t, "--port", replicaPort, "--bind", "127.0.0.1")
	replica := redis.NewClient(&redis.Options{Addr: socket})
	defer closes(t, replica)
	ctx := t.Context()
	cfg := valid()
	cfg.URL = cursorstore.URL("redis://127.0.0.1:" + port)
	primary := open(t, cfg)
	w := newWriter(t, primary.Stream(stream))
	cfg.URL = cursorstore.URL("unix://" + socket)
	promoted := open(t, cfg)

	w.page(0)
	w.page(1000)
	kept := w.now
	must.Do(t, replica.Do(ctx, "replicaof", "127.0.0.1", port).Err())
	eventually(t, func() error { return reaches(ctx, promoted.Stream(stream), kept.Version) })
	err := promoted.Stream(stream).Advance(ctx, kept, at(0, 9))
	wantFault(t, err, bridge.Transient, "replica")
	wantFinding(t, promoted.Check(ctx), cursorstore.Fail, "replica", "REDIS_MASTER_NAME")

	must.Do(t, replica.Do(ctx, "replicaof", "no", "one").Err())
	for range 5 {
		w.page(1000) // acknowledged by the old primary
	}
	w.reset(1000, bridge.Target{Cursor: "c"})
	lost := w.now
	w.store = promoted.Stream(stream)
	wantStored(t, w.store, kept)
	// The writer does not know the stored change, and must read it first.
	next := lost
	next.Seq++
	must.Be(t, w.store.Advance(ctx, lost, next), bridge.ErrConflict)
	wantStored(t, w.store, kept)
	// Having looked, it writes again what it knows to be so.
	mustAdvance(t, w.store, kept, next)
	wantStored(t, w.store, next)
	must.Get(w.store.History(ctx, bridge.HistoryQuery{}))(t)
	// The old primary becomes a replica and forgets what it alone knew.
	must.Do(t, old.Do(ctx, "replicaof", "127.0.0.1", replicaPort).Err())
	eventually(t, func() error { return reaches(ctx, primary.Stream(stream), next.Version) })
	eventually(t, func() error { // a server does not stop while it writes its first log
		info, err := old.Info(ctx, "persistence").Result()
		if err == nil && !strings.Contains(info, "aof_rewrite_in_progress:0") {
			err = errors.New("still rewriting")
		}
		return err
	})
}

func reaches(ctx context.Context, s *cursorstore.Store, p bridge.Version) error {
	c, err := s.Load(ctx)
	if err == nil && c.Version != p {
		err = fmt.Errorf("stored is %s, not %s", c.Version, p)
	}
	return err
}

// TestFailOverWithoutReset: commits were lost, but nobody else moved the
// stream, so the writer's next commit closes the gap.
func TestFailOverWithoutReset(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		mustAdvance(t, store, bridge.Checkpoint{}, at(1, 2))
		mustAdvance(t, store, at(1, 7), at(1, 8))
		wantStored(t, store, at(1, 8))
	})
}

// TestServerTrouble sets a real server up so that it refuses writes.
func TestServerTrouble(t *testing.T) {
	t.Parallel()
	needReal(t)
	for name, c := range map[string]struct {
		args []string
		hint string
	}{
		"memory full": {[]string{"--maxmemory", "100kb", "--maxmemory-policy", "noeviction"}, "maxmemory"},
		"no replicas": {[]string{"--min-replicas-to-write", "1"}, "min-replicas-to-write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			cfg.URL = cursorstore.URL("unix://" + startRedis(t, c.args...))
			client := open(t, cfg)
			err := client.Stream(stream).Advance(t.Context(), bridge.Checkpoint{}, at(0, 1))
			wantFault(t, err, bridge.Transient, c.hint)
			must.Fail(client.Stream(stream).Load(t.Context()))(t, bridge.ErrNoCheckpoint)
			wantFinding(t, client.Check(t.Context()), cursorstore.Fail, "", c.hint)
		})
	}
}

func TestCheckRealServers(t *testing.T) {
	t.Parallel()
	needReal(t)
	for name, c := range map[string]struct {
		args  []string
		level cursorstore.Level
		text  string
		hint  string
	}{
		"as users are told": {nil, cursorstore.OK, "append-only on", ""},
		"evicts": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, cursorstore.Fail,
			"allkeys-lru", "noeviction"},
		"would evict": {[]string{"--maxmemory-policy", "allkeys-lfu"}, cursorstore.Warn, "allkeys-lfu", "noeviction"},
		"evicts volatile": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, cursorstore.Warn,
			"volatile-ttl", "noeviction"},
		"snapshots": {[]string{"--appendonly", "no", "--save", "3600 1"}, cursorstore.Warn, "save 3600 1",
			"appendonly"},
		"forgets": {[]string{"--appendonly", "no"}, cursorstore.Warn, "no persistence", "appendonly"},
		"CONFIG refused": {[]string{"--appendonly", "no", "--rename-command", "CONFIG", ""}, cursorstore.Warn,
			"snapshots unknown", "appendonly"},
		"no scripts": {[]string{"--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""}, cursorstore.Fail,
			"unknown command", "scripts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := startRedis(t, c.args...)
			cfg := valid()
			cfg.URL = cursorstore.URL("unix://" + socket)
			findings := open(t, cfg).Check(t.Context())
			wantFinding(t, findings, c.level, c.text, c.hint)
			if c.level != cursorstore.Fail {
				wantFinding(t, findings, cursorstore.OK, "primary", "")
				wantFinding(t, findings, cursorstore.OK, "scripts allowed", "")
				wantFinding(t, findings, cursorstore.OK, "version", "")
			}
			raw := redis.NewClient(&redis.Options{Addr: socket})
			defer closes(t, raw)
			if keys, err := raw.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
				t.Errorf("check left %v: %v", keys, err)
			}
		})
	}
}
