package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"exportbridge/bridge/internal/failpoint"
)

// requests is the state of the operator's commands, across sessions and
// ownerships. Owned by the commit loop.
type requests struct {
	f        *follower
	wokenBy  string    // the command that made a blocked stream look again
	claimed  seenClaim // the last one of a command
	answered *Answer   // the last one given
	applying bool      // the session is for one command only
}

// applyCommand applies an operator's command, or refuses it with an answer. The
// command takes effect when its checkpoint is committed.
func (r *requests) applyCommand(hard context.Context, cmd Command) error {
	f := r.f
	if !r.applying && !r.canApply() { // it is offered again
		if r.wokenBy != cmd.ID {
			r.wokenBy, f.schedule.due = cmd.ID, time.Now()
		}
		return nil
	}
	if f.ownership.doubted == cmd.ID && !f.session.restored {
		return nil // still looking; it is offered again
	}
	if cmd.BaseEpoch > f.at.cp.Epoch && f.ownership.doubted != cmd.ID {
		// The operator saw a later epoch: the stream was moved. Recover first.
		f.ownership.doubted, f.session.restored = cmd.ID, false
		return &sessionError{fmt.Errorf("command %s expects epoch %d, this session is at %d", cmd.ID, cmd.BaseEpoch, f.at.cp.Epoch)}
	}
	by := Claim{Owner: f.b.cfg.Owner, Session: f.session.id}
	if f.at.cp.applied(cmd.ID) { // applied before, and the answer got lost
		return r.answer(hard, cmd, by, Answer{Applied: true})
	}
	// A refusal requires the claim too: another session may be applying it.
	mine, err := r.claim(hard, cmd, by)
	if err != nil || !mine {
		return err
	}
	if refusal := r.validateCommand(cmd); refusal != "" {
		return r.answer(hard, cmd, by, Answer{Detail: refusal})
	}
	f.discard()
	if failpoint.Broken(failpoint.BreakAnswer) {
		_ = r.answer(hard, cmd, by, Answer{Applied: true})
	}
	note, err := r.acceptTopics(hard, cmd)
	if err != nil {
		return err
	}
	next := r.derive(cmd)
	if f.session.open {
		if _, err := f.publish(hard, Batch{Checkpoint: next, From: f.at.cp}, 0); err != nil {
			return err
		}
	}
	if err := f.storeCheckpoint(hard, r.storedNow(), next); err != nil {
		return err
	}
	// Committed: a crash from here on finds the change in the checkpoint, and
	// the answer is given by whoever comes next.
	f.log.Info("command applied", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "reason", cmd.Reason,
		"from", f.at.cp.Version.String(), "to", next.Version.String(), "cursor", CursorHash(next.Cursor))
	f.move(next)
	f.b.observe(Observation{What: ObserveReset, Code: string(cmd.Kind)})
	f.ownership.mirror.flush(hard) // so that who asked finds it there
	return r.answer(hard, cmd, by, Answer{Applied: true, Detail: note})
}

// canApply reports whether a command can be applied now: the epoch is known and
// can be committed to.
func (r *requests) canApply() bool {
	f := r.f
	known := f.session.ready || !f.at.stale && (!f.at.cp.Zero() && f.at.cp.Mode == f.b.cfg.Mode || f.schedule.blockedOn == ReasonCheckpointLost)
	return known && (f.session.open || !f.b.cfg.exactlyOnce())
}

// wakesBlocked reports whether a command makes a blocked stream retry now: an
// operator who has removed the cause resets next and should not wait for the
// probe. A stream that another bridge runs is left alone: a retry would fence
// it.
func (r *requests) wakesBlocked() bool {
	f := r.f
	return !f.session.ready && f.state == StateBlocked && f.fault.Reason != ReasonOwner
}

// storedNow is the store's checkpoint, as far as known.
func (r *requests) storedNow() Checkpoint {
	f := r.f
	if !f.at.rival.Zero() {
		return f.at.rival
	}
	return f.at.cp
}

// seenClaim is the claim of a command, and the session that saw it.
type seenClaim struct {
	id, by, seen string
	fenced       bool // the store has a change that the claimer does not know
}

// claim makes the command this session's to decide about, and reports whether
// it is. The claim of another session counts until a session has begun after
// the claim was seen: that one has fenced the claimer, and its checkpoint shows
// what the claimer committed.
func (r *requests) claim(hard context.Context, cmd Command, by Claim) (bool, error) {
	f := r.f
	if last := r.claimed; last.id == cmd.ID && last.by != f.session.id {
		if !f.session.open || last.seen == f.session.id {
			return false, nil // a session is about to begin; the command is offered again
		}
		by.Over = last.by
	}
	got, err := f.b.ports.Inbox.Claim(hard, cmd, by)
	switch {
	case err != nil:
		return false, nil // the store is away: it comes again if it still counts
	case got.Late && failpoint.Broken(failpoint.BreakClaim):
		return true, nil
	case got.Late:
		return false, r.expire(hard, cmd, by)
	case got.By == "":
		return false, nil // withdrawn meanwhile
	}
	r.claimed = seenClaim{id: cmd.ID, by: got.By, seen: f.session.id}
	if got.By == f.session.id || !f.session.open {
		return got.By == f.session.id, nil
	}
	return false, &sessionError{fmt.Errorf("command %s was claimed by session %s, which has not answered", cmd.ID, got.By)}
}

