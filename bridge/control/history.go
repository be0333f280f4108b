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
	Entries []bridge.Entry // newest first
	// Stored says how many of them, from the first on, are Redis's. The others
	// are the checkpoint topic's.
	Stored int
	// Note says what is the checkpoint topic's, and what is missing.
	Note string
}

// History returns the entries of Redis, and from the checkpoint topic those
// before them: Redis was emptied, or is away, or the stream is young.
func (c *Controller) History(ctx context.Context, q bridge.HistoryQuery) (History, error) {
	entries, err := c.ports.Entries.History(ctx, q)
	stored := len(entries)
	if err == nil && q.Limit > 0 && stored >= q.Limit {
		return History{Entries: entries, Stored: stored}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	logErr := c.ports.Log.Walk(ctx, func(p bridge.Checkpoint) bool {
		switch {
		case !q.Since.IsZero() && p.WrittenAt < q.Since.UnixMilli():
			return false
		case p.Kind == bridge.KindHeartbeat, stored > 0 && p.Version.Compare(entries[stored-1].Version) >= 0:
			return true
		}
		entries = append(entries, bridge.Entry{Checkpoint: p})
		return q.Limit == 0 || len(entries) < q.Limit
	})
	note := ""
	switch more := len(entries) - stored; {
	case logErr != nil && err != nil:
		return History{}, also(err, "the checkpoint topic cannot be read either: "+logErr.Error())
	case logErr != nil:
		note = "the checkpoint topic cannot be read, this is what Redis has: " + cut(logErr.Error(), 120)
	case err != nil:
		note = "Redis does not answer, this is what the checkpoint topic has: " + cut(err.Error(), 120)
	case more > 0:
		note = fmt.Sprintf("the last %d are from the checkpoint topic, Redis has none before", more)
	}
	return History{Entries: entries, Stored: stored, Note: note}, nil
}

// entryAt finds where the stream was at a time: on the current branch of the
// history, or, where a reset cut that off later, on any.
func (c *Controller) entryAt(ctx context.Context, t time.Time) (bridge.Entry, error) {
	e, err := c.ports.Entries.EntryAt(ctx, t)
	if !errors.Is(err, bridge.ErrNoEntry) {
		return e, err
	}
	all, listErr := c.ports.Entries.History(ctx, bridge.HistoryQuery{})
	if listErr != nil {
		return e, listErr
	}
	for _, older := range all {
		if older.WrittenAt <= t.UnixMilli() {
			return older, nil
		}
	}
	return e, err
}

// matcher says whether a commit is the one that is looked for, and whether to
// look at older ones.
type matcher func(bridge.Checkpoint) (match, more bool)

// older looks for an entry in the checkpoint topic that Redis does not have.
// The error is noEntry where the topic does not have it either.
func (c *Controller) older(ctx context.Context, noEntry error, is matcher) (bridge.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	e, ok := bridge.Entry{}, false
	err := c.ports.Log.Walk(ctx, func(p bridge.Checkpoint) bool {
		match, more := is(p)
		if match {
			e.Checkpoint, ok = p, true
		}
		return more && !match
	})
	switch {
	case err != nil:
		return e, also(noEntry, "the checkpoint topic cannot be read: "+err.Error())
	case !ok:
		return e, noEntry
	}
	return e, nil
}
