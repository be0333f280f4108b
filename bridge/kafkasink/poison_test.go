package kafkasink_test

import (
	"encoding/base64"
	"errors"
	"hash/maphash"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/exportapi/redact"
	"exportbridge/bridge/kafkastream"
)

// poisonEvents sets how many events go through TestPoisonedPages.
const poisonEvents = "POISON_EVENTS"

// TestPoisonedPages runs the real engine, source and sink with pages whose
// memory is overwritten the moment that they are released, over connections to
// Kafka that are cut before, within and after requests. A later read of a page would show
// in the topic. With rules for private data, events are in other memory of the page than its
// body.
func TestPoisonedPages(t *testing.T) {
	t.Parallel()
	events := 40_000
	if n, err := strconv.Atoi(os.Getenv(poisonEvents)); err == nil {
		events = n
	}
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		for name, private := range map[string]redact.Config{"plain": {}, "with rules": {
			Hash: []string{"/userId"}, Drop: []string{"/context/url"}, Mask: []string{"/sessionId:last4"},
			Keys: bridge.Secret("k1 " + base64.StdEncoding.EncodeToString(make([]byte, 32))),
		}} {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				t.Parallel()
				poisoned(t, mode, private, events)
			})
		}
	}
}

func poisoned(t *testing.T, mode bridge.Mode, private redact.Config, events int) {
	proxy := faultproxy.StartKafkaProxy(t)
	kafkatest.Fake(t, kfake.ListenFn(proxy.Listen), kfake.DataDir(t.TempDir()))
	cfg := config(t, proxy.Addrs(), inMode(mode))
	// A page is whole while a record of it is shown.
	var sampled, spoilt atomic.Int64
	cfg.Sampled = func(r *kgo.Record) {
		sampled.Add(1)
		if _, ok := exportsim.IndexOf(r.Value); !ok {
			spoilt.Add(1)
		}
	}
	s := open(t, cfg)
	cuts := []*faultproxy.RuleStats{
		proxy.Add(faultproxy.KafkaRule{Fault: faultproxy.CutBeforeRequest, Keys: []kmsg.Key{kmsg.Produce}, Chance: 0.02,
			Seed: 1, Times: -1}),
		proxy.Add(faultproxy.KafkaRule{Fault: faultproxy.DropReply, Keys: []kmsg.Key{kmsg.Produce}, Chance: 0.02, Seed: 2,
			Times: -1}),
	}
	source := &poisoner{Source: exportOf(t, private, events), seed: maphash.MakeSeed()}
	b := must.Get(engine.New(engine.Config{
		Stream: "events", Mode: mode, Origin: bridge.Origin{Resource: "events"}, PageSize: 1000, Owner: "me",
		PollInterval: time.Second, PollIntervalMax: time.Second,
		PrefetchPages: 8, PrefetchBytes: 4 << 20, RetryMax: time.Second,
		EmptyPages: 5, OnInvalidCursor: "stop", OnSharedID: "publish", OnCheckpointLoss: "kafka",
		ShutdownTimeout: time.Second, Limits: engine.Limits{Once: true},
	}, engine.Ports{Source: source, Sink: s, Store: bridgetest.NewStore(t, "events"), Inbox: bridgetest.NewInbox(t)}))(t)
	must.Do(t, b.Run(t.Context()))
	cut := 0
	for _, c := range cuts {
		cut += c.Count()
		c.Remove()
	}
	if cut == 0 {
		t.Error("no connection was cut")
	}
	t.Logf("%d events, %d connections cut, %d pages poisoned", events, cut, source.pages.Load())
	if len(source.sums) != events {
		t.Errorf("%d events were read", len(source.sums))
	}
	source.checkTopic(t, cfg, mode)
	if sampled.Load() < int64(events/1000) || spoilt.Load() > 0 {
		t.Errorf("of %d pages %d were sampled, %d of them after their release", source.pages.Load(), sampled.Load(),
			spoilt.Load())
	}
}

// exportOf is the real client of a simulated export.
func exportOf(t *testing.T, private redact.Config, events int) bridge.Source {
	t.Helper()
	api := must.Get(exportsim.New(exportsim.Config{Seed: 5, Events: events, Gzip: true}))(t)
	t.Cleanup(api.Close)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	cfg := exportapi.DefaultConfig()
	cfg.URL, cfg.APIKey, cfg.Private = server.URL, "any", private
	client := must.Get(exportapi.New(cfg))(t)
	t.Cleanup(client.Close)
	return client
}

// poisoner remembers what each event is, and overwrites a page when it is
// released.
type poisoner struct {
	bridge.Source
	seed  maphash.Seed
	sums  []uint64 // of the events, by their number
	pages atomic.Int64
}

func (s *poisoner) Decode(p *bridge.Page) error {
	if err := s.Source.Decode(p); err != nil {
		return err
	}
	for i := range p.Events {
		n, ok := exportsim.IndexOf(p.Events[i].Raw)
		if !ok {
			return errNotSimulated
		}
		for len(s.sums) <= n {
			s.sums = append(s.sums, 0)
		}
		s.sums[n] = s.sum(p.Events[i].Key, p.Events[i].Raw)
	}
	recycle, body := p.Recycle, p.Body[:cap(p.Body)]
	p.Recycle = func(p *bridge.Page) {
		s.pages.Add(1)
		for i := range body {
			body[i] = 0xFF // in no JSON and no UTF-8
		}
		recycle(p)
	}
	return nil
}

func (s *poisoner) sum(key, value []byte) uint64 {
	return maphash.Bytes(s.seed, key) ^ maphash.Bytes(s.seed, value)
}

var errNotSimulated = errors.New("no event of the simulator")

// checkTopic reads the topic to its end: every event is there as it was sent,
// in order within a partition, and in exactly-once mode only once.
func (s *poisoner) checkTopic(t *testing.T, cfg kafkastream.Config, mode bridge.Mode) {
	t.Helper()
	client := connect(t, cfg, kgo.ConsumeTopics(cfg.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ends := must.Get(kadm.NewClient(client).ListEndOffsets(t.Context(), cfg.Topic))(t)
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	seen, newest := make([]int, len(s.sums)), make(map[int32]int)
	for len(left) > 0 {
		fetches := client.PollFetches(t.Context())
		must.Do(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			n, ok := exportsim.IndexOf(r.Value)
			if !ok || n >= len(s.sums) || s.sum(r.Key, r.Value) != s.sums[n] {
				t.Fatalf("partition %d offset %d: %.80q is no event that was read", r.Partition, r.Offset, r.Value)
			}
			if last, any := newest[r.Partition]; any && n <= last && mode == bridge.ExactlyOnce {
				t.Fatalf("partition %d offset %d: event %d comes after event %d", r.Partition, r.Offset, n, last)
			}
			newest[r.Partition] = n
			seen[n]++
		})
	}
	for n, times := range seen {
		if times == 0 || times > 1 && mode == bridge.ExactlyOnce {
			t.Fatalf("event %d is in the topic %d times", n, times)
		}
	}
}
