package dev

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// All connections of a client lead through the proxy, to whichever broker they
// are, and transactions work.
func TestProxyNamesItself(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	p := newDelayProxy(delays{})
	closing(t, p)
	front, err := p.before(cluster.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	dialed := map[string]bool{}
	client, err := kgo.NewClient(kgo.SeedBrokers(front), kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"),
		kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[addr] = true
			return new(net.Dialer).DialContext(ctx, network, addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		client.Produce(ctx, &kgo.Record{Key: []byte{byte(i)}, Value: make([]byte, 10_000)}, nil)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 100; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	if _, err := kadm.NewClient(client).BrokerMetadata(ctx); err != nil {
		t.Error(err)
	}
	described, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range described.Brokers {
		if addr := net.JoinHostPort(b.Host, itoa(b.Port)); !slices.Contains(p.addrs(), addr) {
			t.Errorf("the cluster is described with a broker at %s", addr)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for addr := range dialed {
		if !slices.Contains(p.addrs(), addr) {
			t.Errorf("the client dialed %s past the proxy", addr)
		}
	}
	if len(dialed) != 3 {
		t.Errorf("%d brokers dialed, want all 3", len(dialed))
	}
}

// Every form of the replies that name brokers, and those that name none.
func TestProxyRewrites(t *testing.T) {
	t.Parallel()
	p := newDelayProxy(delays{})
	closing(t, p)
	front, err := p.before("broker:9092")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(front)
	for key, last := range map[kmsg.Key]int16{kmsg.Metadata: 12, kmsg.FindCoordinator: 6, kmsg.DescribeCluster: 1} {
		for version := range last + 1 {
			metadata, coordinator, cluster := kmsg.NewMetadataResponseBroker(), kmsg.NewFindCoordinatorResponseCoordinator(), kmsg.NewDescribeClusterResponseBroker()
			metadata.Host, metadata.Port = "broker", 9092
			coordinator.Host, coordinator.Port = "broker", 9092
			cluster.Host, cluster.Port = "broker", 9092
			reply := key.Response()
			reply.SetVersion(version)
			switch m := reply.(type) {
			case *kmsg.MetadataResponse:
				m.Brokers = []kmsg.MetadataResponseBroker{metadata}
			case *kmsg.FindCoordinatorResponse:
				m.Host, m.Port, m.Coordinators = "broker", 9092, []kmsg.FindCoordinatorResponseCoordinator{coordinator, kmsg.NewFindCoordinatorResponseCoordinator()}
			case *kmsg.DescribeClusterResponse:
				m.Brokers = []kmsg.DescribeClusterResponseBroker{cluster}
			}
			want := string(reply.AppendTo(nil))
			f := append(frame(7), tagsOf(reply)...)
			out, err := p.rewrite(askedFor{key: int16(key), version: version}, append(f, want...))
			if err != nil {
				t.Fatalf("%s %d: %v", key.Name(), version, err)
			}
			if got := int(binary.BigEndian.Uint32(out)); got != len(out)-4 {
				t.Errorf("%s %d: a frame of %d bytes says %d", key.Name(), version, len(out), got)
			}
			if err := reply.ReadFrom(out[8+len(tagsOf(reply)):]); err != nil {
				t.Fatalf("%s %d: %v", key.Name(), version, err)
			}
			var got string
			switch m := reply.(type) {
			case *kmsg.MetadataResponse:
				got = net.JoinHostPort(m.Brokers[0].Host, itoa(m.Brokers[0].Port))
			case *kmsg.FindCoordinatorResponse:
				if got = net.JoinHostPort(m.Host, itoa(m.Port)); version >= 4 {
					got = net.JoinHostPort(m.Coordinators[0].Host, itoa(m.Coordinators[0].Port))
				}
				if version >= 4 && m.Coordinators[1].Host != "" {
					t.Errorf("a coordinator that there is not is at %s", m.Coordinators[1].Host)
				}
			case *kmsg.DescribeClusterResponse:
				got = net.JoinHostPort(m.Brokers[0].Host, itoa(m.Brokers[0].Port))
			}
			if got != net.JoinHostPort(host, port) {
				t.Errorf("%s %d: the broker is at %s, want %s", key.Name(), version, got, front)
			}
		}
	}
	if _, err := p.rewrite(askedFor{key: int16(kmsg.Metadata), version: 12}, frame(7)); err == nil {
		t.Error("no error for a reply that cannot be read")
	}
}

func tagsOf(reply kmsg.Response) []byte {
	if reply.IsFlexible() {
		return []byte{0}
	}
	return nil
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// addrs are the addresses of the proxy.
func (p *delayProxy) addrs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, front := range p.fronts {
		all = append(all, front)
	}
	return all
}

// carryPipes carries a connection between two pipes in the bubble's time.
func carryPipes(t *testing.T, p *delayProxy) (client, server net.Conn) {
	t.Helper()
	client, clientEnd := net.Pipe()
	server, serverEnd := net.Pipe()
	p.work.Go(func() { p.join(clientEnd, serverEnd) })
	t.Cleanup(func() {
		client.Close()
		server.Close()
		closing(t, p)
	})
	return client, server
}

func write(t *testing.T, to io.Writer, data []byte) {
	t.Helper()
	if _, err := to.Write(data); err != nil {
		t.Error(err)
	}
}

func readN(t *testing.T, from io.Reader, n int) {
	t.Helper()
	if _, err := io.ReadFull(from, make([]byte, n)); err != nil {
		t.Error(err)
	}
}

// Ten requests of a pipeline, and their replies, take one round trip together.
func TestProxyPipelines(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newDelayProxy(delays{least: 5 * time.Millisecond})
			p.plain = plain
			client, server := carryPipes(t, p)
			begin := time.Now()
			const each = 14
			go func() {
				for i := range int32(10) {
					write(t, client, frameOf(kmsg.Heartbeat, i))
				}
			}()
			readN(t, server, 10*each)
			if took := time.Since(begin); took != 0 {
				t.Errorf("requests took %s, want no delay", took)
			}
			go func() {
				for i := range int32(10) {
					write(t, server, frame(i))
				}
			}()
			readN(t, client, 10*len(frame(0)))
			if took := time.Since(begin); took != 5*time.Millisecond {
				t.Errorf("10 replies took %s, want 5ms", took)
			}
		})
	}
}

// frameOf is a request without a body.
func frameOf(key kmsg.Key, id int32) []byte {
	f := binary.BigEndian.AppendUint32(nil, 10)
	f = binary.BigEndian.AppendUint16(f, uint16(key))
	f = binary.BigEndian.AppendUint16(f, 0)
	f = binary.BigEndian.AppendUint32(f, uint32(id))
	return binary.BigEndian.AppendUint16(f, 0xffff) // no client id
}

// frame is a reply without a body.
func frame(id int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 4), uint32(id))
}

func TestProxyDelaysCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newDelayProxy(delays{least: 50 * time.Millisecond, spread: 50 * time.Millisecond})
		p.commits = true
		client, server := carryPipes(t, p)
		for i, key := range []kmsg.Key{kmsg.Heartbeat, kmsg.EndTxn, kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
			begin := time.Now()
			go write(t, client, frameOf(key, int32(i)))
			readN(t, server, 14)
			go write(t, server, frame(int32(i)))
			readN(t, client, 8)
			took := time.Since(begin)
			if late := took >= 50*time.Millisecond && took < 100*time.Millisecond; late != (key == kmsg.EndTxn) || !late && took != 0 {
				t.Errorf("a reply to %s took %s", key.Name(), took)
			}
		}
	})
}

func TestDelaysAreSpread(t *testing.T) {
	t.Parallel()
	d := delays{least: 50 * time.Millisecond, spread: 50 * time.Millisecond}
	var sum time.Duration
	var tenths [10]int
	for n := range 1000 {
		late := d.nth(n)
		if late < d.least || late >= d.least+d.spread {
			t.Fatalf("reply %d: %s", n, late)
		}
		sum += late
		tenths[(late-d.least)*10/d.spread]++
	}
	if mean := sum / 1000; mean < 74*time.Millisecond || mean > 76*time.Millisecond {
		t.Errorf("mean %s", mean)
	}
	for i, n := range tenths {
		if n < 90 || n > 110 {
			t.Errorf("%d of 1000 in tenth %d", n, i)
		}
	}
	if got := (delays{least: 5}).nth(3); got != 5 {
		t.Errorf("without spread %d", got)
	}
}

func TestProxyRefusesWhatIsNotKafka(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := carryPipes(t, newDelayProxy(delays{}))
		go func() { _, _ = client.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc")) }() // TLS
		if n, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the server read %d bytes, %v", n, err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still there")
		}
	})
}
