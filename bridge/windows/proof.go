package windows

import (
	"context"
	"slices"

	"exportbridge/bridge"
)

// prove proves that a listing is complete, if it has no next page, or a full last page, and
// more items than any listing that was proven. An API may cut off items without saying so,
// so prove lists parts of the range, too. It proves each listing of an API that has cut off one: the
// number of items at which it does so may vary.
func (l *Lister) prove(ctx context.Context, c *collector, got listing, from, to int64) (err error) {
	if l.cfg.EndExplicit || got.items <= 1 || got.items <= l.proven && !l.cuts || l.paged && got.last < l.largest {
		return nil
	}
	if c.keys == nil {
		if got, err = l.keyed(ctx, c, from, to); err != nil {
			return err
		}
	}
	whole := c.keys
	for _, part := range l.parts(whole, from, to) {
		if _, err = l.keyed(ctx, c, part[0], part[1]); err != nil {
			return err
		}
		hidden := c.keys
		without(hidden, whole)
		if len(hidden) == 0 {
			continue
		}
		again, err := l.keyed(ctx, c, from, to)
		if err != nil {
			return err
		}
		whole = c.keys
		if without(hidden, whole); len(hidden) == 0 { // new items were shown meanwhile
			if again.items > got.items {
				l.proven = max(l.proven, got.items)
			}
			if l.cfg.NoEnd {
				return nil
			}
			return l.prove(ctx, c, again, from, to)
		}
		// An item may also have been deleted, or the last listing may come from a server that lags behind.
		if _, err = l.keyed(ctx, c, part[0], part[1]); err != nil {
			return err
		}
		if listed := c.keys; !common(hidden, listed) {
			return nil
		}
		l.cuts, l.most = true, got.items
		return l.full(got.items)
	}
	l.proven = max(l.proven, got.items)
	return nil
}

// keyed reads a range. The collector then has the keys of its items only.
func (l *Lister) keyed(ctx context.Context, c *collector, from, to int64) (listing, error) {
	c.keys = make(map[bridge.ItemKey]int64)
	return l.read(ctx, c, from, to)
}

// parts returns the parts of a range that prove lists: before an early item and after a late one, each
// with the second of that item and without it, because a listing that is cut off within that second
// hides what is beyond. Times of items may be far from those by which the API selects them, or outside
// the range: one page shows half of the items before the middle one, many pages few of them. Without an
// end only the parts after the item can be listed.
func (l *Lister) parts(items map[bridge.ItemKey]int64, from, to int64) (parts [][2]int64) {
	times := make([]int64, 0, len(items))
	for _, at := range items {
		if at != bridge.NoTime && at >= from && (at < to || l.cfg.NoEnd) {
			times = append(times, at)
		}
	}
	var early, late int64
	switch n := len(times); {
	case n > 0:
		slices.Sort(times)
		at := n / 2
		if l.paged {
			at = n / 64
		}
		early, late = floor(times[at]), floor(times[n-1-at])
	case l.cfg.NoEnd:
		return nil
	default:
		early = floor((from + to) / 2)
		late = early
	}
	for i, part := range [][2]int64{{from, early + unit}, {from, early}, {late, to}, {late + 2*unit, to}} {
		part[1] = min(part[1], to)
		if part[0] >= from && part[0] < part[1] && (i > 1 || !l.cfg.NoEnd) {
			parts = append(parts, part)
		}
	}
	return parts
}

// cutsAt reports whether the API has cut off a listing at this number of items. It does not, if it
// lists more.
func (l *Lister) cutsAt(items int) bool {
	if items > l.most {
		l.most = 0
	}
	return l.most > 0 && items == l.most
}

// without deletes from items those of others.
func without(items, others map[bridge.ItemKey]int64) {
	for k := range others {
		delete(items, k)
	}
}

// common reports whether both have an item in common.
func common(items, others map[bridge.ItemKey]int64) bool {
	for k := range items {
		if _, is := others[k]; is {
			return true
		}
	}
	return false
}
