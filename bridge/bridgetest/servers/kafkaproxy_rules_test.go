package servers_test

import (
	"context"
	"errors"
	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestProxyRules(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
	// failing returns which of so many pings fail. No retry hides any.
	failing := func(t *testing.T, count int, opts ...kgo.Opt) (failed []int) {
		gone := make(disconnects, 2*count)
		c := client(t, p.Addrs(), append(opts, kgo.RequestRetries(0), kgo.DialTimeout(patience), kgo.WithHooks(gone))...)
		for i := range count {
			req := kmsg.NewPtrDescribeClusterRequest()
			if _, err := c.Broker(0).Request(t.Context(), req); err != nil {
				failed = append(failed, i+1)
				gone.await(t) // the client must notice before the next one
			}
		}
		return failed
	}
	rule := func(change func(*faultproxy.KafkaRule)) faultproxy.KafkaRule {
		r := faultproxy.KafkaRule{Fault: faultproxy.CutBeforeRequest, Keys: []kmsg.Key{kmsg.DescribeCluster}}
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		rule faultproxy.KafkaRule
		want []int
	}{
		"first":        {rule(func(*faultproxy.KafkaRule) {}), []int{1}},
		"two":          {rule(func(r *faultproxy.KafkaRule) { r.Times = 2 }), []int{1, 2}},
		"all":          {rule(func(r *faultproxy.KafkaRule) { r.Times = -1 }), []int{1, 2, 3, 4, 5, 6, 7, 8}},
		"other kind":   {rule(func(r *faultproxy.KafkaRule) { r.Keys, r.Times = []kmsg.Key{kmsg.EndTxn}, -1 }), nil},
		"other client": {rule(func(r *faultproxy.KafkaRule) { r.Client, r.Times = "other", -1 }), nil},
		"this client":  {rule(func(r *faultproxy.KafkaRule) { r.Client = "me" }), []int{1}},
		"when not": {rule(func(r *faultproxy.KafkaRule) {
			r.When, r.Times = func(kmsg.Request) bool { return false },
				-1
		}), nil},
		"half":          {rule(func(r *faultproxy.KafkaRule) { r.Chance, r.Seed, r.Times = 0.5, 1, -1 }), nil},
		"half of three": {rule(func(r *faultproxy.KafkaRule) { r.Chance, r.Seed, r.Times = 0.5, 2, 3 }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			hits := p.Add(test.rule)
			got := failing(t, 8, kgo.ClientID("me"))
			if hits.Count() != len(got) {
				t.Errorf("%d hits are counted, %v failed", hits.Count(), got)
			}
			hits.Remove()
			if test.rule.Chance > 0 {
				again := p.Add(test.rule)
				defer again.Remove()
				if repeated := failing(t, 8, kgo.ClientID("me")); !slices.Equal(got, repeated) || len(got) == 0 || len(got) == 8 {
					t.Errorf("failed were %v, and with the same seed %v", got, repeated)
				}
				return
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("failed were %v, want %v", got, test.want)
			}
		})
	}
	if failed := failing(t, 8); failed != nil {
		t.Errorf("without a rule %v failed", failed)
	}
}

func TestProxyCutAll(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
	c := must.Get(net.Dial("tcp", p.Addrs()[0]))(t)
	defer c.Close()
	must.Do(t, c.SetDeadline(time.Now().Add(patience)))
	// ApiVersions, version 0, correlation 1, no client id.
	must.Get(c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}))(t)
	must.Get(c.Read(make([]byte, 1)))(t)
	p.CutAll()
	var timeout net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("a connection lives after a cut of all")
	}
	if err := ping(t, client(t, p.Addrs()), patience); err != nil {
		t.Errorf("ping after a cut: %v", err)
	}
	p.Refuse(true)
	if err := ping(t, client(t, p.Addrs()), patience); err == nil {
		t.Error("a broker that refuses connections has answered")
	}
	p.Refuse(false)
	if err := ping(t, client(t, p.Addrs()), patience); err != nil {
		t.Errorf("ping when the broker is back: %v", err)
	}
}

// TestProxyHasAllConnections makes a client talk to every broker, as leader,
// as coordinator of groups and of transactions, and looks where it dialed.
func TestProxyHasAllConnections(t *testing.T) {
	t.Parallel()
	const brokers = 3
	test := func(t *testing.T, p *faultproxy.KafkaProxy) {
		var mu sync.Mutex
		dialed := make(map[string]bool)
		dial := kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[addr] = true
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		})
		createTopic(t, client(t, p.Addrs()), 1, nil)
		for i := range 8 {
			a := newProducer(t, p.Addrs()[:1], fmt.Sprint("txn", i), dial)
			a.commit(t, fmt.Sprint(i))
			c := client(t, p.Addrs()[:1], dial, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(fmt.Sprint("group", i)))
			if f := c.PollFetches(t.Context()); f.Err() != nil {
				t.Fatal(f.Err())
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for addr := range dialed {
			if !slices.Contains(p.Addrs(), addr) {
				t.Errorf("a client has dialed %s, the proxy is at %v", addr, p.Addrs())
			}
		}
		if len(p.Addrs()) != brokers || len(dialed) != brokers {
			t.Errorf("clients have dialed %v, the proxy is at %v", dialed, p.Addrs())
		}
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		p := faultproxy.StartKafkaProxy(t)
		servers.EmbeddedKafka(t, kfake.NumBrokers(brokers), kfake.ListenFn(p.Listen))
		test(t, p)
	})
	t.Run("real", func(t *testing.T) {
		servers.NeedReal(t)
		t.Parallel()
		p := faultproxy.StartKafkaProxy(t)
		servers.StartKafka(t, servers.KafkaOptions{Brokers: brokers, Proxy: p})
		test(t, p)
	})
}
