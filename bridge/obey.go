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
)

// obey applies an operator's command, or refuses it visibly. The command is a
// request: it counts only once the checkpoint that it asks for is committed.
func (f *follower) obey(hard context.Context, cmd Command) error {
	if !f.applying && !f.obeys() { // it is offered again
		if f.hurried != cmd.ID {
			f.hurried, f.due = cmd.ID, time.Now()
		}
		return nil
	}
	if f.doubted == cmd.ID && !f.ready {
		return nil // still looking; it is offered again
	}
	if cmd.BaseEpoch > f.cp.Epoch && f.doubted != cmd.ID {
		// Whoever asked knows more: somebody moved the stream. Look first.
		f.doubted = cmd.ID
		return &sessionError{fmt.Errorf("command %s was made for epoch %d, after %d", cmd.ID, cmd.BaseEpoch, f.cp.Epoch)}
	}
	if f.cp.applied(cmd.ID) { // applied before, and the answer got lost
		return f.answer(hard, cmd, Answer{Applied: true})
	}
	// A refusal needs the claim too: another session may be applying it.
	mine, err := f.claim(hard, cmd)
	if err != nil || !mine {
		return err
	}
	if refusal := f.refusal(cmd); refusal != "" {
		f.log.Warn("command refused", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "why", refusal)
		return f.answer(hard, cmd, Answer{Detail: refusal})
	}
	f.dropChain()
	if Broken(BreakAnswer) {
		_ = f.answer(hard, cmd, Answer{Applied: true})
	}
	note, err := f.accept(hard, cmd)
	if err != nil {
		return err
	}
	next := f.moved(cmd)
	if f.open {
		if _, err := f.publish(hard, Batch{Checkpoint: next, From: f.cp}, 0); err != nil {
			return err
		}
	}
	if err := f.keep(hard, f.storedNow(), next); err != nil {
		return err
	}
	// Committed: a crash from here on finds the change in the checkpoint, and
	// the answer is given by whoever comes next.
	f.log.Info("command applied", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "reason", cmd.Reason,
		"from", f.cp.Place.String(), "to", next.Place.String(), "cursor", CursorHash(next.Cursor))
	f.settle(next)
	f.b.observe(Observation{What: ObserveReset, Code: string(cmd.Kind)})
	f.mirror.await(hard) // so that who asked finds it there
	return f.answer(hard, cmd, Answer{Applied: true, Detail: note})
}

