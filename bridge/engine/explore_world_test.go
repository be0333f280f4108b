package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
)

// violation is a rule that a schedule broke.
type violation struct{ rule, detail string }

// The rules. Each is checked at the step that would break it, so that a trace
// ends where it went wrong.
const (
	ruleOnce    = "exactly-once mode: the next item follows the last one, none is missing and none comes twice"
	ruleStep    = "exactly-once mode: a checkpoint says how far the items are that were committed with it and before it"
	ruleRising  = "the log of committed checkpoints rises, and only a reset begins an epoch"
	ruleReset   = "a reset is applied once, where it was asked for, and never after it was withdrawn, refused or expired"
	ruleClaim   = "exactly-once mode: the session whose claim stands applies a command, which was claimed in time"
	ruleAnswer  = "an answer is true when it is given"
	ruleBatch   = "at-least-once mode: a batch holds exactly the items between where it comes from and its checkpoint"
	ruleMarked  = "only what was published before is marked as published again"
	ruleCovered = "at-least-once mode: the cursor passes only events that are acknowledged"
	ruleRepeats = "at-least-once mode: only what was in flight at a fault comes again"
	ruleMixed   = "exactly-once mode: a session with the store ahead of the topic does not go on in the topic's epoch"
	rulePaused  = "a paused stream publishes nothing until the pause is over, or an operator resumes it"
	ruleTopic   = "nothing is published after a hole: a topic that lacks what the checkpoint says blocks the " +
		"stream until an operator accepts it"
	ruleMapping = "a stream of which nothing can be read stops after few items, however often it begins anew"
	ruleDetour  = "a stream leaves a cursor by itself only where the export refuses it, and publishes what is " +
		"missing, and only that"
	ruleSource = "no event of another list is published, whatever the settings say"
	ruleLost   = "every item is published"
	ruleStuck  = "when the faults are over, the owner is idle and caught up, the other stands by, the store has " +
		"the newest checkpoint, and every command has an answer"
	ruleContract = "the engine keeps the contracts of its ports"
	ruleEnds     = "a process ends when it is stopped, and not before"
	ruleFloor    = "nothing before the start is published, but after a reset to there"
	ruleCovers   = "the watermark passes no item that the list shows in time"
	ruleLeak     = "nothing is left running, nothing deadlocks, nothing panics"
)

// fail records the first violation; the schedule ends there.
func (w *world) fail(rule, format string, args ...any) {
	if w.broken == nil {
		w.broken = &violation{rule, fmt.Sprintf(format, args...)}
		w.note("VIOLATION: %s: %s", rule, w.broken.detail)
	}
}

// committed checks one more entry of the log.
func (w *world) committed(p *process, last, c bridge.Checkpoint, items []int) {
	w.held(last, c, items)
	switch {
	case last.Zero() && w.forgot:
		if c.Kind == bridge.KindStart && w.topic.records > 0 {
			w.fail(ruleRising, "the stream begins again, and the topic holds %d items of it", w.topic.records)
		}
		w.moved(last, c)
		w.topic.next = reached(c)
		w.unlearn(c)
	case last.Zero() && w.switched:
		w.moved(w.store.value, c)
		w.topic.next = reached(c)
	case last.Zero():
		if c.Version != (bridge.Version{}) || c.Kind != bridge.KindStart || len(items) > 0 || reached(c) != 0 {
			w.fail(ruleRising, "the stream begins with %s %s and items %v", c.Version, c.Kind, items)
		}
	case c.Version.Compare(last.Version) <= 0:
		w.fail(ruleRising, "%s %s after %s", c.Version, c.Kind, last.Version)
	case c.Epoch != last.Epoch:
		if len(items) > 0 {
			w.fail(ruleOnce, "a reset to %s publishes %v", c.Version, items)
		}
		w.moved(last, c)
		w.topic.next = reached(c)
	case last.Version.Compare(p.knew) < 0:
		w.fail(ruleMixed, "%s %s after %s in a session that found the store at %s", c.Version, c.Kind, last.Version, p.knew)
	case c.ChangeID() != last.ChangeID():
		w.fail(ruleRising, "%s is of change %q, %s before it of %q", c.Version, c.ChangeID(), last.Version, last.ChangeID())
	}
	if c.Overlap != nil {
		w.overlapped(c, items)
		return
	}
	if w.plan.windows {
		w.listing(c, items)
		return
	}
	for i, n := range items {
		if next := w.topic.next + i; n != next {
			w.fail(ruleOnce, "%s publishes item %d where %d comes next", c.Version, n, next)
		}
	}
	if next := w.topic.next + len(items); reached(c) != next {
		w.fail(ruleStep, "%s says that %d items are published, %d are", c.Version, reached(c), next)
	}
	w.topic.next += len(items)
}

