package kafkaclient_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
)

type spans = map[int32]kafkaclient.Span

// values are those of records, by partition.
type values map[int32][]int

func (v values) add(r *kgo.Record) error {
	n, err := strconv.Atoi(string(r.Value))
	v[r.Partition] = append(v[r.Partition], n)
	return err
}

func (v values) equal(want values) bool {
	return maps.EqualFunc(v, want, slices.Equal)
}

func upTo(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// A log may begin anywhere, end in whatever takes offsets, and be empty.
func TestRead(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	w := newWorld(t, addrs, 4)
	w.put(w.client, 0, 0, 10)
	w.put(w.client, 1, 10, 20)
	tx := w.open(addrs, kgo.TransactionalID(w.topic))
	w.transact(tx, 0, 100, kgo.TryCommit)
	w.transact(tx, 1, 200, kgo.TryAbort)
	w.put(w.client, 2, 20, 30)
	w.forget(1, 7)
	w.forget(2, 10) // all of it
	open := w.open(addrs, kgo.TransactionalID(w.topic+"open"))
	must.Do(t, open.BeginTransaction())
	w.put(open, 0, 300, 301) // hides what follows
	w.put(w.client, 0, 400, 401)

	l := w.log()
	all, err := l.Bounds(t.Context())
	if want := (spans{0: {0, 12}, 1: {7, 12}, 2: {10, 10}, 3: {0, 0}}); err != nil || !maps.Equal(all, want) {
		t.Fatalf("bounds %v, %v; want %v", all, err, want)
	}
	skipped := int64(0)
	l.Skipped = func(_ int32, gone kafkaclient.Span) { skipped += gone.To - gone.From }
	want := values{0: append(upTo(0, 10), 100), 1: upTo(17, 20)}
	for name, from := range map[string]int64{"from the start": -1, "from 0": 0} {
		skipped = 0
		asked, gone := maps.Clone(all), int64(0)
		for id, s := range asked {
			if from >= 0 {
				asked[id], gone = kafkaclient.Span{From: from, To: s.To}, 17
			}
		}
		got := values{}
		if err := l.Read(t.Context(), asked, got.add); err != nil || !got.equal(want) || skipped != gone {
			t.Errorf("read %s: %v, %v, %d skipped; want %v, %d", name, got, err, skipped, want, gone)
		}
		var order []int
		err := l.Merge(t.Context(), asked, func(a, b *kgo.Record) int { return b.Timestamp.Compare(a.Timestamp) },
			func(r *kgo.Record) error {
				order = append(order, int(r.Timestamp.Unix()))
				return nil
			}, func() error { return nil })
		if inOrder := slices.Concat(upTo(17, 20), want[0]); err != nil || !slices.Equal(order, inOrder) {
			t.Errorf("merge %s: %v, %v; want %v", name, order, err, inOrder)
		}
	}
	l = w.log()
	l.Uncommitted = true
	got := values{}
	all = must.Get(l.Bounds(t.Context()))(t)
	if err := l.Read(t.Context(), all, got.add); err != nil ||
		!got.equal(values{0: append(slices.Clone(want[0]), 300, 400), 1: append(upTo(17, 20), 200)}) {
		t.Errorf("with what is not committed: %v, %v", got, err)
	}
	// Each read of an end that is not there yet is one request more. How many answers a real
	// broker makes of the same records depends on its load.
	if n := w.fetches.Load(); kafkatest.Embedded() && n > 14 {
		t.Errorf("%d requests: an end was waited for", n)
	}
	enough := errors.New("enough")
	must.Be(t, l.Read(t.Context(), all, func(*kgo.Record) error { return enough }), enough)
}

// What is hidden or slow is waited for, and what does not come is an error that
// says how far reading came.
// TestReadAborted: no record of an aborted transaction is shown, however the log
// is divided among answers.
func TestReadAborted(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	w := newWorld(t, addrs, 1)
	c := w.open(addrs, kgo.TransactionalID(w.topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	filler := strings.Repeat("x", 300<<10)
	var want, got []string
	for i := range 12 { // an answer has three or four of them
		value, end := fmt.Sprintf("%d %s", i, filler), kgo.TryCommit
		if i%2 == 1 {
			end = kgo.TryAbort
		} else {
			want = append(want, value)
		}
		must.Do(t, c.BeginTransaction())
		must.Do(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: w.topic, Value: []byte(value)}).FirstErr())
		must.Do(t, c.EndTransaction(t.Context(), end))
	}
	l := w.log()
	spans, err := l.Bounds(t.Context())
	if err == nil {
		err = l.Read(t.Context(), spans, func(r *kgo.Record) error {
			got = append(got, string(r.Value))
			return nil
		})
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d records are shown, %d are committed: %v", len(got), len(want), err)
	}
}

func TestReadWaits(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	w := newWorld(t, addrs, 2)
	w.put(w.client, 0, 0, 5)
	w.put(w.client, 1, 5, 6)
	open := w.open(addrs, kgo.TransactionalID(w.topic))
	must.Do(t, open.BeginTransaction())
	w.put(open, 1, 6, 7)
	l := w.log()
	ends, err := l.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked := spans{0: {0, ends[0]}, 1: {0, ends[1]}}
	limited, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := ""
	l.Waiting = func(err error) {
		if told = err.Error(); strings.Contains(told, "open transaction") {
			cancel()
		}
	}

	got := values{}
	err = l.Read(limited, asked, got.add)
	incomplete, ok := errors.AsType[*kafkaclient.IncompleteError](err)
	if !ok || !errors.Is(err, context.Canceled) || len(incomplete.Partitions) != 1 ||
		incomplete.Partitions[0].Partition != 1 || incomplete.Partitions[0].Span != (kafkaclient.Span{From: 1, To: 2}) {
		t.Errorf("error %v, want that partition 1 is at 1 of 2", err)
	}
	for _, text := range []string{"partition 1", "offset 1 of 2", "open transaction from offset 1"} {
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(told, text) {
			t.Errorf("error %v, told %q; want %q in both", err, told, text)
		}
	}
	l.Patience = time.Second
	must.Be(t, l.Read(t.Context(), asked, got.add), kafkaclient.ErrStalled)

	l.Patience = 0
	ended := make(chan error, 1)
	time.AfterFunc(2*time.Second, func() { ended <- open.EndTransaction(context.Background(), kgo.TryCommit) })
	got = values{}
	if err := l.Read(t.Context(), asked, got.add); err != nil || !got.equal(values{0: upTo(0, 5), 1: upTo(5, 7)}) {
		t.Errorf("when it has ended: %v, %v", got, err)
	}
	must.Do(t, <-ended)
}

// A log whose beginning goes while it is read is read on from where it begins
// then, and that is told. One whose end goes is an error, and so is another one
// of its name.
func TestReadWhatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Brokers(t), 1)
	w.put(w.client, 0, 0, 10)
	l := w.log()
	c, err := l.Fetch(t.Context(), 0, 10)
	if err != nil || c.Next != 10 || len(c.Records) > 0 {
		t.Fatalf("at the end: %+v, %v", c, err)
	}
	w.forget(0, 4)
	var gone kafkaclient.Span
	l.Skipped = func(_ int32, s kafkaclient.Span) { gone = s }
	got := values{}
	if err := l.Read(t.Context(), spans{0: {2, 10}}, got.add); err != nil || !got.equal(values{0: upTo(4, 10)}) ||
		gone != (kafkaclient.Span{From: 2, To: 4}) {
		t.Errorf("read %v, %v, %v are gone; want 4 to 9 and that 2 and 3 are gone", got, err, gone)
	}
	if c, err := l.Fetch(t.Context(), 0, 0); err != nil || c.Next != 4 || c.Start != 4 {
		t.Errorf("before the start: %+v, %v; want to go on at 4", c, err)
	}
	if c, err := l.Fetch(t.Context(), 0, 11); err == nil ||
		!strings.Contains(err.Error(), "log truncated: it now ends at 10") {
		t.Errorf("behind the end: %+v, %v", c, err)
	}
	must.Be(t, l.Read(t.Context(), spans{0: {4, 12}}, got.add), nil, "log truncated: it now ends at 10, not at 12")
	must.Get(w.admin.DeleteTopic(t.Context(), w.topic))(t)
	for try := 0; ; try++ {
		if _, err := w.admin.CreateTopic(t.Context(), 1, 1, nil, w.topic); err == nil {
			break
		}
		if try > 100 {
			t.Fatal("the topic cannot be made again")
		}
	}
	// Until the broker knows of the new topic, it has the old one.
	kafkatest.Eventually(t, "refuse to read another topic of the name", func() (bool, error) {
		return l.Read(t.Context(), spans{0: {4, 10}}, got.add) != nil, nil
	})
}

