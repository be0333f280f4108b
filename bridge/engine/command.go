package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// requests is the state of the operator's commands, across sessions and
// ownerships: what it says about a command it says of the stream as it is, and
// changes nothing of it. Owned by the commit loop.
type requests struct {
	*stream
	wokenBy  string         // the command that made a blocked stream look again
	claimed  seenClaim      // the last one of a command
	answered *bridge.Answer // the last one given
}

// applyCommand applies an operator's command, or refuses it with an answer. The
// command takes effect when its checkpoint is committed.
func (f *follower) applyCommand(hard context.Context, cmd bridge.Command) error {
	r := &f.requests
	if !r.e.applying && !r.canApply() { // it is offered again
		if r.wokenBy != cmd.ID {
			r.wokenBy, f.schedule.due = cmd.ID, time.Now()
		}
		return nil
	}
	if f.ownership.doubted == cmd.ID && !f.session.restored {
		return nil // still looking; it is offered again
	}
	if cmd.BaseEpoch > f.committed.Epoch && f.ownership.doubted != cmd.ID {
		// The operator saw a later epoch: the stream was moved. Recover first.
		f.ownership.doubted, f.session.restored = cmd.ID, false
		return &sessionError{fmt.Errorf("command %s expects epoch %d, this session is at %d", cmd.ID, cmd.BaseEpoch, f.committed.Epoch)}
	}
	by := bridge.Claim{Owner: f.e.cfg.Owner, Session: f.session.id}
	if f.committed.Applied(cmd.ID) { // applied before, and the answer got lost
		return r.answer(hard, cmd, by, bridge.Answer{Applied: true})
	}
	// A refusal requires the claim too: another session may be applying it.
	mine, late, err := r.claim(hard, cmd, by)
	switch {
	case late != nil:
		return f.expire(hard, cmd, *late)
	case err != nil || !mine:
		return err
	}
	if refusal := r.validateCommand(cmd); refusal != "" {
		return r.answer(hard, cmd, by, bridge.Answer{Detail: refusal})
	}
	return f.carryOut(hard, cmd, by)
}

// carryOut applies a command that is this session's.
func (f *follower) carryOut(hard context.Context, cmd bridge.Command, by bridge.Claim) error {
	r := &f.requests
	if cmd.Kind != bridge.KindReset { // goes on from here: an API may take a cursor only once
		if err := f.flush(hard); err != nil {
			return err
		}
	}
	f.discard()
	note, err := r.acceptTopics(hard, cmd, &f.incidents)
	if err != nil {
		return err
	}
	next := r.derive(cmd)
	if f.session.open {
		if _, err := f.publish(hard, bridge.Batch{Checkpoint: next, From: f.committed.Checkpoint}, 0); err != nil {
			return err
		}
	}
	stored := f.committed.Checkpoint // as far as known
	if !f.rival.Zero() {
		stored = f.rival
	}
	if err := f.storeCheckpoint(hard, stored, next); err != nil {
		return err
	}
	// Committed: a crash from here on finds the change in the checkpoint, and
	// the answer is given by whoever comes next.
	f.log.Info("command applied", "id", cmd.ID, "kind", next.Change.Kind, "who", cmd.Who, "reason", cmd.Reason,
		"from", f.committed.Version.String(), "to", next.Version.String(), "cursor", bridge.CursorHash(next.Cursor))
	f.move(next)
	f.e.observe(bridge.Observation{What: bridge.ObserveReset, Code: string(cmd.Kind)})
	f.mirror.flush(hard) // so that who asked finds it there
	return r.answer(hard, cmd, by, bridge.Answer{Applied: true, Detail: note})
}

// wakesBlocked reports whether a command makes a blocked stream retry now: an
// operator who has removed the cause resets next and should not wait for the
// probe. A stream that another bridge runs is left alone: a retry would fence
// it.
func (f *follower) wakesBlocked() bool {
	return !f.session.ready && f.state == bridge.StateBlocked && f.fault.Reason != bridge.ReasonOwner
}