// expire answers a command that was not applied before its deadline. by.Over is
// the session that had claimed it, or empty. Exactly once that one is fenced;
// at least once its change of the store may still be on its way, so the change
// id is taken from under it first. A store that holds no checkpoint of ours has
// none: there the operator moves the stream in any case.
func (r *requests) expire(hard context.Context, cmd Command, by Claim) error {
	f := r.f
	detail := "no owner claimed it before its deadline"
	if by.Over != "" {
		detail = "the bridge that claimed it stopped before applying it"
	}
	if by.Over != "" && !f.b.cfg.exactlyOnce() && !r.claimed.fenced && !f.at.cp.Zero() && f.at.rival.Zero() {
		f.discard()
		next := f.session.stamp(f.at.cp, KindReset, Version{Epoch: f.at.cp.Epoch + 1})
		next.Change = f.b.ownChange(f.at.cp, "command "+cmd.ID+" expired")
		if err := f.commitCheckpoint(hard, f.at.cp, next); err != nil {
			return err
		}
		began := f.run.began
		f.move(next)
		f.run.began, r.claimed.fenced = began, true
	}
	f.log.Warn("command expired", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "deadline", describeInstant(cmd.Deadline), "claimed_by", by.Over)
	return r.answer(hard, cmd, by, ExpiredAnswer(detail))
}

// validateCommand says why a command cannot be applied, or nothing.
func (r *requests) validateCommand(cmd Command) string {
	f := r.f
	switch {
	case cmd.Kind != KindReset && cmd.Kind != KindPause && cmd.Kind != KindResume:
		return fmt.Sprintf("this version does not support the command %q", cmd.Kind)
	case cmd.BaseEpoch != f.at.cp.Epoch && (cmd.Kind != KindReset || f.at.rival.Zero() || cmd.BaseEpoch != f.at.rival.Epoch):
		// Of two histories who asks can only have seen the store's.
		return fmt.Sprintf("the epoch changed: the stream is at epoch %d, the command expects %d", f.at.cp.Epoch, cmd.BaseEpoch)
	case cmd.Kind != KindReset:
		if refusal := r.validatePause(cmd); refusal != "" {
			return refusal
		}
	case len(cmd.Target.Cursor) > MaxCursor:
		return fmt.Sprintf("the cursor has %d bytes, the limit is %d", len(cmd.Target.Cursor), MaxCursor)
	}
	next := r.derive(cmd)
	if err := next.check(); err != nil {
		return "invalid target: " + err.Error()
	}
	return ""
}

// validatePause says why the stream can be neither paused nor resumed, or nothing.
func (r *requests) validatePause(cmd Command) string {
	f := r.f
	now := time.Now()
	switch {
	case f.at.cp.Zero() || !f.at.rival.Zero() || f.schedule.blockedOn == ReasonCheckpointLost || f.schedule.blockedOn == ReasonCheckpoint:
		return "the stream's position is unknown: " + f.b.cfg.words(HintNoPosition)
	case cmd.Kind == KindResume && !f.at.cp.Paused(now):
		return "the stream is not paused"
	case cmd.Kind == KindPause && cmd.PausedUntil != Forever && cmd.PausedUntil <= now.UnixMilli():
		return fmt.Sprintf("the end of the pause, %s, has passed", describeInstant(cmd.PausedUntil))
	}
	return ""
}

// derive derives the checkpoint that a command asks for: a new epoch. A reset is
// also how a changed origin or source is accepted.
func (r *requests) derive(cmd Command) Checkpoint {
	f := r.f
	var c Checkpoint
	if cmd.Kind == KindReset {
		c = Reset(f.at.cp, f.b.cfg.Origin, cmd)
	} else {
		c = derivePause(f.at.cp, cmd)
	}
	c = f.session.stamp(c, cmd.Kind, Version{Epoch: c.Epoch})
	if cmd.Kind == KindReset && f.session.topics == nil {
		if c.Topics = f.session.found; f.session.found == nil { // not seen: they are compared when they are
			c.Topics = f.at.cp.Topics
		}
	}
	return c
}

// maxReason bounds a reason, since every checkpoint of its epoch contains it.
const maxReason = 1000

