package keyring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

func master(t *testing.T, keys ...byte) *seal.Master {
	t.Helper()
	var text strings.Builder
	for i, b := range keys {
		fmt.Fprintf(&text, "m%d %s\n", i, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)))
	}
	return must.Get(seal.ParseMaster(text.String()))(t)
}

// config returns a topic of keys of the test's own.
func config(t *testing.T) keyring.Config {
	t.Helper()
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: fmt.Sprintf("keys%d", time.Now().UnixNano()),
		Master: master(t, 1)}
	cfg.Kafka.Brokers = kafkatest.Brokers(t)
	kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
	return cfg
}

func ring(t *testing.T, cfg keyring.Config) *keyring.Ring {
	t.Helper()
	r := keyring.New(cfg)
	t.Cleanup(r.Close)
	return r
}

func keysOf(t *testing.T, r seal.Keys, subjects ...string) []*seal.Key {
	t.Helper()
	keys, err := r.Of(subjects)
	if err != nil || len(keys) != len(subjects) {
		t.Fatalf("%v: %d keys, %v", subjects, len(keys), err)
	}
	return keys
}

// forget forgets a subject.
func forget(t *testing.T, cfg keyring.Config, subject string, execute bool) keyring.Forgetting {
	t.Helper()
	return must.Get(keyring.Forget(t.Context(), cfg, subject, execute))(t)
}

// produce publishes a record to the topic of keys.
func produce(t *testing.T, cfg keyring.Config, key, value []byte) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...), kgo.DefaultProduceTopic(cfg.Topic)))(t)
	defer client.Close()
	must.Do(t, client.ProduceSync(t.Context(), &kgo.Record{Key: key, Value: value}).FirstErr())
}

// TestOneKey: processes that make keys of a subject at once agree on one, which a later process
// reads, and a Reader opens its values.
func TestOneKey(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	const processes = 4
	subjects := []string{"anna", "bert", "cleo"}
	var all [processes][]*seal.Key
	var running sync.WaitGroup
	for i := range processes {
		r := ring(t, cfg)
		running.Go(func() {
			keys, err := r.Of(subjects)
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = keys
		})
	}
	running.Wait()
	later := keysOf(t, ring(t, cfg), subjects...)
	for i := range processes {
		for n := range all[i] {
			if all[i][n].ID != later[n].ID {
				t.Errorf("process %d has another key of %s", i, subjects[n])
			}
		}
	}
	reader := must.Get(keyring.NewReader(t.Context(), cfg))(t)
	defer reader.Close()
	for _, key := range append(later, keysOf(t, ring(t, cfg), "new")...) { // which the reader has not read yet
		value := strings.Trim(string(key.Append(nil, "/email", []byte(`"a@b"`))), `"`)
		if plain, err := reader.Open(t.Context(), "/email", value); err != nil || string(plain) != `"a@b"` {
			t.Errorf("%s, %v", plain, err)
		}
	}
	if _, err := reader.Open(t.Context(), "/email", "a@b"); !errors.Is(err, seal.ErrNotSealed) {
		t.Errorf("a plain value: %v", err)
	}
}

// TestForget: a dry run changes nothing. Then no key of the subject is left, running and later
// processes use none, and those of other subjects stay.
func TestForget(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	running := ring(t, cfg)
	keys := keysOf(t, running, "anna", "bert")
	value := strings.Trim(string(keys[0].Append(nil, "/email", []byte(`"a@b"`))), `"`)
	if f := forget(t, cfg, "anna", false); f.Keys != 1 || f.Deleted != 0 || f.Forgotten != nil {
		t.Errorf("a dry run: %+v", f)
	}
	if again := keysOf(t, ring(t, cfg), "anna")[0]; again.ID != keys[0].ID {
		t.Error("a dry run changed the key")
	}
	if f := forget(t, cfg, "anna", true); f.Keys != 1 || f.Deleted != 1 || f.Forgotten == nil {
		t.Errorf("%+v", f)
	}
	kafkatest.Eventually(t, "tell the running process", func() (bool, error) {
		keys, err := running.Of([]string{"anna"})
		return err == nil && keys[0] == seal.Forgotten, err
	})
	after := keysOf(t, ring(t, cfg), "anna", "bert")
	if after[0] != seal.Forgotten || after[1].ID != keys[1].ID {
		t.Errorf("a later process has %+v", after)
	}
	if f := forget(t, cfg, "anna", true); f.Keys != 0 || f.Deleted != 0 || f.Forgotten == nil {
		t.Errorf("again: %+v", f)
	}
	reader := must.Get(keyring.NewReader(t.Context(), cfg))(t)
	defer reader.Close()
	if plain, err := reader.Open(t.Context(), "/email", value); !errors.Is(err, seal.ErrForgotten) {
		t.Errorf("%s, %v", plain, err)
	}
	// Without a key so far: the mark alone counts.
	if f := forget(t, cfg, "never seen", true); f.Keys != 0 || f.Forgotten == nil {
		t.Errorf("a subject without keys: %+v", f)
	}
	if keysOf(t, ring(t, cfg), "never seen")[0] != seal.Forgotten {
		t.Error("a key is made after the mark")
	}
}

