package bridgetest

import (
	"bytes"
	"exportbridge/bridge"
	"slices"
)

// Record is an event as a consumer reads it.
type Record struct {
	// Stream is the stream that published it.
	Stream string
	// ID is the record id (ce_id).
	ID string
	// Key is nil if the record has no key.
	Key []byte
	// Value is the item, byte for byte.
	Value []byte
	// Time is the record's time in milliseconds since the epoch. That of a dead letter may
	// differ from the event's.
	Time int64
	// Defect is the reason of a dead letter; empty for other records.
	Defect bridge.Defect
	// Mismatched is set if the event had a Mismatch; a consumer does not find it.
	Mismatched bool
}

// recordsOf copies the page's events.
func (s *Sink) recordsOf(page *bridge.Page) []Record {
	records := make([]Record, 0, len(page.Events))
	for i := range page.Events {
		e := &page.Events[i]
		records = append(records, Record{
			Stream: s.stream, ID: string(e.AppendRecordID(nil)), Key: bytes.Clone(e.Key),
			Value: bytes.Clone(e.Raw), Time: e.Time, Defect: e.Defect,
			Mismatched: e.Mismatch != nil,
		})
	}
	return records
}

func receiptOf(records []Record) bridge.Receipt {
	var receipt bridge.Receipt
	letters := make(map[bridge.Defect]int)
	for _, r := range records {
		if r.Mismatched {
			receipt.Mismatched++
		}
		if r.Defect != bridge.DefectNone {
			letters[r.Defect]++
			continue
		}
		receipt.Published++
		receipt.Bytes += int64(len(r.Value))
	}
	if len(letters) > 0 {
		receipt.DeadLettered = letters
	}
	return receipt
}

// check fails the test if the batch breaks the contract. The caller holds the topic's mu.
func (s *Sink) check(b bridge.Batch) {
	t, c := s.topic.t, b.Checkpoint
	if c.Stream != s.stream {
		t.Errorf("sink: checkpoint %s is of stream %q, not %q", c.Version, c.Stream, s.stream)
	}
	if s.any && c.Version.Compare(s.last) <= 0 {
		t.Errorf("sink: checkpoint %s is not after %s, the session's last", c.Version, s.last)
	}
	if s.topic.mode != bridge.ExactlyOnce {
		return
	}
	if last, ok := s.topic.newest(s.stream); ok && c.Version.Compare(last.Version) <= 0 {
		t.Errorf("sink: checkpoint %s is not after %s, the newest committed", c.Version, last.Version)
	}
}

// checkPage fails the test if the page breaks the contract. The caller holds the topic's
// mu.
func (s *Sink) checkPage(page *bridge.Page) {
	t, index := s.topic.t, -1
	for _, e := range page.Events {
		if bytes.IndexByte(e.Raw, Poison) >= 0 {
			t.Errorf("sink: an event of the page at %q is used after its release", page.At.Cursor)
		}
		if e.Index <= index {
			t.Errorf("sink: event %d of the page at %q comes after event %d", e.Index, page.At.Cursor, index)
		}
		index = e.Index
	}
}

// Kept returns what each Publish kept, in order. A Publish that kept nothing is left out.
func (p *Topic) Kept() []Kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.kept)
}