// moved checks a checkpoint that begins an epoch.
func (w *world) moved(last, c bridge.Checkpoint) {
	a := w.inbox.of(c.ChangeID())
	switch {
	case a == nil && c.Change != nil && strings.HasPrefix(c.Change.Reason, "cursor rejected by the API"):
		w.detoured(last, c)
		w.lostTrack()
		return
	case c.Kind == bridge.KindReset:
		w.lostTrack()
	}
	// A pause accepts nothing, unless an operator's process comes by the policy on
	// its way to it.
	if byPolicy := w.lost && w.plan.loss == "redis"; w.exactly &&
		(c.Kind == bridge.KindReset || c.Kind == bridge.KindStart || byPolicy) {
		w.waive(c)
	}
	switch {
	case a == nil && w.mints(c):
		w.minted(c)
		return
	case a == nil && c.Mode == bridge.AtLeastOnce &&
		w.overdue(c.Change): // it may come late, after the delivery has changed
		w.expired(last, c)
		return
	case a == nil:
		w.fail(ruleRising, "epoch %d begins at %s though nobody asked for it: %v", c.Epoch, c.Version, c.Change)
		return
	case !a.forgotten && (a.withdrawn || a.answer != nil && !a.answer.Applied):
		w.fail(ruleReset, "%s is applied, and was withdrawn or refused before", a.cmd.ID)
	case w.exactly && !a.forgotten && c.Session != a.claimed:
		w.fail(ruleClaim, "%s is applied by session %s, and claimed by %q", a.cmd.ID, c.Session, a.claimed)
	case a.applied > 0 && !a.forgotten:
		w.fail(ruleReset, "%s is applied again at %s", a.cmd.ID, c.Version)
	case !last.Zero() && !w.lossy && !w.switched && (a.cmd.BaseEpoch != last.Epoch || c.Epoch != last.Epoch+1):
		w.fail(ruleReset, "%s was made for epoch %d and is applied to %s", a.cmd.ID, a.cmd.BaseEpoch, last.Version)
	case c.Kind != a.cmd.Kind || c.PausedUntil != a.cmd.PausedUntil && a.cmd.Kind != bridge.KindReset:
		w.fail(ruleReset, "%s is a %s until %d, %s is a %s until %d", a.cmd.ID, a.cmd.Kind, a.cmd.PausedUntil, c.Version,
			c.Kind, c.PausedUntil)
	case a.cmd.Kind != bridge.KindReset && !w.exactly && w.contested() && reached(c) < reached(last):
		// In at-least-once mode, if two bridges run the stream, the one that is behind may
		// pause it: the events that the other has published are then published again.
	case a.cmd.Kind != bridge.KindReset && (w.lossy || w.switched):
		w.goesOn(c)
	default:
		to := reached(last)
		if a.cmd.Kind == bridge.KindReset {
			to = w.targeted(a.cmd.Target)
		}
		if c.Seq != 0 || reached(c) != to {
			w.fail(ruleReset, "%s goes to item %d, at %s the stream is at %d", a.cmd.ID, to, c.Version, reached(c))
		}
	}
	if a.applied++; w.plan.windows && a.cmd.Kind == bridge.KindReset {
		w.rewound(last, c)
	}
	w.accepted(c)
}

// expired checks an epoch whose new change id invalidates the write of the claimer of an
// expired command: the stream goes on where it was. If the delivery mode has changed and
// the store is behind, that is the topic's position. A store that fell back is corrected.
func (w *world) expired(last, c bridge.Checkpoint) {
	for _, k := range w.topic.log {
		if k.Version.Compare(last.Version) > 0 && k.Version.Compare(c.Version) < 0 {
			last = k
		}
	}
	if n := reached(c) - reached(last); n > 0 && !w.store.been[reached(c)] || (n < 0 || n > 0 && !w.lossy) &&
		!w.contested() {
		w.fail(ruleReset, "%s, and took the stream from item %d to %d", c.Change.Reason, reached(last), reached(c))
	}
}

// overdue reports whether a change expires a claimed command that is past its deadline and
// was not applied, or came back: in at-least-once mode it invalidates the claimer's write.
func (w *world) overdue(change *bridge.Change) bool {
	return change != nil && slices.ContainsFunc(w.inbox.all, func(a *asked) bool {
		return change.Reason == "command "+a.cmd.ID+" expired" && a.claimed != "" && (a.applied == 0 || a.answer != nil) &&
			time.Now().UnixMilli() > a.cmd.Deadline
	})
}

