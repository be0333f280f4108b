//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
)

// sealed is a stage with encrypted values, whose events are of 10 subjects.
type sealed struct {
	*stage
	masters string
	alter   alteration // of the export
}

// sealStage encrypts a member that the simulator does not have, /secret, of n events. The
// subject of event i is u<i modulo 10>; orphan has none.
func sealStage(t *testing.T, n, orphan int) *sealed {
	t.Helper()
	s := &sealed{stage: newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: exportsim.Schema05})}
	s.settings["EXPORT_PAGE_SIZE"] = "20"
	s.alter = func(i int, item []byte) []byte {
		var members map[string]any
		decode(t, item, &members)
		members["userId"], members["secret"] = fmt.Sprintf("u%d", i%10), map[string]any{"mail": secretOf(i)}
		members["n"] = i
		if i == orphan {
			members["userId"] = nil
		}
		return must.Get(json.Marshal(members))(t)
	}
	s.serveAltered(s.alter)
	dir := t.TempDir()
	line := func(id string) string {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		return id + " " + base64.StdEncoding.EncodeToString(key) + "\n"
	}
	s.masters = filepath.Join(dir, "masters")
	write(t, s.masters, line("m1"))
	write(t, filepath.Join(dir, "hashes"), line("k1"))
	s.settings["EVENT_ENCRYPT"], s.settings["EVENT_ENCRYPT_KEY_FILE"] = "/secret", s.masters
	s.settings["EVENT_HASH"], s.settings["EVENT_HASH_KEY_FILE"] = "/userId", filepath.Join(dir, "hashes")
	return s
}

// secretOf is the encrypted value of an event.
func secretOf(i int) string { return fmt.Sprintf("person%04d@secret.example", i) }

// reader decrypts as a consumer does.
func (s *sealed) reader() *keyring.Reader {
	s.t.Helper()
	text := must.Get(os.ReadFile(s.masters))(s.t)
	master := must.Get(seal.ParseMaster(string(text)))(s.t)
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: s.topic + ".keys", Master: master}
	cfg.Kafka.Brokers = strings.Split(s.servers.brokers, ",")
	return must.Get(keyring.NewReader(s.t.Context(), cfg))(s.t)
}

// open counts the events of topics by subject: those that a consumer can read, and others.
func (s *sealed) open(topics ...string) (readable, unreadable map[int]int, ids map[string]int) {
	s.t.Helper()
	r := s.reader()
	defer r.Close()
	readable, unreadable, ids = make(map[int]int), make(map[int]int), make(map[string]int)
	visit := func(record *kgo.Record) {
		if bytes.Contains(record.Value, []byte("secret.example")) {
			s.t.Errorf("%s has a plain value: %s", record.Topic, record.Value)
		}
		for _, h := range record.Headers {
			if h.Key == "ce_id" {
				ids[string(h.Value)]++
			}
		}
		var e struct {
			N      int
			Secret string
		}
		decode(s.t, record.Value, &e)
		plain, err := r.Open(s.t.Context(), "/secret", e.Secret)
		switch {
		case err != nil:
			unreadable[e.N%10]++
		case string(plain) != fmt.Sprintf(`{"mail":%q}`, secretOf(e.N)):
			s.t.Errorf("event %d opens %s", e.N, plain)
		default:
			readable[e.N%10]++
		}
	}
	for _, topic := range topics {
		s.eachRecord(topic, visit)
	}
	return readable, unreadable, ids
}

// wantForgotten wants each event of a topic once, and those of the subjects unreadable.
func (s *sealed) wantForgotten(topic string, n int, subjects ...int) {
	s.t.Helper()
	s.wantForgottenIn([]string{topic}, n, subjects...)
}

// wantForgottenIn is wantForgotten of several topics together.
func (s *sealed) wantForgottenIn(topic []string, n int, subjects ...int) {
	s.t.Helper()
	readable, unreadable, ids := s.open(topic...)
	all := 0
	for subject := range 10 {
		all += readable[subject] + unreadable[subject]
		gone := false
		for _, f := range subjects {
			gone = gone || f == subject
		}
		if gone != (unreadable[subject] > 0) || gone != (readable[subject] == 0) {
			s.t.Errorf("%v, u%d: %d readable, %d not; forgotten %t", topic, subject, readable[subject],
				unreadable[subject], gone)
		}
	}
	if all != n || len(ids) != n {
		s.t.Errorf("%v has %d records of %d events, want %d", topic, all, len(ids), n)
	}
}

