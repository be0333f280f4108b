package bridgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
)

// Inbox is a bridge.Inbox in memory, with the operator's side of it. All methods may be
// called concurrently. It fails the test if two goroutines call Next at once, or if a
// command is answered that was never pushed.
type Inbox struct {
	t testing.TB

	answering calls[Failure]

	mu      sync.Mutex // guards all below
	waiting []bridge.Command
	pushed  map[string]bool
	answers map[string]bridge.Answer
	claims  map[string]bridge.Claim // the claimer of each command
	changed chan struct{}           // closed and replaced whenever a field above changes
	inNext  bool
	down    bool
}

// NewInbox returns an empty Inbox.
func NewInbox(t testing.TB) *Inbox {
	return &Inbox{
		t: t, pushed: make(map[string]bool), answers: make(map[string]bridge.Answer), claims: make(map[string]bridge.Claim),
		changed: make(chan struct{}),
	}
}

// Push sends a command to the owner.
func (i *Inbox) Push(c bridge.Command) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting = append(i.waiting, c)
	i.pushed[c.ID] = true
	i.signal()
}

// Withdraw withdraws a command. It returns false, and does nothing, if the command is
// claimed or answered.
func (i *Inbox) Withdraw(c bridge.Command) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, claimed := i.claims[c.ID]; claimed || !i.isWaiting(c.ID) {
		return false
	}
	i.remove(c.ID)
	return true
}

// Claimed returns the owner that has claimed the command.
func (i *Inbox) Claimed(id string) (owner string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	by, ok := i.claims[id]
	return by.Owner, ok
}

// AnswerTo returns the answer to the command with this id.
func (i *Inbox) AnswerTo(id string) (bridge.Answer, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	a, ok := i.answers[id]
	return a, ok
}

// Await waits for the answer to the command with this id.
func (i *Inbox) Await(ctx context.Context, id string) (bridge.Answer, error) {
	for {
		i.mu.Lock()
		a, ok := i.answers[id]
		changed := i.changed
		i.mu.Unlock()
		if ok {
			return a, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return bridge.Answer{}, fmt.Errorf("await answer to %s: %w", id, ctx.Err())
		}
	}
}

// FailAnswer makes call number n of Answer, counted from 1, fail in the form
// Failed or Persisted.
func (i *Inbox) FailAnswer(n int, f Failure) {
	if f == Partly {
		i.t.Fatalf("inbox: an answer is never partly persisted")
	}
	i.answering.fail(n, f)
}

// Break makes every call fail until heal is called, and so does a Next that waits.
func (i *Inbox) Break() (heal func()) {
	return breakDown(&i.mu, func(down bool) { i.down = down; i.signal() })
}

// Next implements bridge.Inbox.
func (i *Inbox) Next(ctx context.Context) (bridge.Command, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.inNext {
		i.t.Errorf("inbox: two calls of Next at once")
	}
	i.inNext = true
	defer func() { i.inNext = false }()
	for {
		switch {
		case ctx.Err() != nil:
			return bridge.Command{}, fmt.Errorf("next command: %w", ctx.Err())
		case i.down:
			return bridge.Command{}, fmt.Errorf("next command: %w", ErrDown)
		case len(i.waiting) > 0:
			return i.waiting[0], nil
		}
		changed := i.changed
		i.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		i.mu.Lock()
	}
}

// Claim implements bridge.Inbox.
func (i *Inbox) Claim(ctx context.Context, c bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.pushed[c.ID] {
		i.t.Errorf("inbox: claim of command %q, which was never pushed", c.ID)
	}
	if err := ctx.Err(); err != nil {
		return bridge.Claimed{}, fmt.Errorf("claim command %s: %w", c.ID, err)
	}
	if i.down {
		return bridge.Claimed{}, fmt.Errorf("claim command %s: %w", c.ID, ErrDown)
	}
	last, claimed := i.claims[c.ID]
	switch {
	case !i.isWaiting(c.ID):
		return bridge.Claimed{}, nil
	case claimed && last.Session != by.Session && last.Session != by.Over:
		return bridge.Claimed{By: last.Session}, nil
	case time.Now().UnixMilli() >= c.Deadline:
		return bridge.Claimed{Late: true}, nil
	}
	i.claims[c.ID] = by
	return bridge.Claimed{By: by.Session}, nil
}

// Answer implements bridge.Inbox.
func (i *Inbox) Answer(ctx context.Context, c bridge.Command, by bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	form, fails := i.answering.next()
	if !i.pushed[c.ID] {
		i.t.Errorf("inbox: answer to command %q, which was never pushed", c.ID)
	}
	if err := ctx.Err(); err != nil {
		return bridge.Answer{}, fmt.Errorf("answer command %s: %w", c.ID, err)
	}
	if i.down || fails && form == Failed {
		return bridge.Answer{}, fmt.Errorf("answer command %s: %w", c.ID, cause(i.down))
	}
	if _, answered := i.answers[c.ID]; !answered {
		withdrawn := i.pushed[c.ID] && !i.isWaiting(c.ID)
		if withdrawn || !a.Applied && !i.decides(c, by) {
			return bridge.Answer{}, fmt.Errorf("answer command %s: %w", c.ID, bridge.ErrConflict)
		}
		i.answers[c.ID] = a
		i.remove(c.ID)
		i.signal()
	}
	if fails {
		return bridge.Answer{}, fmt.Errorf("answer command %s: %w", c.ID, ErrInjected)
	}
	return i.answers[c.ID], nil
}

// decides reports whether by may answer that a command is not applied. The caller holds mu.
func (i *Inbox) decides(c bridge.Command, by bridge.Claim) bool {
	last, late := i.claims[c.ID].Session, time.Now().UnixMilli() >= c.Deadline
	return i.isWaiting(c.ID) && (last != "" && last == by.Session || late && (last == "" || last == by.Over))
}

// The caller of isWaiting, remove and signal holds mu.
func (i *Inbox) isWaiting(id string) bool {
	return slices.ContainsFunc(i.waiting, func(c bridge.Command) bool { return c.ID == id })
}

func (i *Inbox) remove(id string) {
	i.waiting = slices.DeleteFunc(i.waiting, func(c bridge.Command) bool { return c.ID == id })
}

func (i *Inbox) signal() {
	close(i.changed)
	i.changed = make(chan struct{})
}
