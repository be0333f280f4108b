//go:build unix

package e2e_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
)

// ledger is what both topics show of a stream's transactions. Each has its own
// producer epoch (transaction.version 2), so that the records of one are known
// by it, and must be what the step of its checkpoint says.
type ledger struct {
	errorf  func(format string, args ...any)
	stream  string
	entries []ledgerEntry // in the order of the log
	mirrors []bridge.Checkpoint
	steps   map[transaction][]int // events by the transaction that they came in
	foreign int                   // events without a transaction
	// anyOrder is set where the events do not come in the order of their index.
	anyOrder bool
}

type transaction struct {
	producer int64
	epoch    int16
}

type ledgerEntry struct {
	bridge.Checkpoint
	in transaction
}

func newLedger(stream string, errorf func(format string, args ...any)) *ledger {
	return &ledger{errorf: errorf, stream: stream, steps: make(map[transaction][]int)}
}

// addEvent takes a record of the topic of the events.
func (l *ledger) addEvent(r *kgo.Record) {
	if !r.Attrs.IsTransactional() {
		l.foreign++
		return
	}
	if i, ok := exportsim.Index(deadletter.Header(r, "ce_id")); ok {
		in := transaction{r.ProducerID, r.ProducerEpoch}
		l.steps[in] = append(l.steps[in], i)
	}
}

// addCheckpoint takes a record of the checkpoint topic.
func (l *ledger) addCheckpoint(r *kgo.Record) {
	key := string(r.Key)
	if key != l.stream && key != l.stream+"/mirror" {
		return
	}
	c, err := bridge.DecodeCheckpoint(r.Value)
	switch {
	case err != nil:
		l.errorf("checkpoint at offset %d of partition %d: %v", r.Offset, r.Partition, err)
	case c.Stream != l.stream:
		l.errorf("checkpoint at offset %d of partition %d is of stream %s", r.Offset, r.Partition, c.Stream)
	case key == l.stream:
		l.entries = append(l.entries, ledgerEntry{c, transaction{r.ProducerID, r.ProducerEpoch}})
	default:
		l.mirrors = append(l.mirrors, c)
	}
}

// judge wants checkpoints that rise, and each with exactly the events that it
// counts in its own transaction. Below transaction.version 2, all transactions of a
// session have one producer epoch. There, judge wants the events of each session.
func (l *ledger) judge() {
	seen := make(map[transaction]bool)
	var before bridge.Checkpoint // what the transaction of the entry follows
	for i := range l.entries {
		e := &l.entries[i]
		first := i == 0
		if !first && e.Version.Compare(l.entries[i-1].Version) <= 0 {
			l.errorf("checkpoint %s follows %s in the log", e.Version, l.entries[i-1].Version)
		}
		if servers.SharedEpochs() && i+1 < len(l.entries) && l.entries[i+1].in == e.in {
			if first || e.Epoch != before.Epoch {
				before = e.Checkpoint // it begins an epoch: the session's events follow it
			}
			continue
		}
		if seen[e.in] {
			l.errorf("checkpoint %s shares its transaction with another one", e.Version)
		}
		seen[e.in] = true
		l.judgeStep(e, before, first)
		before = e.Checkpoint
	}
	for i := 1; i < len(l.mirrors); i++ {
		if l.mirrors[i].Version.Compare(l.mirrors[i-1].Version) <= 0 {
			l.errorf("copied checkpoint %s follows %s in the log", l.mirrors[i].Version, l.mirrors[i-1].Version)
		}
	}
	for in, events := range l.steps {
		if !seen[in] {
			l.errorf("%d events, the first is %d, came in a transaction without a checkpoint", len(events), events[0])
		}
	}
}

func (l *ledger) judgeStep(e *ledgerEntry, before bridge.Checkpoint, first bool) {
	events := slices.Sorted(slices.Values(l.steps[e.in]))
	if first || e.Epoch != before.Epoch {
		if len(events) > 0 {
			l.errorf("checkpoint %s begins an epoch and has %d events in its transaction", e.Version, len(events))
		}
		return
	}
	if want := int(e.Events - before.Events); len(events) != want {
		l.errorf("checkpoint %s counts %d events after %s, its transaction has %d", e.Version, want, before.Version,
			len(events))
		return
	}
	if e.Epoch > 0 || l.anyOrder {
		return // an operator's entry is where the count began
	}
	for i, event := range events {
		if event != int(before.Events)+i {
			l.errorf("checkpoint %s has event %d in its transaction, want %d to %d", e.Version, event, before.Events, e.Events-1)
			return
		}
	}
}

// audit reads both topics, and wants n events without copies, each
// transaction as its checkpoint says, and with real servers the same from kcat.
func (s *stage) audit(n int) *contents {
	s.t.Helper()
	c, _ := s.auditInto(n, s.t.Errorf)
	s.readWithKcat(n)
	return c
}

