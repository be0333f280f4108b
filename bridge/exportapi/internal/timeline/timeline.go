// Package timeline judges the events of a page by their own times.
package timeline

import (
	"fmt"

	"exportbridge/bridge"
)

// dated reports whether an event has a time that was read.
func dated(e *bridge.Event) bool { return e.Defect == bridge.DefectNone && e.Time != bridge.NoTime }

// side is where an event is, as seen from a window.
type side uint8

const (
	unknown side = iota
	before
	inside
	after
)

// nearEnd is how near to the end of a window, in milliseconds, the next event can
// be outside of it.
const nearEnd = 60_000

// Trim drops the events that the API returns only because it was asked for more
// than the page's position: from from on and before the start, or at the end
// and before to. Neighbouring windows would publish them twice. Others outside
// of the window stay: the API has put them there by another time than their own,
// and returns them nowhere else.
//
// An event without a time is where its neighbours on the page are. If they are
// on different sides of a window's bound, or it is the last one and the one
// before it near the end, Trim returns an error, and the events are invalid:
// kept, it could be published twice, dropped, never. Where there is no window it
// stays.
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
	var open *undated // waits for its neighbour
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

// undated is the error of an event that may be outside of the window.
type undated struct{ index int }

func (u *undated) Error() string {
	return fmt.Sprintf("item %d has no readable time, "+
		"and its neighbours on the page do not tell whether it is in the range", u.index)
}
