package timeline

import "exportbridge/bridge"

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
