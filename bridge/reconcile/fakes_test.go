package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/reconcile"
)

const stream = "events"

// second returns a time of the tests' range, in milliseconds since the epoch. It
// is long ago in a synctest bubble too.
func second(n int) int64 { return 900_000_000_000 + int64(n)*1000 }

// item is an event of the export.
type item struct {
	id       string
	at       int64
	ingested int64 // 0 where it does not say
	form     string
}

func (i item) raw() string {
	text := fmt.Sprintf(`{"eventId":%q,"timestamp":%d`, i.id, i.at)
	if i.id == "" {
		text = fmt.Sprintf(`{"timestamp":%d`, i.at)
	}
	if i.ingested != 0 {
		text += fmt.Sprintf(`,"systemTimestamp":%d`, i.ingested)
	}
	return text + fmt.Sprintf(`,"form":%q}`, i.form)
}

// record is the event as the topic has it.
func (i item) record() *kgo.Record {
	at := time.UnixMilli(i.at).UTC()
	id := i.id
	if id == "" {
		e := bridge.Event{Raw: []byte(i.raw())}
		id = string(e.AppendRecordID(nil))
	}
	return fakelog.Record(at, i.raw(), "eb-stream", stream, "ce_id", id, "ce_time", at.Format(time.RFC3339Nano))
}

// items returns n events a second apart, the first at second 0, each ingested a
// second after its time.
func items(n int) []item {
	all := make([]item, n)
	for i := range all {
		all[i] = item{id: fmt.Sprint("e", i), at: second(i), ingested: second(i + 1)}
	}
	return all
}

// withoutIngestion returns the events without their ingestion times.
func withoutIngestion(all []item) []item {
	all = slices.Clone(all)
	for i := range all {
		all[i].ingested = 0
	}
	return all
}

// source is the export API.
type source struct{ deadletter.Source }

// IngestedAt implements reconcile.Source.
func (source) IngestedAt(raw []byte) int64 {
	var times struct {
		System int64 `json:"systemTimestamp"`
	}
	_ = json.Unmarshal(raw, &times) // 0 where it does not say
	return times.System
}

// world is what a comparison sees.
type world struct {
	t      *testing.T
	source *bridgetest.Source
	topic  *fakelog.Log
	dead   *fakelog.Log
	live   *live
	repair *publisher
	cfg    reconcile.Config
	ports  reconcile.Ports
	parts  []reconcile.Progress
	said   []string
}

// newWorld returns a stream that is long past the range, with these events in
// the export and in the topic.
func newWorld(t *testing.T, exported, published []item) *world {
	t.Helper()
	w := &world{
		t: t, source: bridgetest.NewSource(t, bridgetest.Export{PageSize: 4}),
		topic: fakelog.New("export.events", 3), dead: fakelog.New("dlq.export.events", 1),
	}
	w.live = &live{running: true, trail: []bridge.Checkpoint{atEnd(5, second(5000))}}
	w.repair = &publisher{t: t, topic: w.topic, marks: make(map[string][]byte)}
	for _, i := range exported {
		w.source.Append(i.raw())
	}
	for n, i := range published {
		w.topic.Append(int32(n%3), i.record())
	}
	w.cfg = reconcile.Config{
		Stream: stream, Origin: bridge.Origin{Resource: "events"}, From: second(0), To: second(1000), Batch: 1000,
		LateThreshold: time.Minute, EmptyPages: 5, By: "a test",
	}
	w.ports = reconcile.Ports{
		Source: source{w.source}, Topic: w.topic, DeadLetters: w.dead, Live: w.live,
		Publisher: func(context.Context) (reconcile.Publisher, error) {
			w.repair.rehearsal = w.cfg.Mode == reconcile.Rehearse
			return w.repair, w.repair.refuses
		},
		Compared:    func(p reconcile.Progress) { w.parts = append(w.parts, p) },
		Waiting:     func(err error) { w.said = append(w.said, err.Error()) },
		AwaitingEnd: func() { w.said = append(w.said, "awaiting the end") },
	}
	return w
}

// inOwnWorld is inWorld beside other tests.
func inOwnWorld(t *testing.T, exported, published []item, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	inWorld(t, exported, published, f)
}

// inWorld runs f with a new world in a synctest bubble.
func inWorld(t *testing.T, exported, published []item, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, exported, published)) })
}

// atEnd is a checkpoint of a stream that has read all that was listed at a time.
func atEnd(seq, at int64) bridge.Checkpoint {
	return bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: stream, Kind: bridge.KindData, Version: bridge.Version{Epoch: 1, Seq: seq},
		Cursor: "c", Origin: bridge.Origin{Resource: "events"},
		PositionTime: at, WrittenAt: at, Drained: true, PositionByAPI: true,
	}
}

