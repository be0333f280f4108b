package bridge

import (
	"context"
	"slices"
	"time"
)

// rewindIndexTimeout bounds what is waited for marks: they are a hint.
const rewindIndexTimeout = 10 * time.Second

// rewind is what the topic is known to hold while a rewind is under way. Owned
// by the commit loop.
type rewind struct {
	loaded bool
	index  PublishedIndex // nil is nothing
	passed bool           // the page where the rewind began was read
}

// markRepublished marks what a rewind publishes once more: events that the topic was
// seen to hold. No cursor, count or time proves that: the API may hand out other
// cursors than before, list an event late under an old one, or delete events;
// clocks lie; an operator may have moved the stream over a part, or have made
// the topic anew. An event that could be news is never marked, since a consumer
// may ignore marked ones. Some are not marked although they come again: where
// there are too many to remember, or Kafka is too slow.
func (at *progress) markRepublished(ctx context.Context, p *Page) {
	news := at.head.RewindEnd
	if news == nil {
		return
	}
	at.loadRewindIndex(ctx, p)
	marked := 0
	for i := range p.Events {
		e := &p.Events[i]
		if at.rewind.index != nil && e.Defect == DefectNone && at.rewind.index.Match(e) {
			e.Republished = true
			marked++
		}
	}
	at.rewind.passed = at.rewind.passed || CursorHash(p.At.Cursor) == news.CursorHash
	if p.Tail() || at.rewind.passed && marked < len(p.Events) {
		at.head.RewindEnd = nil
	}
}

// loadRewindIndex asks what the topic holds, once, when the first events come that could
// be known. Those of an overlap that it holds are dropped already.
func (at *progress) loadRewindIndex(ctx context.Context, p *Page) {
	if at.rewind.loaded || at.batch.events > 0 || at.b.ports.Published == nil {
		return
	}
	var times []int64
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect == DefectNone && e.Time != NoTime && (!at.overlaps() || e.Time < at.head.Overlap.From) {
			times = append(times, e.Time)
		}
	}
	if len(times) == 0 {
		return
	}
	// Not the least: one client's clock that stands at 1970 would have the topic
	// read from its beginning.
	slices.Sort(times)
	first := times[len(times)/10]
	at.b.watchdog.wait()
	defer at.b.watchdog.work()
	ctx, cancel := context.WithTimeout(ctx, rewindIndexTimeout)
	defer cancel()
	events, err := at.b.ports.Published.PartialIndex(ctx, time.UnixMilli(first).Add(-at.b.cfg.Overlap), at.head.Source)
	if err != nil {
		at.b.log.Warn("republished events not marked: reading the topic failed", "error", err.Error())
	}
	at.rewind.loaded, at.rewind.index = true, events
}
