package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// obey applies an operator's command, or refuses it visibly. The command is a
// request: it counts only once the checkpoint that it asks for is committed.
func (f *follower) obey(hard context.Context, cmd Command) error {
	refusal := f.refusal(cmd)
	if f.doubted == cmd.ID && !f.ready {
		return nil // still looking; it is offered again
	}
	if cmd.BaseEpoch > f.cp.Epoch && f.doubted != cmd.ID {
		// Whoever asked knows more: somebody moved the stream. Look first.
		f.doubted = cmd.ID
		return &sessionError{fmt.Errorf("command %s was made for epoch %d, after %d", cmd.ID, cmd.BaseEpoch, f.cp.Epoch)}
	}
	switch {
	case f.cp.applied(cmd.ID): // applied before, and the answer got lost
		return f.answer(hard, cmd, Answer{Applied: true})
	case refusal != "":
		f.log.Warn("command refused", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "why", refusal)
		return f.answer(hard, cmd, Answer{Detail: refusal})
	}
	mine, err := f.b.ports.Inbox.Claim(hard, cmd, f.b.cfg.Owner)
	if err != nil || !mine {
		return nil // withdrawn meanwhile, or the store is away: it comes again if it still counts
	}
	f.dropChain()
	if Broken(BreakAnswer) {
		_ = f.answer(hard, cmd, Answer{Applied: true})
	}
	next := f.moved(cmd)
	if f.open {
		if _, err := f.publish(hard, Batch{Checkpoint: next, From: f.cp}, 0); err != nil {
			return err
		}
	}
	from := f.cp
	if !f.rival.Zero() {
		from = f.rival
	}
	if err := f.keep(hard, from, next); err != nil {
		return err
	}
	// Committed: a crash from here on finds the change in the checkpoint, and
	// the answer is given by whoever comes next.
	f.log.Info("command applied", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "reason", cmd.Reason,
		"from", f.cp.Place.String(), "to", next.Place.String(), "cursor", CursorHash(next.Cursor))
	f.settle(next)
	f.b.observe(Observation{What: ObserveReset, Code: string(cmd.Kind)})
	f.mirror.await(hard) // so that who asked finds it there
	return f.answer(hard, cmd, Answer{Applied: true})
}

// refusal says why a command cannot be applied, or nothing.
func (f *follower) refusal(cmd Command) string {
	switch {
	case cmd.Kind != KindReset && cmd.Kind != KindPause && cmd.Kind != KindResume:
		return fmt.Sprintf("this version does not know the command %q", cmd.Kind)
	case cmd.BaseEpoch != f.cp.Epoch:
		return fmt.Sprintf("the stream was moved meanwhile: it is at epoch %d, the command was made for %d", f.cp.Epoch, cmd.BaseEpoch)
	case cmd.Kind != KindReset:
		return f.cannotHold(cmd)
	case len(cmd.Target.Cursor) > MaxCursor:
		return fmt.Sprintf("the cursor has %d bytes, at most %d can be followed", len(cmd.Target.Cursor), MaxCursor)
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
	if f.cp.Topic != "" && c.Topic != f.cp.Topic {
		c.KnownFrom = max(c.KnownFrom, time.Now().UnixMilli())
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

// newsMargin is how far before the newest published event news may lie.
const newsMargin = time.Hour

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
		Change:      changeOf(cmd, from),
	}
	switch {
	case from.NewsAfter != nil: // moved again before the first rewind was over
		c.NewsAfter = from.NewsAfter
	case from.LastEventTime > 0:
		c.NewsAfter = &News{CursorHash: CursorHash(from.Cursor), EventTime: from.LastEventTime, Source: from.Source}
		if cmd.Target.Entry == nil {
			// The old cursor may never come again, so time alone tells, and
			// clients' clocks lie: what is near the border counts as news.
			c.NewsAfter.EventTime = min(from.LastEventTime, from.AdvanceTime) - newsMargin.Milliseconds()
		}
	}
	c.KnownFrom = from.KnownFrom
	switch frontier := c.NewsAfter; {
	case !origin.Same(from.Origin), cmd.Target.Entry == nil && cmd.Target.Cursor != "":
		// Other events than those so far, or nobody knows from when on.
		c.KnownFrom = max(c.KnownFrom, time.Now().UnixMilli())
	case cmd.Target.Entry == nil && (frontier == nil || origin.Start > frontier.EventTime):
		c.KnownFrom = max(c.KnownFrom, origin.Start)
	}
	return c
}

// settle goes on from a checkpoint that moved the stream.
func (f *follower) settle(c Checkpoint) {
	f.visited.clear()
	f.trimmer, f.held = newTrimmer(), nil
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
