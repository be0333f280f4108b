//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// attested is what attest prints.
type attested struct {
	Records []attestRecord
	Breaks  []struct {
		Seq  int
		Text string
	}
}

type attestRecord struct {
	Seq                       int
	From, To                  time.Time
	Listed, Missing, Repaired int
	Held                      int `json:"in_topic"`
	Digest, Previous, Hash    string
	Dropped                   int `json:"dropped_by_route"`
	Topics                    []attestedTopic
}

type attestedTopic struct {
	Topic                     string
	Listed, Missing, Repaired int
	Held                      int `json:"in_topic"`
}

// attests returns the records of the stage's stream, none while there is no topic.
func (s *stage) attests(args ...string) (got attested) {
	s.t.Helper()
	p := s.start(append([]string{"attest", "--json"}, args...)...)
	if code := p.wait(outageTimeout); code == 0 || len(p.stdout()) > 0 {
		decode(s.t, p.stdout(), &got)
	}
	return got
}

// awaitAttested waits for a number of records.
func (s *stage) awaitAttested(n int) []attestRecord {
	s.t.Helper()
	var got attested
	eventually(s.t, 2*time.Minute, fmt.Sprint(n, " records"), func() bool {
		got = s.attests()
		return len(got.Records) >= n
	})
	return got.Records
}

// attestStage is a stage whose events are all of yesterday, and which attests days.
func attestStage(t *testing.T, n int) (s *stage, yesterday, today time.Time) {
	t.Helper()
	today = time.Now().UTC().Truncate(24 * time.Hour)
	yesterday = today.AddDate(0, 0, -1)
	s = newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Start: yesterday.Add(12 * time.Hour)})
	s.settings["BRIDGE_ATTEST"], s.settings["EXPORT_OVERLAP"] = "24h", "0s"
	s.settings["EXPORT_POLL_INTERVAL_MAX"], s.settings["BRIDGE_ATTEST_RATE_LIMIT"] = "1s", "50/s"
	return s, yesterday, today
}

// digestOf is the digest of a record by its documentation: the first 16 bytes of the SHA-256
// of each id, added modulo 2^128.
func (s *stage) digestOf(n int) string {
	sum, modulus := new(big.Int), new(big.Int).Lsh(big.NewInt(1), 128)
	for i := range n {
		var item struct{ EventID string }
		decode(s.t, s.truth.Event(i), &item)
		id := sha256.Sum256([]byte(item.EventID))
		sum.Add(sum, new(big.Int).SetBytes(id[:16]))
	}
	return hex.EncodeToString(sum.Mod(sum, modulus).FillBytes(make([]byte, 16)))
}

// TestE2EAttest: a planted gap is found and recorded. After a kill and a change of
// BRIDGE_ATTEST the chain goes on. A record that was changed, and one that is missing, are
// found.
func TestE2EAttest(t *testing.T) {
	t.Parallel()
	const n, gap = 1000, 10
	s, yesterday, today := attestStage(t, n)
	api := s.serveAltered(hiding(func(i int) bool { return i%100 == 50 }))
	s.finish()
	api.serve(asServed)
	running := s.run()
	first := s.awaitAttested(1)[0]
	if first.Seq != 1 || !first.From.Equal(yesterday) || !first.To.Equal(today) || first.Listed != n ||
		first.Held != n-gap || first.Missing != gap || first.Digest != s.digestOf(n) || first.Previous != "" {
		t.Errorf("the first record is %+v, want %d events of %s and the digest %s", first, n, yesterday, s.digestOf(n))
	}
	eventually(t, stepTimeout, "the metric", func() bool { return s.metric("attested_missing_events") == gap })
	if got := s.metric("stream_warning", `code="attest_missing"`); got != 1 {
		t.Errorf("the metric of the warning is %v", got)
	}
	day := []string{"--from", yesterday.Format(time.RFC3339), "--to", today.Format(time.RFC3339), "--verify"}
	p, _ := s.command(3, append([]string{"attest"}, day...)...)
	s.wantSaid(p, "10 events were missing")
	running.kill()

	s.settings["BRIDGE_ATTEST"] = "1h"
	if time.Now().UTC().Hour() == 0 {
		s.settings["BRIDGE_ATTEST"] = "1m"
	}
	running = s.run()
	s.awaitAttested(2)
	running.stop()
	if got := s.attests("--verify"); len(got.Breaks) > 0 || got.Records[1].Previous != first.Hash ||
		!got.Records[1].From.Equal(today) {
		t.Errorf("the chain goes on with %+v", got)
	}

	topic := s.topic + ".attest"
	var kept []*kgo.Record
	s.eachRecord(topic, func(r *kgo.Record) { kept = append(kept, r) })
	s.forge(topic, kept, func(r *kgo.Record) *kgo.Record {
		r.Value = []byte(strings.Replace(string(r.Value), `"missing":10`, `"missing":0`, 1))
		return r
	})
	p, _ = s.command(1, append([]string{"attest"}, day...)...)
	s.wantSaid(p, "one of them was changed")
	s.forge(topic, kept[:len(kept)-1], func(r *kgo.Record) *kgo.Record { return r })
	p, _ = s.command(1, "attest", "--verify", "--json")
	s.wantSaid(p, "which was the last one, is missing")
}