// TestReaderReadsMark: a mark alone makes values unreadable. Kafka removes a record without a value
// after a day, which a Reader that was idle for longer never reads; and forgetting may end between
// the two.
func TestReaderReadsMark(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	key := keysOf(t, ring(t, cfg), "anna")[0]
	reader := must.Get(keyring.NewReader(t.Context(), cfg))(t)
	defer reader.Close()
	mark, value := cfg.Master.Forget(cfg.Master.Name("anna"), time.Now())
	produce(t, cfg, mark, value)
	later := keysOf(t, ring(t, cfg), "bert")[0] // unknown: the reader reads what was added
	open := func(k *seal.Key) error {
		_, err := reader.Open(t.Context(), "/email", strings.Trim(string(k.Append(nil, "/email", []byte(`"a@b"`))), `"`))
		return err
	}
	if err := open(later); err != nil {
		t.Error(err)
	}
	if err := open(key); !errors.Is(err, seal.ErrForgotten) {
		t.Errorf("after the mark: %v", err)
	}
}

// TestDeletedTopic: a running process stops once the topic is deleted: nobody could read what it
// encrypts. A topic that was created again since has lost all keys.
func TestDeletedTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	running := ring(t, cfg)
	keysOf(t, running, "anna")
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...)))(t)
	defer client.Close()
	must.Get(kadm.NewClient(client).DeleteTopic(t.Context(), cfg.Topic))(t)
	for _, code := range []string{"topic_missing", "topic_recreated"} {
		kafkatest.Eventually(t, "end with "+code, func() (bool, error) {
			_, err := running.Of([]string{"anna"})
			return err != nil && bridge.FaultOf(err).Code == code, nil
		})
		if code == "topic_missing" {
			kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
		}
	}
}

// TestOutage: while Kafka is away nobody knows who is forgotten, and no key is used for long. Then
// all goes on.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := kafkatest.NewServer(t)
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: "keys", Master: master(t, 1)}
	cfg.Kafka.Brokers = server.Addr
	kafkatest.CreateTopic(t, server.Addr, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
	running := ring(t, cfg)
	had := keysOf(t, running, "anna")[0]
	server.Stop()
	kafkatest.Eventually(t, "stop the ring", func() (bool, error) {
		_, err := running.Of([]string{"anna"})
		if err != nil {
			kafkatest.AsFault(t, err, bridge.Transient, "")
		}
		return err != nil, nil
	})
	server.Start()
	kafkatest.Eventually(t, "read the topic again", func() (bool, error) {
		keys, err := running.Of([]string{"anna"})
		return err == nil && keys[0].ID == had.ID, nil
	})
}

// TestForgetWhileKeysAreMade: whatever the order of the mark and new keys, no key that a process
// has used is left.
func TestForgetWhileKeysAreMade(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var makers sync.WaitGroup
	for range 3 {
		r := ring(t, cfg)
		makers.Go(func() {
			if _, err := r.Of([]string{"anna"}); err != nil {
				t.Error(err)
			}
		})
	}
	forget(t, cfg, "anna", true)
	makers.Wait()
	if keysOf(t, ring(t, cfg), "anna")[0] != seal.Forgotten {
		t.Error("a key is in use after the mark")
	}
	forget(t, cfg, "anna", true) // those after the mark, which no value has
	if f := forget(t, cfg, "anna", false); f.Keys != 0 {
		t.Errorf("%+v", f)
	}
}