// mints reports whether the engine has a reason to begin an epoch at c by itself.
func (w *world) mints(c bridge.Checkpoint) bool {
	switch {
	case c.Change == nil:
		return c.Kind == bridge.KindStart && (w.forgot || w.switched)
	case strings.HasPrefix(c.Change.Reason, "delivery changed to "):
		return w.switched
	}
	return w.lost && w.plan.loss != "stop" && strings.HasPrefix(c.Change.Reason, "Kafka lost ")
}

// minted checks an epoch that the engine began by itself, because two histories
// were written apart: it goes on where one of them was, as far as it can know.
func (w *world) minted(c bridge.Checkpoint) {
	if w.plan.loss == "redis" { // which accepts what is missing
		w.topic.events.lost = nil
	}
	// A reset that was only in the topic's copies counts from here on.
	if k := w.topic.copied; w.exactly && k.Seq == 0 && c.Change != nil && c.Change.From == k.Version {
		if a := w.inbox.of(k.ChangeID()); a != nil && a.applied == 0 {
			if a.applied++; w.plan.windows && k.Kind == bridge.KindReset {
				w.rewound(w.topic.last(), k)
			}
			if !a.forgotten && (a.withdrawn || a.answer != nil && !a.answer.Applied) {
				w.fail(ruleReset, "%s is applied, and was withdrawn or refused before", a.cmd.ID)
			}
		}
	}
	w.goesOn(c)
}

// goesOn checks the position of an epoch that does not move the stream, after
// something was lost or the delivery has changed.
func (w *world) goesOn(c bridge.Checkpoint) {
	switch n := reached(c); {
	case w.exactly && !w.switched && (w.plan.loss == "redis" || w.forgot) &&
		slices.ContainsFunc(w.topic.gone, func(g bridge.Checkpoint) bool { return reached(g) == n }):
		// Where the store, or the process, had seen it last.
	case w.exactly && !w.switched && n != w.topic.next:
		w.fail(ruleOnce, "%s goes on at item %d, the topic holds what is before item %d", c.Version, n, w.topic.next)
	case w.switched && !w.lossy && n != w.loaded[c.Owner] && n != reached(w.store.value) &&
		n != reached(w.topic.last()) && n != reached(w.topic.newest()):
		w.fail(ruleStep, "%s goes on at item %d, before it the stream was at %d in the store and %d in the topic",
			c.Version, n, reached(w.store.value), reached(w.topic.newest()))
	}
}

// answerIsTrue checks the answer that the requester is about to read.
func (w *world) answerIsTrue(cmd bridge.Command, with bridge.Answer) {
	a := w.inbox.of(cmd.ID)
	if a == nil || a.forgotten || a.answer != nil {
		return // nobody reads it any more
	}
	// Exactly once, what is newest in the topic is in force, a copy too: every session
	// goes on from it.
	newest := w.topic.newest()
	inForce := w.exactly && with.Applied && newest.ChangeID() == cmd.ID
	if with.Applied != (a.applied > 0) && !inForce {
		w.fail(ruleAnswer, "%s is answered with applied %v %q, and was applied %d times", cmd.ID, with.Applied, with.Detail,
			a.applied)
	}
}

// answerStands checks what an operator's process says at its end: that the
// command is applied, or the answer that is recorded.
func (w *world) answerStands(cmd bridge.Command, said bridge.Answer) {
	a := w.inbox.of(cmd.ID)
	switch {
	case a.forgotten:
	case said.Applied && a.applied == 0, !said.Applied && (a.applied > 0 || a.answer == nil || *a.answer != said):
		w.fail(ruleAnswer, "the operator reads that %s is answered with %+v, and it was applied %d times and answered "+
			"with %+v", cmd.ID, said, a.applied, a.answer)
	}
}

// copyStore is the store: the checkpoint and every one before it.
type copyStore struct {
	value   bridge.Checkpoint
	history []bridge.Checkpoint
	been    map[int]bool // the positions that it ever had
}

// advance is the compare-and-set of cursorstore/advance.lua.
func (s *copyStore) advance(p *process, from, to bridge.Checkpoint) error {
	w := p.w
	if old := s.value; !old.Zero() {
		if old.Version == to.Version && old.Cursor == to.Cursor && old.Session == to.Session {
			return nil
		}
		if to.Version.Compare(old.Version) <= 0 || old.ChangeID() != from.ChangeID() {
			return bridge.ErrConflict
		}
	}
	if to.Mode == bridge.ExactlyOnce {
		if !slices.ContainsFunc(slices.Concat(w.topic.log, w.topic.gone),
			func(c bridge.Checkpoint) bool { return c.Version == to.Version && c.Session == to.Session }) {
			w.fail(ruleContract, "the store gets %s, which is not committed", to.Version)
		}
	} else {
		w.passed(p, s.value, to)
	}
	s.value = to
	s.history = append(s.history, to)
	s.been[reached(to)] = true
	return nil
}

