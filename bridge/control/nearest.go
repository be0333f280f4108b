package control

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// nearTimeout bounds the search for a commit between two entries in Redis.
const nearTimeout = 5 * time.Second

// nearest is a search for the newest commit of the current branch that matches.
type nearest struct {
	// stored returns the newest entry in Redis.
	stored  func(context.Context) (neighbors, error)
	matches func(c *bridge.Checkpoint) bool
	time    time.Time // the requested time, zero if none
	where   string    // time as text
	// other is the newest commit on another branch at or before time, if it is newer than
	// the result.
	other *bridge.Checkpoint
}

// neighbors are an entry in Redis and the next newer entry of its branch, which is nil for
// the newest entry.
type neighbors struct {
	bridge.Entry
	next *bridge.Entry
	// elsewhere is true for an entry of another branch. Its next is nil.
	elsewhere bool
}

// moveToNearest plans a rewind to the result of a search. Redis has at most one entry per
// second. The checkpoint topic has all commits between these entries.
func (p *planner) moveToNearest(ctx context.Context, n nearest) (*Move, error) {
	var at neighbors
	every, elsewhere := true, false
	var logErr error
	e, err := p.entry(ctx, lookup{
		inStore: func(ctx context.Context) (e bridge.Entry, err error) {
			if at, err = n.stored(ctx); err == nil {
				e, every, logErr = p.between(ctx, at, &n)
			}
			elsewhere = at.elsewhere
			return e, err
		},
		inLog: func(c *bridge.Checkpoint, own bool) (match, more bool) {
			fits := n.fits(c)
			if fits && !own {
				n.passBy(c)
			}
			return fits && own, true
		},
		time: n.time,
	})
	if isNoEntry(err) && n.other != nil {
		e, err, elsewhere = found{Entry: bridge.Entry{Checkpoint: *n.other}}, nil, true
	}
	if err != nil {
		return nil, err
	}
	m := p.moveToEntry(ctx, e)
	m.To.Text += "   (" + n.describe(at.next, every, elsewhere) + ")"
	if n.other != nil && !elsewhere {
		m.note("entry %s of %s is newer, but on another branch", n.other.Version, secondText(n.other.WrittenAt))
	}
	if logErr != nil && !every {
		m.note("the checkpoint topic, which has the commits between the entries in Redis, cannot be read: %s",
			cut(logErr.Error(), 120))
	}
	return m, nil
}

// fits reports whether a commit can be the target. A heartbeat cannot, because it has the
// position of the commit before.
func (n *nearest) fits(c *bridge.Checkpoint) bool {
	return c.Kind != bridge.KindHeartbeat && n.matches(c)
}

// passBy keeps the newest commit of another branch. A search by pages keeps none, because
// pages count along one branch.
func (n *nearest) passBy(c *bridge.Checkpoint) {
	if n.other == nil && !n.time.IsZero() {
		other := *c
		n.other = &other
	}
}

// describe describes the target. every is true if the search saw every commit of the branch.
func (n *nearest) describe(next *bridge.Entry, every, elsewhere bool) string {
	what := "the newest commit "
	switch {
	case !every && elsewhere:
		what = "the newest entry in Redis "
	case !every:
		what = "the newest entry of the current branch in Redis "
	case n.other != nil && !elsewhere:
		what = "the newest commit of the current branch "
	}
	text := what + n.where
	switch {
	case elsewhere:
		text += ", on another branch: the current one begins later"
	case !every && next != nil:
		text += fmt.Sprintf("; the next one is %s of %s", next.Version, secondText(next.WrittenAt))
	}
	return text
}

func secondText(ms int64) string { return time.UnixMilli(ms).UTC().Format(timeLayout) }

// between returns the newest match after an entry in Redis, from the checkpoint topic, or
// the entry if there is no later match. every is true if the topic has all commits between.
func (p *planner) between(ctx context.Context, at neighbors, n *nearest) (e bridge.Entry, every bool, err error) {
	limit := p.from.Version // the last commit of the entry's part of the branch
	switch next := at.next; {
	case at.elsewhere:
		limit = bridge.Version{Epoch: at.Epoch, Seq: bridge.MaxNumber}
	case next == nil:
	case next.Epoch == at.Epoch:
		limit = next.Version
	case next.Parent != nil:
		limit = *next.Parent
	default:
		limit = at.Version
	}
	before := n.time
	if before.IsZero() && at.next != nil {
		before = time.UnixMilli(at.next.WrittenAt)
	}
	e, every = at.Entry, limit.Compare(at.Version) <= 0
	if every && n.time.IsZero() {
		return e, every, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nearTimeout)
	defer cancel()
	err = p.ports.Log.WalkBefore(ctx, before, func(c bridge.Checkpoint) bool {
		switch {
		case c.Version.Compare(at.Version) <= 0:
			every = every || c.Version == at.Version
			return false
		case !n.fits(&c):
			return true
		case c.Epoch == at.Epoch && c.Version.Compare(limit) <= 0:
			e, every = bridge.Entry{Checkpoint: c, Parent: &at.Version}, true
			return false
		}
		n.passBy(&c)
		return !every
	})
	return e, every, err
}

// lineage follows the stream's branch through commits, newest first.
type lineage struct {
	at bridge.Version // the newest commit that can be on the branch
	// begin is the first commit of an epoch whose parent only its position identifies.
	begin *bridge.Checkpoint
	ended bool // the first commit of the stream was reached
}

// has reports whether a commit is the next one on the branch.
func (l *lineage) has(e *bridge.Entry) bool {
	switch {
	case l.ended:
		return false
	case l.begin != nil:
		if !l.begin.Continues(&e.Checkpoint) {
			return false
		}
	case e.Epoch != l.at.Epoch || e.Version.Compare(l.at) > 0:
		return false
	}
	l.at, l.begin = e.Version, nil
	if e.Seq > 0 {
		return true
	}
	to := e.Parent
	if to == nil {
		to = e.MovedTo()
	}
	switch {
	case to != nil:
		l.at = *to
	case e.Epoch == 0:
		l.ended = true
	default:
		begin := e.Checkpoint
		l.begin = &begin
	}
	return true
}