// auditInto tells errorf what is wrong.
func (s *stage) auditInto(n int, errorf func(format string, args ...any)) (*contents, *ledger) {
	s.t.Helper()
	c, l := s.auditModes(errorf)
	c.wantAll(n, 0)
	if l.foreign > 0 {
		errorf("%d events came without a transaction", l.foreign)
	}
	return c, l
}

// auditModes reads both topics of a stream that may have been delivered at
// least once for a while.
func (s *stage) auditModes(errorf func(format string, args ...any)) (*contents, *ledger) {
	s.t.Helper()
	c, l := newContents(errorf), newLedger("events", errorf)
	s.eachRecord(s.topic, func(r *kgo.Record) {
		c.add(s.truth, s.config.Seed, r)
		l.addEvent(r)
	})
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	l.judge()
	return c, l
}

// TestE2EProofOracle wants the oracle to refuse what is wrong. It doctors what
// a good run left.
func TestE2EProofOracle(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	s.simulate()
	s.finish()
	var events, checkpoints []*kgo.Record
	s.eachRecord(s.topic, func(r *kgo.Record) { events = append(events, r) })
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], func(r *kgo.Record) { checkpoints = append(checkpoints, r) })
	judge := func(events, checkpoints []*kgo.Record) (complaints int) {
		count := func(string, ...any) { complaints++ }
		c, l := newContents(count), newLedger("events", count)
		for _, r := range events {
			c.add(s.truth, s.config.Seed, r)
			l.addEvent(r)
		}
		for _, r := range checkpoints {
			l.addCheckpoint(r)
		}
		c.wantAll(n, 0)
		l.judge()
		return complaints
	}
	if judge(events, checkpoints) > 0 {
		t.Fatal("the oracle refuses a good run")
	}
	last := lastCheckpoint(checkpoints)
	// Of the same key and transaction, so that only the order is wrong.
	pair := sameKey(events)
	for name, doctored := range map[string]struct{ events, checkpoints []*kgo.Record }{
		"an event missing":       {slices.Delete(slices.Clone(events), 7, 8), checkpoints},
		"the last event missing": {without(s, events, n-1), checkpoints},
		"an event twice":         {append(slices.Clone(events), events[7]), checkpoints},
		"two events swapped":     {swapped(events, pair[0], pair[1]), checkpoints},
		"other bytes": {replaced(events, 7,
			func(r *kgo.Record) { r.Value = append(slices.Clone(r.Value), ' ') }), checkpoints},
		"another key":              {replaced(events, 7, func(r *kgo.Record) { r.Key = []byte("somebody") }), checkpoints},
		"an event in another step": {replaced(events, 7, func(r *kgo.Record) { r.ProducerEpoch++ }), checkpoints},
		"a checkpoint missing":     {events, slices.Delete(slices.Clone(checkpoints), last, last+1)},
		"a checkpoint twice":       {events, append(slices.Clone(checkpoints), checkpoints[last])},
		"a checkpoint that counts one event more": {events, replaced(checkpoints, last, func(r *kgo.Record) {
			c, err := bridge.DecodeCheckpoint(r.Value)
			c.Events++
			raw, encodeErr := c.Encode()
			if r.Value = raw; err != nil || encodeErr != nil {
				t.Error(err, encodeErr)
			}
		})},
	} {
		if judge(doctored.events, doctored.checkpoints) == 0 {
			t.Errorf("%s: the oracle finds nothing wrong", name)
		}
	}
	t.Logf("e2e: oracle: %d events and %d records of the checkpoint topic are right, and refused after each of 10 "+
		"changes", len(events), len(checkpoints))
}

// lastCheckpoint returns the index of the last one with events.
func lastCheckpoint(records []*kgo.Record) int {
	last := -1
	for i, r := range records {
		if c, err := bridge.DecodeCheckpoint(r.Value); err == nil && c.Kind == bridge.KindData {
			last = i
		}
	}
	return last
}

// sameKey returns the indexes of two neighbouring events of one key and
// transaction.
func sameKey(records []*kgo.Record) [2]int {
	for i, r := range records {
		for j := i + 1; j < len(records); j++ {
			if o := records[j]; string(o.Key) == string(r.Key) && o.ProducerEpoch == r.ProducerEpoch &&
				o.Partition == r.Partition {
				return [2]int{i, j}
			}
		}
	}
	return [2]int{}
}

func swapped(records []*kgo.Record, i, j int) []*kgo.Record {
	all := slices.Clone(records)
	all[i], all[j] = all[j], all[i]
	return all
}

func replaced(records []*kgo.Record, i int, change func(*kgo.Record)) []*kgo.Record {
	all := slices.Clone(records)
	r := *all[i]
	change(&r)
	all[i] = &r
	return all
}

func without(s *stage, records []*kgo.Record, event int) []*kgo.Record {
	id := exportsim.EventID(s.config.Seed, event)
	return slices.DeleteFunc(slices.Clone(records), func(r *kgo.Record) bool {
		return deadletter.Header(r, "ce_id") == id
	})
}