// contested reports whether two may have run the stream at the same time.
func (w *world) contested() bool { return w.plan.free || w.plan.has(twistMove, twistStop, twistApply) }

// passed checks a checkpoint that the store takes where it is the truth.
func (w *world) passed(p *process, last, to bridge.Checkpoint) {
	// A store that lost everything is written again from where a process is.
	if last.Zero() && len(w.store.history) == 0 && to.Kind != bridge.KindStart && w.topic.holdsNone() && !w.wiped {
		w.fail(ruleRising, "the stream begins with %s %s", to.Version, to.Kind)
	}
	// A process that knows no later checkpoint may begin the stream again: it found a
	// store that had fallen back so far, or an empty store and an old copy in Kafka, which
	// Kafka may have lost since. A write that was on its way when all checkpoints were lost
	// may do so too. Then all events are published again.
	if to.Version == (bridge.Version{}) && last.Zero() && w.topic.records > 0 && !w.contested() && !w.belated &&
		!p.restarts() {
		w.fail(ruleRising, "the stream begins again, and the topic holds %d items of it", w.topic.records)
	}
	acked := w.topic.ackedIn(to)
	if to.Change != nil && (to.Kind == to.Change.Kind || to.Kind == bridge.KindReset && to.Change.Moves()) && to.Seq == 0 {
		w.moved(last, to)
		for n := range reached(to) {
			acked[n] = true
		}
	}
	if w.plan.windows {
		w.covers(to, nil)
	}
	for n := range reached(to) {
		if !acked[n] && !w.plan.windows {
			w.fail(ruleCovered, "%s passes item %d, which was not acknowledged in epoch %d", to.Version, n, to.Epoch)
			return
		}
	}
	for _, b := range w.topic.batches {
		if b.place == to.Version && b.session == to.Session {
			b.passed, b.stored = true, true
		}
	}
}

// repairs reports whether a blocked stream needs the operator, and lets the operator do
// what the hint says. That is so if no checkpoint is left, or if an epoch was lost from the
// authoritative side and another epoch of the same number has begun.
func (w *world) repairs(s bridge.Status) bool {
	why, needed := s.Reason, false
	switch why {
	case bridge.ReasonCheckpointLost:
		needed = w.wiped && w.topic.holdsNone()
	case bridge.ReasonTopic: // what somebody took off the topic, only an operator accepts
		needed = w.damaged
	case bridge.ReasonSource:
		if w.settles() {
			return true
		}
		needed = w.right != settingsRight && !w.accepts(w.right)
	case bridge.ReasonCursor:
		needed = len(w.export.refused)+len(w.export.stale) > 0
	case bridge.ReasonCheckpoint:
		// Every command begins an epoch, a pause without an end as well, and so does
		// the policy about lost data.
		begun := w.plan.has(twistReset, twistSkip, twistHold, twistHalt, twistApply, twistSwitch, twistOrphan, twistForget)
		needed = w.lossy && begun && (!w.exactly || w.switched || w.lost) || w.exactly && w.lost && w.plan.loss == "stop"
	}
	const most = 3
	if needed && w.repaired < most && w.inbox.pending == nil && time.Since(w.tried) > 2*time.Minute {
		w.tried = time.Now()            // the bridge looks again once a minute
		if why != bridge.ReasonSource { // where both leave the stream to the other one, nobody may read it in time
			w.repaired++
		}
		w.note("- an operator repairs what is blocked as %s", why)
		epoch := w.store.value.Epoch
		if w.store.value.Zero() { // then the bridge itself tells
			epoch = s.Version.Epoch
		}
		to := w.target(0)
		if at := w.store.value; (why == bridge.ReasonSource || why == bridge.ReasonTopic && w.plan.order%2 == 1) &&
			!at.Zero() { // --to-current
			to = stay(at)
		}
		w.push(w.accepting(bridge.Command{Kind: bridge.KindReset, BaseEpoch: epoch, Target: to}))
		return true
	}
	return false
}

