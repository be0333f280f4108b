package control

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// Repeats is how many events a move publishes again.
type Repeats struct {
	// Min and Max are equal if the history knows the number. Max is -1 if it
	// knows no upper bound.
	Min int64 `json:"repeats_min"`
	Max int64 `json:"repeats_max"`
	// Pages is the number of their pages, -1 if unknown.
	Pages int64 `json:"repeats_pages"`
}

func atLeast(events int64) Repeats { return Repeats{Min: events, Max: -1, Pages: -1} }

// sameCount reports whether two entries count their events from the same position:
// their branches have the same root.
func (c *Controller) sameCount(ctx context.Context, a, b bridge.Version) bool {
	if a.Epoch == b.Epoch {
		return true
	}
	rootA, okA := c.root(ctx, a)
	rootB, okB := c.root(ctx, b)
	return okA && okB && rootA == rootB
}

// root returns the epoch in which the branch of an entry begins; false if it is
// unknown.
func (c *Controller) root(ctx context.Context, at bridge.Version) (epoch int64, ok bool) {
	for {
		first, err := c.ports.Entries.Entry(ctx, bridge.Version{Epoch: at.Epoch})
		switch {
		case err != nil:
			return 0, false
		case first.Parent == nil || first.Parent.Epoch >= at.Epoch:
			return at.Epoch, true
		}
		at = *first.Parent
	}
}

// passedSince returns how many events the stream has published at least since the
// entry e, on this branch or on one that it left; nil is the beginning of the
// export. all is true if every branch was compared with e.
func (c *Controller) passedSince(ctx context.Context, from base, e *bridge.Checkpoint) (events int64, all bool) {
	all = true
	for at := from.Checkpoint; ; {
		switch {
		case e == nil:
			events = max(events, at.Events)
		case !c.sameCount(ctx, at.Version, e.Version):
			all = false
		case at.Events > e.Events:
			return at.Events - e.Events, false
		}
		if at.Change == nil {
			return events, all
		}
		if from.away != nil || ctx.Err() != nil {
			return events, false
		}
		left, err := c.ports.Entries.Entry(ctx, at.Change.From)
		if err != nil {
			return events, false
		}
		at = left.Checkpoint
	}
}

// repeatsFrom bounds the events of a time and later: the stream had not published them
// before that time.
func (c *Controller) repeatsFrom(ctx context.Context, from base, t time.Time) Repeats {
	if from.away != nil || from.Zero() {
		return atLeast(0)
	}
	e, err := c.ports.Entries.EntryAt(ctx, t)
	if err != nil || !c.unmoved(ctx, from, e.Version) {
		return atLeast(0)
	}
	return Repeats{Max: max(0, from.Events-e.Events), Pages: -1}
}

// unmoved reports whether the stream came from an entry to where it is without a move.
func (c *Controller) unmoved(ctx context.Context, from base, since bridge.Version) bool {
	for at := from.Checkpoint; at.Epoch > since.Epoch; {
		if at.Change == nil || at.Change.Moves() {
			return false
		}
		left, err := c.ports.Entries.Entry(ctx, at.Change.From)
		if err != nil {
			return false
		}
		at = left.Checkpoint
	}
	return true
}