// A quota, which lets every partition of a broker show nothing for a while, ends
// nothing.
func TestReadThrottled(t *testing.T) {
	t.Parallel()
	k := servers.EmbeddedKafka(t, kfake.NumBrokers(1))
	w := newWorld(t, k.ListenAddrs(), 2)
	w.put(w.client, 0, 0, 5)
	w.put(w.client, 1, 5, 10)
	fetches := 0
	k.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if fetches++; fetches%3 != 0 {
			answer := r.ResponseKind().(*kmsg.FetchResponse)
			answer.ThrottleMillis = 700
			return answer, nil, true
		}
		return nil, nil, false
	})
	l := w.log()
	got := values{}
	if err := l.Read(t.Context(), spans{0: {0, 5}, 1: {0, 5}}, got.add); err != nil ||
		!got.equal(values{0: upTo(0, 5), 1: upTo(5, 10)}) {
		t.Errorf("read %v, %v", got, err)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	must.Be(t, l.Read(limited, spans{0: {0, 5}}, got.add), nil, "throttled by the brokers' quota for 700ms")
}

// A throttled broker does not read from the connection: a fetch that is sent
// before the last is answered would time out, and the reading never end.
func TestOneFetchAtATime(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartKafkaProxy(t)
	servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
	w := newWorld(t, p.Addrs(), 3)
	for id := range int32(3) {
		w.put(w.client, id, 0, 5)
	}
	const delay = 200 * time.Millisecond
	var sent []time.Time
	p.Add(faultproxy.KafkaRule{Fault: faultproxy.DelayReply, Delay: delay, Keys: []kmsg.Key{kmsg.Fetch}, Times: -1,
		When: func(kmsg.Request) bool {
			sent = append(sent, time.Now())
			return true
		}})
	l := w.log()
	got := values{}
	must.Do(t, l.Read(t.Context(), spans{0: {0, 5}, 1: {0, 5}, 2: {0, 5}}, got.add))
	for i := 1; i < len(sent); i++ {
		if after := sent[i].Sub(sent[i-1]); after < delay/2 {
			t.Errorf("fetch %d was sent %v after the one before, which was not answered", i, after)
		}
	}
}

// A small log asks for little, and for one partition after the other.
func TestReadSmall(t *testing.T) {
	t.Parallel()
	k := servers.EmbeddedKafka(t, kfake.NumBrokers(1))
	w := newWorld(t, k.ListenAddrs(), 4)
	for id := range int32(4) {
		w.put(w.client, id, 0, 3)
	}
	var mu sync.Mutex // guards order
	var order []int32
	k.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range r.(*kmsg.FetchRequest).Topics {
			for _, p := range topic.Partitions {
				if order = append(order, p.Partition); p.PartitionMaxBytes > 64<<10 {
					t.Errorf("asks for %d bytes", p.PartitionMaxBytes)
				}
			}
		}
		return nil, nil, false
	})
	l := w.log()
	l.Small = true
	got := values{}
	if err := l.Read(t.Context(), spans{0: {0, 3}, 1: {0, 3}, 2: {0, 3}, 3: {0, 3}}, got.add); err != nil ||
		!got.equal(values{0: upTo(0, 3), 1: upTo(0, 3), 2: upTo(0, 3), 3: upTo(0, 3)}) {
		t.Errorf("read %v, %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := len(slices.Compact(order)); n != 4 {
		t.Errorf("read the partitions in the order %v", order)
	}
}
