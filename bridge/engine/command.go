package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// requests is the state of the operator's commands, across sessions and ownerships. Owned
// by the commit loop.
type requests struct {
	e        *Engine
	wokenBy  string         // the command that made a blocked stream retry
	claimed  seenClaim      // the last claim of a command
	answered *bridge.Answer // the last answer given
}

// applyCommand applies an operator's command, or answers with a refusal. The command takes
// effect when its checkpoint is committed.
func (f *follower) applyCommand(hard context.Context, cmd bridge.Command) error {
	r := &f.requests
	// Without a session, another process may have moved the stream unnoticed.
	if !f.session.open && f.rival.Zero() && f.readStore(hard) != nil {
		return nil // the inbox offers it again
	}
	if !r.e.applying && !f.canApply(&f.session) { // as above
		if r.wokenBy != cmd.ID {
			r.wokenBy, f.schedule.due = cmd.ID, time.Now()
		}
		return nil
	}
	if f.ownership.doubted == cmd.ID && !f.session.restored {
		return nil // no new session has begun yet; the inbox offers the command again
	}
	if cmd.BaseEpoch > f.committed.Epoch && f.ownership.doubted != cmd.ID {
		// The operator saw a later epoch, so another process moved the stream. Recover
		// first.
		f.ownership.doubted, f.session.restored = cmd.ID, false
		return &sessionError{fmt.Errorf("command %s expects epoch %d, this session is at %d", cmd.ID, cmd.BaseEpoch,
			f.committed.Epoch)}
	}
	by := bridge.Claim{Owner: f.e.cfg.Owner, Session: f.session.id}
	if f.committed.Applied(cmd.ID) { // it was applied before, and the answer was lost
		return r.answer(hard, cmd, by, bridge.Answer{Applied: true, Version: f.committed.Version})
	}
	// A refusal requires the claim too, since another session may be applying the command.
	mine, late, err := r.claim(hard, &f.session, cmd, by)
	switch {
	case late != nil:
		if next, fences := r.fence(&f.session, &f.progress, cmd, *late); fences {
			f.discard()
			began := f.run.began
			if err := f.move(hard, next); err != nil {
				return err
			}
			f.run.began, r.claimed.fenced = began, true
		}
		return r.expire(hard, cmd, *late, f.committed.Version)
	case err != nil || !mine:
		return err
	}
	j := judge{e: f.e, session: f.session, committed: f.committed.Checkpoint, rival: f.rival, blockedOn: f.blockedOn}
	if refusal := j.validateCommand(cmd); refusal != "" {
		return r.answer(hard, cmd, by, bridge.Answer{Detail: refusal, Version: f.committed.Version})
	}
	return f.carryOut(hard, cmd, by)
}

// carryOut applies a valid command that this session has claimed.
func (f *follower) carryOut(hard context.Context, cmd bridge.Command, by bridge.Claim) error {
	r := &f.requests
	if cmd.Kind != bridge.KindReset { // the stream continues from here: an API may accept a cursor only once
		if err := f.commit(hard, f.session.ready); err != nil {
			return err
		}
	}
	f.discard()
	note, err := f.session.acceptTopics(hard, f.committed.Checkpoint, cmd, &f.incidents)
	if err != nil {
		return err
	}
	was, next := f.committed.Version, f.session.derive(f.committed.Checkpoint, cmd)
	if err := f.move(hard, next); err != nil {
		return err
	}
	// Committed: a crash from here on finds the change in the checkpoint, and
	// the next session gives the answer.
	f.log.Info("command applied", "id", cmd.ID, "kind", next.Change.Kind, "who", cmd.Who, "reason", cmd.Reason,
		"from", was.String(), "to", next.Version.String(), "cursor", bridge.CursorHash(next.Cursor))
	f.e.observe(bridge.Observation{What: bridge.ObserveReset, Code: string(cmd.Kind)})
	f.mirror.flush(hard) // so that the requester finds the checkpoint in the store
	return r.answer(hard, cmd, by, bridge.Answer{Applied: true, Detail: note, Version: f.committed.Version})
}

// fence returns the checkpoint that begins a new epoch before a command expires, and
// whether that epoch is needed. In exactly-once mode the session that claimed the command
// is fenced. In at-least-once mode its write may still reach the store, and a new change id
// invalidates that write. A store without a checkpoint of this stream has no change id:
// then the operator has to move the stream anyway.
func (r *requests) fence(s *session, at *progress, cmd bridge.Command, by bridge.Claim) (bridge.Checkpoint, bool) {
	if by.Over == "" || r.e.cfg.exactlyOnce() || r.claimed.fenced || at.committed.Zero() || !at.rival.Zero() {
		return bridge.Checkpoint{}, false
	}
	was := at.committed.Checkpoint
	next := s.stamp(was, bridge.KindReset, bridge.Version{Epoch: was.Epoch + 1})
	next.Change = r.e.ownChange(was, "command "+cmd.ID+" expired")
	next.Change.Unread = was.Unread()
	return next, true
}

