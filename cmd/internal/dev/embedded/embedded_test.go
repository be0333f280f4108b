package embedded

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

func TestEmbeddedKafkaKeepsItsData(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "data")
	k := must.Get(StartKafka("127.0.0.1:0", dir))(t)
	client := servers.Client(t, k.Addr, kgo.DefaultProduceTopic("things"))
	must.Get(kadm.NewClient(client).CreateTopic(ctx, 3, 1, nil, "things"))(t)
	must.Do(t, client.ProduceSync(ctx, kgo.StringRecord("one")).FirstErr())
	client.Close()
	must.Do(t, k.Close())

	k = must.Get(StartKafka("127.0.0.1:0", dir))(t)
	servers.CloseAtEnd(t, k)
	client = servers.Client(t, k.Addr, kgo.ConsumeTopics("things"))
	fetched := client.PollFetches(ctx)
	if err := fetched.Err(); err != nil || fetched.NumRecords() != 1 || string(fetched.Records()[0].Value) != "one" {
		t.Errorf("%d records, %v", fetched.NumRecords(), err)
	}
}

func TestDataDirIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := must.Get(openDataDir(dir))(t)
	_, err := openDataDir(dir)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Hint == "" {
		t.Fatalf("second process: %v", err)
	}
	must.Do(t, first.Close())
	again := must.Get(openDataDir(dir))(t)
	servers.CloseAtEnd(t, again)
}

func TestTemporaryDataDirIsRemoved(t *testing.T) {
	t.Parallel()
	dir := must.Get(openDataDir(""))(t)
	must.Do(t, dir.Close())
	if _, err := os.Stat(dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

func TestEmbeddedRedisExpiresKeys(t *testing.T) {
	t.Parallel()
	r := must.Get(StartRedis("127.0.0.1:0"))(t)
	servers.CloseAtEnd(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	opts := must.Get(redis.ParseURL(r.URL))(t)
	client := redis.NewClient(opts)
	servers.CloseAtEnd(t, client)
	must.Do(t, client.Set(ctx, "lease", "mine", time.Minute).Err())
	if err := client.Get(ctx, "lease").Err(); err != nil {
		t.Errorf("before the end of its life: %v", err)
	}
	must.Do(t, client.PExpire(ctx, "lease", 50*time.Millisecond).Err())
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.Get(ctx, "lease").Err()
		if errors.Is(err, redis.Nil) {
			return
		}
		if err != nil {
			t.Fatalf("the key does not expire: %v", err)
		}
		<-tick.C
	}
}

// When the default port is in use a free one serves, and that is said; but an
// address that was asked for is that one or none.
func TestListenAt(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	servers.CloseAtEnd(t, taken)
	addr := taken.Addr().String()

	ln, moved, err := ListenAt("", addr)
	if err != nil || !moved || ln.Addr().String() == addr {
		t.Fatalf("moved %v, %v", moved, err)
	}
	servers.CloseAtEnd(t, ln)
	if ln, _, err := ListenAt(addr, "127.0.0.1:0"); err == nil {
		ln.Close()
		t.Error("a taken address was taken again")
	}
	if _, err := StartKafka(addr, ""); err == nil {
		t.Error("Kafka started on a taken address")
	}
	if _, err := StartRedis(addr); err == nil {
		t.Error("Redis started on a taken address")
	}
	if _, err := StartSimulator(http.NotFoundHandler(), addr); err == nil {
		t.Error("the simulator started on a taken address")
	}
}

func TestEmbeddedSimulatorCutsOffAtClose(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s := must.Get(StartSimulator(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}), "127.0.0.1:0"))(t)
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	failed := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
}

func TestEmbeddedSimulatorWait(t *testing.T) {
	t.Parallel()
	s := must.Get(StartSimulator(http.NotFoundHandler(), "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); err != nil {
		t.Errorf("wait: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
