package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
)

// recordFormat is the version of the form of a Record.
const recordFormat = 1

// Record is what an attestation topic says about one period of a stream. Its JSON form is
// frozen, and the value of a record of the topic; the record's key is Stream.
//
// Listed is the sum of Held, DeadLettered, Missing, Repaired, Deleted and Dropped.
type Record struct {
	Format int    `json:"v"`
	Stream string `json:"stream"`
	// Seq numbers the records of the stream from 1.
	Seq int64 `json:"seq"`
	// From is the beginning of the period, and To its end, exclusive. The period begins at
	// the end of the period of the record before, but for NotComparedFrom.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// NotComparedFrom is the end of the period of the record before, if From is later: the events
	// between the two have their ids by other rules for private data, and cannot be compared.
	NotComparedFrom *time.Time `json:"not_compared_from,omitempty"`
	// Topic is the topic of the events, or several, separated by ", ".
	Topic string `json:"topic"`
	// Listed counts the events of the period in the API, Digest is of their ids. Held counts
	// those of them that are in the topic, DeadLettered those that are among the dead
	// letters only, Missing those that are in neither.
	Listed       int64            `json:"listed"`
	Digest       reconcile.Digest `json:"digest"`
	Held         int64            `json:"in_topic"`
	DeadLettered int64            `json:"dead_lettered"`
	Missing      int64            `json:"missing"`
	// Repaired counts the missing events that were published for this record. Deleted counts
	// the absent events that retention may have deleted. Extra counts the events that are in
	// the topic only.
	Repaired int64 `json:"repaired"`
	Deleted  int64 `json:"deleted_by_retention"`
	Extra    int64 `json:"extra"`
	// Dropped counts the events that a route drops. Topics has the counts by topic, if there
	// are several.
	Dropped int64                  `json:"dropped_by_route,omitempty"`
	Topics  []reconcile.TopicCount `json:"topics,omitempty"`
	// Outside counts the listed events whose time is outside the period.
	Outside int64 `json:"outside_range"`
	// Late counts the events that were ingested more than a minute after their time, of
	// those with an ingestion time.
	Late int64 `json:"late"`
	// EndedEmpty is true if empty pages ended the listing, and the API has never marked its
	// end: more events may follow.
	EndedEmpty bool `json:"ended_empty,omitempty"`
	// Unrepaired is the reconcile.Reason why missing events were not repaired, if that was asked
	// for.
	Unrepaired string `json:"repair_rejected,omitempty"`
	// At is when the period was compared, By the process that did it.
	At time.Time `json:"attested_at"`
	By string    `json:"by"`
	// Previous is the Hash of the value of the record before; empty in the first record.
	Previous string `json:"previous,omitempty"`
}

// Hash returns the SHA-256 of a record's value, in hexadecimal.
func Hash(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// decode reads a record's value. An empty value is no record.
func decode(value []byte) (*Record, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var r Record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("decode a record of an attestation: %w", err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("record of an attestation has version %d: upgrade exportbridge", r.Format)
	}
	return &r, nil
}

// recordOf returns the record of a comparison that follows the record with the value before.
func (a *Attestor) recordOf(r *reconcile.Report, before []byte) (*Record, error) {
	last, err := decode(before)
	if err != nil {
		return nil, err
	}
	made := &Record{
		Format: recordFormat, Stream: a.Stream, Seq: 1, Topic: r.Topic,
		From: time.UnixMilli(r.From).UTC(), To: time.UnixMilli(r.To).UTC(),
		Listed: r.API, Digest: r.Digest, Held: r.Held, DeadLettered: r.DeadLettered, Missing: r.Missing,
		Deleted: r.Deleted, Extra: r.Extra, Dropped: r.Dropped, Topics: slices.Clone(r.Topics),
		Outside: r.Outside, Late: r.Late.Events, EndedEmpty: r.EndedEmpty,
		At: time.Now().UTC().Truncate(time.Millisecond), By: a.By,
	}
	if last != nil {
		made.Seq, made.Previous = last.Seq+1, Hash(before)
		if made.From.After(last.To) {
			made.NotComparedFrom = &last.To
		}
	}
	if r.Repair != nil {
		made.Repaired = r.Repair.Events
		made.Missing -= made.Repaired
		for i := range made.Topics {
			made.Topics[i].Missing -= made.Topics[i].Repaired
		}
	}
	return made, nil
}

// page returns the record as the only event of a page.
func (r *Record) page() (*bridge.Page, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record: %w", err)
	}
	return &bridge.Page{Items: 1, Events: []bridge.Event{{
		Raw: value, ID: fmt.Appendf(nil, "%s/%d", r.Stream, r.Seq), Key: []byte(r.Stream), Type: []byte("attestation"),
		Time: bridge.NoTime,
	}}}, nil
}
