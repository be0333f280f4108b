package windows

import (
	"fmt"
	"maps"

	"exportbridge/bridge"
)

const (
	// firstOld is how many pages in a row a session's first listing of a list without a
	// start reads that have only items from before the listing begins: a bulk import of
	// old ones may fill some. Later listings end at items that the one before has seen.
	firstOld = 10
	// soon is how far behind the limit and Settle an item is that is of now, by the
	// margin of the marks in the checkpoint, in milliseconds.
	soon = 2 * unit
	// manyUp is how many items must follow an older one before a list counts as oldest first.
	manyUp = 8
)

// Range is the position of a listing: with the bounds that the API takes.
func (c *Config) Range(from, to int64) bridge.Position {
	at := bridge.Position{Window: true}
	if !c.NoStart {
		at.Start = from
		if !c.NoEnd {
			at.End = to
		}
	}
	return at
}

// walk judges the items of a listing without an end: one of the future is left for the
// listing at its time, since what was published long before is not read back. Without a
// start, it says where the listing ends, newest first.
type walk struct {
	noStart bool
	late    bool                        // it is of the range of Late
	from    int64                       // where the listing begins
	ahead   int64                       // behind it items are of the future
	before  map[bridge.ItemKey]struct{} // older items of the listing before, nil at a session's first one
	seen    map[bridge.ItemKey]struct{} // older items of this listing
	due     map[bridge.ItemKey]struct{} // items that the listing before left for later, and are not seen yet
	future  map[bridge.ItemKey]struct{} // those that this one leaves

	met    bool  // the listing has an item that was known before, or an older one
	latest int64 // time of the newest item

	newer, unknown bool // of this page's items
	old            int
	run            int   // pages in a row without newer items
	last           int64 // time of the last item, 0 before the first
	up, down       int   // pairs of items by their order
}

// leaves reports whether an item with this key is not of this listing.
func (w *walk) leaves(e *bridge.Event, key bridge.ItemKey, m *memory) (bool, error) {
	if _, due := w.due[key]; due {
		w.met = true
		delete(w.due, key)
	}
	timed := e.Defect == bridge.DefectNone && e.Time != bridge.NoTime
	if timed {
		w.latest = max(w.latest, e.Time)
	}
	switch {
	case timed && e.Time > w.ahead:
		w.future[key] = struct{}{}
		w.newer = true
		return true, nil
	case !w.noStart:
		return false, nil
	case !timed:
		return true, blocked("set EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT to a time that every item has",
			fmt.Sprintf("item %d of a page has no readable time: in a list without a start "+
				"nothing else tells whether it was published", e.Index))
	case w.last != 0 && e.Time > w.last:
		w.up++
	case w.last != 0 && e.Time < w.last:
		w.down++
	}
	if w.last = e.Time; e.Time >= w.from {
		w.newer = true
		return false, nil
	}
	w.old++
	w.met = true
	k, _ := m.keyOf(e, key)
	_, known := w.before[k]
	if !known {
		_, known = m.seen[k]
	}
	w.unknown = w.unknown || !known
	if len(w.seen) < maxRemembered { // else a later listing reads further than it must
		w.seen[k] = struct{}{}
	}
	return true, nil
}

// ends reports whether the listing ends with this page: behind two of which all items are
// older, and those of the first were seen by the listing before. What is inserted moves
// the borders of pages by less than one, so the next listing finds such a page again. What
// was of the future is read for.
func (w *walk) ends() bool {
	switch {
	case w == nil || !w.noStart:
		return false
	case w.newer:
		w.run = 0
	case w.old > 0 && (w.run > 0 || w.before == nil || !w.unknown):
		w.run++
	}
	w.newer, w.unknown, w.old = false, false, 0
	if w.before == nil {
		return w.run >= firstOld
	}
	return w.run >= 2 && len(w.due) == 0
}

// backwards returns the fault of a list that is oldest first: it does not begin with what
// is new.
func (w *walk) backwards() error {
	if w.up < manyUp || w.up <= 3*w.down {
		return nil
	}
	return fault(bridge.Permanent, "order", bridge.ReasonConfig,
		"if the API can list newest first, set EXPORT_PARAMS; else follow its cursor with EXPORT_FOLLOW=cursor",
		"the list has neither start nor end, and is not newest first: new events are not at its beginning")
}

// walk begins to judge a listing up to limit. One of the range of Late ends at what the one
// before of that range has seen: the others leave out what is older than they begin.
func (l *Lister) walk(from, limit int64, late bool) *walk {
	if !l.cfg.NoEnd {
		return nil
	}
	before := l.older
	if late {
		before = l.olderLate
	}
	return &walk{
		noStart: l.cfg.NoStart, from: from, ahead: limit + l.cfg.Settle.Milliseconds() + soon,
		late: late, before: before, seen: make(map[bridge.ItemKey]struct{}),
		due: maps.Clone(l.future), future: make(map[bridge.ItemKey]struct{}),
	}
}

// walked ends a listing that is complete.
func (l *Lister) walked(w *walk) error {
	if w == nil {
		return nil
	}
	if len(w.future) > 0 && len(l.future) == 0 && l.cfg.Warn != nil {
		l.cfg.Warn("the list has events of the future, which are published when their time comes",
			"check the clocks that stamp the events, and EXPORT_ITEM_TIME_FORMAT")
	}
	l.latest = max(l.latest, w.latest)
	if l.older, l.future = w.seen, w.future; w.late {
		l.olderLate = w.seen
	}
	return w.backwards()
}
