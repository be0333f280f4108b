package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaadmin"
)

func TestBrokerDownAndBack(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	var seen kafkatest.Reports
	cfg := config(t, srv.Addr, reportTo(&seen))
	s := recovered(t, cfg)
	seen.Await(t, "success", kafkatest.IsNil)
	publish(t, s, page(event("e0", "u")))
	srv.Stop()

	result := publishing(t, s, page(event("e1", "u")))
	err := seen.Await(t, "the dead broker", kafkatest.Mentions(srv.Addr[0], "refused"))
	kafkatest.AsFault(t, err, bridge.Transient, "")
	select {
	case err := <-result:
		t.Fatalf("publish did not wait for the broker: %v", err)
	default:
	}
	srv.Start()
	select {
	case err := <-result:
		if err != nil {
			t.Fatalf("publish after the broker was back: %v", err)
		}
	case <-time.After(kafkatest.Patience):
		t.Fatal("publish did not go on when the broker was back")
	}
	seen.Await(t, "success", kafkatest.IsNil)
	if got := len(consume(t, cfg, cfg.Topic)); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
}

func TestRecoverWaits(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	srv.Stop()
	var seen kafkatest.Reports
	s := open(t, config(t, srv.Addr, reportTo(&seen)))
	result := make(chan error, 1)
	go func() {
		_, err := s.Recover(t.Context(), nil)
		result <- err
	}()
	seen.Await(t, "the dead broker", kafkatest.Mentions(srv.Addr[0], "refused"))
	srv.Start()
	select {
	case err := <-result:
		must.Be(t, err, bridge.ErrNoCheckpoint)
	case <-time.After(kafkatest.Patience):
		t.Fatal("recover did not go on when the broker was back")
	}
	seen.Await(t, "success", kafkatest.IsNil)
}

// TestSilentBroker: the broker takes requests and never answers.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	var seen kafkatest.Reports
	s := recovered(t, config(t, cluster.ListenAddrs(), reportTo(&seen)))
	release := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	result := publishing(t, s, page(event("e1", "u")))
	seen.Await(t, "the silent broker", kafkatest.Mentions(cluster.ListenAddrs()[0]))
	close(release)
	select {
	case err := <-result:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(kafkatest.Patience):
		t.Fatal("publish did not go on")
	}
}

func TestAdvertisedAddress(t *testing.T) {
	t.Parallel()
	var addr string
	kafkatest.Fake(t, kfake.ListenFn(func(network, listen string) (net.Listener, error) {
		l, err := net.Listen(network, listen)
		if err == nil {
			addr = l.Addr().String()
		}
		return misnamed{l}, err
	}))
	var seen kafkatest.Reports
	cfg := config(t, []string{addr}, reportTo(&seen))
	s := open(t, cfg)
	stop := recovering(t, s)
	defer stop()
	seen.Await(t, "the advertised address",
		kafkatest.Mentions("advertised address", "nowhere.invalid:9092"))
	findings := cfg.Needs().Check(t.Context())
	if f := findings[0]; f.Level != kafkaadmin.LevelFail || !strings.Contains(f.Text, "nowhere.invalid:9092") ||
		!strings.Contains(f.Hint, "advertised.listeners") {
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
	srv := kafkatest.NewServer(t)
	cfg := config(t, srv.Addr)
	s := recovered(t, cfg)
	publish(t, s, page(event("e0", "u")))
	for round := range 10 {
		var events []bridge.Event
		for i := range 1000 {
			events = append(events, event(fmt.Sprintf("r%d-%d", round, i), fmt.Sprint(i)))
		}
		p := page(events...)
		if round == 3 {
			srv.Stop()
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
			restart(t, s)
		}
		if round == 3 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish without a broker returned %v", err)
		}
	}
	srv.Start()
	restart(t, s)
	publish(t, s, page(event("last", "u")))
	for _, r := range consume(t, cfg, cfg.Topic) {
		if strings.Contains(string(r.Value)+string(r.Key)+headersOf(r)["ce_id"], "#") {
			t.Fatalf("record %q was taken from a page after Publish had returned", r.Value)
		}
	}
}