// settled reports what is still missing for the end of a schedule, or "".
func (w *world) settled() string {
	owner, other := w.procs[0], w.procs[1]
	if w.owner == 1 && !w.plan.free {
		owner, other = other, owner
	}
	if owner == nil || w.procs[2] != nil {
		return "a process is not there, or not over"
	}
	s := owner.bridge.Status()
	if s.PausedUntil == bridge.Forever && s.State == bridge.StatePaused && w.inbox.pending == nil {
		w.hold(0)
	}
	if w.corrects(s) {
		return "an operator has just corrected how items are read"
	}
	if w.repairs(s) {
		return "an operator has just asked for a repair"
	}
	if w.inbox.pending != nil {
		return "command " + w.inbox.pending.cmd.ID + " has no answer"
	}
	newest := w.newest()
	switch {
	case s.State != bridge.StateIdle:
		return fmt.Sprintf("the owner is %s %s %s", s.State, s.Reason, s.Error)
	case w.behind(newest) != "":
		return w.behind(newest)
	case s.Version != newest.Version:
		return fmt.Sprintf("the owner is at %s, the newest checkpoint is %s", s.Version, newest.Version)
	case newest.Version != w.store.value.Version:
		return fmt.Sprintf("the store is at %s, the newest checkpoint is %s", w.store.value.Version, newest.Version)
	}
	if other == nil {
		return ""
	}
	if s := other.bridge.Status(); s.State != bridge.StateStandby {
		return fmt.Sprintf("the other is %s %s %s", s.State, s.Reason, s.Error)
	}
	return ""
}

// judge checks what can only be known at the end.
func (w *world) judge() {
	newest := w.store.value
	if w.exactly {
		newest = w.topic.last()
		if newest.Version != w.store.value.Version {
			w.fail(ruleStuck, "at the end the store is at %s, the newest checkpoint is %s", w.store.value.Version,
				newest.Version)
		}
	}
	if behind := w.behind(newest); behind != "" {
		w.fail(ruleLost, "at the end %s", behind)
	}
	for _, a := range w.inbox.all {
		if a.forgotten {
			continue
		}
		if a.answer != nil && a.answer.Applied != (a.applied > 0) || a.applied > 1 {
			w.fail(ruleReset, "%s was answered with %+v and applied %d times", a.cmd.ID, a.answer, a.applied)
		}
	}
	// In at-least-once mode, each checkpoint was checked against the acknowledged events;
	// with both delivery modes, a cut may remain unnoticed.
	if w.exactly && !w.switched && !w.hidden {
		w.judgeTopic()
	}
	// Where two run the stream and the store loses something, it believes one of
	// them again that knows nothing of what the other has published since.
	// Without that only doubt repeats.
	if !w.exactly && !w.switched && (!w.contested() || !w.lossy) {
		w.judgeRepeats()
	}
}

// TestWorldExpired: an expired command moves the stream to the store's position, in spite of
// any loss.
func TestWorldExpired(t *testing.T) {
	t.Parallel()
	for _, was := range []bool{true, false} {
		w := newWorld(plan{})
		w.lossy = true
		w.inbox.all = []*asked{{cmd: bridge.Command{ID: "r1"}, claimed: "gone"}}
		w.store.been[2] = was
		w.moved(bridge.Checkpoint{}, bridge.Checkpoint{
			Mode: bridge.AtLeastOnce, Kind: bridge.KindReset, Tail: make(bridge.Tail, 2),
			Change: &bridge.Change{ID: "x", Reason: "command r1 expired"},
		})
		if failed := w.broken != nil; failed == was {
			t.Errorf("the store had item 2 %v, and the world finds %v", was, w.broken)
		}
	}
}

// TestWorldExpiredBehind: where the delivery has changed, the store may be behind
// the topic. A command that expired takes the stream to where the topic has it.
func TestWorldExpiredBehind(t *testing.T) {
	t.Parallel()
	for to, wrong := range []bool{true, true, false, true} {
		w := newWorld(plan{})
		w.switched = true
		w.inbox.all = []*asked{{cmd: bridge.Command{ID: "r1"}, claimed: "gone"}}
		w.store.been[0] = true
		w.topic.log = []bridge.Checkpoint{
			{}, {Version: bridge.Version{Seq: 1}, Tail: make(bridge.Tail, 2)},
			{Version: bridge.Version{Epoch: 2}, Tail: make(bridge.Tail, 1)},
		}
		w.moved(w.topic.log[0], bridge.Checkpoint{
			Version: bridge.Version{Epoch: 1}, Mode: bridge.AtLeastOnce, Kind: bridge.KindReset, Tail: make(bridge.Tail, to),
			Change: &bridge.Change{ID: "x", Reason: "command r1 expired"},
		})
		if failed := w.broken != nil; failed != wrong {
			t.Errorf("the topic is at item 2, the command takes the stream to item %d, and the world finds %v", to, w.broken)
		}
	}
}
