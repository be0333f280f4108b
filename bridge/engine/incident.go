package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
)

// incidents are recent conflicts, which distinguish an accident from a second
// bridge on the stream. They outlive sessions and ownerships. Owned by the
// commit loop.
type incidents struct {
	fenced           []time.Time    // when newer sessions of the stream had begun, lately
	conflict         time.Time      // the last time somebody else moved the stream
	ahead            bridge.Version // where the store was ahead of us, when it was
	cursorRecoveries []time.Time    // when the stream left a refused cursor, lately
	lost             string         // the loss of a topic that was counted last
	// cut is a topic that lost its end, as was seen at cutAt, until a checkpoint
	// says so.
	cut   *bridge.CutOffError
	cutAt time.Time
}

const (
	// fenceWindow is how close to each other fences must be to be a pattern.
	fenceWindow = 2 * time.Minute
	// fenceWait is how long a bridge waits that was fenced again. One that was
	// fenced by a late request of its own is not held up for long.
	fenceWait = 10 * time.Second
	// fencedBackoff is how long a bridge leaves the stream alone that another one runs
	// too. Two that tried again at once would fence each other for ever.
	fencedBackoff = 5 * time.Minute
)

// onFenced classifies fencing by a newer session. Once is a new owner, a
// command, or a delayed request of our own; a third time within fenceWindow is
// a second bridge.
func (i *incidents) onFenced(err error) *bridge.Fault {
	i.fenced = slices.DeleteFunc(i.fenced, func(t time.Time) bool { return time.Since(t) > fenceWindow })
	i.fenced = append(i.fenced, time.Now())
	switch len(i.fenced) {
	case 1:
		return &bridge.Fault{Class: bridge.Transient, Code: "fenced", Err: err}
	case 2:
		return &bridge.Fault{Class: bridge.Transient, Code: "fenced", RetryAfter: fenceWait, Err: err}
	}
	return &bridge.Fault{
		Class: bridge.Permanent, Code: "fenced", Reason: bridge.ReasonOwner, RetryAfter: fencedBackoff, Advice: bridge.HintOwner,
		Err: fmt.Errorf("the stream was fenced %d times within %s: %w", len(i.fenced), fenceWindow, err),
	}
}

// onConflict classifies a conflict in the store: once is a command or a new
// owner, twice within a minute is a second bridge.
func (i *incidents) onConflict(err error) *bridge.Fault {
	fault := &bridge.Fault{Class: bridge.Transient, Code: "conflict", Err: err}
	if time.Since(i.conflict) < time.Minute {
		fault = &bridge.Fault{
			Class: bridge.Permanent, Code: "conflict", Reason: bridge.ReasonOwner, Advice: bridge.HintOwner,
			Err: fmt.Errorf("another writer moved the checkpoint twice within a minute: %w", err),
		}
	}
	i.conflict = time.Now()
	return fault
}

// countLoss counts a loss once, and again only if another one is found.
func (i *incidents) countLoss(e *Engine, fault *bridge.Fault) {
	if fault.Code != bridge.CodeTopicLost || fault.Error() == i.lost {
		return
	}
	i.lost = fault.Error()
	e.observe(bridge.Observation{What: bridge.ObserveTopic, Code: bridge.TopicLost})
}

// noteCut notes that a topic lost its end, if that is what err says.
func (i *incidents) noteCut(err error) {
	if cut, ok := errors.AsType[*bridge.CutOffError](err); ok {
		i.cut, i.cutAt = cut, time.Now()
	}
}

// onStoreAhead handles a store that is ahead: a new session shows whether this
// process still owns the stream, and what the sink has.
func (i *incidents) onStoreAhead(stored bridge.Checkpoint, ours bridge.Version) error {
	err := fmt.Errorf("the store is at %s by %q, ahead of %s", stored.Version, stored.Owner, ours)
	if stored.Version == i.ahead {
		return &sessionError{&bridge.Fault{
			Class: bridge.Permanent, Code: "ahead", Reason: bridge.ReasonCheckpoint, Err: err,
			Advice: bridge.HintAhead,
		}}
	}
	i.ahead = stored.Version
	return &sessionError{err}
}
