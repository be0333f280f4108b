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