// TestE2ESeal: values are in no topic, file of output and Redis, and a consumer with the master
// key reads them. After forget, it cannot read those of the subject, in the topic, in events that
// follow, after a rewind, and in a replay. verify finds all events. An event without a subject is
// a dead letter without its value. A rotated master key works; another one blocks the stream.
func TestE2ESeal(t *testing.T) {
	t.Parallel()
	const n, half, orphan = 200, 120, 33
	s := sealStage(t, n, orphan)
	s.truth.SetStock(half)
	s.finish()
	s.wantForgotten(s.topic, half-1)
	if letters := s.letters(); len(letters) != 1 || letters[0].Reason != "private-data" {
		t.Errorf("letters %+v, want that of the event without a subject", letters)
	}
	p, _ := s.command(0, "forget", "U4")
	s.wantSaid(p, "no data key of the subject")
	s.command(0, "forget", "u4")
	s.wantForgotten(s.topic, half-1)
	s.command(0, "forget", "u4", "--execute")
	s.wantForgotten(s.topic, half-1, 4)

	text := must.Get(os.ReadFile(s.masters))(t)
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32))
	write(t, s.masters, string(text)+"m2 "+key+"\n")
	s.truth.SetStock(n)
	s.finish()
	p, _ = s.command(0, "keys", "rewrap")
	s.wantSaid(p, "Add --execute to wrap 9 data keys again")
	p, _ = s.command(0, "keys", "rewrap", "--execute")
	s.wantSaid(p, "9 data keys were wrapped again")
	s.wantForgotten(s.topic, n-1, 4)
	s.command(0, "forget", "u7", "--execute") // of both halves
	s.wantForgotten(s.topic, n-1, 4, 7)

	from, to := s.times()
	if got := s.verify(0, from, to); got.API != n || got.Held != n-1 || got.DeadLettered != 1 || got.Missing != 0 ||
		got.Extra != 0 || got.Again != 0 {
		t.Errorf("%+v, want all but one held", got)
	}
	s.verify(0, from, to, "--repair", "--execute")
	s.wantForgotten(s.topic, n-1, 4, 7)

	// A new topic gets the constant. It is committed, and visible to all.
	replayed := s.topic + ".replay.again"
	s.command(0, "replay", "--from", from.UTC().Format(time.RFC3339Nano), "--to", to.UTC().Format(time.RFC3339Nano),
		"--topic", replayed, "--execute")
	s.wantForgotten(replayed, n-1, 4, 7)
	constants := 0
	s.eachRecord(replayed, func(r *kgo.Record) {
		if bytes.Contains(r.Value, []byte(`"secret":"eb1:forgotten"`)) {
			constants++
		}
	})
	if constants != n/5 {
		t.Errorf("%d values are replaced, want %d", constants, n/5)
	}
	s.nowhere("secret.example", replayed)

	p, _ = s.command(0, "check", "--only", "kafka")
	s.wantSaid(p, "EVENT_ENCRYPT_KEY decrypts all data keys")
	write(t, s.masters, "m2 "+key+"\n")
	const hint = "restore the first line of EVENT_ENCRYPT_KEY"
	p = s.run("--once") // without a new event
	p.wantExit(5, time.Minute)
	s.wantSaid(p, hint)
	p, _ = s.command(3, "check", "--only", "kafka")
	s.wantSaid(p, hint)
	s.command(1, "forget", "u1")
}

// nowhere wants a text in no topic, in no output and not in Redis.
func (s *sealed) nowhere(text string, more ...string) {
	s.t.Helper()
	for _, topic := range append(more, s.topic, "dlq."+s.topic, s.topic+".keys", s.topic+".checkpoints",
		s.topic+".checkpoints.jobs") {
		s.eachRecord(topic, func(r *kgo.Record) {
			all := append(append([]byte(nil), r.Key...), r.Value...)
			for _, h := range r.Headers {
				all = append(all, h.Value...)
			}
			if bytes.Contains(all, []byte(text)) {
				s.t.Errorf("topic %s has it: %s", topic, all)
			}
		})
	}
	files := 0
	s.eachOutput(func(name string, content []byte) {
		files++
		if bytes.Contains(content, []byte(text)) {
			s.t.Errorf("%s has it", name)
		}
	})
	if files == 0 || bytes.Contains(s.redisDump(), []byte(text)) {
		s.t.Errorf("Redis has it, or there are no files: %d", files)
	}
}

// TestE2ESealRecovers: an invalid cursor makes the stream read an hour again. What it has
// published of subjects that are forgotten since is not published again, in either mode.
func TestE2ESealRecovers(t *testing.T) {
	t.Parallel()
	modes := []string{string(bridge.ExactlyOnce), string(bridge.AtLeastOnce)}
	each(t, servers.Real(t), modes, func(t *testing.T, mode string) {
		const n, half = 100, 60
		s := sealStage(t, n, -1)
		s.deliver(bridge.Mode(mode))
		s.truth.SetStock(half)
		s.finish()
		s.command(0, "forget", "u4", "--execute")
		s.command(0, "cursor", "reset", "--to-cursor", "no-cursor-of-this-api", "--execute")
		s.settings["EXPORT_ON_INVALID_CURSOR"], s.settings["EXPORT_OVERLAP"] = "time", "720h"
		s.truth.SetStock(n)
		s.finish()
		s.wantForgotten(s.topic, n, 4)
	})
}