func (w *world) run(mode reconcile.Mode) (*reconcile.Report, error) {
	w.t.Helper()
	w.cfg.Mode = mode
	return reconcile.Run(w.t.Context(), w.cfg, w.ports)
}

func (w *world) must(mode reconcile.Mode) *reconcile.Report {
	w.t.Helper()
	return must.Get(w.run(mode))(w.t)
}

// refused runs and wants a refusal.
func (w *world) refused(mode reconcile.Mode, why reconcile.Reason) *reconcile.RejectedError {
	w.t.Helper()
	_, err := w.run(mode)
	refused, ok := errors.AsType[*reconcile.RejectedError](err)
	if !ok || refused.Reason != why {
		w.t.Fatalf("%v, want a refusal because of %s", err, why)
	}
	return refused
}

// repaired returns the ids of the events that repairs have published, and wants
// each once.
func (w *world) repaired() []string {
	w.t.Helper()
	if dup := slices.Clone(w.repair.published); len(slices.Compact(sorted(dup))) != len(w.repair.published) {
		w.t.Errorf("published twice: %v", w.repair.published)
	}
	return sorted(w.repair.published)
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return ids
}

// live is a LiveStream.
type live struct {
	mu        sync.Mutex          // guards trail, while a Run is under way
	trail     []bridge.Checkpoint // newest first
	running   bool
	status    bridge.Status // zero if unknown
	backfills []reconcile.Backfill
	looks     int
	// onLook is called before each look at the trail, with its number.
	onLook func(n int)
}

func (l *live) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	if l.looks++; l.onLook != nil {
		l.onLook(l.looks)
	}
	l.mu.Lock()
	trail := l.trail
	l.mu.Unlock()
	for _, c := range trail {
		if !visit(c) {
			break
		}
	}
	return ctx.Err()
}

func (l *live) Running(context.Context) (bool, error) { return l.running, nil }

func (l *live) Status(context.Context) (bridge.Status, bool) {
	return l.status, l.status.Leader || l.status.CaughtUp
}

func (l *live) Backfills(context.Context) ([]reconcile.Backfill, error) { return l.backfills, nil }

// commit adds a newer checkpoint.
func (l *live) commit(c bridge.Checkpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trail = slices.Concat([]bridge.Checkpoint{c}, l.trail)
}

// publisher is a Publisher whose events arrive in the world's topic.
type publisher struct {
	t         *testing.T
	topic     *fakelog.Log
	routed    *fakelog.Log // of events with a route
	rehearsal bool
	refuses   error                // to begin
	tooLarge  func(id string) bool // events that the topic cannot take; nil is none
	fails     error                // of the next Publish, which leaves nothing
	marks     map[string][]byte
	published []string
	open      bool
}

func (p *publisher) Marks() map[string][]byte { p.open = true; return p.marks }

func (p *publisher) Forget(_ context.Context, names []string) error {
	if p.rehearsal {
		p.t.Error("a rehearsal removes marks")
	}
	for _, name := range names {
		delete(p.marks, name)
	}
	return nil
}

func (p *publisher) Publish(_ context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error) {
	if err := p.fails; err != nil {
		p.fails = nil
		return bridge.Receipt{}, err
	}
	for i := range page.Events {
		if id := string(page.Events[i].AppendRecordID(nil)); p.tooLarge != nil && p.tooLarge(id) {
			return bridge.Receipt{}, fmt.Errorf("%w: %s is too large", bridge.ErrRejected, id)
		}
	}
	if p.rehearsal {
		return bridge.Receipt{}, nil
	}
	if _, there := p.marks[mark]; there || !json.Valid(value) {
		p.t.Errorf("mark %s is put again, or is no JSON: %s", mark, value)
	}
	p.marks[mark] = slices.Clone(value)
	for i := range page.Events {
		e := &page.Events[i]
		id := string(e.AppendRecordID(nil))
		p.published = append(p.published, id)
		at := time.UnixMilli(e.Time).UTC()
		to := p.topic
		if e.Route > 0 {
			to = p.routed
		}
		to.Append(0, fakelog.Record(at, string(e.Raw), "eb-stream", stream, "ce_id", id, "ce_time",
			at.Format(time.RFC3339Nano), "eb-origin", "repair"))
	}
	return bridge.Receipt{Published: len(page.Events)}, nil
}

func (p *publisher) Close() { p.open = false }
