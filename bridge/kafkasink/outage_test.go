package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkasink"
)

// server is an embedded cluster that can go away and come back with its data.
type server struct {
	t    *testing.T
	opts []kfake.Opt
	kfk  *kfake.Cluster
	addr []string
}

func newServer(t *testing.T, opts ...kfake.Opt) *server {
	t.Helper()
	addr := servers.FreeAddress(t) // of its own also while it is away
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: []string{addr}, opts: append([]kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.Ports(n)}, opts...)}
	s.start()
	t.Cleanup(func() { s.kfk.Close() })
	return s
}

func (s *server) start() {
	s.t.Helper()
	kfk, err := kfake.NewCluster(s.opts...)
	if err != nil {
		s.t.Fatalf("start embedded Kafka: %v", err)
	}
	s.kfk = kfk
	servers.Strict(kfk)
}

func (s *server) stop() { s.kfk.Close() }

func TestBrokerDownAndBack(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var seen reports
	cfg := config(t, srv.addr, func(c *kafkasink.Config) { c.Report = seen.add })
	s := recovered(t, cfg)
	seen.await(t, time.Second, "success", isNil)
	publish(t, s, page(event("e0", "u")))
	srv.stop()

	result := make(chan error, 1)
	go func() {
		_, err := bridgetest.Load{Pages: []*bridge.Page{page(event("e1", "u"))}}.Publish(t.Context(), s)
		result <- err
	}()
	err := seen.await(t, 10*time.Second, "the dead broker", mentions(srv.addr[0], "refused"))
	asFault(t, err, bridge.Transient, "")
	select {
	case err := <-result:
		t.Fatalf("publish did not wait for the broker: %v", err)
	default:
	}
	srv.start()
	select {
	case err := <-result:
		if err != nil {
			t.Fatalf("publish after the broker was back: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("publish did not go on when the broker was back")
	}
	seen.await(t, time.Second, "success", isNil)
	if got := len(consume(t, cfg, cfg.Topic)); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
}

func TestRecoverWaits(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	srv.stop()
	var seen reports
	s := open(t, config(t, srv.addr, func(c *kafkasink.Config) { c.Report = seen.add }))
	result := make(chan error, 1)
	go func() {
		_, err := s.Recover(t.Context(), nil)
		result <- err
	}()
	seen.await(t, 10*time.Second, "the dead broker", mentions(srv.addr[0], "refused"))
	srv.start()
	select {
	case err := <-result:
		if !errors.Is(err, bridge.ErrNoCheckpoint) {
			t.Fatalf("recover after the broker was back: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("recover did not go on when the broker was back")
	}
	seen.await(t, time.Second, "success", isNil)
}

// TestSilentBroker: the broker takes requests and never answers.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	var seen reports
	s := recovered(t, config(t, cluster.ListenAddrs(), func(c *kafkasink.Config) { c.Report = seen.add }))
	release := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	result := make(chan error, 1)
	go func() {
		_, err := bridgetest.Load{Pages: []*bridge.Page{page(event("e1", "u"))}}.Publish(t.Context(), s)
		result <- err
	}()
	seen.await(t, 10*time.Second, "the silent broker", mentions(cluster.ListenAddrs()[0]))
	close(release)
	select {
	case err := <-result:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("publish did not go on")
	}
}

func TestAdvertisedAddress(t *testing.T) {
	t.Parallel()
	var addr string
	fake(t, kfake.ListenFn(func(network, listen string) (net.Listener, error) {
		l, err := net.Listen(network, listen)
		if err == nil {
			addr = l.Addr().String()
		}
		return misnamed{l}, err
	}))
	var seen reports
	cfg := config(t, []string{addr}, func(c *kafkasink.Config) { c.Report = seen.add })
	s := open(t, cfg)
	stop := recovering(t, s)
	defer stop()
	seen.await(t, 10*time.Second, "the advertised address", mentions("advertised address", "nowhere.invalid:9092"))
	findings := s.Check(t.Context())
	if f := findings[0]; f.Level != kafkasink.LevelFail || !strings.Contains(f.Text, "nowhere.invalid:9092") || !strings.Contains(f.Hint, "advertised.listeners") {
		t.Errorf("check found %+v", findings)
	}
}

// misnamed is a listener whose address is not where it listens.
type misnamed struct{ net.Listener }

func (misnamed) Addr() net.Addr { return wrongAddr{} }

type wrongAddr struct{}

func (wrongAddr) Network() string { return "tcp" }
func (wrongAddr) String() string  { return "nowhere.invalid:9092" }

// TestCancelLetsGo: when ctx ends while brokers are away, nothing of the pages
// is used any more. The race detector watches the poisoning.
func TestCancelLetsGo(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	cfg := config(t, srv.addr)
	s := recovered(t, cfg)
	publish(t, s, page(event("e0", "u")))
	for round := range 10 {
		var events []bridge.Event
		for i := range 1000 {
			events = append(events, event(fmt.Sprintf("r%d-%d", round, i), fmt.Sprint(i)))
		}
		p := page(events...)
		if round == 3 {
			srv.stop()
		}
		limit := time.Duration(round%3) * 2 * time.Millisecond // some while being sent
		if round >= 3 {
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := bridgetest.Load{Pages: []*bridge.Page{p}}.Publish(ctx, s)
		poison(p)
		cancel()
		if err != nil && round < 3 {
			if err := tryRecover(t, s, patience); !errors.Is(err, bridge.ErrNoCheckpoint) {
				t.Fatal(err)
			}
		}
		if round == 3 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish without a broker returned %v", err)
		}
	}
	srv.start()
	if err := tryRecover(t, s, patience); !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Fatal(err)
	}
	publish(t, s, page(event("last", "u")))
	for _, r := range consume(t, cfg, cfg.Topic) {
		if strings.Contains(string(r.Value)+string(r.Key)+headersOf(r)["ce_id"], "#") {
			t.Fatalf("record %q was taken from a page after Publish had returned", r.Value)
		}
	}
}