// storedNow is what the store holds, as far as is known.
func (f *follower) storedNow() Checkpoint {
	if !f.rival.Zero() {
		return f.rival
	}
	return f.cp
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
func (f *follower) claim(hard context.Context, cmd Command) (bool, error) {
	by := Claim{Owner: f.b.cfg.Owner, Session: f.session}
	if last := f.claimed; last.id == cmd.ID && last.by != f.session {
		if !f.open || last.seen == f.session {
			return false, nil // a session is about to begin; the command is offered again
		}
		by.Over = last.by
	}
	got, err := f.b.ports.Inbox.Claim(hard, cmd, by)
	switch {
	case err != nil:
		return false, nil // the store is away: it comes again if it still counts
	case got.Late && Broken(BreakClaim):
		return true, nil
	case got.Late:
		return false, f.expire(hard, cmd, by.Over)
	case got.By == "":
		return false, nil // withdrawn meanwhile
	}
	f.claimed = seenClaim{id: cmd.ID, by: got.By, seen: f.session}
	if got.By == f.session || !f.open {
		return got.By == f.session, nil
	}
	return false, &sessionError{fmt.Errorf("command %s was claimed by session %s, which has not answered", cmd.ID, got.By)}
}

// expire answers a command that was not applied before its deadline. over is
// the session that had claimed it, or empty. Exactly once that one is fenced;
// at least once its change of the store may still be on its way, so the change
// id is taken from under it first. A store that holds no checkpoint of ours has
// none: there the operator moves the stream in any case.
func (f *follower) expire(hard context.Context, cmd Command, over string) error {
	detail := "expired: no bridge took it up before its deadline"
	if over != "" {
		detail = "expired: the bridge that took it up ended before it was applied"
	}
	if over != "" && !f.exactlyOnce() && !f.claimed.fenced && !f.cp.Zero() && f.rival.Zero() {
		f.dropChain()
		next := f.stampEpoch(f.cp, KindReset, f.cp.Epoch+1)
		next.Change = f.ownChange(f.cp, "command "+cmd.ID+" expired")
		if err := f.secure(hard, f.cp, next); err != nil {
			return err
		}
		began := f.began
		f.settle(next)
		f.began, f.claimed.fenced = began, true
	}
	f.log.Warn("command expired", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "deadline", describeInstant(cmd.Deadline), "claimed_by", over)
	return f.answer(hard, cmd, Answer{Detail: detail})
}

// refusal says why a command cannot be applied, or nothing.
func (f *follower) refusal(cmd Command) string {
	switch {
	case cmd.Kind != KindReset && cmd.Kind != KindPause && cmd.Kind != KindResume:
		return fmt.Sprintf("this version does not know the command %q", cmd.Kind)
	case cmd.BaseEpoch != f.cp.Epoch && (cmd.Kind != KindReset || f.rival.Zero() || cmd.BaseEpoch != f.rival.Epoch):
		// Of two histories who asks can only have seen the store's.
		return fmt.Sprintf("the stream was moved meanwhile: it is at epoch %d, the command was made for %d", f.cp.Epoch, cmd.BaseEpoch)
	case cmd.Kind != KindReset:
		if refusal := f.cannotHold(cmd); refusal != "" {
			return refusal
		}
	case len(cmd.Target.Cursor) > MaxCursor:
		return fmt.Sprintf("the cursor has %d bytes, at most %d can be followed", len(cmd.Target.Cursor), MaxCursor)
	}
	next := f.moved(cmd)
	if err := next.check(); err != nil {
		return "it leads to " + err.Error()
	}
	return ""
}

// moved derives the checkpoint that a command asks for: a new epoch. A reset is
// also how a changed origin or source is accepted.
func (f *follower) moved(cmd Command) Checkpoint {
	var c Checkpoint
	if cmd.Kind == KindReset {
		c = Reset(f.cp, f.b.cfg.Origin, cmd)
	} else {
		c = hold(f.cp, cmd)
	}
	c = f.stampEpoch(c, cmd.Kind, c.Epoch)
	if cmd.Kind == KindReset && f.topics == nil {
		if c.Topics = f.there; f.there == nil { // not seen: they are compared when they are
			c.Topics = f.cp.Topics
		}
	}
	return c
}

// maxReason bounds a reason: it is part of every checkpoint of its epoch.
const maxReason = 1000

// CheckReason says why a text cannot be the reason of a Command: it must be a
// line of at most 1000 bytes, fit for a history which is read on terminals. An
// empty one is none.
func CheckReason(reason string) error {
	switch {
	case len(reason) > maxReason:
		return fmt.Errorf("the reason has %d bytes, at most %d are kept", len(reason), maxReason)
	case !utf8.ValidString(reason):
		return errors.New("the reason is not UTF-8")
	case strings.ContainsFunc(reason, steers):
		return errors.New("the reason has a line break or another control character")
	}
	return nil
}

// steers reports whether a character moves or turns round what is shown beside
// it, so that a line of the history could look like another one.
func steers(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// changeOf records that a command was applied to the stream at from.
func changeOf(cmd Command, from Checkpoint) *Change {
	return &Change{ID: cmd.ID, Kind: cmd.Kind, Who: cmd.Who, Reason: cmd.Reason, From: from.Place, At: time.Now().UnixMilli()}
}

// Reset derives the checkpoint that a reset of the stream at from leads to: a
// new epoch at the command's target, under the given origin. The writer's own
// fields (owner, session, time, mode) are left to the caller. It is exported
// for commands that move a stream which nobody runs.
func Reset(from Checkpoint, origin Origin, cmd Command) Checkpoint {
	origin.Start = cmd.Target.Start
	c := Checkpoint{
		Version: CheckpointVersion, Stream: from.Stream, Mode: from.Mode, Kind: KindReset,
		Place:  Place{Epoch: from.Epoch + 1},
		Cursor: cmd.Target.Cursor, Tail: cmd.Target.Tail, Carried: cmd.Target.Carried,
		Origin: origin, Events: cmd.Target.Events, Pages: cmd.Target.Pages,
		PausedUntil: from.PausedUntil,
		NewsAfter:   from.NewsAfter,
		MarksEnd:    from.MarksEnd && origin.Same(from.Origin),
		Change:      changeOf(cmd, from),
	}
	if c.NewsAfter == nil { // else it was moved again before the first rewind was over
		c.NewsAfter = &News{CursorHash: CursorHash(from.Cursor), Source: from.Source}
	}
	if cmd.Target.stays(from) && origin.Same(from.Origin) {
		c.LastEventTime, c.PositionTime, c.AdvanceTime = from.LastEventTime, from.PositionTime, from.AdvanceTime
	}
	return c
}

// stays reports whether a stream at from that is moved to t goes on from where
// it is.
func (t *Target) stays(from Checkpoint) bool {
	return t.Entry != nil && t.Entry.Epoch == from.Epoch && t.Cursor == from.Cursor && t.Events == from.Events && slices.Equal(t.Tail, from.Tail)
}

// settle goes on from a checkpoint that moved the stream.
func (f *follower) settle(c Checkpoint) {
	f.visited.begin(c.Trail) // none after a reset, which may lead to where the stream was
	f.blank.clear()
	f.trimmer, f.held, f.known = newTrimmer(f.b.cfg.divertsShared()), nil, known{}
	f.adopt(c)
	if c.Kind == KindReset && c.Overlap == nil { // else the events go on counting
		f.began = c.Events
	}
	f.pace = pace{allowance: emptyAllowance}
	f.kept = f.pace
	f.sessions.reset()
	f.fetches.reset()
	f.polls.next = 0
	f.suspect, f.probing = nil, false
	f.blockedOn, f.due = "", time.Now()
	f.set(StateRunning, nil)
}

// answer tells who asked. A lost answer is no fault: the command stays in the
// inbox, is offered again, and is recognised by its id.
func (f *follower) answer(ctx context.Context, cmd Command, a Answer) error {
	a.By, a.Place, a.At = f.b.cfg.Owner, f.cp.Place, time.Now().UnixMilli()
	f.answered = &a
	if err := f.b.ports.Inbox.Answer(ctx, cmd, a); err != nil {
		f.log.Warn("command answered, but the answer was not delivered", "id", cmd.ID, "error", err)
	}
	return nil
}
