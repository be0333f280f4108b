package faultproxy

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
)

// TestBeforeACluster that advertises itself: all connections of a client lead
// through the proxy, to whichever broker, and transactions work.
func TestBeforeACluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "events")))(t)
	defer cluster.Close()
	p := StartKafkaProxy(t)
	front := must.Get(p.Before(cluster.ListenAddrs()[0]))(t)
	var mu sync.Mutex
	dialed := map[string]bool{}
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(front.String()), kgo.TransactionalID("t"),
		kgo.DefaultProduceTopic("events"),
		kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[addr] = true
			return new(net.Dialer).DialContext(ctx, network, addr)
		})))(t)
	defer client.Close()
	must.Do(t, client.BeginTransaction())
	for i := range 100 {
		client.Produce(ctx, &kgo.Record{Key: []byte{byte(i)}, Value: make([]byte, 10_000)}, nil)
	}
	must.Do(t, client.Flush(ctx))
	must.Do(t, client.EndTransaction(ctx, kgo.TryCommit))
	for n := 0; n < 100; {
		fetches := client.PollFetches(ctx)
		must.Do(t, fetches.Err())
		n += fetches.NumRecords()
	}
	if _, err := kadm.NewClient(client).BrokerMetadata(ctx); err != nil {
		t.Error(err)
	}
	described := must.Get(kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, client))(t)
	for _, a := range addressesIn(described) {
		if addr := joined(a); !slices.Contains(p.Addrs(), addr) {
			t.Errorf("the cluster is described with a broker at %s", addr)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for addr := range dialed {
		if !slices.Contains(p.Addrs(), addr) {
			t.Errorf("the client dialed %s past the proxy", addr)
		}
	}
	if len(dialed) != 3 {
		t.Errorf("%d brokers dialed, want all 3", len(dialed))
	}
}

func joined(a address) string {
	return (&net.TCPAddr{IP: net.ParseIP(*a.host), Port: int(*a.port)}).String()
}

// TestRename of every version of the replies that list brokers, and of those
// that list none.
func TestRename(t *testing.T) {
	t.Parallel()
	p := StartKafkaProxy(t)
	front := must.Get(p.Before("broker:9092"))(t)
	for key, last := range map[kmsg.Key]int16{kmsg.Metadata: 12, kmsg.FindCoordinator: 6, kmsg.DescribeCluster: 1} {
		for version := range last + 1 {
			reply := key.Response()
			reply.SetVersion(version)
			switch m := reply.(type) {
			case *kmsg.MetadataResponse:
				m.Brokers = []kmsg.MetadataResponseBroker{{Host: "broker", Port: 9092}}
			case *kmsg.FindCoordinatorResponse:
				m.Host, m.Port = "broker", 9092
				m.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Host: "broker", Port: 9092}, {}}
			case *kmsg.DescribeClusterResponse:
				m.Brokers = []kmsg.DescribeClusterResponseBroker{{Host: "broker", Port: 9092}}
			}
			frame := []byte{0, 0, 0, 0, 0, 0, 0, 7}
			if reply.IsFlexible() {
				frame = append(frame, 0)
			}
			h := requestHeader{key: key, version: version}
			out, err := p.rename(&h, reply.AppendTo(frame))
			if err != nil {
				t.Fatalf("%s %d: %v", key.Name(), version, err)
			}
			if got := int(binary.BigEndian.Uint32(out)); got != len(out)-4 || correlationOf(out) != 7 {
				t.Errorf("%s %d: a frame of %d bytes says %d, correlation id %d", key.Name(), version, len(out), got,
					correlationOf(out))
			}
			if reply, err = h.decodeReply(out); err != nil {
				t.Fatalf("%s %d: %v", key.Name(), version, err)
			}
			var got []string
			for _, a := range addressesIn(reply) {
				if *a.host != "" {
					got = append(got, joined(a))
				}
			}
			if want := []string{front.String()}; !slices.Equal(got, want) {
				t.Errorf("%s %d: brokers at %v, want %v", key.Name(), version, got, want)
			}
		}
	}
	if _, err := p.rename(&requestHeader{key: kmsg.Metadata, version: 12}, []byte{0, 0, 0, 4, 0, 0, 0, 7}); err == nil {
		t.Error("no error for a reply that cannot be read")
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	r := &kafkaRule{KafkaRule: KafkaRule{Delay: 50 * time.Millisecond, Spread: 50 * time.Millisecond},
		hits: newRuleStats("", nil)}
	var sum time.Duration
	var tenths [10]int
	for range 1000 {
		wait := r.wait()
		if wait < r.Delay || wait >= r.Delay+r.Spread {
			t.Fatalf("hit %d: %s", r.hits.Count(), wait)
		}
		sum += wait
		tenths[(wait-r.Delay)*10/r.Spread]++
		r.hits.add(nil)
	}
	if mean := sum / 1000; mean < 74*time.Millisecond || mean > 76*time.Millisecond {
		t.Errorf("mean %s", mean)
	}
	for i, n := range tenths {
		if n < 90 || n > 110 {
			t.Errorf("%d of 1000 in tenth %d", n, i)
		}
	}
}