// expire answers a command that was not applied before its deadline. by.Over is the session
// that had claimed the command, or empty.
func (r *requests) expire(ctx context.Context, cmd bridge.Command, by bridge.Claim, at bridge.Version) error {
	detail := "no owner claimed it before its deadline"
	if by.Over != "" {
		detail = "the bridge that claimed it stopped before applying it"
	}
	r.e.log.Warn("command expired", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who,
		"deadline", bridge.InstantText(cmd.Deadline), "claimed_by", by.Over)
	a := bridge.ExpiredAnswer(detail)
	a.Version = at
	return r.answer(ctx, cmd, by, a)
}

// canApply reports whether a command can be applied now: the epoch is known, and can be
// committed to.
func (s *progress) canApply(in *session) bool {
	known := in.ready || !s.stale && (!s.committed.Zero() && s.committed.Mode == in.e.cfg.Mode ||
		s.blockedOn == bridge.ReasonCheckpointLost)
	return known && (in.open || !in.e.cfg.exactlyOnce())
}

// seenClaim is the claim of a command, and the session that saw it.
type seenClaim struct {
	id, by, seen string
	open         bool // that session could publish: what it committed may be unknown
	fenced       bool // the store has a change that the claimer does not know
}

// claim claims a command for this session, and reports whether the session may decide about
// the command. The claim of another session counts until a session begins after this
// process saw the claim: the new session has fenced the claimer, and its checkpoint shows
// what the claimer committed. So does a claim of this session, once the session has ended:
// the reply to its commit may be lost. For a command past its deadline, late is the claim
// under which the command expires.
func (r *requests) claim(hard context.Context, s *session, cmd bridge.Command,
	by bridge.Claim) (mine bool, late *bridge.Claim, err error) {
	if last := r.claimed; last.id == cmd.ID && (last.by != s.id || last.open && !s.open) {
		if !s.open || last.seen == s.id {
			return false, nil, nil // a new session will begin, and the command is offered again
		}
		by.Over = last.by
	}
	got, err := r.e.ports.Inbox.Claim(hard, cmd, by)
	switch {
	case err != nil:
		return false, nil, nil // the store is unreachable; a command that is still valid is offered again
	case got.Late:
		return false, &by, nil
	case got.By == "":
		return false, nil, nil // the command was withdrawn in the meantime
	}
	r.claimed = seenClaim{id: cmd.ID, by: got.By, seen: s.id, open: s.open}
	if got.By == s.id || !s.open {
		return got.By == s.id, nil, nil
	}
	return false, nil, &sessionError{fmt.Errorf("command %s was claimed by session %s, which has not answered", cmd.ID,
		got.By)}
}

// judge validates one command, with a copy of the state that the command is checked
// against.
type judge struct {
	e         *Engine
	session   session
	committed bridge.Checkpoint
	rival     bridge.Checkpoint
	blockedOn bridge.Reason
}

// validateCommand returns why a command cannot be applied, or "".
func (j *judge) validateCommand(cmd bridge.Command) string {
	invalid, leak := cmd.Validate(), ""
	if find := j.e.cfg.LeakInCursor; cmd.Kind == bridge.KindReset && find != nil {
		leak = find(cmd.Target.Cursor)
	}
	switch {
	case invalid != nil:
		return invalid.Error()
	case cmd.Kind != bridge.KindReset && cmd.Kind != bridge.KindPause && cmd.Kind != bridge.KindResume:
		return fmt.Sprintf("this version does not support the command %q", cmd.Kind)
	case cmd.BaseEpoch != j.committed.Epoch && (cmd.Kind != bridge.KindReset || j.rival.Zero() ||
		cmd.BaseEpoch != j.rival.Epoch):
		// If there are two histories, the operator has seen that of the store.
		return fmt.Sprintf("the stream was moved, paused or resumed meanwhile: it is at epoch %d, the command expects %d",
			j.committed.Epoch, cmd.BaseEpoch)
	case cmd.Kind != bridge.KindReset:
		if refusal := j.validatePause(cmd); refusal != "" {
			return refusal
		}
	case leak != "":
		return "the cursor contains " + leak + ", which is not stored"
	case j.e.cfg.Origin.CheckTarget(cmd.Target) != nil:
		return j.e.cfg.Origin.CheckTarget(cmd.Target).Error()
	case max(cmd.Target.Events, cmd.Target.Pages, cmd.Target.Outside, cmd.Target.Dropped) > bridge.MaxNumber/2:
		return "a counter of the target is out of range" // or no later checkpoint could be committed
	case max(len(cmd.Target.Tail), len(cmd.Target.Border.Items)) > j.e.rules.TailLimit:
		return fmt.Sprintf("the tail has %d items and the border %d, the limit is %d", len(cmd.Target.Tail),
			len(cmd.Target.Border.Items), j.e.rules.TailLimit)
	default:
		if refusal := j.validateSource(cmd); refusal != "" {
			return refusal
		}
	}
	next := j.session.derive(j.committed, cmd)
	if err := next.Validate(); err != nil {
		return "invalid target: " + err.Error()
	}
	if j.e.cfg.Refuse == nil || cmd.Kind != bridge.KindReset {
		return ""
	}
	err := j.e.cfg.Refuse(next.Position())
	switch {
	case err == nil:
		return ""
	case next.Origin.Start == 0:
		return err.Error() + "; choose a time, or an entry of the history"
	}
	return err.Error()
}

