package kafkaclient_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

// A TopicReader reads several topics as one, and says what each keeps.
func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	w, old := newWorld(t, addrs, 2), time.Now().Add(-time.Hour).UnixMilli()/1000
	further := &world{T: t, client: w.client, admin: w.admin, topic: w.topic + "b"}
	forEver := "-1"
	kafkatest.CreateTopic(t, addrs, further.topic, 3, map[string]*string{"retention.ms": &forEver})
	w.put(w.client, 1, 1, 3)
	further.put(w.client, 1, 3, 5)
	w.put(w.client, 1, 5, 6) // the times of the topics alternate
	further.put(w.client, 2, 6, 7)
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = addrs
	r := kafkaclient.TopicReader{Open: cfg.Open, Name: w.topic, Further: []string{further.topic}}
	if r.Topic() != w.topic+", "+further.topic {
		t.Errorf("named %s", r.Topic())
	}
	spans, err := r.Bounds(t.Context())
	if err != nil || len(spans) != 5 {
		t.Fatalf("bounds %v, %v", spans, err)
	}
	read := func() (got []string) {
		must.Do(t, r.Read(t.Context(), spans, func(rec *kgo.Record) error {
			got = append(got, fmt.Sprintf("%s/%d %s", strings.TrimPrefix(rec.Topic, w.topic), rec.Partition, rec.Value))
			return nil
		}))
		slices.Sort(got)
		return got
	}
	if diff := cmp.Diff([]string{"/1 1", "/1 2", "/1 5", "b/1 3", "b/1 4", "b/2 6"}, read()); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	var order []string
	if err := r.Merge(t.Context(), spans, func(rec *kgo.Record) error {
		order = append(order, string(rec.Value))
		return nil
	}, func() error { return nil }); err != nil || strings.Join(order, "") != "123456" {
		t.Errorf("merged %v, %v", order, err)
	}
	newest, err := r.Newest(t.Context(), spans, 4, func(rec *kgo.Record) bool { return string(rec.Value) != "4" })
	if err != nil || len(newest) != 4 || string(newest[0].Value) != "2" || string(newest[1].Value) != "3" ||
		string(newest[3].Value) != "6" {
		t.Errorf("the newest are %v, %v", newest, err)
	}
	all, early := must.Get(r.After(t.Context(), 0))(t), must.Get(r.After(t.Context(), -5000))(t)
	if !maps.Equal(early, all) {
		t.Errorf("from a time before the epoch on %v, want %v", early, all)
	}
	later := must.Get(r.After(t.Context(), 5000))(t)
	var parts []int32
	for _, id := range slices.Sorted(maps.Keys(later)) {
		parts = append(parts, kafkaclient.PartitionIn(id))
		if s := spans[id]; later[id] < s.To {
			spans[id] = kafkaclient.Span{From: later[id], To: s.To}
		} else {
			delete(spans, id)
		}
	}
	if diff := cmp.Diff([]string{"/1 5", "b/2 6"}, read()); diff != "" || !slices.Equal(parts, []int32{0, 1, 0, 1, 2}) {
		t.Errorf("from a time on, partitions %v (-want +got):\n%s", parts, diff)
	}

	kept := func() (first, second kafkaclient.Kept) {
		t.Helper()
		k, err := r.Kept(t.Context())
		if err != nil || len(k) != 2 || k[0].Topic != w.topic || k[1].Topic != further.topic || k[0].ID == k[1].ID {
			t.Fatalf("%s: kept %+v, %v", r.Topic(), k, err)
		}
		return k[0], k[1]
	}
	if a, b := kept(); !a.Whole || a.Expired || !b.Whole || b.Expired {
		t.Errorf("kept %+v, %+v", a, b)
	}
	w.forget(1, 2)
	if a, b := kept(); a.Whole || !a.Expired || a.From < old || !b.Whole || b.From != 0 {
		t.Errorf("kept %+v, %+v", a, b)
	}
}
