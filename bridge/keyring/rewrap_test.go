package keyring

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/seal"
)

// masters returns the master keys with these ids, in this order.
func masters(t *testing.T, ids ...int) *seal.Master {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		key := bytes.Repeat([]byte{byte(id)}, 32)
		fmt.Fprintf(&text, "m%d %s\n", id, base64.StdEncoding.EncodeToString(key))
	}
	return must.Get(seal.ParseMaster(text.String()))(t)
}

// rewrapConfig returns a topic with keys of subjects, wrapped by m2 of m1 and m2.
func rewrapConfig(t *testing.T, subjects ...string) Config {
	t.Helper()
	cfg := rollConfig(t, map[string]*string{"cleanup.policy": new("compact")})
	cfg.Master, cfg.TransactionalID = masters(t, 1, 2), cfg.Topic+".rewrap"
	idsOf(t, cfg, subjects...)
	return cfg
}

// idsOf returns the ids of the keys that a new process uses.
func idsOf(t *testing.T, cfg Config, subjects ...string) (ids []seal.KeyID) {
	t.Helper()
	r := New(cfg)
	defer r.Close()
	keys := must.Get(r.Of(subjects))(t)
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	return ids
}

// records returns the records in the topic, also those that are not committed if it is uncommitted.
func records(t *testing.T, cfg Config, uncommitted bool) (all []*kgo.Record) {
	t.Helper()
	topic := must.Get(cfg.open(t.Context(), cfg.Kafka.CanKeepKeys))(t)
	defer topic.client.Close()
	topic.log.Uncommitted = uncommitted
	end, err := topic.end(t.Context())
	if err == nil {
		err = topic.to(t.Context(), end, func(r *kgo.Record, f *seal.Record) {
			if f != nil {
				all = append(all, r)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// compacted returns the last one of the records of each key, in their order.
func compacted(t *testing.T, cfg Config, uncommitted bool) (all []*kgo.Record) {
	t.Helper()
	for _, r := range records(t, cfg, uncommitted) {
		all = append(slices.DeleteFunc(all, func(o *kgo.Record) bool { return bytes.Equal(o.Key, r.Key) }), r)
	}
	return all
}

// wantNoKey wants no key of a subject, whoever reads.
func wantNoKey(t *testing.T, cfg Config, subject string) {
	t.Helper()
	name := cfg.Master.Name(subject)
	for _, uncommitted := range []bool{false, true} {
		for _, r := range compacted(t, cfg, uncommitted) {
			if f, err := cfg.Master.Read(r.Key, r.Value); err != nil || f != nil && f.Name == name && f.Secret != nil {
				t.Errorf("uncommitted %t: a key of %s at offset %d, %v", uncommitted, subject, r.Offset, err)
			}
		}
	}
}

func rewrapped(t *testing.T, cfg Config, execute bool) Rewrapping {
	t.Helper()
	return must.Get(Rewrap(t.Context(), cfg, execute))(t)
}

// beganRewrap returns a rewrap that has read the topic.
func beganRewrap(t *testing.T, cfg Config) *rewrap {
	t.Helper()
	w := must.Get(cfg.openRewrap(t.Context(), true))(t)
	t.Cleanup(w.client.Close)
	must.Do(t, w.read(t.Context(), 0))
	return w
}

// TestRewrap: a dry run changes nothing. Then all keys need the last master key only, each subject
// has the key that it had, also where it has two, and after compaction the other line may leave.
func TestRewrap(t *testing.T) {
	t.Parallel()
	cfg := rewrapConfig(t, "anna", "bert", "cleo")
	name := cfg.Master.Name("bert") // for which another process has made a key too late
	key, value := cfg.Master.Make(name)
	produceIn(t, cfg, key, value)
	must.Get(Forget(t.Context(), cfg, "cleo", true))(t)
	key, value = cfg.Master.Make(cfg.Master.Name("cleo")) // after the mark: never used
	produceIn(t, cfg, key, value)
	had := idsOf(t, cfg, "anna", "bert", "cleo")
	cfg.Master = masters(t, 1, 2, 3)
	end := len(compacted(t, cfg, true))
	if got := rewrapped(t, cfg, false); fmt.Sprint(got) != "{m3 map[m2:4] map[m2:5] 0 0}" {
		t.Errorf("a dry run: %+v", got)
	}
	if len(compacted(t, cfg, true)) != end {
		t.Error("a dry run has published")
	}
	if got := rewrapped(t, cfg, true); fmt.Sprint(got) != "{m3 map[m3:3] map[m2:5 m3:3] 3 1}" {
		t.Errorf("%+v", got)
	}
	if got := rewrapped(t, cfg, true); got.Rewrapped != 0 || got.Deleted != 0 || got.Keys["m3"] != 3 {
		t.Errorf("again: %+v", got)
	}
	wantNoKey(t, cfg, "cleo")
	all := compacted(t, cfg, false)
	cfg.Topic += ".compacted"
	kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
	for _, r := range all {
		produceIn(t, cfg, r.Key, r.Value)
	}
	cfg.Master = masters(t, 1, 3)
	if now := idsOf(t, cfg, "anna", "bert", "cleo"); !slices.Equal(now, had) {
		t.Errorf("keys %v, were %v", now, had)
	}
}

func produceIn(t *testing.T, cfg Config, key, value []byte) {
	t.Helper()
	client := must.Get(cfg.Kafka.Open())(t)
	defer client.Close()
	r := &kgo.Record{Topic: cfg.Topic, Key: key, Value: value}
	must.Do(t, client.ProduceSync(t.Context(), r).FirstErr())
}

// TestRewrapDisturbed: whatever others publish between the read of a key and the record that wraps
// it again, no key comes back, and the keys in use stay.
func TestRewrapDisturbed(t *testing.T) {
	t.Parallel()
	for what, disturb := range map[string]func(*testing.T, Config){
		"forgotten": func(t *testing.T, cfg Config) {
			if _, err := Forget(t.Context(), cfg, "anna", true); err != nil {
				t.Error(err)
			}
		},
		"marked": func(t *testing.T, cfg Config) {
			key, value := cfg.Master.Forget(cfg.Master.Name("anna"), time.Now())
			produceIn(t, cfg, key, value)
		},
		"another key": func(t *testing.T, cfg Config) {
			key, value := cfg.Master.Make(cfg.Master.Name("anna"))
			produceIn(t, cfg, key, value)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cfg := rewrapConfig(t, "anna", "bert")
			had := idsOf(t, cfg, "anna", "bert")
			cfg.Master = masters(t, 1, 2, 3)
			w := beganRewrap(t, cfg)
			disturb(t, cfg)
			records, of := w.next()
			if _, done, err := w.commit(t.Context(), records, of); done || err != nil {
				t.Fatalf("committed %t, %v", done, err)
			}
			if got := rewrapped(t, cfg, true); got.Keys["m2"] != 0 || got.Keys["m3"] == 0 {
				t.Errorf("another process: %+v", got)
			}
			now := idsOf(t, cfg, "anna", "bert")
			if now[1] != had[1] || (now[0] == had[0]) != (what == "another key") {
				t.Errorf("keys %v, were %v", now, had)
			}
			if first := compacted(t, cfg, false)[0]; what == "another key" && !bytes.Equal(first.Key,
				seal.RecordKey(cfg.Master.Name("anna"), had[0])) && !bytes.Equal(first.Key,
				seal.RecordKey(cfg.Master.Name("bert"), had[1])) {
				t.Errorf("after compaction the first key is %s", first.Key)
			}
		})
	}
}

// TestRewrapTellsOthers: a reader that takes records of open transactions has no key that was deleted
// before one of them.
func TestRewrapTellsOthers(t *testing.T) {
	t.Parallel()
	cfg := rewrapConfig(t, "anna", "bert")
	cfg.Master = masters(t, 1, 2, 3)
	w := beganRewrap(t, cfg)
	must.Get(Forget(t.Context(), cfg, "anna", true))(t)
	must.Do(t, w.all(t.Context()))
	wantNoKey(t, cfg, "anna")
	if w.Rewrapped != 1 || w.Deleted != 0 {
		t.Errorf("%+v", w.Rewrapping)
	}
}

// TestRewrapDies: a process that dies within the transaction leaves nothing, and the next one goes on
// at once. What is left of the dead one cannot commit.
func TestRewrapDies(t *testing.T) {
	t.Parallel()
	cfg := rewrapConfig(t, "anna")
	cfg.Master = masters(t, 1, 2, 3)
	dead := beganRewrap(t, cfg)
	err := dead.client.BeginTransaction()
	if err != nil {
		t.Fatal(err)
	}
	records, _ := dead.next()
	if _, err = publish(t.Context(), dead.client, cfg.Topic, records); err != nil {
		t.Fatal(err)
	}
	if got := rewrapped(t, cfg, true); got.Rewrapped != 1 || got.Keys["m3"] != 1 {
		t.Errorf("%+v", got)
	}
	if _, err = Forget(t.Context(), cfg, "anna", true); err != nil {
		t.Fatal(err)
	}
	if err = dead.client.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the transaction of a dead process is committed")
	}
	if got := rewrapped(t, cfg, false); len(got.Keys) != 0 {
		t.Errorf("after forgetting: %+v", got)
	}
}

// TestRewrapWhileOthersForget: keys are wrapped again without end while each subject is forgotten, and
// processes make keys. No key is wrapped again behind the mark of its subject, not even for a moment,
// and in the end no subject has a key, whoever reads.
func TestRewrapWhileOthersForget(t *testing.T) {
	t.Parallel()
	var subjects []string
	for i := range 12 {
		subjects = append(subjects, fmt.Sprint("subject", i))
	}
	cfg := rewrapConfig(t, subjects...)
	had := idsOf(t, cfg, subjects...)
	cfg.Master = masters(t, 1, 2, 3)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for turn := 0; ctx.Err() == nil; turn++ {
			own := cfg // the last line is another one each time
			own.Master = masters(t, 1, 2+turn%2, 3-turn%2)
			if _, err := Rewrap(t.Context(), own, true); err != nil {
				t.Error(err)
				return
			}
		}
	})
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			idsOf(t, cfg, subjects[i%len(subjects)], fmt.Sprint("other", i))
		}
	})
	for _, s := range subjects {
		if _, err := Forget(t.Context(), cfg, s, true); err != nil {
			t.Error(err)
		}
	}
	stop()
	running.Wait()
	for i, s := range subjects {
		if ids := idsOf(t, cfg, s); ids[0] != (seal.KeyID{}) {
			t.Errorf("%s has a key in use", s)
		}
		name, marked := cfg.Master.Name(s), false
		for _, r := range records(t, cfg, false) {
			if f, err := cfg.Master.Read(r.Key, r.Value); err != nil || f.Name == name && f.Forgotten != nil {
				marked = true
			} else if marked && f.Name == name && f.ID == had[i] && f.Secret != nil {
				t.Errorf("the key of %s is back at offset %d", s, r.Offset)
			}
		}
	}
	rewrapped(t, cfg, true) // deletes the keys after the marks, which nothing uses
	for _, s := range subjects {
		wantNoKey(t, cfg, s)
	}
}