// TestE2ESealEverywhere: each way to publish encrypts, and forgets while it runs. A backfill and
// the stream, two processes, make the keys of the same subjects at the same time.
func TestE2ESealEverywhere(t *testing.T) {
	t.Parallel()
	each(t, servers.Real(t), []string{"routes", "windows", "lanes", "killed"}, func(t *testing.T, way string) {
		const n, half = 200, 120
		s := sealStage(t, n, -1)
		topics := []string{s.topic}
		switch way {
		case "routes":
			s.settings["KAFKA_ROUTES"] = strings.TrimSuffix(s.testRoutes(), ",tab*=drop")
			topics = append(topics, s.topic+".pages", s.topic+".orders", s.topic+".changes")
		case "windows": // which list all events again, also those of forgotten subjects
			s.settings["EXPORT_FOLLOW"], s.settings["EXPORT_SETTLE"] = "windows", "1s"
			s.settings["EXPORT_LOOK_BACK"] = "72h"
			s.settings["EXPORT_START"] = s.config.Start.UTC().Format(time.RFC3339)
		case "killed": // about between the keys and their events
			killed := s.run()
			eventually(t, outageTimeout, "keys", func() bool { return s.committed(s.topic+".keys") > 0 })
			killed.kill()
		case "lanes":
			s.settings["EXPORT_START"] = s.timeOf(half)
			job := s.start("backfill", "--from", s.timeOf(0), "--to", s.timeOf(half), "--windows", "6", "--parallel", "3",
				"--execute")
			s.finish()
			job.wantExit(0, outageTimeout)
			s.command(0, "forget", "u4", "--execute")
			s.wantForgottenIn(topics, n, 4)
			return
		}
		s.truth.SetStock(half)
		s.finish()
		s.command(0, "forget", "u4", "--execute")
		s.truth.SetStock(n)
		s.finish()
		s.wantForgottenIn(topics, n, 4)
	})
}

// TestE2ESealPaused: the owner is paused while a subject is forgotten and another process takes the
// stream over. Nothing that it knew opens a value afterwards, and each event is there once.
func TestE2ESealPaused(t *testing.T) {
	t.Parallel()
	const n, half = 400, 120
	s := sealStage(t, n, -1)
	s.settings["BRIDGE_SESSION_TIMEOUT"] = "6s" // Kafka's least
	s.truth.SetStock(half)
	first := s.bridgeNamed("a")
	first.awaitMore(0)
	holder, other, _ := s.settle(first, s.bridgeNamed("b"))
	holder.signal(syscall.SIGSTOP)
	s.command(0, "forget", "u4", "--execute")
	s.truth.SetStock(n - 100)
	other.awaitMore(0)
	holder.signal(syscall.SIGCONT)
	s.truth.SetStock(n)
	eventually(t, outageTimeout, "all events", func() bool { return s.committed(s.topic) >= n })
	for _, p := range []*program{holder, other} {
		p.end(syscall.SIGTERM, false)
	}
	s.wantForgotten(s.topic, n, 4)
}

// TestE2ESealSharedID: events that share an id are compared by their bytes. verify reads the keys
// for that, and writes none: a new subject has none yet.
func TestE2ESealSharedID(t *testing.T) {
	t.Parallel()
	const n = 60
	s := sealStage(t, n, -1)
	s.serveAltered(func(i int, item []byte) []byte {
		item = s.alter(i, item)
		if 11 <= i && i <= 13 {
			item = append([]byte(`{"eventId":"shared",`), item[1:]...)
		}
		if i == n-1 {
			item = bytes.Replace(item, []byte(`"userId":"u9"`), []byte(`"userId":"new"`), 1)
		}
		return item
	})
	s.truth.SetStock(n - 1)
	s.finish()
	s.command(0, "forget", "u4", "--execute")
	keys := s.committed(s.topic + ".keys")
	s.truth.SetStock(n)
	from, to := s.times()
	if got := s.verify(3, from, to); got.API != n || got.Held != n-1 || got.Missing != 1 || got.Extra+got.Again != 0 {
		t.Errorf("%+v, want all but the event of a new subject", got)
	}
	if now := s.committed(s.topic + ".keys"); now != keys {
		t.Errorf("verify has written %d records of keys", now-keys)
	}
	s.command(0, "forget", "u2", "--execute")
	p, _ := s.command(1, "verify", "--from", s.timeOf(0), "--to", s.timeOf(n))
	s.wantSaid(p, "nobody can encrypt again")
}