// forge deletes a topic and makes it again with changed records.
func (s *stage) forge(topic string, records []*kgo.Record, change func(*kgo.Record) *kgo.Record) {
	s.t.Helper()
	s.deleteTopic(topic)
	must.Get(s.admin().CreateTopic(s.t.Context(), 1, 1, nil, topic))(s.t)
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(s.servers.brokers, ",")...)))(s.t)
	defer client.Close()
	for _, r := range records {
		copied := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
		must.Do(s.t, client.ProduceSync(s.t.Context(), change(copied)).FirstErr())
	}
}

// TestE2EAttestRepair: missing events are published before the record, if that is set.
func TestE2EAttestRepair(t *testing.T) {
	t.Parallel()
	const n, gap = 1000, 10
	s, _, _ := attestStage(t, n)
	s.settings["BRIDGE_ATTEST_REPAIR"] = "true"
	hidden := func(i int) bool { return i%100 == 50 }
	api := s.serveAltered(hiding(hidden))
	s.finish()
	api.serve(asServed)
	running := s.run()
	first := s.awaitAttested(1)[0]
	if first.Listed != n || first.Held != n-gap || first.Missing != 0 || first.Repaired != gap {
		t.Errorf("the record is %+v, want %d of %d repaired", first, gap, n)
	}
	running.stop()
	s.wantRepaired(n, hidden, func(i int) []byte { return s.truth.Event(i) })
	if got := s.attests("--verify"); len(got.Breaks) > 0 {
		t.Errorf("the chain is broken: %+v", got.Breaks)
	}
}

// TestE2EAttestRoutes: a record counts the events of each topic, and those that a route drops.
func TestE2EAttestRoutes(t *testing.T) {
	t.Parallel()
	const n = 1000
	s, _, _ := attestStage(t, n)
	s.settings["KAFKA_ROUTES"] = s.testRoutes()
	hidden := func(i int) bool { return i%10 == 3 && i < 900 }
	api := s.serveAltered(hiding(hidden))
	s.finish()
	want := make(map[string]attestedTopic)
	for i := range n {
		topic := routedTo(s.topic, typeOf(t, s.truth.Event(i)))
		of := want[topic]
		of.Topic = topic
		of.Listed++
		if hidden(i) {
			of.Missing++
		} else {
			of.Held++
		}
		want[topic] = of
	}
	dropped := want[""].Listed
	delete(want, "")
	api.serve(asServed)
	running := s.run()
	got := s.awaitAttested(1)[0]
	if got.Listed != n || got.Dropped != dropped || len(got.Topics) != len(want) {
		t.Errorf("the record is %+v, want %d dropped and the topics %+v", got, dropped, want)
	}
	for _, of := range got.Topics {
		if of != want[of.Topic] {
			t.Errorf("%+v, want %+v", of, want[of.Topic])
		}
	}
	running.stop()
	if got := s.attests("--verify"); len(got.Breaks) > 0 {
		t.Errorf("the chain is broken: %+v", got.Breaks)
	}
}

// TestE2EAttestCrashes: kill -9 at any moment leaves one record per period, and two
// processes together write each once.
func TestE2EAttestCrashes(t *testing.T) {
	t.Parallel()
	s, _, _ := attestStage(t, 200)
	s.serveAltered(asServed)
	s.finish()
	s.settings["HTTP_ADDR"] = "off"
	day := 24 * time.Hour // or longer, so that the last one ended long ago at any time of day
	ago := func() time.Duration { return time.Duration(time.Now().UnixNano()) % day }
	for ago() < 12*time.Hour {
		day += time.Hour
	}
	s.settings["BRIDGE_ATTEST"] = day.String()
	first := s.run()
	s.awaitAttested(1)
	first.kill()
	s.settings["BRIDGE_ATTEST"] = "1m" // there are many such periods since
	s.settings["BRIDGE_SESSION_TIMEOUT"] = "6s"
	const kills = 8
	running := map[string]*program{"a": s.bridgeNamed("a"), "b": s.bridgeNamed("b")}
	for range kills {
		var owner string
		eventually(t, 2*time.Minute, "another record", func() bool {
			for name, p := range running {
				if bytes.Contains(p.stderr(), []byte("period attested")) {
					owner = name
				}
			}
			return owner != ""
		})
		bridge.Sleep(t.Context(), rand.N(time.Second)) // in the work on one of the next records
		running[owner].kill()
		running[owner] = s.bridgeNamed(owner)
	}
	for _, p := range running {
		p.end(syscall.SIGTERM, false)
	}
	got := s.attests("--verify")
	if len(got.Breaks) > 0 {
		t.Errorf("the chain of %d records is broken: %+v", len(got.Records), got.Breaks)
	}
	if len(got.Records) <= kills {
		t.Errorf("%d records after %d kills", len(got.Records), kills)
	}
	for i, r := range got.Records[1:] {
		if r.Seq != i+2 || !r.From.Equal(got.Records[0].To.Add(time.Duration(i)*time.Minute)) {
			t.Errorf("record %d of %s is in place %d", r.Seq, r.From, i+1)
		}
	}
	t.Logf("%d records", len(got.Records))
}
