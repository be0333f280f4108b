package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
)

// Next implements bridge.Inbox.
func (p *process) Next(ctx context.Context) (bridge.Command, error) {
	w := p.w
	var cmd bridge.Command
	err := p.ask(ctx, &call{op: opNext, ready: func() bool { return w.inbox.pending != nil }, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		cmd = w.inbox.pending.cmd
		return nil
	}})
	return cmd, err
}

// Claim implements bridge.Inbox.
func (p *process) Claim(ctx context.Context, cmd bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	w := p.w
	var mine bridge.Claimed
	err := p.ask(ctx, &call{op: opClaim, note: cmd.ID, run: func(f fate) error {
		switch f {
		case fateOK:
			if mine = w.inbox.claim(cmd, by); mine.By == by.Session {
				w.inbox.of(cmd.ID).claimer = p.who
			}
			return nil
		case fateLost:
			w.inbox.claim(cmd, by)
		case fateLate:
			w.late = append(w.late, func() { w.inbox.claim(cmd, by) })
		}
		return errExplored
	}})
	return mine, err
}

// Answer implements bridge.Inbox.
func (p *process) Answer(ctx context.Context, cmd bridge.Command, by bridge.Claim,
	a bridge.Answer) (bridge.Answer, error) {
	w := p.w
	var first bridge.Answer
	give := func() (err error) {
		first, err = w.answer(cmd, by, a)
		return err
	}
	c := &call{op: opAnswer, note: cmd.ID, run: func(f fate) error {
		// The engine reports an applied command as applied, even if the call fails.
		if a.Applied {
			w.answerIsTrue(cmd, a)
		}
		switch f {
		case fateOK:
			return give()
		case fateLost:
			_ = give()
		case fateLate:
			w.late = append(w.late, func() { _ = give() })
		}
		return errExplored
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s applied %v %s", cmd.ID, a.Applied, a.Detail)
	}
	if err := p.ask(ctx, c); err != nil {
		return bridge.Answer{}, err
	}
	return first, nil
}

// asked is a command with what became of it.
type asked struct {
	cmd       bridge.Command
	claimed   string // the session
	claimer   int    // and its process
	withdrawn bool
	answer    *bridge.Answer
	applied   int // checkpoints that the topic, or the store, has taken for it
	forgotten bool
}

// postbox is the store's side of the inbox: one command at a time.
type postbox struct {
	pending *asked
	all     []*asked
}

func (x *postbox) of(id string) *asked {
	i := slices.IndexFunc(x.all, func(a *asked) bool { return a.cmd.ID == id })
	if i < 0 {
		return nil
	}
	return x.all[i]
}

func (x *postbox) claim(cmd bridge.Command, by bridge.Claim) bridge.Claimed {
	a := x.pending
	switch {
	case a == nil || a.cmd.ID != cmd.ID:
		return bridge.Claimed{}
	case a.claimed != "" && a.claimed != by.Session && a.claimed != by.Over:
		return bridge.Claimed{By: a.claimed}
	case time.Now().UnixMilli() > a.cmd.Deadline:
		return bridge.Claimed{Late: true}
	}
	a.claimed = by.Session
	return bridge.Claimed{By: by.Session}
}

// answer is the answer to a command, as cursorstore/inbox.lua takes it.
func (w *world) answer(cmd bridge.Command, by bridge.Claim, with bridge.Answer) (bridge.Answer, error) {
	x := &w.inbox
	a, waits := w.inbox.of(cmd.ID), x.pending != nil && x.pending.cmd.ID == cmd.ID
	late := time.Now().UnixMilli() > cmd.Deadline
	switch {
	case a.answer != nil: // who asked reads the first one
	case with.Applied, waits && a.claimed != "" && a.claimed == by.Session, waits && late &&
		(a.claimed == "" || a.claimed == by.Over):
		w.answerIsTrue(cmd, with)
		a.answer = &with
	default:
		return bridge.Answer{}, bridge.ErrConflict
	}
	if waits {
		x.pending = nil
	}
	return *a.answer, nil
}

// expire answers, for the owner, the commands that no session claimed in time.
func (w *world) expire() {
	if a := w.inbox.pending; a != nil && a.claimed == "" && time.Now().UnixMilli() > a.cmd.Deadline {
		_, _ = w.answer(a.cmd, bridge.Claim{}, bridge.ExpiredAnswer("nobody claimed it"))
	}
}

// TestWorldCopied: in exactly-once mode, a reset that is in the newest copy of the topic is in
// force, though the store has not got it.
func TestWorldCopied(t *testing.T) {
	t.Parallel()
	at := func(epoch int64, change string) bridge.Checkpoint {
		return bridge.Checkpoint{
			Format: bridge.CheckpointFormat, Version: bridge.Version{Epoch: epoch}, Change: &bridge.Change{ID: change},
		}
	}
	for _, test := range []struct{ exactly, later, wrong bool }{
		{exactly: true},
		{exactly: true, later: true, wrong: true},
		{wrong: true},
	} {
		w := newWorld(plan{exactly: test.exactly})
		w.inbox.all = []*asked{{cmd: bridge.Command{ID: "r1"}}}
		w.topic.copied = at(1, "r1")
		if test.later {
			w.topic.log = []bridge.Checkpoint{at(2, "x")}
		}
		w.answerIsTrue(w.inbox.all[0].cmd, bridge.Answer{Applied: true})
		if failed := w.broken != nil; failed != test.wrong {
			t.Errorf("%+v: it is answered as applied, and the world finds %v", test, w.broken)
		}
	}
}
