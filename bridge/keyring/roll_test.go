package keyring

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

// TestDueAfter: a deleted key, and nothing after the segment has taken its last record, needs a
// record that closes the segment.
func TestDueAfter(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	gone := &kgo.Record{Timestamp: at}
	soon := &kgo.Record{Timestamp: at.Add(time.Minute), Value: []byte("x")}
	late := &kgo.Record{Timestamp: at.Add(rollAfter), Value: []byte("x")}
	var due time.Time
	for _, step := range []struct {
		record *kgo.Record
		want   time.Time
	}{{soon, time.Time{}}, {gone, at.Add(rollAfter)}, {soon, at.Add(rollAfter)}, {late, time.Time{}}} {
		if due = dueAfter(due, step.record); !due.Equal(step.want) {
			t.Errorf("after %v due %v, want %v", step.record.Timestamp, due, step.want)
		}
	}
}

// rollConfig returns a topic of keys of the test's own.
func rollConfig(t *testing.T, configs map[string]*string) Config {
	t.Helper()
	m := must.Get(seal.ParseMaster("m1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="))(t)
	cfg := Config{Kafka: kafkaclient.DefaultConfig(), Topic: "roll" + time.Now().Format("150405.000000"), Master: m}
	cfg.Kafka.Brokers = kafkatest.Brokers(t)
	kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, configs)
	return cfg
}

// TestPolicyChanges: a running process stops once the topic deletes keys after a while, and goes on
// once it keeps them again.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	cfg := rollConfig(t, map[string]*string{"cleanup.policy": new("compact")})
	r := New(cfg)
	t.Cleanup(r.Close)
	r.look = time.Millisecond
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...))
	must.Do(t, err)
	t.Cleanup(client.Close)
	for _, policy := range []string{"compact", "compact,delete", "compact"} {
		kafkatest.SetConfig(t, kadm.NewClient(client), cfg.Topic, "cleanup.policy", policy)
		kafkatest.Eventually(t, "follow the policy "+policy, func() (bool, error) {
			_, err := r.Of([]string{"anna"})
			return (err == nil) == (policy == "compact") && (err == nil || bridge.FaultOf(err).Code == "cleanup_policy"), nil
		})
	}
}

// TestRoll: the record is published once it is due, and not before.
func TestRoll(t *testing.T) {
	t.Parallel()
	cfg := rollConfig(t, map[string]*string{"cleanup.policy": new("compact")})
	topic, err := cfg.open(t.Context(), cfg.Kafka.CanKeepKeys)
	if err != nil {
		t.Fatal(err)
	}
	defer topic.client.Close()
	for want, due := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Second)} {
		topic.rollAt = due
		for range 2 { // it is published once
			must.Get(publish(t.Context(), topic.client, cfg.Topic, topic.roll()))(t)
		}
		if end, err := topic.end(t.Context()); err != nil || end != int64(want) {
			t.Errorf("due %v: %d records, %v; want %d", due, end, err, want)
		}
	}
	read := 0
	err = topic.to(t.Context(), 1, func(_ *kgo.Record, f *seal.Record) {
		if read++; f != nil {
			t.Errorf("the record has a meaning: %+v", f)
		}
	})
	if err != nil || read != 1 {
		t.Errorf("%d records read, %v", read, err)
	}
}

// TestRollUnfollowed: Forget and Rewrap close the segment with deleted keys, since no bridge follows a former topic. Each
// does so once it is due, and not again.
func TestRollUnfollowed(t *testing.T) {
	t.Parallel()
	cfg := rollConfig(t, map[string]*string{"cleanup.policy": new("compact")})
	cfg.TransactionalID = cfg.Topic + ".rewrap"
	topic := must.Get(cfg.open(t.Context(), cfg.Kafka.CanKeepKeys))(t)
	defer topic.client.Close()
	topic.log.Uncommitted = true // the marker that ends a transaction may come late
	name, long := cfg.Master.Name("anna"), time.Now().Add(-2*rollAfter)
	mark, since := cfg.Master.Forget(name, long)
	gone := []*kgo.Record{{Key: mark, Value: since, Timestamp: long}, {Key: seal.RecordKey(name, seal.KeyID{1}), Timestamp: long}}
	rolls := func() (n int) {
		end, err := topic.end(t.Context())
		topic.next = 0
		if err == nil {
			err = topic.to(t.Context(), end, func(r *kgo.Record, _ *seal.Record) {
				if string(r.Key) == seal.Roll {
					n++
				}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := 0
	for name, call := range map[string]func() error{
		"forget": func() error { _, err := Forget(t.Context(), cfg, "anna", true); return err },
		"rewrap": func() error { _, err := Rewrap(t.Context(), cfg, true); return err },
	} {
		must.Get(publish(t.Context(), topic.client, cfg.Topic, gone))(t)
		want++
		for range 2 {
			if err := call(); err != nil || rolls() != want {
				t.Errorf("%s: %d records that close a segment, %v; want %d", name, rolls(), err, want)
			}
		}
	}
}

// TestForgottenKeyIsGone: Apache Kafka deletes a forgotten key from its disks, once a record closes
// the segment. The settings are those of the topic, with shorter times.
func TestForgottenKeyIsGone(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("requires TEST_REAL: embedded Kafka compacts no segments")
	}
	cfg := rollConfig(t, map[string]*string{"cleanup.policy": new("compact"), "segment.ms": new("1"),
		"max.compaction.lag.ms": new("1"), "min.cleanable.dirty.ratio": new("0.01"), "file.delete.delay.ms": new("1")})
	r := New(cfg)
	defer r.Close()
	must.Get(r.Of([]string{"anna"}))(t)
	topic := must.Get(cfg.open(t.Context(), cfg.Kafka.CanKeepKeys))(t)
	defer topic.client.Close()
	var wrapped []byte
	must.Do(t, topic.to(t.Context(), 1, func(r *kgo.Record, _ *seal.Record) { wrapped = r.Value }))
	_, secret, _ := bytes.Cut(wrapped, []byte(`"key":"`))
	// onDisk looks for the key: found is in how many files, of how many.
	onDisk := func() (found, all int) {
		names, _ := filepath.Glob(filepath.Join(os.TempDir(), "exportbridge-kafka-*", "*", "data", cfg.Topic+"-0", "*.log*"))
		for _, name := range names {
			text, _ := os.ReadFile(name) // or Kafka has just deleted it
			if all++; bytes.Contains(text, secret[:16]) {
				found++
			}
		}
		return found, all
	}
	had, files := onDisk()
	if files > 0 && had != 1 {
		t.Fatalf("the key is in %d of %d files", had, files)
	}
	must.Get(Forget(t.Context(), cfg, "anna", true))(t)
	kafkatest.Eventually(t, "delete the key", func() (bool, error) {
		topic.rollAt = time.Now().Add(-time.Second)
		if _, err := publish(t.Context(), topic.client, cfg.Topic, topic.roll()); err != nil {
			return false, err
		}
		end, err := topic.end(t.Context())
		gone := true
		if topic.next = 0; err == nil {
			err = topic.to(t.Context(), end, func(_ *kgo.Record, f *seal.Record) {
				gone = gone && (f == nil || f.Secret == nil)
			})
		}
		found, _ := onDisk()
		return gone && found == 0, err
	})
	if _, files := onDisk(); files == 0 {
		t.Log("the segments are on another machine: only records were looked at")
	}
}