// TestFaults: a topic that would lose keys, another master key and a foreign record block the
// stream; a missing topic is made only if that is allowed.
func TestFaults(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	keysOf(t, ring(t, cfg), "anna")
	wrong := func(t *testing.T, cfg keyring.Config, reason bridge.Reason, want string) {
		t.Helper()
		_, err := ring(t, cfg).Of(nil) // as of a page without events, with which a stream begins
		if f := kafkatest.AsFault(t, err, bridge.Permanent, reason); !strings.Contains(f.Error()+f.Hint, want) {
			t.Errorf("%v, hint %q: want %q", f, f.Hint, want)
		}
		_, err = keyring.Forget(t.Context(), cfg, "anna", true)
		kafkatest.AsFault(t, err, bridge.Permanent, reason)
	}
	other := cfg
	other.Master = master(t, 2)
	wrong(t, other, bridge.ReasonConfig, "restore the first line of EVENT_ENCRYPT_KEY")
	for name, topic := range map[string]struct {
		partitions int32
		policy     string
		want       string
	}{
		"deleted": {1, "delete", "keys would be deleted"}, "both": {1, "compact,delete", "keys would be deleted"},
		"two": {2, "compact", "1 is required"},
	} {
		bad := cfg
		bad.Topic += name
		kafkatest.CreateTopic(t, cfg.Kafka.Brokers, bad.Topic, topic.partitions,
			map[string]*string{"cleanup.policy": &topic.policy})
		wrong(t, bad, bridge.ReasonTopic, topic.want)
	}
	missing := cfg
	missing.Topic += "missing"
	wrong(t, missing, bridge.ReasonTopic, "restore the topic")

	produce(t, cfg, []byte("x"), []byte("y"))
	wrong(t, cfg, bridge.ReasonConfig, "who writes to the topic")
}

// TestPool: users of a topic share a Ring, and the last one closes it.
func TestPool(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var pool keyring.Pool
	a, b := pool.Use(cfg), pool.Use(cfg)
	id := keysOf(t, a, "anna")[0].ID
	a.Close()
	a.Close()
	if keysOf(t, b, "anna")[0].ID != id {
		t.Error("the other user has another key")
	}
	b.Close()
	c := pool.Use(cfg)
	defer c.Close()
	if keysOf(t, c, "anna")[0].ID != id {
		t.Error("a later user has another key")
	}
}

// TestPoolOfChangedLogin: after a reload of the settings, a stream logs in with the new user,
// while its predecessor still holds a ring of the same topic.
func TestPoolOfChangedLogin(t *testing.T) {
	t.Parallel()
	cluster := servers.EmbeddedKafka(t)
	var users sync.Map // that logged in
	cluster.Logins(func(first []byte, _ *kmsg.SASLAuthenticateResponse) {
		users.Store(strings.Split(string(first), "\x00")[1], true)
	})
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: "keys", Master: master(t, 1)}
	cfg.Kafka.Brokers = cluster.ListenAddrs()
	kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
	cfg.Kafka.SASLMechanism, cfg.Kafka.SASLUsername, cfg.Kafka.SASLPassword = "PLAIN", "former", "secret"
	cfg.Kafka.SASLInsecure = true
	var pool keyring.Pool
	before := pool.Use(cfg)
	defer before.Close()
	id := keysOf(t, before, "anna")[0].ID
	cfg.Kafka.SASLUsername = "new"
	after := pool.Use(cfg)
	defer after.Close()
	if keysOf(t, after, "anna")[0].ID != id {
		t.Error("the new user finds another key")
	}
	if _, ok := users.Load("new"); !ok {
		t.Error("the new user did not log in")
	}
}

// TestReadOnly: a ring that only reads finds the keys of subjects, makes none, and needs no topic.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	had := keysOf(t, ring(t, cfg), "anna", "bert")
	forget(t, cfg, "bert", true)
	end := endOf(t, cfg)
	reading := cfg
	reading.ReadOnly, reading.Make = true, func(context.Context) error { panic("a topic is made") }
	keys := keysOf(t, ring(t, reading), "anna", "bert", "new")
	if keys[0].ID != had[0].ID || keys[1] != seal.Forgotten || keys[2] != seal.Withheld {
		t.Errorf("keys %+v", keys)
	}
	if now := endOf(t, cfg); now != end {
		t.Errorf("the topic ends at %d, and ended at %d", now, end)
	}
	reading.Topic += ".missing"
	if keys := keysOf(t, ring(t, reading), "anna"); keys[0] != seal.Withheld {
		t.Errorf("keys %+v of a missing topic", keys)
	}
}

// endOf returns where the topic of keys ends.
func endOf(t *testing.T, cfg keyring.Config) int64 {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...)))(t)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), cfg.Topic)
	end, ok := ends.Lookup(cfg.Topic, 0)
	if err != nil || !ok {
		t.Fatal(err)
	}
	return end.Offset
}
