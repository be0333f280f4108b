package exportsim

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// An audit list is a form with Clocked: the events of the past, newest first. An event
// is listed from its time on, or some time later. See Config.Lag.

// lateShare is the inverse of the share of events that are listed late.
const lateShare = 4

// visibleAt is when an event is listed, in milliseconds since the epoch.
func (w *world) visibleAt(i int) int64 {
	at := w.eventTime(i)
	if random := w.hash(saltLag, i); w.lag > 0 && random%lateShare == 0 {
		at += 1 + int64(random>>8%uint64(w.lag))
	}
	return at
}

// happened is the number of events until now, listed or not.
func (w *world) happened() int {
	events := resource{timeOf: w.eventTime, among: func(n int) int { return n }}
	return events.from(w.clock().UnixMilli()+1, w.limit)
}

// revision counts how often the item of an event has changed.
func (w *world) revision(i int) int64 {
	if w.changes == 0 {
		return 0
	}
	return max(0, w.clock().UnixMilli()-w.eventTime(i)) / w.changes
}

// listed finds the page of an audit list. Its end is exact: no empty page follows it.
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

// holds returns the extent of items that are in the order of a list backwards.
func (e extent) holds(found []int) extent {
	e.high, e.order = len(found), make([]int, len(found))
	for n, i := range found {
		e.order[len(found)-1-n] = i
	}
	return e
}

// readNumber reads a cursor that counts the items before the page, or the pages from 1.
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

// tellTime sets the Date of a response where the API's clock is not the machine's.
func (h *Handler) tellTime(header http.Header) {
	if h.config.Clock != nil {
		header.Set("Date", h.pages.world.clock().UTC().Format(http.TimeFormat))
	}
}

func (c *Config) clock() func() time.Time {
	if c.Clock == nil {
		return time.Now
	}
	return c.Clock
}
