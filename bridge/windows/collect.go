package windows

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"time"
	"unsafe"

	"exportbridge/bridge"
)

// pageBytes is the size from which a page of the Lister takes no more items.
const pageBytes = 1 << 20

// item is a copy of an event that outlives its page.
type item struct {
	event  bridge.Event
	source bridge.SourceIdentity
	order  order // in a range
	cost   int64 // in bytes
}

// collector keeps the new items of a window.
type collector struct {
	memory *memory
	floor  int64                    // where the listing begins if nothing earlier is listed, else NoTime
	to     int64                    // end of the window
	most   int64                    // maximum of bytes
	walk   *walk                    // of a list without an end, else nil
	share  *share                   // of a part of a range, else nil
	keys   map[bridge.ItemKey]int64 // of the listed items, with their times; nil if they are not needed
	moving bool                     // pages move: listed is compared with another listing's
	again  int64                    // items from this time on are listed by other windows too
	listed digest                   // of the items before again, and of all without an id
	items  []item
	bytes  int64 // memory cost of the items
}

// digest is equal for two listings of the same items, in any order. The zero value is of no items.
type digest struct {
	items  int
	sum    uint64
	others bool // there are other items, and the only compared one may be left out
}

func (d *digest) add(k bridge.ItemKey) {
	d.items++
	d.sum += maphash.Bytes(seed, k[:])
}

// itemCost is the memory of an item beside its bytes, as in the engine's prefetcher.
const itemCost = 800

// detach copies what the item shares with its page, and sets the cost.
func (i *item) detach() {
	e := &i.event
	block := make([]byte, 0, len(e.Raw)+len(e.ID)+len(e.Key)+len(e.Type)+len(e.Subject))
	for _, text := range []*[]byte{&e.Raw, &e.ID, &e.Key, &e.Type, &e.Subject} {
		if *text != nil {
			from := len(block)
			block = append(block, *text...)
			*text = block[from:len(block):len(block)]
		}
	}
	i.cost = int64(len(block)) + itemCost
	if e.Sums != nil {
		e.Sums = e.Sums.Detach()
		i.cost += int64(unsafe.Sizeof(*e.Sums)) + int64(len(e.ID))
	}
}

// collect copies the new items of a page.
func (c *collector) collect(p *bridge.Page) error {
	c.memory.page++
	for i := range p.Events {
		e := &p.Events[i]
		k := e.ItemKey()
		switch {
		case !c.moving:
		case e.ID == nil || e.Defect != bridge.DefectNone || e.Time < c.again:
			c.listed.add(k)
		default:
			c.listed.others = c.again != bridge.NoTime
		}
		if c.keys != nil {
			c.keys[k] = e.Time
		}
		if c.walk != nil {
			if leave, err := c.walk.leaves(e, k, c.memory); err != nil {
				return err
			} else if leave {
				continue
			}
			c.walk.recognize(k)
		}
		if c.belowFloor(e) || c.share.leaves(e) {
			continue
		}
		if !c.memory.isNew(e, k, c.to) {
			if c.walk != nil {
				c.walk.met = true
			}
			continue
		}
		kept := item{event: *e, source: p.Source}
		if c.share != nil {
			if kept.order = (order{kept.when(), k}); !c.share.keeps(&kept) {
				continue
			}
		}
		kept.detach()
		c.items, c.bytes = append(c.items, kept), c.bytes+kept.cost
		switch {
		case c.bytes <= c.most:
		case c.share == nil || !c.share.sheds:
			return errTooMuch
		default:
			c.shed()
		}
	}
	if len(c.memory.seen) > maxRemembered {
		if c.share != nil {
			return errTooMuch
		}
		return blocked("lower EXPORT_LOOK_BACK, or the range of EXPORT_LATE",
			"the windows of the look-back have too many events to remember")
	}
	return nil
}

// belowFloor reports whether an item is listed only because the request begins a unit
// before the listing.
func (c *collector) belowFloor(e *bridge.Event) bool {
	return e.Defect == bridge.DefectNone && e.Time < c.floor && e.Time >= c.floor-unit
}

// when is the time by which an item is sorted: items without a readable time come first.
func (i *item) when() int64 {
	if i.event.Defect != bridge.DefectNone {
		return bridge.NoTime
	}
	return i.event.Time
}

// pages cuts the new items of a window into pages, oldest first. The last page leads to the
// watermark at the end of the window, the others name their part of the window. If only a
// part of the window was listed, so that to is the watermark, the window is listed again
// after these pages.
func (l *Lister) pages(at bridge.Position, w bridge.Watermark, to int64, items []item) {
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.when(), b.when()), bytes.Compare(a.event.ID, b.event.ID))
	})
	cursor, now := at.Cursor, l.clock.now().UnixMilli()
	for len(items) > 0 {
		n := l.fits(items)
		w.Part++
		next := w.Cursor()
		if n == len(items) && to > w.At {
			next = bridge.Watermark{At: to}.Cursor()
		}
		for i := range items[:n] {
			if e := &items[i].event; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && e.Time < w.At {
				e.Late = time.Duration(min(now-e.Time, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
			}
		}
		p := l.page(at, cursor, next, to)
		fill(p, items[:n])
		l.pending, items, cursor = append(l.pending, p), items[n:], next
	}
	l.memory.keep(l.forgotten(to))
}

// fits is how many of the first items make a page. In a range, items of one order are on
// one page.
func (l *Lister) fits(items []item) (n int) {
	for size := 0; n < len(items) && items[n].source == items[0].source; n++ {
		together := n > 0 && items[n].order != order{} && items[n].order == items[n-1].order
		if n > 0 && (n >= l.cfg.PageSize || size >= pageBytes) && !together {
			break
		}
		size += len(items[n].event.Raw)
	}
	return n
}

// fill puts items into an empty page.
func fill(p *bridge.Page, items []item) {
	p.Source, p.Items = items[0].source, len(items)
	for i := range items {
		e := items[i].event
		e.Index = i
		p.Events = append(p.Events, e)
		p.Extra += items[i].cost - itemCost
	}
}

// page returns an empty page that shows the list as of a time.
func (l *Lister) page(at bridge.Position, cursor, next string, asOf int64) *bridge.Page {
	at.Cursor, at.Held = cursor, nil
	p := &bridge.Page{At: at, Next: next, Body: []byte{}, Known: l.memory.met, RequestedAt: time.Now(),
		ServerTime: time.UnixMilli(asOf)}
	if !l.clock.byAPI {
		p.RequestedAt, p.ServerTime = p.ServerTime, time.Time{}
	}
	p.ArrivedAt = p.RequestedAt
	return p
}