// expire answers a command that was not applied before its deadline. by.Over is
// the session that had claimed it, or empty. Exactly once that one is fenced;
// at least once its change of the store may still be on its way, so the change
// id is taken from under it first. A store that holds no checkpoint of ours has
// none: there the operator moves the stream in any case.
func (f *follower) expire(hard context.Context, cmd bridge.Command, by bridge.Claim) error {
	r := &f.requests
	detail := "no owner claimed it before its deadline"
	if by.Over != "" {
		detail = "the bridge that claimed it stopped before applying it"
	}
	if by.Over != "" && !f.e.cfg.exactlyOnce() && !r.claimed.fenced && !f.committed.Zero() && f.rival.Zero() {
		f.discard()
		next := f.session.stamp(f.committed.Checkpoint, bridge.KindReset, bridge.Version{Epoch: f.committed.Epoch + 1})
		next.Change = f.e.ownChange(f.committed.Checkpoint, "command "+cmd.ID+" expired")
		if err := f.commitCheckpoint(hard, f.committed.Checkpoint, next); err != nil {
			return err
		}
		began := f.run.began
		f.move(next)
		f.run.began, r.claimed.fenced = began, true
	}
	f.log.Warn("command expired", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "deadline", describeInstant(cmd.Deadline), "claimed_by", by.Over)
	return r.answer(hard, cmd, by, bridge.ExpiredAnswer(detail))
}

// canApply reports whether a command can be applied now: the epoch is known and
// can be committed to.
func (r *requests) canApply() bool {
	known := r.session.ready || !r.stale && (!r.committed.Zero() && r.committed.Mode == r.e.cfg.Mode || r.blockedOn == bridge.ReasonCheckpointLost)
	return known && (r.session.open || !r.e.cfg.exactlyOnce())
}

// seenClaim is the claim of a command, and the session that saw it.
type seenClaim struct {
	id, by, seen string
	fenced       bool // the store has a change that the claimer does not know
}

// claim makes the command this session's to decide about, and reports whether
// it is. The claim of another session counts until a session has begun after
// the claim was seen: that one has fenced the claimer, and its checkpoint shows
// what the claimer committed. A claim of a command that is too late is returned: under it
// the command expires.
func (r *requests) claim(hard context.Context, cmd bridge.Command, by bridge.Claim) (mine bool, late *bridge.Claim, err error) {
	if last := r.claimed; last.id == cmd.ID && last.by != r.session.id {
		if !r.session.open || last.seen == r.session.id {
			return false, nil, nil // a session is about to begin; the command is offered again
		}
		by.Over = last.by
	}
	got, err := r.e.ports.Inbox.Claim(hard, cmd, by)
	switch {
	case err != nil:
		return false, nil, nil // the store is away: it comes again if it still counts
	case got.Late:
		return false, &by, nil
	case got.By == "":
		return false, nil, nil // withdrawn meanwhile
	}
	r.claimed = seenClaim{id: cmd.ID, by: got.By, seen: r.session.id}
	if got.By == r.session.id || !r.session.open {
		return got.By == r.session.id, nil, nil
	}
	return false, nil, &sessionError{fmt.Errorf("command %s was claimed by session %s, which has not answered", cmd.ID, got.By)}
}

// validateCommand says why a command cannot be applied, or nothing.
func (r *requests) validateCommand(cmd bridge.Command) string {
	invalid, leak := cmd.Validate(), ""
	if find := r.e.cfg.LeakInCursor; cmd.Kind == bridge.KindReset && find != nil {
		leak = find(cmd.Target.Cursor)
	}
	switch {
	case invalid != nil:
		return invalid.Error()
	case cmd.Kind != bridge.KindReset && cmd.Kind != bridge.KindPause && cmd.Kind != bridge.KindResume:
		return fmt.Sprintf("this version does not support the command %q", cmd.Kind)
	case cmd.BaseEpoch != r.committed.Epoch && (cmd.Kind != bridge.KindReset || r.rival.Zero() || cmd.BaseEpoch != r.rival.Epoch):
		// Of two histories who asks can only have seen the store's.
		return fmt.Sprintf("the stream was moved, paused or resumed meanwhile: it is at epoch %d, the command expects %d", r.committed.Epoch, cmd.BaseEpoch)
	case cmd.Kind != bridge.KindReset:
		if refusal := r.validatePause(cmd); refusal != "" {
			return refusal
		}
	case leak != "":
		return "the cursor contains " + leak + ", which is not stored"
	case max(len(cmd.Target.Tail), len(cmd.Target.Border.Items)) > r.e.rules.TailLimit:
		return fmt.Sprintf("the tail has %d items and the border %d, the limit is %d", len(cmd.Target.Tail), len(cmd.Target.Border.Items), r.e.rules.TailLimit)
	default:
		if refusal := r.validateSource(cmd); refusal != "" {
			return refusal
		}
	}
	next := r.derive(cmd)
	if err := next.Validate(); err != nil {
		return "invalid target: " + err.Error()
	}
	return ""
}

