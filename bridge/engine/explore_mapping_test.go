package engine_test

import (
	"math"

	"exportbridge/bridge"
)

// readable is what unreadableFrom is while all items can be read.
const readable = math.MaxInt64

// garble makes the export list many items more, none of which can be read: how
// items are read is configured wrongly from now on.
func (w *world) garble() {
	const more = 1200
	if w.garbled {
		return
	}
	from, size := w.export.items, 400
	if w.topic.records == 0 {
		from, size = 0, 50 // which alone is too few, but for a first page
	}
	w.garbled, w.export.size = true, size
	w.export.items += more
	w.unreadableFrom.Store(int64(from))
}

// defect says what is wrong with an item.
func (w *world) defect(n int) bridge.Defect {
	if int64(n) >= w.unreadableFrom.Load() {
		return bridge.DefectTime
	}
	return bridge.DefectNone
}

// refusable checks that a page is not the first of a stream with nothing that
// can be read.
func (w *world) refusable(page *bridge.Page) {
	for i := range page.Events {
		if page.Events[i].Defect == bridge.DefectNone {
			return
		}
	}
	const many = 10
	if page.At.Cursor == "" && page.Items >= many && len(page.Events) == page.Items && w.plan.refused == "" {
		w.fail(ruleMapping, "a first page of %d unreadable items is sent", page.Items)
	}
}

// unreadable counts those of the items in a row that could not be read, over
// all commits of an epoch. defects are what they were sent with.
func (w *world) unreadable(last, c bridge.Checkpoint, items []int, defects map[int]bridge.Defect) {
	const most, first = 1000, 100
	switch {
	case last.Zero():
		w.row, w.none = 0, c.Kind == bridge.KindStart && w.topic.records == 0
	case c.Epoch != last.Epoch:
		w.row, w.none = 0, false
	}
	for _, n := range items {
		if w.row++; defects[n] == bridge.DefectNone {
			w.row, w.none = 0, false
		}
	}
	if w.row >= most || w.none && w.row >= first {
		w.fail(ruleMapping, "%s makes %d items in a row that cannot be read", c.Version, w.row)
	}
}

// corrects reports whether the stream needs the operator to correct how items are read, and
// makes the correction.
func (w *world) corrects(s bridge.Status) bool {
	if s.State != bridge.StateBlocked || s.Reason != bridge.ReasonMapping || w.unreadableFrom.Load() == readable {
		return false
	}
	w.note("- an operator corrects how items are read")
	w.unreadableFrom.Store(readable)
	return true
}
