package engine

import (
	"context"
	"slices"
	"time"

	"exportbridge/bridge"
)

// rewindIndexTimeout bounds the wait for marks: they are only a hint.
const rewindIndexTimeout = 10 * time.Second

// rewind is the state of marking events during a rewind. Owned by the commit
// loop.
type rewind struct {
	loaded bool
	index  bridge.PublishedIndex // nil is nothing
	passed bool                  // the page where the rewind began was read
}

// markRepublished marks the events that a rewind publishes again: those found
// in the topic. Nothing else proves it: the API may return other cursors, list
// an event late under an old one, or delete events; clocks are unreliable; an
// operator may have skipped a part, or recreated the topic. A new event is
// never marked, since consumers may ignore marked ones. Some republished events
// stay unmarked: if there are too many for memory, or Kafka is too slow.
func (at *progress) markRepublished(ctx context.Context, p *bridge.Page) {
	news := at.head.RewindEnd
	if news == nil {
		return
	}
	at.loadRewindIndex(ctx, p)
	marked := 0
	for i := range p.Events {
		e := &p.Events[i]
		if at.rewind.index != nil && e.Defect == bridge.DefectNone && at.rewind.index.Match(e) {
			e.Republished = true
			marked++
		}
	}
	at.rewind.passed = at.rewind.passed || bridge.CursorHash(p.At.Cursor) == news.CursorHash
	if p.Tail() || at.rewind.passed && marked < len(p.Events) {
		at.head.RewindEnd = nil
	}
}

// loadRewindIndex reads back the topic once, for the first page with events
// that may be in it. An overlap has already dropped its own.
func (at *progress) loadRewindIndex(ctx context.Context, p *bridge.Page) {
	if at.rewind.loaded || at.batch.events > 0 || at.e.ports.Published == nil {
		return
	}
	var times []int64
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && (!at.overlaps() || e.Time < at.head.Overlap.From) {
			times = append(times, e.Time)
		}
	}
	if len(times) == 0 {
		return
	}
	// Not the minimum: a single client's clock at 1970 would cause the whole
	// topic to be read.
	slices.Sort(times)
	first := times[len(times)/10]
	defer at.e.watchdog.wait()()
	ctx, cancel := context.WithTimeout(ctx, rewindIndexTimeout)
	defer cancel()
	events, err := at.e.ports.Published.PartialIndex(ctx, time.UnixMilli(first).Add(-at.e.cfg.Overlap), at.head.Source)
	if err != nil {
		at.e.log.Warn("republished events not marked: reading the topic failed", "error", err.Error())
	}
	at.rewind.loaded, at.rewind.index = true, events
}
