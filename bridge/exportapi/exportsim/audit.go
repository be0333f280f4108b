package exportsim

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// An audit list is a form with Clocked. It lists the events of the past, newest first. An
// event is listed at its time or later, see Config.Lag.

// lateShare is the inverse of the share of events that are listed late.
const lateShare = 4

// visibleAt returns when an event is listed, in milliseconds since the epoch.
func (w *world) visibleAt(i int) int64 {
	at := w.eventTime(i)
	if random := w.hash(saltLag, i); w.lag > 0 && random%lateShare == 0 {
		at += 1 + int64(random>>8%uint64(w.lag))
	}
	return at
}

// happened returns the number of events until now, listed or not.
func (w *world) happened() int {
	events := resource{timeOf: w.eventTime, among: func(n int) int { return n }}
	return events.from(w.clock().UnixMilli()+1, w.limit)
}

// revision returns how often the item of an event has changed.
func (w *world) revision(i int) int64 {
	if w.changes == 0 {
		return 0
	}
	return max(0, w.clock().UnixMilli()-w.eventTime(i)) / w.changes
}

// listed returns the extent of a page of an audit list. The last page with items ends the
// list: no empty page follows it.
func (p *pages) listed(q query, happened int) extent {
	now := p.world.clock().UnixMilli()
	var found []int
	e := extent{next: q.from}
	skip := q.skip
	for i := min(q.to, happened) - 1; i >= q.from; i-- {
		switch {
		case p.world.visibleAt(i) > now || !p.matches(q, i):
		case skip > 0:
			skip--
		case len(found) == q.size:
			e.more = true
			return e.holds(found)
		default:
			found, e.next = append(found, i), i
		}
	}
	return e.holds(found)
}

// holds returns e with the items found, which are newest first.
func (e extent) holds(found []int) extent {
	slices.Reverse(found)
	e.high, e.order = len(found), found
	return e
}

// readNumber reads a cursor that is the number of items before the page, or of the page
// from 1.
func (q *query) readNumber(pages bool) error {
	n, err := strconv.Atoi(q.cursor)
	if q.skip = n; pages {
		q.skip = (n - 1) * q.size
	}
	if err != nil || q.skip < 0 || n > math.MaxInt32 {
		return refusal{http.StatusBadRequest, "invalid-cursor", "The page or offset is not valid."}
	}
	return nil
}

func (c *Config) clock() func() time.Time {
	if c.Clock == nil {
		return time.Now
	}
	return c.Clock
}
