package kafkaclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

// A client for a short time waits no longer for the first answer of a broker, which no
// context ends.
func TestClientWithin(t *testing.T) {
	t.Parallel()
	cfg := kafkaclient.DefaultConfig()
	for _, test := range []struct{ left, least, most time.Duration }{
		{0, 3 * time.Second, 3 * time.Second}, // no deadline
		{time.Hour, 3 * time.Second, 3 * time.Second},
		{2 * time.Second, 100 * time.Millisecond, 2 * time.Second},
		{time.Nanosecond, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		ctx := t.Context()
		if test.left > 0 {
			limited, cancel := context.WithTimeout(ctx, test.left)
			defer cancel()
			ctx = limited
		}
		must.Get(kafkaclient.With(ctx, &cfg, "", func(_ context.Context, c *kafkaclient.Client) (bool, error) {
			got := c.OptValue(kgo.RequestTimeoutOverhead).(time.Duration)
			if got < test.least || got > test.most {
				t.Errorf("%s left: the client waits for %s, want %s to %s", test.left, got, test.least, test.most)
			}
			return true, nil
		}))(t)
	}
}

// What is sent to another machine without TLS can be read on the way.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		brokers []string
		tls     bool
		want    []string
	}{
		{[]string{"kafka:9092"}, false, []string{"KAFKA_TLS_ENABLED"}},
		{[]string{"localhost:9092", "10.0.0.1:9092"}, false, []string{"KAFKA_TLS_ENABLED"}},
		{[]string{"kafka:9092"}, true, nil},
		{[]string{"localhost:9092", "127.0.0.2:9092", "[::1]:9092"}, false, nil},
	} {
		c := kafkaclient.DefaultConfig()
		c.Brokers, c.TLSEnabled = tc.brokers, tc.tls
		if got := c.Unsafe(); !slices.Equal(got, tc.want) {
			t.Errorf("%q, TLS %t: %q, want %q", tc.brokers, tc.tls, got, tc.want)
		}
	}
	c := kafkaclient.Config{TLSSkipVerify: true, SASL: kafkaclient.SASL{SASLInsecure: true}}
	if got := c.Unsafe(); !slices.Equal(got, []string{"KAFKA_TLS_SKIP_VERIFY", "KAFKA_SASL_INSECURE"}) {
		t.Errorf("%q", got)
	}
}

// TestReadFault: what may not be read needs the grant to read it.
func TestReadFault(t *testing.T) {
	t.Parallel()
	cfg := kafkaclient.Config{Brokers: []string{"kafka:9092"}}
	err := fmt.Errorf("read: %w", kerr.TopicAuthorizationFailed)
	if got := cfg.ReadFault(err, "dlq").Hint; got != cfg.GrantRead("dlq") || !strings.Contains(got, "--operation Read ") {
		t.Errorf("hint %q", got)
	}
	if got := cfg.Fault(err, "dlq").Hint; got != cfg.GrantWrite("dlq") {
		t.Errorf("hint of writing %q", got)
	}
}

// A Shared has one client for all callers, and closes it when nobody has used it for ten
// seconds.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := kafkaclient.DefaultConfig()
		var s kafkaclient.Shared
		open := func() (*kafkaclient.Client, func()) {
			t.Helper()
			client, release, err := s.Open(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			return client, release
		}
		first, release := open()
		second, releaseSecond := open()
		release()
		<-time.After(time.Minute)
		if second != first || first.Context().Err() != nil {
			t.Error("a client in use is closed, or not shared")
		}
		for range 5 {
			releaseSecond()
			<-time.After(9 * time.Second)
			second, releaseSecond = open()
		}
		releaseSecond()
		<-time.After(11 * time.Second)
		if second != first || first.Context().Err() == nil {
			t.Error("an idle client is closed too early, or never")
		}
		third, releaseThird := open()
		if third == first {
			t.Error("a closed client is lent")
		}
		releaseThird()
		<-time.After(11 * time.Second)

		var none *kafkaclient.Shared
		own, closeOwn, err := none.Open(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if closeOwn(); own.Context().Err() == nil {
			t.Error("a client of its own is not closed")
		}
	})
}

// TestGroupBesideDeadBrokers: bootstrap brokers that are down hide no group.
func TestGroupBesideDeadBrokers(t *testing.T) {
	t.Parallel()
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = kafkatest.Brokers(t)
	for range 2 {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		cfg.Brokers = append(cfg.Brokers, l.Addr().String())
		must.Do(t, l.Close())
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"a", "b"}
	for range 5 { // a client begins with any of them
		client := must.Get(cfg.Open())(t)
		kafkatest.Eventually(t, "describe the groups", func() (bool, error) {
			_, err := req.RequestWith(t.Context(), client)
			if errors.Is(err, kerr.CoordinatorNotAvailable) { // until the first group is asked for
				return false, nil
			}
			return err == nil, err
		})
		client.Close()
	}
}
