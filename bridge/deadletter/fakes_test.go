package deadletter_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
)

const stream = "events"

// written is when the first dead letter was written; each further one a second
// later.
var written = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

// world is a topic of dead letters, the export that they are of, and what
// publishes them.
type world struct {
	t         *testing.T
	log       *fakelog.Log
	topic     *deadletter.Topic
	source    *bridgetest.Source
	publisher *publisher
	letters   int
	origin    bridge.Origin
	live      bridge.SourceIdentity
	elsewhere []string
	events    *fakelog.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, events := fakelog.New("dlq.export.events", 2), fakelog.New("export.events", 1)
	w := &world{
		t: t, log: log, topic: &deadletter.Topic{Log: log, Stream: stream},
		source:    bridgetest.NewSource(t, bridgetest.Export{PageSize: 3}),
		publisher: &publisher{t: t, marks: make(map[string][]byte), events: events}, events: events,
	}
	w.publisher.open()
	return w
}

// add writes a dead letter and returns its place. Headers are pairs.
func (w *world) add(value string, headers ...string) deadletter.Place {
	partition := int32(w.letters % 2)
	r := fakelog.Record(written.Add(time.Duration(w.letters)*time.Second), value,
		append([]string{"eb-stream", stream}, headers...)...)
	w.letters++
	w.log.Append(partition, r)
	return deadletter.Place{Partition: partition, Offset: r.Offset}
}

// whole writes a letter that holds its item.
func (w *world) whole(item string, reason bridge.Defect) deadletter.Place {
	return w.add(item, "eb-reason", string(reason), "eb-cursor-hash", bridge.CursorHash("c"), "eb-index",
		fmt.Sprint(w.letters))
}

// letter writes a letter of an event with a wrong time.
func (w *world) letter(id string) deadletter.Place { return w.whole(item(id), bridge.DefectTime) }

// position writes a letter that holds only where the item was.
func (w *world) position(item, id, cursor string, index int, headers ...string) deadletter.Place {
	value := must.Get(json.Marshal(map[string]any{"id": id, "size": len(item),
		"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(item))), "cursor": cursor, "index": index}))(w.t)
	headers = append(headers, "eb-reason", string(bridge.DefectTooLarge), "eb-cursor-hash", bridge.CursorHash(cursor),
		"eb-index", fmt.Sprint(index))
	return w.add(string(value), headers...)
}

// retrying is a retry in the world.
func (w *world) retrying(done func(deadletter.Retried) error) *deadletter.Retry {
	return &deadletter.Retry{
		Topic: w.topic, Source: w.source, Publisher: w.publisher, Rehearsal: w.publisher.rehearsal, Origin: w.origin,
		Live: w.live, Elsewhere: w.elsewhere, Events: w.events, By: "a test", Done: done,
	}
}

// retry retries the letters and returns what became of them.
func (w *world) retry(places ...deadletter.Place) (all []deadletter.Retried, err error) {
	w.t.Helper()
	w.publisher.open()
	err = w.retrying(func(one deadletter.Retried) error { all = append(all, one); return nil }).Run(w.t.Context(), places)
	return all, err
}

// must retries the letters and wants these outcomes.
func (w *world) must(places []deadletter.Place, want ...deadletter.Outcome) []deadletter.Retried {
	w.t.Helper()
	all := must.Get(w.retry(places...))(w.t)
	var got []deadletter.Outcome
	for _, one := range all {
		got = append(got, one.Result)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%+v, want %v", all, want)
	}
	return all
}

// item is an event of the export.
func item(id string) string {
	return fmt.Sprintf(`{"eventId":%q,"timestamp":1000,"payload":{}}`, id)
}

// publisher is a Publisher.
type publisher struct {
	t         *testing.T
	rehearsal bool
	tooLarge  string                     // the id of an event that the topic cannot take
	fails     map[int]bridgetest.Failure // of Publish, by number
	calls     int
	marks     map[string][]byte
	published []string // items
	indexes   []int    // of the items on their pages
	sources   []bridge.SourceIdentity
	events    *fakelog.Log
	routed    *fakelog.Log // of events with a route
	topicID   string       // of events when it was opened
}

// open begins a session.
func (p *publisher) open() {
	p.topicID = p.topicNow()
}

func (p *publisher) topicNow() string {
	kept := must.Get(p.events.Kept(p.t.Context()))(p.t)
	return kept[0].ID
}

func (p *publisher) Marks() map[string][]byte { return p.marks }

func (p *publisher) Publish(_ context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error) {
	p.calls++
	if len(page.Events) != 1 {
		p.t.Errorf("%d events are published with mark %s, want one", len(page.Events), mark)
	}
	e := &page.Events[0]
	if string(e.ID) == p.tooLarge && p.tooLarge != "" {
		return bridge.Receipt{}, fmt.Errorf("%w: %w", bridge.ErrRejected,
			&bridge.Fault{Class: bridge.Permanent, Err: fmt.Errorf("%s is too large", e.ID)})
	}
	if p.rehearsal {
		return bridge.Receipt{}, nil
	}
	if f, ok := p.fails[p.calls]; ok && f == bridgetest.Failed {
		return bridge.Receipt{}, bridgetest.ErrDown
	}
	if p.topicNow() != p.topicID {
		return bridge.Receipt{}, errors.New("the topic was recreated meanwhile")
	}
	if there := p.marks[mark]; string(there) == string(value) {
		p.t.Errorf("mark %s is put again", mark)
	}
	to := p.events
	if e.Route > 0 {
		to = p.routed
	}
	to.Append(0, fakelog.Record(written, string(e.Raw), "eb-stream", stream, "ce_id", string(e.AppendRecordID(nil))))
	p.marks[mark] = slices.Clone(value)
	p.published, p.sources = append(p.published, string(e.Raw)), append(p.sources, page.Source)
	p.indexes = append(p.indexes, e.Index)
	if f, ok := p.fails[p.calls]; ok && f == bridgetest.Persisted {
		return bridge.Receipt{}, bridgetest.ErrDown
	}
	return bridge.Receipt{Published: 1}, nil
}

func headersOf(r *kgo.Record) map[string]string {
	all := make(map[string]string)
	for _, h := range r.Headers {
		all[h.Key] = string(h.Value)
	}
	return all
}

// last is the record that was published last, once more.
func (p *publisher) last() *kgo.Record {
	value := p.published[len(p.published)-1]
	return fakelog.Record(written, value, "eb-stream", stream, "ce_id", "a")
}

// forgetTopics makes the marks those of an older version.
func (p *publisher) forgetTopics() {
	for name, value := range p.marks {
		p.marks[name] = bytes.Replace(value, []byte(`"into":"first",`), nil, 1)
	}
}
