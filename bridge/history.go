package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNoEntry means that no entry of the history matches.
var ErrNoEntry = errors.New("no such entry in the history")

// Entry is a checkpoint in the history, committed at WrittenAt.
type Entry struct {
	Checkpoint
	// Parent is the previous entry in the epoch, or the entry that the epoch was reset to.
	// It is nil at the beginning of the stream or of its history, or if the epoch began at
	// a position outside the history. If the history lacks the parent, Parent is the entry
	// before it.
	Parent *Version
}

// CheckpointLog is the log of a stream's checkpoints.
type CheckpointLog interface {
	// Walk calls visit with the committed checkpoints, newest first, until visit
	// returns false. It starts no session.
	Walk(ctx context.Context, visit func(Checkpoint) bool) error
}

// Newest returns the newest checkpoint in a log, the zero value if there is none.
func Newest(ctx context.Context, log CheckpointLog) (newest Checkpoint, err error) {
	err = log.Walk(ctx, func(c Checkpoint) bool {
		newest = c
		return false
	})
	return newest, err
}

// Target returns the entry as the target of a reset.
func (e *Entry) Target() Target {
	version, last := e.Version, e.LastEventTime
	if o := e.Overlap; o != nil && !o.Done { // the cursor is before the last event
		last = min(last, o.From)
	}
	return Target{
		Cursor: e.Cursor, Tail: e.Tail, Carried: e.Carried, Border: e.Border, Start: e.Origin.Start,
		Events: e.Events, Pages: e.Pages, Outside: e.Outside, Dropped: e.Dropped, PositionTime: e.PositionTime,
		LastEventTime: last, AdvanceTime: e.AdvanceTime, Entry: &version, Request: e.Origin.Request,
	}
}

// CurrentTarget returns the target of a reset that keeps the position of a stream at c. It
// has no fingerprint: the reset may accept another one.
func (c *Checkpoint) CurrentTarget() Target {
	to := (&Entry{Checkpoint: *c}).Target()
	to.Stay, to.Request = true, ""
	return to
}

// at returns the target of a reset that is applied at from.
func (t Target) at(from *Checkpoint) Target {
	if t.Stay && t.Entry != nil && t.Entry.Epoch == from.Epoch && t.Entry.Seq < from.Seq {
		return from.CurrentTarget() // the stream has continued since the plan
	}
	return t
}

// HistoryQuery selects history entries.
type HistoryQuery struct {
	// Since excludes entries committed before it. Before excludes those committed at it or
	// later. Zero excludes none.
	Since, Before time.Time
	// Limit is the maximum number of entries; 0 is all.
	Limit int
	// Brief leaves out the tails, which may be the largest part of an entry.
	Brief bool
}

// ParseVersion parses the result of Version.String: epoch, a dot, seq.
func ParseVersion(s string) (Version, error) {
	epoch, seq, _ := strings.Cut(s, ".")
	e, err := strconv.ParseInt(epoch, 10, 64)
	n, err2 := strconv.ParseInt(seq, 10, 64)
	if err != nil || err2 != nil || e < 0 || n < 0 || max(e, n) > MaxNumber {
		return Version{}, fmt.Errorf("%q is not EPOCH.SEQ, for example 3.1042", s)
	}
	return Version{Epoch: e, Seq: n}, nil
}
