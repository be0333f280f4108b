package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// History is a part of a stream's committed checkpoints.
type History struct {
	Entries []HistoryEntry // newest first
	// Stored is the number of entries from Redis, which come first. The other entries are
	// from the checkpoint topic.
	Stored int
	// Note says which entries are from the checkpoint topic, and which are missing.
	Note string
}

// HistoryEntry is a committed checkpoint on any branch.
type HistoryEntry struct {
	bridge.Entry
	// OtherBranch is true if a later move left the entry.
	OtherBranch bool
}

// History returns the entries in Redis and, if there are fewer than the limit, the
// older ones in the checkpoint topic.
func (c *Controller) History(ctx context.Context, q bridge.HistoryQuery) (History, error) {
	entries, err := c.ports.Entries.History(ctx, q)
	stored := len(entries)
	if err == nil && (q.Limit > 0 && stored >= q.Limit || c.goesBack(ctx, q)) {
		return History{Entries: onBranch(entries), Stored: stored}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	logErr := c.ports.Log.Walk(ctx, func(p bridge.Checkpoint) bool {
		switch {
		case !q.Since.IsZero() && p.WrittenAt < q.Since.UnixMilli():
			return false
		case stored > 0 && p.Version.Compare(entries[stored-1].Version) >= 0, !isListed(&p, entries):
			return true
		}
		if q.Brief {
			p.Tail = nil
		}
		entries = append(entries, bridge.Entry{Checkpoint: p})
		return q.Limit == 0 || len(entries) < q.Limit
	})
	note := ""
	switch more := len(entries) - stored; {
	case logErr != nil && err != nil:
		return History{}, neither(err, logErr)
	case logErr != nil:
		note = "the checkpoint topic cannot be read; all entries are from Redis: " + cut(logErr.Error(), 120)
	case err != nil:
		note = "Redis does not answer; all entries are from the checkpoint topic: " + cut(err.Error(), 120)
	case more == 1:
		note = "the last entry is from the checkpoint topic; Redis has none before"
	case more > 1:
		note = fmt.Sprintf("the last %d entries are from the checkpoint topic; Redis has none before", more)
	}
	return History{Entries: onBranch(entries), Stored: stored, Note: note}, nil
}

// goesBack reports whether Redis has entries before the time of a query, and therefore all
// entries of the query.
func (c *Controller) goesBack(ctx context.Context, q bridge.HistoryQuery) bool {
	if q.Since.IsZero() {
		return false
	}
	older, err := c.ports.Entries.History(ctx, bridge.HistoryQuery{Before: q.Since, Limit: 1})
	return err == nil && len(older) > 0
}

// onBranch marks the entries of other branches. The newest entry is on the current branch.
func onBranch(entries []bridge.Entry) []HistoryEntry {
	all := make([]HistoryEntry, len(entries))
	var branch lineage
	for i, e := range entries {
		if i == 0 {
			branch.at = e.Version
		}
		all[i] = HistoryEntry{Entry: e, OtherBranch: !branch.has(&e)}
	}
	return all
}

// isListed reports whether a history lists a commit whose newer entries are given. A
// history lists the newest commit of each second, and no heartbeats.
func isListed(p *bridge.Checkpoint, newer []bridge.Entry) bool {
	if p.Kind != bridge.KindData {
		return p.Kind != bridge.KindHeartbeat
	}
	n := len(newer)
	return n == 0 || newer[n-1].Epoch != p.Epoch || newer[n-1].WrittenAt/1000 != p.WrittenAt/1000
}

// entryAt returns the newest entry of the current branch at or before a time. If the branch
// began later, entryAt returns the newest entry of any branch.
func (p *planner) entryAt(ctx context.Context, t time.Time) (at neighbors, err error) {
	at.Entry, at.next, err = p.ports.Entries.EntryAt(ctx, t)
	if !errors.Is(err, bridge.ErrNoEntry) {
		return at, err
	}
	older, listErr := p.ports.Entries.History(ctx, bridge.HistoryQuery{Before: t.Add(time.Millisecond), Limit: 1})
	switch {
	case listErr != nil:
		return at, listErr
	case len(older) == 0:
		return at, err
	}
	return neighbors{Entry: older[0], elsewhere: true}, nil
}

// matcher reports whether a commit matches, and whether to continue with older ones. own is
// true for a commit of the stream's branch.
type matcher func(c *bridge.Checkpoint, own bool) (match, more bool)

// older returns the first match in the checkpoint topic, or the error noEntry.
func (p *planner) older(ctx context.Context, noEntry error, is matcher) (found, error) {
	var e found
	branch, ok := lineage{at: p.from.Version}, false
	walk, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	err := p.ports.Log.Walk(walk, func(c bridge.Checkpoint) bool {
		at := bridge.Entry{Checkpoint: c}
		own := branch.has(&at)
		match, more := is(&c, own)
		if match {
			e, ok = found{at, own}, true
		}
		return more && !match
	})
	switch {
	case err != nil:
		return e, also(noEntry, "the checkpoint topic cannot be read: "+err.Error())
	case !ok:
		return e, noEntry
	}
	e.sameCount = e.sameCount || p.sameCount(ctx, &e.Checkpoint)
	return e, nil
}
