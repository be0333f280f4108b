package reconcile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
)

// repairedAtOnce is the maximum number of events in a transaction: their mark, 22
// bytes an event, fits into any usable topic.
const repairedAtOnce = 300

// repairMarkKept is how long a mark is kept. The first repair after that reads the mark and
// then removes it. From then on only the topic shows the events, unless retention has
// deleted them.
const repairMarkKept = 90 * 24 * time.Hour

// repairMark records a transaction of a repair. Its JSON form is frozen.
type repairMark struct {
	Version int `json:"v"`
	// At is the time of publishing in milliseconds since the epoch.
	At int64  `json:"at"`
	By string `json:"by,omitempty"`
	// TopicID is the id of the topic with all of the events; empty in marks of older
	// versions.
	TopicID string `json:"topic_id,omitempty"`
	// IDs are the concatenated results of markOf for each event, in base64.
	IDs []byte `json:"ids"`
}

// of reports whether the mark's events may be in the topic with this id.
func (m *repairMark) of(topicID string) bool {
	return m.TopicID == "" || topicID == "" || m.TopicID == topicID
}

// markOf identifies an event in marks: by its record id and, if the id is shared, by its
// bytes.
func markOf(e *bridge.Event) eventName {
	name := nameOf(e.AppendRecordID(nil))
	if e.Shared {
		return formName(name, crc32.Checksum(e.Raw, castagnoli))
	}
	return name
}

// Repaired counts the outcomes of the missing events, or the expected ones.
type Repaired struct {
	Events int64 `json:"events"`
	// Live counts the events that the running stream may still publish. Unproven counts
	// the events that a rehearsal cannot decide: they have no ingestion time, or one
	// close to the stream's position.
	Live     int64 `json:"left_to_live"`
	Unproven int64 `json:"without_ingestion_time,omitempty"`
	// Before counts the events that an earlier repair published and that retention has
	// deleted since.
	Before int64 `json:"repaired_before"`
	// Refused counts the events that the topic rejects, Reasons are the first reasons.
	Refused int64    `json:"refused"`
	Reasons []string `json:"reasons,omitempty"`
}

// repairer publishes missing events that the stream can no longer publish.
type repairer struct {
	Publisher
	Repaired
	frontier
	topics     []TopicCount // of the Report
	by         string
	ingestedAt func(item []byte) int64 // of the Source
	kept       []kafkaclient.Kept
	// known are the events that earlier repairs published and that retention may have
	// deleted since. Without retention, an absent event is missing.
	known map[eventName]bool
	// unmoved is called before each commit; nil in a rehearsal.
	unmoved func(context.Context) error
}

// openRepair begins the repair before the topic is read, since it ends an open transaction
// of an earlier repair.
func (c *comparison) openRepair(ctx context.Context) (*repairer, error) {
	p, err := c.Publisher(ctx)
	if err != nil {
		return nil, err
	}
	r := &repairer{
		Publisher: p, topics: c.report.Topics,
		by: c.By, ingestedAt: c.Source.IngestedAt, kept: c.kept, known: make(map[eventName]bool),
	}
	if c.Mode == Repair {
		r.unmoved = c.unmoved
	}
	if r.frontier, err = c.frontier(ctx); err == nil {
		err = r.readMarks(ctx)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return r, nil
}

// readMarks reads which events earlier repairs published. It removes old marks, except in
// a rehearsal.
func (r *repairer) readMarks(ctx context.Context) error {
	const size = len(eventName{})
	var old []string
	for name, value := range r.Marks() {
		var m repairMark
		if err := json.Unmarshal(value, &m); err != nil || m.Version != 1 || len(m.IDs)%size != 0 {
			return reject(UnknownMark, "mark %s of an earlier repair cannot be read", name)
		}
		expired := slices.ContainsFunc(r.kept, func(k kafkaclient.Kept) bool { return k.Expired && m.of(k.ID) })
		for ids := m.IDs; expired && len(ids) > 0; ids = ids[size:] {
			r.known[eventName(ids)] = true
		}
		if time.Since(time.UnixMilli(m.At)) > repairMarkKept {
			old = append(old, name)
		}
	}
	if r.unmoved == nil || len(old) == 0 {
		return nil
	}
	return r.Forget(ctx, old)
}

// publish publishes the missing events of a page that the stream can no longer publish.
func (r *repairer) publish(ctx context.Context, page *bridge.Page, missing []bridge.Event) error {
	var events []bridge.Event
	for i := range missing {
		e := &missing[i]
		switch ingested := r.ingestedAt(e.Raw); {
		case r.known[markOf(e)]:
			r.Before++
		case ingested > max(0, r.ingested):
			r.Live++
		case r.awaits(ingested) && !r.drained && ingested > 0 && r.unmoved != nil:
			r.Live++ // the stream may still publish it
		case r.awaits(ingested) && !r.drained:
			r.Unproven++
		default:
			events = append(events, *e)
		}
	}
	slices.SortStableFunc(events, func(a, b bridge.Event) int { return cmp.Compare(a.Route, b.Route) })
	for len(events) > 0 {
		if r.unmoved != nil {
			if err := r.unmoved(ctx); err != nil {
				return err
			}
		}
		n := min(len(events), repairedAtOnce)
		other := func(e bridge.Event) bool { return e.Route != events[0].Route } // a mark is of one topic
		if i := slices.IndexFunc(events[:n], other); i > 0 {
			n = i
		}
		if err := r.commit(ctx, page, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// commit publishes events of one topic in one transaction with their mark. If the topic rejects one of
// them, it publishes the others.
func (r *repairer) commit(ctx context.Context, page *bridge.Page, events []bridge.Event) error {
	m := repairMark{Version: 1, At: time.Now().UnixMilli(), By: r.by, TopicID: r.kept[events[0].Route].ID}
	for i := range events {
		name := markOf(&events[i])
		m.IDs = append(m.IDs, name[:]...)
	}
	value, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the mark: %w", err)
	}
	page.Events = events
	_, err = r.Publish(ctx, page, rand.Text(), value)
	switch {
	case err == nil:
		r.Events += int64(len(events))
		if t := countOf(r.topics, events[0].Route); t != nil {
			t.Repaired += int64(len(events))
		}
		return nil
	case !errors.Is(err, bridge.ErrRejected):
		return err
	case len(events) == 1:
		if r.Refused++; len(r.Reasons) < named {
			r.Reasons = append(r.Reasons, deadletter.Rejection(err))
		}
		return nil
	}
	half := len(events) / 2
	if err := r.commit(ctx, page, events[:half]); err != nil {
		return err
	}
	return r.commit(ctx, page, events[half:])
}
