package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// incidents are recent conflicts, which distinguish an accident from a second bridge on the
// stream. They outlast sessions and ownerships. Owned by the commit loop.
type incidents struct {
	fences           int            // number of consecutive times that a newer session fenced this process
	resumed          time.Time      // end of the wait after the last fencing
	rival            string         // the other bridge on the stream, if known
	looked           time.Time      // when the rival was last looked up
	conflict         time.Time      // when another process last moved the stream
	ahead            bridge.Version // version of the store, when it was last ahead of this process
	cursorRecoveries []time.Time    // times at which the stream left rejected cursors, within cursorRecoveryWindow
	lost             string         // the last loss of a topic that was counted
	// cut is the error of a topic that lost its end, found at cutAt. It is kept until a
	// checkpoint records it.
	cut   *bridge.CutOffError
	cutAt time.Time
}

const (
	// fenceWindow is how long a session must last to end a series of fencings.
	fenceWindow = 2 * time.Minute
	// fenceWait is the wait after the second fencing in a row, which can be due to a late
	// request of this process. The wait doubles with each further one: two bridges that
	// retry at once would fence each other for ever.
	fenceWait, maxFenceWait = 10 * time.Second, 5 * time.Minute
	// rivalInterval is how often a blocked stream checks whether the other bridge has gone.
	rivalInterval = 3 * time.Second
)

// onFenced classifies fencing by a newer session. One fencing is due to a new owner, a
// command, or a late request of this process. Three in a row are due to a second bridge.
func (i *incidents) onFenced(ctx context.Context, e *Engine, grant bridge.Ownership, err error) *bridge.Fault {
	if time.Since(i.resumed) > fenceWindow {
		i.fences = 0
	}
	i.fences++
	f := &bridge.Fault{Class: bridge.Transient, Code: "fenced", HintCode: bridge.HintOwner, Err: err}
	if i.fences > 1 {
		f.RetryAfter = min(maxFenceWait, fenceWait<<min(i.fences-2, 8))
	}
	if i.fences > 2 {
		i.findRival(ctx, e, grant)
		f.Class, f.Reason = bridge.Permanent, bridge.ReasonOwner
		f.Err = fmt.Errorf("fenced %d times in a row by %s: %w", i.fences, cmp.Or(i.rival, "another bridge"), err)
	}
	i.resumed = time.Now().Add(f.RetryAfter)
	return f
}

// findRival looks for another bridge on the stream. It reports whether the bridge that it
// found before has gone.
func (i *incidents) findRival(ctx context.Context, e *Engine, grant bridge.Ownership) (gone bool) {
	if i.looked = time.Now(); grant == nil {
		return false
	}
	ctx, done := e.asking(ctx)
	defer done()
	rival, err := grant.Rival(ctx)
	if err != nil {
		return false
	}
	gone = i.rival != "" && rival == ""
	i.rival = rival
	return gone
}

// onConflict classifies a conflict in the store. One conflict is due to a command or a new
// owner. Two within a minute are due to a second bridge.
func (i *incidents) onConflict(err error) *bridge.Fault {
	fault := &bridge.Fault{Class: bridge.Transient, Code: "conflict", Err: err}
	if time.Since(i.conflict) < time.Minute {
		fault = bridge.BlockHintf("conflict", bridge.ReasonOwner, bridge.HintOwner,
			"another writer moved the checkpoint twice within a minute: %w", err)
	}
	i.conflict = time.Now()
	return fault
}

// countLoss counts a loss unless it was the last one counted.
func (i *incidents) countLoss(e *Engine, fault *bridge.Fault) {
	if fault.Code != bridge.CodeTopicLost || fault.Error() == i.lost {
		return
	}
	i.lost = fault.Error()
	e.observe(bridge.Observation{What: bridge.ObserveTopic, Code: bridge.TopicLost})
}

// onStoreAhead handles a store that is ahead. Its error begins a new session, which shows
// whether this process still owns the stream, and which checkpoint the sink has.
func (i *incidents) onStoreAhead(stored *bridge.Checkpoint, ours bridge.Version) error {
	err := fmt.Errorf("the store is at %s by %q, ahead of %s", stored.Version, stored.Owner, ours)
	if stored.Version == i.ahead {
		return &sessionError{&bridge.Fault{Class: bridge.Permanent, Code: "ahead", Reason: bridge.ReasonCheckpoint,
			Err: err, HintCode: bridge.HintAhead}}
	}
	i.ahead = stored.Version
	return &sessionError{err}
}
