package servers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
)

// impatient clients give up soon, so that tests of it are short.
var impatient = []kgo.Opt{
	kgo.RetryTimeout(300 * time.Millisecond), kgo.RequestTimeoutOverhead(time.Second),
	kgo.ProduceRequestTimeout(time.Second),
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
	servers.NeedReal(t)
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
	late := p.Add(faultproxy.KafkaRule{Fault: faultproxy.LateRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Client: "a",
		Until: arrive})
	again := p.Add(faultproxy.KafkaRule{Fault: faultproxy.CutBeforeRequest, Keys: []kmsg.Key{kmsg.EndTxn}, Client: "a",
		Times: -1})
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
// session's next transaction. What epochs prevent from transaction.version 2 on,
// nothing prevents below it.
func testLateRepetition(t *testing.T, p *proxied) {
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = p.Addrs()
	asking := must.Get(cfg.Open())(t)
	defer asking.Close()
	version := must.Get(asking.TransactionVersion(t.Context()))(t)
	visible, reply := lateRepetition(t, p)
	want, answer := []string{"first", "half"}, error(nil)
	if version >= kafkaclient.StrictTransactions {
		want, answer = []string{"first"}, kerr.ProducerFenced
	}
	if !errors.Is(reply, answer) || !slices.Equal(visible, want) {
		t.Errorf("the late commit was answered %v and committed are %v, want %v and %v", reply, visible, answer, want)
	}
}

func TestLateRepetitionBelowVersion2(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen), kfake.MaxVersions(kversion.V3_5_0()))
	createTopic(t, client(t, p.Addrs()), 1, nil)
	testLateRepetition(t, newProxied(t, p))
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
	must.Do(t, ping(t, c, patience))
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

func waitHits(t *testing.T, hits *faultproxy.RuleStats, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Do(t, hits.Wait(ctx, count))
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
	must.Do(t, c.ProduceSync(t.Context(), kgo.StringRecord(barrier)).FirstErr())
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
