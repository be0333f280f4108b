package position

import (
	"slices"
	"time"

	"exportbridge/bridge"
)

// dropPublished drops the events that are already in the topic. The end of the results ends
// the overlap: here, or in noteEmpty if only empty pages show it.
func (at *Position) dropPublished(p *bridge.Page, known Known) {
	if !at.Overlaps() {
		return
	}
	if _, greatest, ok := times(p); ok {
		at.relisted = max(at.relisted, greatest)
	}
	o := *at.Overlap // the position before the page keeps its own
	o.Dropped += drop(p, known.Published.Match)
	// Marks begins earlier, but does not show which of several equal events without an id
	// are already dropped.
	if known.Marks != nil {
		o.Dropped += drop(p, func(e *bridge.Event) bool { return e.ID != nil && known.Marks.Match(e) })
	}
	at.Overlap = &o
	if p.Tail() {
		at.endOverlap()
	}
}

// endOverlap ends the overlap, if the stream is reading one.
func (at *Position) endOverlap() {
	if !at.Overlaps() {
		return
	}
	o := *at.Overlap
	o.Done = true
	at.Overlap, at.OverlapTopics = &o, nil
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

// markRepublished marks the events that a rewind publishes again: those found in the topic.
// Nothing else proves it. The API may return other cursors, list an event late under an old
// one, or delete events. Clocks are unreliable. An operator may have skipped a part, or
// recreated the topic. A new event is never marked, because consumers may ignore marked
// ones. Some republished events stay unmarked, if there are too many for the memory, or if
// Kafka is too slow.
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
// source, so that Marks covers the events of a page. It returns false if no event of the
// page can be marked. Events of an overlap are dropped, not marked.
func (at Position) MarksFrom(p *bridge.Page) (from time.Time, source bridge.SourceIdentity, ok bool) {
	// checkSource ends the rewind if the source is another one.
	if at.RewindEnd == nil || at.checkSource(p.Source) != nil || at.RewindEnd == nil {
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
	// Not the minimum: an event from 1970, by a client's wrong clock, would cause the whole
	// topic to be read.
	slices.Sort(times)
	return time.UnixMilli(times[len(times)/10]), at.Source, true
}

// ResetIndex is the index of a topic after a reset. Items from a time on count only if they
// were published after the reset.
type ResetIndex struct {
	From          int64 // milliseconds since the epoch
	Before, Again bridge.PublishedIndex
}

// Match implements bridge.PublishedIndex.
func (r *ResetIndex) Match(e *bridge.Event) bool {
	if e.Defect == bridge.DefectNone && e.Time >= r.From {
		return r.Again.Match(e)
	}
	return r.Before.Match(e)
}
