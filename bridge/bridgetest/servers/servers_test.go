package servers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

func TestRealKafkaOneBroker(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	k := servers.StartKafka(t, servers.KafkaOptions{Own: true})
	c := client(t, k.Addrs())
	createTopic(t, c, 1, nil)
	produce(t, c, 100)
	step(t, "killed broker restarts", func() error { return k.Restart(t.Context(), 0) })
	produce(t, c, 100)
	step(t, "broker stops", func() error { return k.Stop(t.Context(), 0) })
	step(t, "stopped broker starts", func() error { return k.Start(t.Context(), 0) })
	produce(t, c, 100)
	wantCount(t, k.Addrs(), 300)

	step(t, "broker pauses", func() error { return k.Pause(0) })
	if err := ping(t, c, time.Second); err == nil {
		t.Error("a paused broker answers")
	}
	step(t, "broker continues", func() error { return k.Continue(0) })
	if err := k.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRealKafkaThreeBrokers(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	k := servers.StartKafka(t, servers.KafkaOptions{Brokers: 3, Own: true})
	c := client(t, k.Addrs())
	createTopic(t, c, 3, nil)
	step(t, "kill a broker", func() error { return k.Kill(1) })
	step(t, "produce without it", func() error { produce(t, c, 100); return nil })
	step(t, "start it", func() error { return k.Start(t.Context(), 1) })
	wantCount(t, k.Addrs(), 100)
}

func TestRealKafkaSecure(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	k := servers.StartKafka(t, servers.KafkaOptions{TLS: true, SASL: true, ClientCertificates: true, ACLs: true})
	admin := client(t, k.Addrs())
	createTopic(t, admin, 1, nil)
	certs := tlsConfig(t, k.Certificates)
	for name, mechanism := range map[string]sasl.Mechanism{
		"plain":     plain.Auth{User: servers.KafkaUser, Pass: servers.KafkaPassword}.AsMechanism(),
		"scram-256": scram.Auth{User: servers.KafkaUser, Pass: servers.KafkaPassword}.AsSha256Mechanism(),
		"scram-512": scram.Auth{User: servers.KafkaUser, Pass: servers.KafkaPassword}.AsSha512Mechanism(),
		"oauth":     oauth.Auth{Token: unsignedToken(servers.KafkaUser)}.AsMechanism(),
	} {
		c := client(t, k.SecureAddrs(), kgo.SASL(mechanism), kgo.DialTLSConfig(certs))
		err := ping(t, c, 10*time.Second)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err = c.ProduceSync(t.Context(), kgo.StringRecord("refused")).FirstErr()
		if err == nil || !strings.Contains(err.Error(), "AUTHORIZATION_FAILED") {
			t.Errorf("%s: produce without an ACL returned %v, want an authorization error", name, err)
		}
	}
	wrong := plain.Auth{User: servers.KafkaUser, Pass: "wrong"}.AsMechanism()
	if err := ping(t, client(t, k.SecureAddrs(), kgo.SASL(wrong), kgo.DialTLSConfig(certs)), 10*time.Second); err == nil {
		t.Error("a wrong password was accepted")
	}
	bare := certs.Clone()
	bare.Certificates = nil
	right := plain.Auth{User: servers.KafkaUser, Pass: servers.KafkaPassword}.AsMechanism()
	if err := ping(t, client(t, k.SecureAddrs(), kgo.SASL(right), kgo.DialTLSConfig(bare)), 10*time.Second); err == nil {
		t.Error("a client without a certificate was accepted")
	}
}

func TestRealKafkaRetention(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	k := servers.StartKafka(t, servers.KafkaOptions{RetentionCheck: time.Second})
	c := client(t, k.Addrs())
	week := "604800000"
	createTopic(t, c, 1, map[string]*string{"retention.ms": &week})
	old := kgo.StringRecord("old")
	old.Timestamp = time.Now().Add(-30 * 24 * time.Hour)
	must.Do(t, c.ProduceSync(t.Context(), old).FirstErr())
	step(t, "an old record is deleted", func() error {
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			starts, err := kadm.NewClient(c).ListStartOffsets(t.Context(), topic)
			if err != nil {
				return err
			}
			if o, ok := starts.Lookup(topic, 0); ok && o.Offset > 0 {
				return nil
			}
			<-time.After(100 * time.Millisecond)
		}
		return fmt.Errorf("it is still there")
	})
}

func TestRealRedis(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	for name, o := range map[string]servers.RedisOptions{
		"plain":    {Own: true},
		"eviction": {Settings: map[string]string{"maxmemory": "10mb", "maxmemory-policy": "allkeys-lru"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := servers.StartRedis(t, o)
			step(t, "killed server restarts", func() error { return r.Restart(t.Context()) })
			must.Do(t, r.Pause())
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := r.Ready(ctx); err == nil {
				t.Error("a paused server answers")
			}
			step(t, "paused server stops", func() error { return r.Stop(t.Context()) })
			step(t, "stopped server starts", func() error { return r.Start(t.Context()) })
		})
	}
}

