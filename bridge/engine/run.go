package engine

import (
	"time"

	"exportbridge/bridge"
)

// run is the state since Run was called.
type run struct {
	began             int64               // Checkpoint.Events at the first session, -1 before it
	ended             string              // why the run ended; empty while it runs
	endedEmpty        int                 // number of consecutive empty pages that ended the run, 0 if they did not
	committed         time.Time           // time of the last commit
	busy              time.Time           // time of the last commit other than a heartbeat
	seenIDs           map[string]struct{} // change ids of checkpoints that this process adopted
	contract          bridge.Contract
	totals            totals
	deadLettersLogged time.Time // the last warning about dead letters
	sharedLogged      time.Time // the last warning about items with one id
	keylessLogged     bool      // the warning that no event has a key was logged
	fullLogged        time.Time // the last warning about a full last page
	emptyLogged       bool      // the warning about these empty pages in a row was logged
}

// manyEmpties is the number of empty pages in a row that may hide the end of the results.
const manyEmpties = 2000

// doubtEmpties warns of many empty pages in a row.
func (r *run) doubtEmpties(e *Engine, empties int) {
	if empties >= manyEmpties && !r.emptyLogged {
		e.log.Warn("empty pages in a row name a next one: the results may have ended", "empty_pages", empties,
			"hint", e.cfg.words(bridge.HintEndless))
	}
	r.emptyLogged = empties >= manyEmpties
}

// heartbeatDue returns when the next heartbeat of a stream is due. moved is set if the cursor
// moved since the last commit.
func (r *run) heartbeatDue(stream string, moved bool) time.Time {
	wait := heartbeatInterval
	if !moved {
		wait = paceOf(stream).of(min(max(wait, r.committed.Sub(r.busy)), quietHeartbeat), wait)
	}
	return r.committed.Add(wait)
}

// limitReached returns the hint of the limit that c reaches, or "".
func (r *run) limitReached(l Limits, c bridge.Checkpoint) bridge.Hint {
	switch {
	case l.MaxEvents > 0 && c.Events-r.began >= l.MaxEvents:
		return bridge.HintMaxEvents
	case l.Until > 0 && c.LastEventTime >= l.Until:
		return bridge.HintUntil
	}
	return ""
}

// ours reports whether a stored checkpoint is an earlier one of this stream: this process
// adopted it, or its epoch is older than that of cp. Epochs only grow.
func (r *run) ours(stored, cp bridge.Checkpoint) bool {
	_, known := r.seenIDs[stored.ChangeID()]
	return known || stored.Epoch < cp.Epoch
}

// rolledBack reports whether the store fell back from cp to an older checkpoint of the
// stream, like a fail-over that lost writes. Then to may replace it.
func (r *run) rolledBack(stored, cp, to bridge.Checkpoint) bool {
	return r.ours(stored, cp) && stored.ChangeID() != cp.ChangeID() && stored.Version.Compare(to.Version) < 0
}

// account counts a commit and reports it to the observer. It returns whether the commit has
// events.
func (r *run) account(e *Engine, o bridge.Observation, receipt bridge.Receipt, b batch, at int64) (published bool) {
	dead := 0
	for _, n := range receipt.DeadLettered {
		dead += n
	}
	r.totals.published += int64(receipt.Published)
	r.totals.deadLettered += int64(dead)
	r.totals.repeated += int64(o.Repeated)
	if r.totals.atBorder == 0 && o.AtBorder > 0 {
		e.log.Info("pages begin with items that ended the page before; they are dropped", "border_repeats", o.AtBorder)
	}
	r.totals.atBorder += int64(o.AtBorder)
	for _, by := range o.Late {
		if r.totals.late == nil {
			r.totals.late = make(bridge.Late)
		}
		r.totals.late.Add(by)
	}
	r.totals.keyless += int64(o.Keyless)
	if n := r.totals.keyless; !r.keylessLogged && r.totals.missKeys(e.cfg.KeyPointer) {
		r.keylessLogged = true
		e.log.Warn("no event has a key", "events", n, "pointer", e.cfg.KeyPointer, "hint", e.cfg.words(bridge.HintKeyless))
	}
	r.totals.rate.add(time.Now(), receipt.Published+dead+receipt.Dropped, at)
	if dead > 0 && time.Since(r.deadLettersLogged) > time.Minute {
		r.deadLettersLogged = time.Now()
		e.log.Warn("items sent to the dead-letter topic", "items", receipt.DeadLettered, "in_this_run", r.totals.deadLettered,
			"hint", e.cfg.words(bridge.HintDeadLetters))
	}
	if o.Shared > 0 && time.Since(r.sharedLogged) > time.Minute {
		r.sharedLogged = time.Now()
		e.log.Warn("different items share an id", "items", o.Shared,
			"on_shared_id", e.cfg.OnSharedID, "hint", e.cfg.words(bridge.HintSharedID))
	}
	o.What, o.Pages, o.Events, o.Receipt = bridge.ObserveCommit, b.pages, receipt.Published, receipt
	o.Unaccounted = max(0, b.events-receipt.Published-dead-receipt.Dropped)
	e.observe(o)
	return receipt.Published+dead+receipt.Dropped > 0
}
