package servers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/servers"
)

// impatient clients give up soon, so that tests of it are short.
var impatient = []kgo.Opt{
	kgo.RetryTimeout(300 * time.Millisecond), kgo.RequestTimeoutOverhead(time.Second), kgo.ProduceRequestTimeout(time.Second),
	kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
}

// patience bounds whatever a test waits for.
const patience = 30 * time.Second

// faultTests run on a strict embedded cluster each, and all on one Apache
// Kafka. Their transactional id is always the same, so that each begins by
// ending what the one before has left.
var faultTests = map[string]func(*testing.T, *proxied){
	"commit without reply":  testCommitWithoutReply,
	"commit repeated":       testCommitRepeated,
	"commit never arrives":  testCommitNeverArrives,
	"late commit":           testLateCommit,
	"late repetition":       testLateRepetition,
	"produce without reply": testProduceWithoutReply,
	"init without reply":    testInitWithoutReply,
	"blackhole":             testBlackhole,
	"blackhole delivers":    testBlackholeDelivers,
	"delayed request":       func(t *testing.T, p *proxied) { testDelay(t, p, faultproxy.DelayRequest) },
	"delayed reply":         func(t *testing.T, p *proxied) { testDelay(t, p, faultproxy.DelayReply) },
	"fencing":               testFencing,
	"outside of the log":    testOutsideOfTheLog,
}

// proxied is a cluster behind a proxy.
type proxied struct {
	*faultproxy.KafkaProxy
	earlier int // committed records of earlier tests
}

func newProxied(t *testing.T, p *faultproxy.KafkaProxy) *proxied {
	t.Helper()
	newProducer(t, p.Addrs(), "txn")
	return &proxied{p, len(committed(t, p.Addrs()))}
}

func TestKafkaFaults(t *testing.T) {
	t.Parallel()
	for name, test := range faultTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.StartKafkaProxy(t)
			servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
			createTopic(t, client(t, p.Addrs()), 1, nil)
			test(t, newProxied(t, p))
		})
	}
}

func TestRealKafkaFaults(t *testing.T) {
	needReal(t)
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.StartKafka(t, servers.KafkaOptions{Proxy: p, Properties: map[string]string{
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
	}})
	createTopic(t, client(t, p.Addrs()), 1, nil)
	for name, test := range faultTests {
		t.Run(name, func(t *testing.T) { test(t, newProxied(t, p)) })
	}
}

func testCommitWithoutReply(t *testing.T, p *proxied) {
	a := newProducer(t, p.Addrs(), "txn", impatient...)
	a.open(t, "visible")
	lost := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.EndTxn}, Times: -1})
	defer lost.Remove()
	if err := a.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the client knows that it has committed")
	}
	waitHits(t, lost, 1)
	if reply := lost.Replies()[0].(*kmsg.EndTxnResponse); reply.ErrorCode != 0 {
		t.Errorf("the broker has answered %v", kerr.ErrorForCode(reply.ErrorCode))
	}
	wantCommitted(t, p, "visible")
}

// testCommitRepeated shows why losing one reply is not enough: the client
// asks again and learns that it has committed.
func testCommitRepeated(t *testing.T, p *proxied) {
	a := newProducer(t, p.Addrs(), "txn")
	a.open(t, "first")
	lost := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.EndTxn}})
	if err := a.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("commit: %v", err)
	}
	if lost.Count() != 1 {
		t.Errorf("%d replies were lost, want 1", lost.Count())
	}
	a.commit(t, "second")
	wantCommitted(t, p, "first", "second")
}

func testCommitNeverArrives(t *testing.T, p *proxied) {
	a := newProducer(t, p.Addrs(), "txn", impatient...)
	a.open(t, "invisible")
	cut := p.Add(faultproxy.KafkaRule{Fault: faultproxy.CutBeforeRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Times: -1})
	if err := a.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the client believes to have committed")
	}
	if cut.Count() == 0 {
		t.Error("nothing was cut")
	}
	cut.Remove()
	newProducer(t, p.Addrs(), "txn").commit(t, "visible")
	wantCommitted(t, p, "visible")
}

