package cursorstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
)

// Around returns the newest entry of the current branch whose PositionTime is before
// t, and the oldest one whose PositionTime is late or after it; nil if there is none.
// It passes over entries whose PositionTime is unknown.
func (h *history) Around(ctx context.Context, t, late time.Time) (before, later *bridge.Checkpoint, err error) {
	op := fmt.Sprintf("history entries of %s around %s", h.name, t.UTC().Format(time.RFC3339))
	branch, _, err := h.branch(ctx)
	if err == nil && len(branch) == 0 {
		err = bridge.ErrNoEntry
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", op, err)
	}
	p := positions{h: h, branch: branch, known: make([]*bridge.Checkpoint, len(branch))}
	i, err := p.newestBefore(ctx, op, t)
	j, err2 := p.newestBefore(ctx, op, late)
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", op, err)
	}
	if i < len(branch) && p.known[i] != &none {
		before = p.known[i]
	}
	if j > 0 {
		later = p.known[j-1]
	}
	return before, later, nil
}

// none stands for an entry that does not exist.
var none bridge.Checkpoint

// positions looks up the known positions of a branch's entries. Along the branch, positions
// never grow towards the past.
type positions struct {
	h      *history
	branch []node
	// known[i] is the first entry from index i on with a known position: &none if there is
	// no such entry, nil before the lookup.
	known []*bridge.Checkpoint
}

// newestBefore returns the first index whose known position is before t.
func (p *positions) newestBefore(ctx context.Context, op string, t time.Time) (int, error) {
	return search(len(p.branch), func(i int) (bool, error) {
		c, err := p.from(ctx, op, i)
		if err != nil {
			return true, err
		}
		at, _ := c.KnownPosition()
		return at < t.UnixMilli(), nil
	})
}

// from returns known[i], after a lookup if necessary. It reads each entry at most once while
// the positions are unknown.
func (p *positions) from(ctx context.Context, op string, i int) (*bridge.Checkpoint, error) {
	at, found := i, &none
	for step := 1; at < len(p.branch); step = min(2*step, fetchStep) {
		if p.known[at] != nil {
			found = p.known[at]
			break
		}
		part := p.branch[at:min(at+step, len(p.branch))]
		entries, err := p.h.fetch(ctx, op, part)
		if err != nil {
			return nil, err
		}
		k := slices.IndexFunc(entries, func(e bridge.Entry) bool { _, known := e.KnownPosition(); return known })
		if k >= 0 {
			found = &entries[k].Checkpoint
			at += slices.IndexFunc(part, func(n node) bool { return n.version == found.Version }) + 1
			break
		}
		at += len(part)
	}
	for ; at > i; at-- {
		p.known[at-1] = found
	}
	return found, nil
}
