// Package timeline checks the events of a page by their times.
package timeline

import (
	"fmt"

	"exportbridge/bridge"
)

// dated reports whether an event has a readable time.
func dated(e *bridge.Event) bool { return e.Defect == bridge.DefectNone && e.Time != bridge.NoTime }

// side is where an event is relative to a window.
type side uint8

const (
	unknown side = iota
	before
	inside
	after
)

// nearEnd is the distance from the end of a window, in milliseconds, within which the next
// event may be outside the window.
const nearEnd = 60_000

// Trim drops the events that the API lists only because the request was wider than the
// page's position: the events between from and the start, and those between the end and to.
// Otherwise, neighbouring windows would publish them too. Other events outside the window
// stay: the API lists them here, by a time other than their own, and in no other window.
//
// An event without a time is assumed to be where its neighbours on the page are. Trim
// returns an error, and the events are invalid, if the neighbours are on different sides of
// a bound, or if the event is the last one and the one before it is near the end. Such an
// event could be published twice if it is kept, or never if it is dropped. Without a
// window, events without a time stay.
func Trim(p *bridge.Page, from, to int64) error {
	sideOf := func(e *bridge.Event) side {
		switch {
		case p.At.Window && e.Time >= p.At.End && e.Time < to:
			return after
		case p.At.Start != 0 && e.Time < p.At.Start && e.Time >= from:
			return before
		}
		return inside
	}
	kept, last := p.Events[:0], inside
	if p.At.Start > from {
		last = unknown
	}
	var open *undated // the next neighbour decides
	var newest int64
	for i := range p.Events {
		e := &p.Events[i]
		switch {
		case !dated(e) && !p.At.Window:
			kept = append(kept, *e)
			continue
		case !dated(e) && open != nil:
		case !dated(e):
			open = &undated{e.Index}
		case sideOf(e) == last:
			open = nil
		case open != nil:
			return open
		default:
			last = sideOf(e)
		}
		if dated(e) {
			newest = e.Time
		}
		if last == inside {
			kept = append(kept, *e)
		}
	}
	if open != nil && (last != inside || p.At.End-newest < nearEnd) {
		return open
	}
	p.Events = kept
	return nil
}

// undated is the error of an event that may be outside the window.
type undated struct{ index int }

func (u *undated) Error() string {
	return fmt.Sprintf("item %d has no readable time, "+
		"and its neighbours on the page do not tell whether it is in the range", u.index)
}

const (
	// fewest is the number of events with a time from which their order counts. most is the
	// number at which the order is certain.
	fewest, most = 10, 1000
)

// Order detects in which order the first pages of an export list their events. The zero
// value has seen no page.
type Order struct {
	next         string // the cursor of the following page, empty if there is none
	dated        int
	falls, rises int // number of falls and rises of the time from one event to the next
	first, last  int64
}

// Backwards reports whether a page and those before it list events newest first. The next
// cursor of such an API leads into the past, and new events never follow. Backwards ignores
// a page that does not follow the pages before. It forgets a page for which it returns
// true.
//
// If rises and falls of the time are random, their difference is usually less than the
// square root of a third of their number. A difference of more than three times that is an
// order, even if single events are out of order.
func (o *Order) Backwards(p *bridge.Page) bool {
	seen := *o
	switch {
	case p.At.Cursor == "":
		seen = Order{}
	case p.At.Cursor != o.next || o.dated >= most:
		return false
	}
	seen.next = p.Next
	for i := range p.Events {
		if e := &p.Events[i]; dated(e) {
			seen.add(e.Time)
		}
	}
	if over := seen.falls - seen.rises; seen.dated >= fewest && seen.last < seen.first && over > 0 &&
		over*over >= 4*(seen.falls+seen.rises) {
		return true
	}
	*o = seen
	return false
}

func (o *Order) add(ms int64) {
	switch {
	case o.dated == 0:
		o.first = ms
	case ms < o.last:
		o.falls++
	case ms > o.last:
		o.rises++
	}
	o.last = ms
	o.dated++
}