// TestRealServersAtOnce starts several side by side: their ports must not meet.
func TestRealServersAtOnce(t *testing.T) {
	servers.NeedReal(t)
	t.Parallel()
	addrs := make(chan string, 8)
	t.Run("group", func(t *testing.T) {
		for range 8 {
			t.Run("redis", func(t *testing.T) {
				t.Parallel()
				addrs <- servers.StartRedis(t, servers.RedisOptions{Own: true}).Addr()
			})
		}
	})
	close(addrs)
	for addr := range addrs {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Errorf("the server at %s outlived its test", addr)
		}
	}
}

// TestFreeAddress: an address is the test's own, also while nobody listens there, and while other
// tests start processes.
func TestFreeAddress(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	defer starting.Wait()
	defer stop()
	absent := filepath.Join(t.TempDir(), "program")
	starting.Go(func() {
		for ctx.Err() == nil {
			_ = exec.CommandContext(ctx, absent).Run() // has the listeners of this process for a moment
		}
	})
	seen := make(map[string]bool)
	for range 100 {
		addr := servers.FreeAddress(t)
		if seen[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		seen[addr] = true
		l := must.Get(net.Listen("tcp", addr))(t)
		l.Close()
	}
}

// TestNothingInstalled may not run beside others: it changes the environment.
func TestNothingInstalled(t *testing.T) {
	for _, name := range []string{"TEST_KAFKA_BROKERS", "TEST_REDIS_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", t.TempDir())
	_, kafka := servers.LaunchKafka(t.Context(), servers.KafkaOptions{})
	_, redis := servers.LaunchRedis(t.Context(), servers.RedisOptions{})
	for name, err := range map[string]error{"java": kafka, "redis-server": redis} {
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "apt-get install") {
			t.Errorf("launch without %s returned %v, want what to install", name, err)
		}
	}
}

// TestForeignServers takes servers that run already and may not be touched.
func TestForeignServers(t *testing.T) {
	running := servers.EmbeddedKafka(t)
	t.Setenv("TEST_KAFKA_BROKERS", strings.Join(running.ListenAddrs(), ","))
	t.Setenv("TEST_REDIS_URL", "redis://redis.example:6380/1")
	k := servers.StartKafka(t, servers.KafkaOptions{})
	r := servers.StartRedis(t, servers.RedisOptions{})
	if k.Addrs()[0] != running.ListenAddrs()[0] || r.Addr() != "redis.example:6380" {
		t.Errorf("the servers are at %v and %s", k.Addrs(), r.Addr())
	}
	if k.Kill(0) == nil || r.Kill() == nil {
		t.Error("somebody else's server could be killed")
	}
}

func TestEmbeddedKafka(t *testing.T) {
	t.Parallel()
	k := servers.EmbeddedKafka(t)
	c := client(t, k.ListenAddrs())
	createTopic(t, c, 1, nil)
	produce(t, c, 10)
	heal := k.Break()
	if err := ping(t, c, 300*time.Millisecond); err == nil {
		t.Error("a broken server answers")
	}
	heal()
	produce(t, c, 10)
	wantCount(t, k.ListenAddrs(), 20)
}

func TestEmbeddedRedisExpires(t *testing.T) {
	t.Parallel()
	m := servers.EmbeddedRedis(t)
	must.Do(t, m.Set("key", "value"))
	m.SetTTL("key", 200*time.Millisecond)
	deadline := time.Now().Add(10 * time.Second)
	for m.Exists("key") {
		if time.Now().After(deadline) {
			t.Fatal("the key never expires")
		}
		<-time.After(10 * time.Millisecond)
	}
}

const topic = "test"

// step does one thing, and logs how long it took.
func step(t *testing.T, name string, do func() error) {
	t.Helper()
	began := time.Now()
	if err := do(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%s: %s", name, time.Since(began).Round(time.Millisecond))
}

func client(t *testing.T, addrs []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	// A broker learns of a new topic some time after the controller made it. The context bounds the wait.
	c := must.Get(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(250 * time.Millisecond)}, opts...)...))(t)
	t.Cleanup(c.Close)
	return c
}

func ping(t *testing.T, c *kgo.Client, wait time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return c.Ping(ctx)
}

func createTopic(t *testing.T, c *kgo.Client, replicas int16, configs map[string]*string) {
	t.Helper()
	must.Get(kadm.NewClient(c).CreateTopic(t.Context(), 1, replicas, configs, topic))(t)
}

func produce(t *testing.T, c *kgo.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		must.Do(t, c.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr())
	}
}

func wantCount(t *testing.T, addrs []string, want int) {
	t.Helper()
	c := client(t, addrs, kgo.ConsumeTopics(topic))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := 0
	for got < want {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %d of %d records: %v", got, want, err)
		}
		got += fetches.NumRecords()
	}
	if got != want {
		t.Errorf("read %d records, want %d", got, want)
	}
}

func tlsConfig(t *testing.T, c *servers.Certificates) *tls.Config {
	t.Helper()
	ca := must.Get(os.ReadFile(c.CA))(t)
	pair := must.Get(tls.LoadX509KeyPair(c.ClientCert, c.ClientKey))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// unsignedToken returns a token as OAuthBearerUnsecuredValidatorCallbackHandler
// takes it.
func unsignedToken(subject string) string {
	now := time.Now().Unix()
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return encode(`{"alg":"none"}`) + "." +
		encode(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, now, now+3600)) + "."
}