// CheckReason reports why a text is not valid as the reason of a Command: a
// reason is one line of at most 1000 bytes without control characters, since
// terminals show it. It may be empty.
func CheckReason(reason string) error {
	switch {
	case len(reason) > maxReason:
		return fmt.Errorf("the reason has %d bytes, the limit is %d", len(reason), maxReason)
	case !utf8.ValidString(reason):
		return errors.New("the reason is not UTF-8")
	case strings.ContainsFunc(reason, misleads):
		return errors.New("the reason contains a control character")
	}
	return nil
}

// misleads reports whether a character can disguise a line of the history on a
// terminal.
func misleads(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// changeOf records a command applied at from.
func changeOf(cmd Command, from Checkpoint) *Change {
	return &Change{ID: cmd.ID, Kind: cmd.Kind, Who: cmd.Who, Reason: cmd.Reason, From: from.Version, At: time.Now().UnixMilli()}
}

// Reset derives the checkpoint of a reset at from: a new epoch at the command's
// target, under the given origin. The caller sets the writer's fields (owner,
// session, time, mode). It is exported for commands that move a stream without
// an owner.
func Reset(from Checkpoint, origin Origin, cmd Command) Checkpoint {
	origin.Start = cmd.Target.Start
	c := Checkpoint{
		Format: CheckpointFormat, Stream: from.Stream, Mode: from.Mode, Kind: KindReset,
		Version: Version{Epoch: from.Epoch + 1},
		Cursor:  cmd.Target.Cursor, Tail: cmd.Target.Tail, Carried: cmd.Target.Carried,
		Origin: origin, Events: cmd.Target.Events, Pages: cmd.Target.Pages,
		PausedUntil: from.PausedUntil,
		RewindEnd:   from.RewindEnd,
		MarksEnd:    from.MarksEnd && origin.Same(from.Origin),
		Change:      changeOf(cmd, from),
	}
	if c.RewindEnd == nil { // else it was moved again before the first rewind was over
		c.RewindEnd = &RewindEnd{CursorHash: CursorHash(from.Cursor), Source: from.Source}
	}
	if cmd.Target.stays(from) && origin.Same(from.Origin) {
		c.LastEventTime, c.PositionTime, c.AdvanceTime = from.LastEventTime, from.PositionTime, from.AdvanceTime
	}
	return c
}

// stays reports whether a reset to t keeps the position of a stream at from.
func (t *Target) stays(from Checkpoint) bool {
	return t.Entry != nil && t.Entry.Epoch == from.Epoch && t.Cursor == from.Cursor && t.Events == from.Events && slices.Equal(t.Tail, from.Tail)
}

// acceptTopics has an operator's reset accept the topics as they are, and says what it
// accepts with them: it may have been asked for before anybody knew.
func (r *requests) acceptTopics(ctx context.Context, cmd Command) (string, error) {
	f := r.f
	if cmd.Kind != KindReset || f.session.topics != nil || !f.session.open {
		return "", nil
	}
	if f.session.found == nil { // the session came to something else first
		if _, err := f.session.findTopics(ctx); err != nil {
			return "", &sessionError{err}
		}
	}
	fault := TopicsLost(f.at.cp, f.session.found)
	if fault == nil {
		return "", nil
	}
	f.incidents.countLoss(f.b, fault)
	f.log.Error("reset accepted a topic that lost events", "id", cmd.ID, "who", cmd.Who, "error", fault.Error())
	return fault.Error(), nil
}

// answer tells who asked. A lost answer is no fault: the command stays in the
// inbox, is offered again, and is recognised by its id. What was not applied is
// answered only once that is recorded: until then another session may apply it.
// What was applied is said, whatever is recorded. A refusal that does not count
// leaves the answer to another session: for Apply that is ErrFenced.
func (r *requests) answer(ctx context.Context, cmd Command, by Claim, a Answer) error {
	f := r.f
	a.By, a.Version, a.At = f.b.cfg.Owner, f.at.cp.Version, time.Now().UnixMilli()
	first, err := f.b.ports.Inbox.Answer(ctx, cmd, by, a)
	switch {
	case err == nil && (first.Applied || !a.Applied):
		r.answered = &first
	case a.Applied:
		r.answered = &a
	}
	conflict := errors.Is(err, ErrConflict)
	switch {
	case conflict:
		f.log.Warn("command answer rejected: the command was withdrawn, or its claim no longer stands", "id", cmd.ID, "applied", a.Applied)
	case err != nil:
		f.log.Warn("command answer not delivered", "id", cmd.ID, "error", err)
	case first == a && !a.Applied && !a.Expired():
		f.log.Warn("command refused", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "why", a.Detail)
	}
	if conflict && !a.Applied && r.applying {
		return fmt.Errorf("the claim of command %s no longer stands: %w", cmd.ID, ErrFenced)
	}
	return nil
}
