package position

import (
	"slices"
	"time"

	"exportbridge/bridge"
)

// dropPublished drops the events that are already in the topic. The end of the
// results ends the overlap.
func (at *Position) dropPublished(p *bridge.Page, known Known) {
	if !at.Overlaps() {
		return
	}
	o := *at.Overlap // the value before keeps its own
	o.Dropped += drop(p, known.Published.Match)
	// Marks goes further back, but cannot tell which equal events without an id are
	// already dropped.
	if known.Marks != nil {
		o.Dropped += drop(p, func(e *bridge.Event) bool { return e.ID != nil && known.Marks.Match(e) })
	}
	if o.Done = p.Tail(); o.Done {
		at.OverlapTopics = nil
	}
	at.Overlap = &o
}

// drop drops events from a page and returns their number.
func drop(p *bridge.Page, which func(*bridge.Event) bool) (dropped int64) {
	kept := p.Events[:0]
	for i := range p.Events {
		if which(&p.Events[i]) {
			dropped++
			continue
		}
		kept = append(kept, p.Events[i])
	}
	p.Events = kept
	return dropped
}

// markRepublished marks the events that a rewind publishes again: those found
// in the topic. Nothing else proves it: the API may return other cursors, list
// an event late under an old one, or delete events; clocks are unreliable; an
// operator may have skipped a part, or recreated the topic. A new event is
// never marked, since consumers may ignore marked ones. Some republished events
// stay unmarked: if there are too many for memory, or Kafka is too slow.
func (at *Position) markRepublished(p *bridge.Page, known Known) {
	end := at.RewindEnd
	if end == nil {
		return
	}
	marked := 0
	for i := range p.Events {
		e := &p.Events[i]
		if known.Marks != nil && e.Defect == bridge.DefectNone && known.Marks.Match(e) {
			e.Republished = true
			marked++
		}
	}
	at.passed = at.passed || bridge.CursorHash(p.At.Cursor) == end.CursorHash
	if p.Tail() || at.passed && marked < len(p.Events) {
		at.RewindEnd = nil
	}
}

// MarksFrom returns the time from which the topic must be read for Known.Marks, and the
// source, so that Marks covers the events of a page. It returns false if the page has no
// event that can be marked. Events of an overlap are dropped, not marked.
func (at Position) MarksFrom(p *bridge.Page) (from time.Time, source bridge.SourceIdentity, ok bool) {
	if at.RewindEnd == nil || at.checkSource(p.Source) != nil || at.RewindEnd == nil { // another source ends the rewind
		return time.Time{}, source, false
	}
	var times []int64
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && (!at.Overlaps() || e.Time < at.Overlap.From) {
			times = append(times, e.Time)
		}
	}
	if len(times) == 0 {
		return time.Time{}, source, false
	}
	// Not the minimum: a single client's clock at 1970 would cause the whole
	// topic to be read.
	slices.Sort(times)
	return time.UnixMilli(times[len(times)/10]), at.Source, true
}
