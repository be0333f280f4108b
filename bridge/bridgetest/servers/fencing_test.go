package servers_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// producer is a transactional client and what it was when it produced last.
type producer struct {
	*kgo.Client
	txn   string
	id    int64
	epoch int16
}

func newProducer(t *testing.T, addrs []string, txn string, opts ...kgo.Opt) *producer {
	t.Helper()
	p := &producer{Client: client(t, addrs,
		append([]kgo.Opt{kgo.TransactionalID(txn), kgo.TransactionTimeout(30 * time.Second)}, opts...)...), txn: txn}
	p.identify(t)
	return p
}

func (p *producer) identify(t *testing.T) {
	t.Helper()
	var err error
	if p.id, p.epoch, err = p.ProducerID(t.Context()); err != nil {
		t.Fatalf("initialize %s: %v", p.txn, err)
	}
}

// open begins a transaction that holds a record.
func (p *producer) open(t *testing.T, value string) {
	t.Helper()
	must.Do(t, p.BeginTransaction())
	if err := p.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatalf("produce %s: %v", value, err)
	}
	p.identify(t)
}

// end sends one EndTxn with the producer's id and epoch and returns the answer.
func (p *producer) end(t *testing.T, commit bool) error {
	t.Helper()
	return settled(t, func() (int16, error) {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.txn, p.id, p.epoch, commit
		resp, err := req.RequestWith(t.Context(), p.Client)
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
}

// reinit asks to have the producer's id again.
func (p *producer) reinit(t *testing.T) error {
	t.Helper()
	return settled(t, func() (int16, error) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &p.txn, 30000, p.id, p.epoch
		resp, err := req.RequestWith(t.Context(), p.Client)
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
}

// settled asks until the last transaction is complete, which takes Apache
// Kafka a moment.
func settled(t *testing.T, ask func() (code int16, err error)) error {
	t.Helper()
	for {
		code := must.Get(ask())(t)
		if err := kerr.ErrorForCode(code); !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
	}
}

// commit publishes a record in a transaction of its own.
func (p *producer) commit(t *testing.T, value string) {
	t.Helper()
	p.open(t, value)
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatalf("commit %s: %v", value, err)
	}
}

func (p *producer) state(t *testing.T) kadm.DescribedTransaction {
	t.Helper()
	all := must.Get(kadm.NewClient(p.Client).DescribeTransactions(t.Context(), p.txn))(t)
	return all[p.txn]
}

// testFencing proves that the strict embedded cluster answers as Apache Kafka.
func testFencing(t *testing.T, p *proxied) {
	t.Run("with a transaction open", func(t *testing.T) {
		old := newProducer(t, p.Addrs(), "txn")
		old.open(t, "old")
		newer := newProducer(t, p.Addrs(), "txn")
		wantErr(t, "commit of the old one", old.end(t, true), kerr.ProducerFenced)
		wantErr(t, "abort of the old one", old.end(t, false), kerr.ProducerFenced)
		wantErr(t, "produce of the old one", old.ProduceSync(t.Context(), kgo.StringRecord("late")).FirstErr(),
			kerr.InvalidProducerEpoch)
		if state := newer.state(t).State; state != "Empty" {
			t.Errorf("the newer one's transaction is %s, want Empty", state)
		}
		newer.open(t, "newer")
		wantErr(t, "commit of the old one into the newer's transaction", old.end(t, true), kerr.ProducerFenced)
		wantErr(t, "commit of the newer one", newer.end(t, true), nil)
		wantErr(t, "InitProducerID of the old one", old.reinit(t), kerr.ProducerFenced)
	})
	t.Run("after a commit", func(t *testing.T) {
		old := newProducer(t, p.Addrs(), "txn")
		old.open(t, "committed")
		wantErr(t, "commit", old.end(t, true), nil)
		wantErr(t, "the same commit again", old.end(t, true), nil)
		newProducer(t, p.Addrs(), "txn")
		wantErr(t, "commit of the old one", old.end(t, true), kerr.ProducerFenced)
		wantErr(t, "InitProducerID of the old one", old.reinit(t), kerr.ProducerFenced)
	})
	t.Run("after a time-out", func(t *testing.T) {
		// The codes are those of a fenced producer in part: a time-out
		// looks like a newer session when it is noticed by a produce.
		slow := newProducer(t, p.Addrs(), "slow", kgo.TransactionTimeout(200*time.Millisecond))
		slow.open(t, "expired")
		for slow.state(t).State != "Empty" && slow.state(t).State != "CompleteAbort" {
			<-time.After(10 * time.Millisecond)
		}
		late := kerr.InvalidTxnState
		if servers.MaxVersion(t, p.Addrs(), kmsg.EndTxn) < 5 {
			late = kerr.ProducerFenced // before Kafka 4
		}
		wantErr(t, "commit", slow.end(t, true), late)
		wantErr(t, "produce", slow.ProduceSync(t.Context(), kgo.StringRecord("late")).FirstErr(), kerr.InvalidProducerEpoch)
	})
	wantCommitted(t, p, "newer", "committed")
}

// testOutsideOfTheLog proves that the strict embedded cluster says no more than
// Apache Kafka about a log that an offset is outside of.
func testOutsideOfTheLog(t *testing.T, p *proxied) {
	const name, start, end = "outside", 7, 10
	c := client(t, p.Addrs(), kgo.DefaultProduceTopic(name))
	admin := kadm.NewClient(c)
	must.Get(admin.CreateTopic(t.Context(), 1, 1, nil, name))(t)
	produce(t, c, end)
	gone := kadm.Offsets{}
	gone.AddOffset(name, 0, start, -1)
	must.Get(admin.DeleteRecords(t.Context(), gone))(t)
	topics := must.Get(admin.ListTopics(t.Context(), name))(t)
	for _, test := range []struct {
		at, start, end int64
		err            error
	}{{2, -1, -1, kerr.OffsetOutOfRange}, {99, -1, -1, kerr.OffsetOutOfRange}, {start, start, end, nil},
		{end, start, end, nil}} {
		req := kmsg.NewPtrFetchRequest()
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = name, topics[name].ID
		part := kmsg.NewFetchRequestTopicPartition()
		part.FetchOffset, part.PartitionMaxBytes = test.at, 1<<20
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		answer := must.Get(c.Broker(int(topics[name].Partitions[0].Leader)).Request(t.Context(), req))(t)
		got := answer.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		wantErr(t, fmt.Sprint("fetch at ", test.at), kerr.ErrorForCode(got.ErrorCode), test.err)
		if got.LogStartOffset != test.start || got.HighWatermark != test.end || got.LastStableOffset != test.end {
			t.Errorf("fetch at %d says start %d, end %d, stable %d; want %d, %d, %d", test.at, got.LogStartOffset,
				got.HighWatermark, got.LastStableOffset, test.start, test.end, test.end)
		}
	}
	got, err := admin.ListStartOffsets(t.Context(), name)
	if o, _ := got.Lookup(name, 0); err != nil || o.Err != nil || o.Offset != start {
		t.Errorf("the start is listed as %+v, %v", o, err)
	}
}

// TestFencingRefusesHealing shows what a client does that does not know whether
// its commit has happened, and what a cluster that is not strict makes of it.
func TestFencingRefusesHealing(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"strict": true, "lenient": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.StartKafkaProxy(t)
			k := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(p.Listen)))(t)
			t.Cleanup(k.Close)
			if strict {
				servers.EmulateKafkaFencing(k)
			}
			createTopic(t, client(t, p.Addrs()), 1, nil)
			a := newProducer(t, p.Addrs(), "txn", impatient...)
			a.open(t, "first")
			lost := p.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.EndTxn}, Times: -1})
			if err := a.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
				t.Fatal("the client knows that it has committed")
			}
			lost.Remove()
			healed := a.EndTransaction(t.Context(), kgo.TryAbort)
			if healed == nil {
				healed = a.BeginTransaction()
			}
			if died := healed != nil; died != strict {
				t.Errorf("the client heals with %v", healed)
			}
			newProducer(t, p.Addrs(), "txn").commit(t, "second")
			if got := committed(t, p.Addrs()); !slices.Equal(got, []string{"first", "second"}) {
				t.Errorf("committed are %v", got)
			}
		})
	}
}

// TestFencingLetsProducersLive runs what must not be refused: without epochs
// that rise by themselves, on several brokers, and beyond the last epoch.
func TestFencingLetsProducersLive(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kfake.Opt{
		"transaction.version 1": {kfake.MaxVersions(kversion.V3_5_0())},
		"three brokers":         {kfake.NumBrokers(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := servers.EmbeddedKafka(t, opts...).ListenAddrs()
			createTopic(t, client(t, addrs), 1, nil)
			var want []string
			for session := range 3 {
				p := newProducer(t, addrs, "txn")
				for i := range 3 {
					want = append(want, fmt.Sprint(session, i))
					p.commit(t, want[len(want)-1])
				}
			}
			if got := committed(t, addrs); !slices.Equal(got, want) {
				t.Errorf("committed are %v, want %v", got, want)
			}
		})
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
