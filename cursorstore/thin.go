package cursorstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	thinStep  = 1000 // index members read, and entries removed, at once
	thinSteps = 5    // per tier and call
)

// tier is the density of entries from an age on: one per duration, keepAll or
// keepNone. Growth is an entry that repeats a cursor with a longer tail: it may
// have tens of kilobytes and saves at most one page.
type tier struct {
	after        time.Duration
	data, growth time.Duration
}

const (
	keepAll  time.Duration = 0
	keepNone time.Duration = -1
)

func (c *Client) tiers() []tier {
	return []tier{
		{after: time.Hour, data: keepAll, growth: time.Minute},
		{after: 24 * time.Hour, data: time.Minute, growth: time.Hour},
		{after: c.age, data: keepNone, growth: keepNone},
	}
}

// progress is how far a tier has been thinned. It is in memory only: a new process starts at
// the oldest entry and finds little to do.
type progress struct {
	at   int64 // all earlier entries are thinned
	last map[series]node
}

// series is thinned as a unit: an epoch's data, or its growth.
type series struct {
	epoch int64
	mark  string
}

// Thin deletes entries older than CURSOR_HISTORY_AGE and thins old ones: to one
// per minute after a day; growth entries to one per minute after an hour and
// one per hour after a day. The first entry of each interval, all operator changes
// and the last entry of each of these ages are kept: the stream was there until the
// next one. It does a bounded amount of work and returns the number of deleted
// entries: call it about once a minute.
func (h *history) Thin(ctx context.Context, now time.Time) (removed int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tiers := h.c.tiers()
	if h.progress == nil {
		h.progress = make([]progress, len(tiers))
		for i := range h.progress {
			h.progress[i].last = make(map[series]node)
		}
	}
	for i, t := range tiers {
		for range thinSteps {
			n, done, err := h.thinStep(ctx, t, &h.progress[i], now.Add(-t.after).UnixMilli())
			removed += n
			if err != nil {
				return removed, err
			}
			if done {
				break
			}
		}
	}
	return removed, nil
}

// thinStep thins the next entries of a tier up to a time.
func (h *history) thinStep(ctx context.Context, t tier, p *progress, until int64) (removed int, done bool, err error) {
	op := "thin the history of " + h.name
	var members []redis.Z
	err = h.call(ctx, op, func(ctx context.Context) (err error) {
		members, err = h.c.rdb.ZRangeByScoreWithScores(ctx, h.keys.index,
			&redis.ZRangeBy{Min: decimal(p.at), Max: decimal(until), Count: thinStep}).Result()
		return err
	})
	if err != nil {
		return 0, false, err
	}
	nodes, err := nodesOf(members)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", op, foreign(h.keys.index, err))
	}
	var surplus []node
	for i, n := range nodes {
		if !p.keep(t, n) && i < len(nodes)-1 { // the next step decides about the last one
			surplus = append(surplus, n)
		}
	}
	if err := h.remove(ctx, op, surplus); err != nil {
		return 0, false, err
	}
	if len(nodes) < thinStep {
		return len(surplus), true, nil
	}
	// The next step begins at this time, not after it: more entries may have the same
	// millisecond. If a whole step has one millisecond, its entries are kept.
	next := nodes[len(nodes)-1].at
	if next == p.at && len(surplus) == 0 {
		next++
	}
	p.at = next
	return len(surplus), false, nil
}

// keep reports whether an entry is kept. Entries come in the order of time, some repeatedly.
func (p *progress) keep(t tier, n node) bool {
	every := t.data
	if n.mark == markGrowth {
		every = t.growth
	}
	switch {
	case n.mark == markKept || every == keepAll:
		return true
	case every == keepNone:
		return false
	}
	of := series{n.version.Epoch, n.mark}
	last, seen := p.last[of]
	if seen && last.version != n.version && last.at/every.Milliseconds() == n.at/every.Milliseconds() {
		return false
	}
	p.last[of] = n
	return true
}

// remove deletes entries in one transaction.
func (h *history) remove(ctx context.Context, op string, nodes []node) error {
	if len(nodes) == 0 {
		return nil
	}
	versions := make([]string, len(nodes))
	members := make([]any, len(nodes))
	for i, n := range nodes {
		versions[i], members[i] = n.version.String(), n.member()
	}
	return h.call(ctx, op, func(ctx context.Context) error {
		_, err := h.c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HDel(ctx, h.keys.history, versions...)
			p.ZRem(ctx, h.keys.index, members...)
			return nil
		})
		return err
	})
}
