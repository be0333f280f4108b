package timeline

import "exportbridge/bridge"

const (
	// fewest is how many events must have a time before their order counts,
	// most after how many it is known.
	fewest, most = 10, 1000
)

// Order judges in which order the first pages of an export list their events.
// The zero value has seen no page.
type Order struct {
	next         string // the cursor of the page that follows, empty if none does
	dated        int
	falls, rises int // of the time, from one event to the next one
	first, last  int64
}

// Backwards reports whether events are listed newest first, by the page and
// those before it: the next cursor of such an API leads into the past, and no
// new event ever follows. A page that does not follow the ones before is not
// judged, and one of which this is true is as if it had not been seen.
//
// Where falls and rises of the time are left to chance, their difference is
// less than the square root of a third of their number, as a rule. More than
// three times as much is an order, whatever single events are out of it.
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