// validatePause returns why the stream cannot be paused or resumed, or "".
func (j *judge) validatePause(cmd bridge.Command) string {
	now := time.Now()
	switch {
	case j.committed.Zero() || !j.rival.Zero() || j.blockedOn == bridge.ReasonCheckpointLost ||
		j.blockedOn == bridge.ReasonCheckpoint:
		return "the stream's position is unknown: " + j.e.cfg.words(bridge.HintNoPosition)
	case cmd.Kind == bridge.KindResume && !j.committed.Paused(now):
		return bridge.NotPaused
	case cmd.Kind == bridge.KindPause && cmd.PausedUntil != bridge.Forever && cmd.PausedUntil <= now.UnixMilli():
		return fmt.Sprintf("the end of the pause, %s, has passed", bridge.InstantText(cmd.PausedUntil))
	}
	return ""
}

// derive returns the checkpoint of a command, in a new epoch. A reset also accepts a
// changed origin or source. Without a bridge, only a reset that keeps the position accepts
// another topic, and a rewind keeps the origin: the settings are those of the command.
func (s *session) derive(was bridge.Checkpoint, cmd bridge.Command) bridge.Checkpoint {
	if cmd.Kind != bridge.KindReset {
		c := bridge.Pause(was, cmd)
		return s.stamp(c, cmd.Kind, bridge.Version{Epoch: c.Epoch})
	}
	origin, topic := s.e.cfg.Origin, s.e.cfg.Topic
	if s.e.applying && !cmd.Target.Stay {
		if topic = was.Topic; cmd.Target.Entry != nil && !was.Zero() {
			origin = was.Origin
			origin.Request = s.e.cfg.Origin.Request // requires AcceptSource
		}
	}
	c := bridge.Reset(was, origin, cmd)
	c.Topic = topic
	if origin.Follow == bridge.FollowWindows {
		c.Listing = s.listingAfter(was, c)
	}
	if cmd.Target.FollowOtherwise {
		c.FollowOtherwise(&was, s.e.cfg.LookBack)
	}
	c.Topics = was.Topics
	c = s.stamp(c, cmd.Kind, bridge.Version{Epoch: c.Epoch})
	if s.topics == nil && s.found != nil { // otherwise compared once the topics are known
		c.Topics = s.topicsNow(was.Topics, bridge.WithFormer(was.Topics, s.found))
	}
	return c
}

// acceptTopics makes an operator's reset accept the topics as they are. It returns the
// losses of the topics, which the operator may not have known.
func (s *session) acceptTopics(ctx context.Context, was bridge.Checkpoint, cmd bridge.Command,
	losses *incidents) (string, error) {
	if cmd.Kind != bridge.KindReset || s.topics != nil || !s.open {
		return "", nil
	}
	if s.found == nil { // another error occurred first
		if _, err := s.findTopics(ctx); err != nil {
			return "", &sessionError{err}
		}
	}
	fault := bridge.TopicsLost(was, s.found)
	if fault == nil {
		return "", nil
	}
	losses.countLoss(s.e, fault)
	s.e.log.Error("reset accepted a topic that lost events", "id", cmd.ID, "who", cmd.Who, "error", fault.Error())
	return fault.Error(), nil
}

// answer answers a command. A lost answer is no fault: the inbox offers the command again,
// and its id shows that it was applied. A refusal counts only once the inbox has recorded
// it, because another session may apply the command until then. The answer that a command
// was applied always counts. If a refusal does not count, another session answers, and
// Apply returns ErrFenced.
func (r *requests) answer(ctx context.Context, cmd bridge.Command, by bridge.Claim, a bridge.Answer) error {
	a.By, a.At = r.e.cfg.Owner, time.Now().UnixMilli()
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
		r.e.log.Warn("command answer rejected: the command was withdrawn, or its claim no longer stands", "id", cmd.ID,
			"applied", a.Applied)
	case err != nil:
		r.e.log.Warn("command answer not delivered", "id", cmd.ID, "error", err)
	case first == a && !a.Applied && !a.Expired():
		r.e.log.Warn("command refused", "id", cmd.ID, "kind", cmd.Kind, "who", cmd.Who, "why", a.Detail)
	}
	if conflict && !a.Applied && r.e.applying {
		return fmt.Errorf("the claim of command %s no longer stands: %w", cmd.ID, bridge.ErrFenced)
	}
	return nil
}