// validatePause says why the stream can be neither paused nor resumed, or nothing.
func (r *requests) validatePause(cmd bridge.Command) string {
	now := time.Now()
	switch {
	case r.committed.Zero() || !r.rival.Zero() || r.blockedOn == bridge.ReasonCheckpointLost || r.blockedOn == bridge.ReasonCheckpoint:
		return "the stream's position is unknown: " + r.e.cfg.words(bridge.HintNoPosition)
	case cmd.Kind == bridge.KindResume && !r.committed.Paused(now):
		return bridge.NotPaused
	case cmd.Kind == bridge.KindPause && cmd.PausedUntil != bridge.Forever && cmd.PausedUntil <= now.UnixMilli():
		return fmt.Sprintf("the end of the pause, %s, has passed", describeInstant(cmd.PausedUntil))
	}
	return ""
}

// derive derives the checkpoint that a command asks for: a new epoch. A reset is
// also how a changed origin or source is accepted.
func (r *requests) derive(cmd bridge.Command) bridge.Checkpoint {
	var c bridge.Checkpoint
	if cmd.Kind == bridge.KindReset {
		c = bridge.Reset(r.committed.Checkpoint, r.e.cfg.Origin, cmd)
	} else {
		c = bridge.Pause(r.committed.Checkpoint, cmd)
	}
	c = r.session.stamp(c, cmd.Kind, bridge.Version{Epoch: c.Epoch})
	if cmd.Kind == bridge.KindReset && r.session.topics == nil {
		if c.Topics = r.session.found; r.session.found == nil { // not seen: they are compared when they are
			c.Topics = r.committed.Topics
		}
	}
	return c
}

// acceptTopics has an operator's reset accept the topics as they are, and says what it
// accepts with them: it may have been asked for before anybody knew.
func (r *requests) acceptTopics(ctx context.Context, cmd bridge.Command, losses *incidents) (string, error) {
	if cmd.Kind != bridge.KindReset || r.session.topics != nil || !r.session.open {
		return "", nil
	}
	if r.session.found == nil { // the session came to something else first
		if _, err := r.session.findTopics(ctx); err != nil {
			return "", &sessionError{err}
		}
	}
	fault := bridge.TopicsLost(r.committed.Checkpoint, r.session.found)
	if fault == nil {
		return "", nil
	}
	losses.countLoss(r.e, fault)
	r.log.Error("reset accepted a topic that lost events", "id", cmd.ID, "who", cmd.Who, "error", fault.Error())
	return fault.Error(), nil
}

// answer tells who asked. A lost answer is no fault: the command stays in the
// inbox, is offered again, and is recognised by its id. What was not applied is
// answered only once that is recorded: until then another session may apply it.
// What was applied is said, whatever is recorded. A refusal that does not count
// leaves the answer to another session: for Apply that is ErrFenced.
func (r *requests) answer(ctx context.Context, cmd bridge.Command, by bridge.Claim, a bridge.Answer) error {
	a.By, a.Version, a.At = r.e.cfg.Owner, r.committed.Version, time.Now().UnixMilli()
	first, err := r.e.ports.Inbox.Answer(ctx, cmd, by, a)
	switch {
	case err == nil && (first.Applied || !a.Applied):
		r.answered = &first
	case a.Applied:
		r.answered = &a
	}
	conflict := errors.Is(err, bridge.ErrConflict)
	switch {
	case conflict:
		r.log.Warn("command answer rejected: the command was withdrawn, or its claim no longer stands", "id", cmd.ID, "applied", a.Applied)
	case err != nil:
		r.log.Warn("command answer not delivered", "id", cmd.ID, "error", err)
	case first == a && !a.Applied && !a.Expired():
		r.log.Warn("command refused", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "why", a.Detail)
	}
	if conflict && !a.Applied && r.e.applying {
		return fmt.Errorf("the claim of command %s no longer stands: %w", cmd.ID, bridge.ErrFenced)
	}
	return nil
}