// testLateCommit delivers a commit into the next session's transaction.
func testLateCommit(t *testing.T, p *proxied) {
	a := newProducer(t, p.Addrs(), "txn", append(impatient, kgo.ClientID("a"))...)
	a.open(t, "old")
	arrive := make(chan struct{})
	late := p.Add(faultproxy.KafkaRule{Fault: faultproxy.LateRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Client: "a", Until: arrive})
	again := p.Add(faultproxy.KafkaRule{Fault: faultproxy.CutBeforeRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Client: "a", Times: -1})
	defer again.Remove()
	if err := a.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the client believes to have committed")
	}
	b := newProducer(t, p.Addrs(), "txn")
	b.open(t, "half")
	close(arrive)
	waitHits(t, late, 1)
	if reply := late.Replies()[0].(*kmsg.EndTxnResponse); reply.ErrorCode != kerr.ProducerFenced.Code {
		t.Errorf("the broker has answered the late commit with %v", kerr.ErrorForCode(reply.ErrorCode))
	}
	if err := b.ProduceSync(t.Context(), kgo.StringRecord("whole")).FirstErr(); err != nil {
		t.Errorf("produce after the late commit: %v", err)
	}
	if err := b.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Errorf("abort after the late commit: %v", err)
	}
	b.commit(t, "next")
	wantCommitted(t, p, "next")
}

// testLateRepetition delivers a commit twice, the second time into the same
// session's next transaction. What epochs prevent here, nothing prevents below
// transaction.version 2.
func testLateRepetition(t *testing.T, p *proxied) {
	visible, reply := lateRepetition(t, p)
	if !errors.Is(reply, kerr.ProducerFenced) {
		t.Errorf("the broker has answered the late commit with %v", reply)
	}
	if want := []string{"first"}; !slices.Equal(visible, want) {
		t.Errorf("committed are %v, want %v", visible, want)
	}
}

func TestLateRepetitionBelowVersion2(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen), kfake.MaxVersions(kversion.V3_5_0()))
	createTopic(t, client(t, p.Addrs()), 1, nil)
	visible, reply := lateRepetition(t, newProxied(t, p))
	if want := []string{"first", "half"}; reply != nil || !slices.Equal(visible, want) {
		t.Errorf("the late commit was answered %v and committed are %v, want %v", reply, visible, want)
	}
}

// lateRepetition returns what is visible when the transaction that the late
// commit has met is aborted, and the answer to that commit.
func lateRepetition(t *testing.T, p *proxied) (visible []string, reply error) {
	t.Helper()
	a := newProducer(t, p.Addrs(), "txn")
	arrive := make(chan struct{})
	late := p.Add(faultproxy.KafkaRule{Fault: faultproxy.LateRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Until: arrive})
	a.commit(t, "first") // the client sends the commit again
	a.open(t, "half")
	close(arrive)
	waitHits(t, late, 1)
	reply = kerr.ErrorForCode(late.Replies()[0].(*kmsg.EndTxnResponse).ErrorCode)
	newProducer(t, p.Addrs(), "txn") // aborts what is still open
	return committed(t, p.Addrs())[p.earlier:], reply
}

func testProduceWithoutReply(t *testing.T, p *proxied) {
	a := newProducer(t, p.Addrs(), "txn")
	lost := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.Produce}, Times: 2})
	a.commit(t, "once")
	if lost.Count() != 2 {
		t.Errorf("%d replies were lost, want 2", lost.Count())
	}
	wantCommitted(t, p, "once")
}

// testInitWithoutReply fences the old session although the new one does
// not know that it has begun.
func testInitWithoutReply(t *testing.T, p *proxied) {
	old := newProducer(t, p.Addrs(), "txn")
	old.open(t, "old")
	lost := p.Add(faultproxy.KafkaRule{
		Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.InitProducerID}, Times: -1,
		When: func(r kmsg.Request) bool { return *r.(*kmsg.InitProducerIDRequest).TransactionalID == "txn" },
	})
	c := client(t, p.Addrs(), append(impatient, kgo.TransactionalID("txn"))...)
	if _, _, err := c.ProducerID(t.Context()); err == nil {
		t.Error("the client has an id that it was not told")
	}
	waitHits(t, lost, 1)
	lost.Remove()
	// Apache Kafka has aborted the old transaction first and let the new one
	// wait: INVALID_TXN_STATE, and not PRODUCER_FENCED yet.
	if err := old.end(t, true); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidTxnState) {
		t.Errorf("commit of the old one: %v", err)
	}
	newProducer(t, p.Addrs(), "txn").commit(t, "newer")
	wantCommitted(t, p, "newer")
}

func testBlackhole(t *testing.T, p *proxied) {
	c := client(t, p.Addrs(), impatient...)
	if err := ping(t, c, patience); err != nil {
		t.Fatal(err)
	}
	p.Blackhole(true)
	if err := ping(t, c, 2*patience); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping through a blackhole: %v, want the client's own time-out", err)
	}
	p.Blackhole(false)
	if err := ping(t, c, patience); err != nil {
		t.Errorf("ping after a blackhole: %v", err)
	}
}

