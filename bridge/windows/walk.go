package windows

import (
	"maps"

	"exportbridge/bridge"
)

const (
	// firstOld is how many consecutive pages with only older items end a session's first
	// listing of a list without a start: a bulk import of old items may fill some pages.
	// Later listings end at items that the previous listing has seen.
	firstOld = 10
	// soon is how far after the limit and Settle an item still counts as present, by the
	// margin of the marks in the checkpoint, in milliseconds.
	soon = 2 * unit
	// manyUp is how many items must follow an older one before a list counts as oldest first.
	manyUp = 8
	// earliest and furthest bound the times of events that are no mistake, in milliseconds: 1990, and
	// ten years after now.
	earliest, furthest = 631_152_000_000, 10 * 365 * 24 * 3_600_000
	// never is the end of the year 9999. Times up to it, and those until 0, may be placeholders: a
	// quiet list may have nothing else.
	never = 253_402_300_800_000
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

// walk selects the items of a listing without an end. It leaves items of the future to a
// later listing at their time: an item published long before that time would not be read
// back from the topic. Without a start, walk also decides where a listing, newest first,
// ends.
type walk struct {
	noStart bool
	late    bool                        // the listing is of the range of Late
	from    int64                       // where the listing begins; earlier items are older
	ahead   int64                       // items after this time are of the future
	before  map[bridge.ItemKey]struct{} // older items of the previous listing, nil in a session's first one
	seen    map[bridge.ItemKey]struct{} // older items of this listing
	due     map[bridge.ItemKey]struct{} // future items of the previous listing that this one has not seen yet
	future  map[bridge.ItemKey]struct{} // future items of this listing
	ids     map[bridge.ItemKey]struct{} // other items of this listing, nil if changed ones are not new
	known   map[bridge.ItemKey]struct{} // ids of earlier listings

	misread bool  // the listing has an item whose time is a mistake, and no placeholder
	likely  bool  // it has one whose time is no mistake, or that is listed whatever its time is
	met     bool  // the listing has an item that was known before, or an older one
	latest  int64 // time of the newest item that is not of the future

	newer   bool  // this page has an item that is not older
	unknown bool  // this page has an older item that was not known before
	old     int   // older items of this page
	run     int   // consecutive pages without newer items
	last    int64 // time of the last item, 0 before the first
	up      int   // pairs of items with the later one second
	down    int   // pairs of items with the later one first
}

// leaves reports whether the listing leaves out an item with this key.
func (w *walk) leaves(e *bridge.Event, key bridge.ItemKey, m *memory) (bool, error) {
	if _, due := w.due[key]; due {
		w.met = true
		delete(w.due, key)
	}
	timed := e.Time != bridge.NoTime && e.Defect != bridge.DefectTime && e.Defect != bridge.DefectNotObject
	if timed && e.Time <= w.ahead {
		w.latest = max(w.latest, e.Time)
	}
	w.misread = w.misread || timed && (e.Time > 0 && e.Time < earliest || e.Time >= never)
	w.likely = w.likely || timed && e.Time < w.ahead+furthest && (e.Time >= earliest || !w.noStart)
	switch {
	case timed && e.Time > w.ahead:
		w.future[key] = struct{}{}
		w.newer = true
		return true, nil
	case !w.noStart:
		return false, nil
	case !timed:
		return true, blocked("set EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT to a time that every item has",
			"item %d of a page has no readable time: in a list without a start "+
				"nothing else tells whether it was published", e.Index)
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
	if len(w.seen) < maxRemembered { // otherwise the next listing reads more pages than it must
		w.seen[k] = struct{}{}
	}
	return true, nil
}

// recognize notes an item that the listing does not leave out. memory does not know
// an item that has changed.
func (w *walk) recognize(key bridge.ItemKey) {
	if w.ids == nil {
		return
	}
	_, was := w.known[key]
	w.met = w.met || was
	w.ids[key] = struct{}{}
}

// ends reports whether the listing ends with this page. It ends after two pages with only
// older items, if the previous listing has seen those of the first page, and once all due
// items are seen. Inserted items move the borders of pages by less than a page, so that the
// next listing finds such a page again.
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
	return w.run >= 2 && len(w.due) == 0 || w.run >= firstOld // a due item may have been deleted
}

// backwards returns the fault of a list that comes oldest first, so that new items are not
// at its beginning.
func (w *walk) backwards() error {
	if w.up < manyUp || w.up <= 3*w.down {
		return nil
	}
	return bridge.Blockf("order", bridge.ReasonConfig,
		"if the API can list newest first, set EXPORT_PARAMS; else follow its cursor with EXPORT_FOLLOW=cursor",
		"the list has neither start nor end, and is not newest first: new events are not at its beginning")
}

// walk begins a listing up to limit. A listing of the range of Late ends at items that the
// previous listing of that range has seen: other listings end earlier.
func (l *Lister) walk(from, limit int64, late bool) *walk {
	if !l.cfg.NoEnd {
		return nil
	}
	before := l.older
	if late {
		before = l.olderLate
	}
	var ids map[bridge.ItemKey]struct{}
	if l.memory.byBytes {
		ids = make(map[bridge.ItemKey]struct{})
	}
	return &walk{
		noStart: l.cfg.NoStart, from: from, ahead: limit + l.cfg.Settle.Milliseconds() + soon,
		late: late, before: before, seen: make(map[bridge.ItemKey]struct{}),
		due: maps.Clone(l.future), future: make(map[bridge.ItemKey]struct{}),
		ids: ids, known: l.ids,
	}
}

// walked ends a listing that is complete.
func (l *Lister) walked(w *walk) error {
	if w == nil {
		return nil
	}
	if w.misread && !w.likely {
		return blocked("set EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT to the time of an item, as the API writes it",
			"all times of the list are before 1990 or far in the future, so that no item counts as new")
	}
	if len(w.future) > 0 && len(l.future) == 0 && l.cfg.Warn != nil {
		l.cfg.Warn("the list has events of the future, which are published when their time comes",
			"check the clocks that stamp the events, and EXPORT_ITEM_TIME_FORMAT")
	}
	l.latest = max(l.latest, w.latest)
	if l.older, l.future = w.seen, w.future; w.late {
		l.olderLate = w.seen
	}
	if w.late || l.cfg.Late == "" {
		l.ids = w.ids
	} else { // the last listing of the range of Late had earlier items
		maps.Copy(l.ids, w.ids)
	}
	return w.backwards()
}
