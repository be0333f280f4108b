package engine

import (
	"time"

	"exportbridge/bridge"
)

// run is what this process has done since Run was called.
type run struct {
	began             int64  // cp.Events when it began, -1 before
	ended             string // why it is over
	endedEmpty        int    // empty pages in a row that ended it, 0 if something else did
	committed         time.Time
	seenIDs           map[string]struct{} // change ids of checkpoints we adopted
	contract          bridge.Contract
	totals            totals
	deadLettersLogged time.Time // when dead letters were last spoken of
	sharedLogged      time.Time // when items of one id were last spoken of
	keylessLogged     bool      // that no event has a key
	fullLogged        time.Time // when a full last page was last warned about
}

// limitReached says why a bounded run that is at c has what it wanted, or nothing.
func (r *run) limitReached(l Limits, c bridge.Checkpoint) bridge.Hint {
	switch {
	case l.MaxEvents > 0 && c.Events-r.began >= l.MaxEvents:
		return bridge.HintMaxEvents
	case l.Until > 0 && c.LastEventTime >= l.Until:
		return bridge.HintUntil
	}
	return ""
}

// ours reports whether a stored checkpoint is one that this process, which is at
// cp, went through or, being of an older epoch, what its own stream was before:
// epochs only grow, so the store fell back.
func (r *run) ours(stored, cp bridge.Checkpoint) bool {
	_, known := r.seenIDs[stored.ChangeID()]
	return known || stored.Epoch < cp.Epoch
}

// rolledBack reports whether the store fell back from cp to an older checkpoint
// of the stream, as a fail-over that lost writes does: to may replace it.
func (r *run) rolledBack(stored, cp, to bridge.Checkpoint) bool {
	return r.ours(stored, cp) && stored.ChangeID() != cp.ChangeID() && stored.Version.Compare(to.Version) < 0
}