// testBlackholeDelivers sends a record through a network that comes back
// after its client has given up.
func testBlackholeDelivers(t *testing.T, p *proxied) {
	sent := make(produced, 10)
	c := client(t, p.Addrs(), append(impatient, kgo.WithHooks(sent))...)
	produce(t, c, 1)
	<-sent
	p.Blackhole(true)
	c.Produce(t.Context(), kgo.StringRecord("held back"), nil)
	held := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.Produce}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Flush(ctx); err == nil {
		t.Error("a record passed the blackhole")
	}
	<-sent // it is on its way
	c.Close()
	if held.Count() != 0 {
		t.Error("a request passed the blackhole")
	}
	p.Blackhole(false)
	waitHits(t, held, 1)
	wantCommitted(t, p, "0", "held back")
}

// produced is a hook that tells when a client has sent records.
type produced chan struct{}

//nolint:revive // the hook has six parameters
func (p produced) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == kmsg.Produce.Int16() && err == nil {
		p <- struct{}{}
	}
}

func testDelay(t *testing.T, p *proxied, fault faultproxy.KafkaFault) {
	a := newProducer(t, p.Addrs(), "txn")
	a.open(t, "record")
	pass := make(chan struct{})
	hits := p.Add(faultproxy.KafkaRule{Fault: fault, Keys: []kmsg.Key{kmsg.EndTxn}, Until: pass})
	ended := make(chan error, 1)
	go func() { ended <- a.EndTransaction(t.Context(), kgo.TryCommit) }()
	if fault == faultproxy.DelayReply {
		wantCommitted(t, p, "record") // while the client does not know
	}
	select {
	case err := <-ended:
		t.Errorf("the commit returned %v before it could", err)
	default:
	}
	close(pass)
	if err := <-ended; err != nil {
		t.Errorf("commit: %v", err)
	}
	waitHits(t, hits, 1)
	wantCommitted(t, p, "record")
}

// disconnects is a hook that tells when a client has noticed that a connection
// is gone.
type disconnects chan struct{}

func (d disconnects) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { d <- struct{}{} }

func (d disconnects) await(t *testing.T) {
	t.Helper()
	select {
	case <-d:
	case <-time.After(patience):
		t.Fatal("the client did not notice that its connection is gone")
	}
}

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
		"first":         {rule(func(*faultproxy.KafkaRule) {}), []int{1}},
		"third":         {rule(func(r *faultproxy.KafkaRule) { r.Nth = 3 }), []int{3}},
		"from second":   {rule(func(r *faultproxy.KafkaRule) { r.Nth, r.Times = 2, 2 }), []int{2, 3}},
		"all":           {rule(func(r *faultproxy.KafkaRule) { r.Times = -1 }), []int{1, 2, 3, 4, 5, 6, 7, 8}},
		"other kind":    {rule(func(r *faultproxy.KafkaRule) { r.Keys, r.Times = []kmsg.Key{kmsg.EndTxn}, -1 }), nil},
		"other client":  {rule(func(r *faultproxy.KafkaRule) { r.Client, r.Times = "other", -1 }), nil},
		"this client":   {rule(func(r *faultproxy.KafkaRule) { r.Client = "me" }), []int{1}},
		"when not":      {rule(func(r *faultproxy.KafkaRule) { r.When, r.Times = func(kmsg.Request) bool { return false }, -1 }), nil},
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
	c, err := net.Dial("tcp", p.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	// ApiVersions, version 0, correlation 1, no client id.
	if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
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
		needReal(t)
		t.Parallel()
		p := faultproxy.StartKafkaProxy(t)
		servers.StartKafka(t, servers.KafkaOptions{Brokers: brokers, Proxy: p})
		test(t, p)
	})
}

func waitHits(t *testing.T, hits *faultproxy.RuleStats, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := hits.Wait(ctx, count); err != nil {
		t.Fatal(err)
	}
}

// wantCommitted reads the topic past the proxy.
func wantCommitted(t *testing.T, p *proxied, want ...string) {
	t.Helper()
	if got := committed(t, p.Addrs(), kgo.Dialer(p.Direct))[p.earlier:]; !slices.Equal(got, want) {
		t.Errorf("committed are %v, want %v", got, want)
	}
}

// committed returns the topic's records that are committed when it is called.
// A barrier behind them says where they end.
func committed(t *testing.T, addrs []string, opts ...kgo.Opt) (values []string) {
	t.Helper()
	barrier := fmt.Sprint("barrier ", time.Now().UnixNano())
	c := client(t, addrs, append(opts, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err := c.ProduceSync(t.Context(), kgo.StringRecord(barrier)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read the topic, so far %v: %v", values, err)
		}
		for r := range fetches.RecordsAll() {
			if string(r.Value) == barrier {
				return values
			}
			if !strings.HasPrefix(string(r.Value), "barrier ") {
				values = append(values, string(r.Value))
			}
		}
	}
}
