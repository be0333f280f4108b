package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// InboxFixture is an Inbox and the operator's side of it.
type InboxFixture struct {
	Inbox bridge.Inbox
	// Push sends a command to the owner, as an operator does.
	Push func(bridge.Command)
	// Withdraw withdraws a command, and reports whether it did.
	Withdraw func(bridge.Command) bool
	// Claimed returns the owner that has claimed the command with this id, as the operator
	// sees it.
	Claimed func(id string) (owner string, ok bool)
	// Answer returns the answer to the command with this id, as the operator reads it.
	Answer func(id string) (bridge.Answer, bool)
}

// TestInbox checks an Inbox against each sentence of its contract.
func TestInbox(t *testing.T, newFixture func(t *testing.T) InboxFixture) {
	for _, c := range []struct {
		sentence string
		test     func(*testing.T, InboxFixture)
	}{
		{"next waits for a command, and returns it whole", inboxWaits},
		{"next ends with its context", inboxCancelled},
		{"next returns the same command again until it is answered", inboxAgain},
		{"next does not return a command that was withdrawn", inboxWithdrawn},
		{"claim tells who asked, and twice is the same as once", inboxClaims},
		{"a claimed command cannot be withdrawn", inboxClaimed},
		{"claim is refused when withdrawn, answered or past the deadline", inboxRefuses},
		{"the claim of another session stands, unless it is over", inboxOver},
		{"past the deadline no claim is made or taken over", inboxOverdue},
		{"answer records the answer and removes the command", inboxAnswers},
		{"the first answer stands, and a later one returns it", inboxRepeats},
		{"a withdrawn command has no answer any more", inboxUnanswered},
		{"a refusal counts while the claim of its session stands", inboxRefusal},
		{"past the deadline a refusal counts where no claim stands, or one that is over", inboxExpires},
	} {
		t.Run(c.sentence, func(t *testing.T) { c.test(t, newFixture(t)) })
	}
}

func inboxWaits(t *testing.T, f InboxFixture) {
	got := make(chan bridge.Command, 1)
	go func() {
		c, err := next(t, f.Inbox, patience)
		if err != nil {
			t.Errorf("next: %v", err)
		}
		got <- c
	}()
	select {
	case c := <-got:
		t.Fatalf("next returned %+v from an empty inbox", c)
	case <-time.After(moment):
	}
	want := commandOf("r1")
	f.Push(want)
	if diff := cmp.Diff(want, receive(t, got, "next after a command was pushed")); diff != "" {
		t.Errorf("command differs (-want +got):\n%s", diff)
	}
}

func inboxCancelled(t *testing.T, f InboxFixture) {
	if c, err := next(t, f.Inbox, moment); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next returned %+v, %v; want the context's error", c, err)
	}
	want := commandOf("r1")
	f.Push(want) // an abandoned wait must not take the command
	wantNext(t, f, want)
}

func inboxAgain(t *testing.T, f InboxFixture) {
	want := commandOf("r1")
	f.Push(want)
	for range 3 {
		wantNext(t, f, want)
	}
	mustAnswer(t, f, want, bridge.Answer{Applied: true, By: "owner"})
	wantNone(t, f)
}

func inboxWithdrawn(t *testing.T, f InboxFixture) {
	first, second := commandOf("r1"), commandOf("r2")
	f.Push(first)
	wantNext(t, f, first)
	if !f.Withdraw(first) {
		t.Error("a command that nobody claimed could not be withdrawn")
	}
	wantNone(t, f)
	if a, ok := f.Answer(first.ID); ok {
		t.Errorf("a withdrawn command has the answer %+v", a)
	}
	f.Push(second)
	wantNext(t, f, second)
}

func inboxClaims(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	f.Push(c)
	wantNext(t, f, c)
	if owner, ok := f.Claimed(c.ID); ok {
		t.Errorf("the command is claimed by %q before it was", owner)
	}
	for range 2 {
		wantClaimed(t, f, c, claimBy("session"), bridge.Claimed{By: "session"})
		if owner, ok := f.Claimed(c.ID); !ok || owner != "owner" {
			t.Errorf("the command is claimed by %q, %v; want owner", owner, ok)
		}
	}
	wantNext(t, f, c) // the command has no answer yet
	mustAnswer(t, f, c, bridge.Answer{Applied: true, By: "owner"})
}

func inboxClaimed(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	f.Push(c)
	wantClaimed(t, f, c, claimBy("session"), bridge.Claimed{By: "session"})
	if f.Withdraw(c) {
		t.Error("a claimed command could be withdrawn")
	}
	wantNext(t, f, c)
	mustAnswer(t, f, c, bridge.Answer{Applied: true, By: "owner"})
	if _, ok := f.Answer(c.ID); !ok {
		t.Error("a command has no answer after an attempt to withdraw it")
	}
}

func inboxRefuses(t *testing.T, f InboxFixture) {
	withdrawn, answered, late := commandOf("r1"), commandOf("r2"), commandOf("r3")
	f.Push(withdrawn)
	f.Withdraw(withdrawn)
	wantClaimed(t, f, withdrawn, claimBy("session"), bridge.Claimed{})
	f.Push(answered)
	mustAnswer(t, f, answered, bridge.Answer{Applied: true, By: "owner"})
	wantClaimed(t, f, answered, claimBy("session"), bridge.Claimed{})
	late.Deadline = time.Now().Add(-time.Minute).UnixMilli()
	f.Push(late)
	wantClaimed(t, f, late, claimBy("session"), bridge.Claimed{Late: true})
	if owner, ok := f.Claimed(late.ID); ok {
		t.Errorf("a refused claim is recorded for %q", owner)
	}
}

func inboxOver(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	f.Push(c)
	first, other := claimBy("first"), bridge.Claim{Owner: "other", Session: "second"}
	wantClaimed(t, f, c, first, bridge.Claimed{By: "first"})
	wantClaimed(t, f, c, other, bridge.Claimed{By: "first"})
	other.Over = "third"
	wantClaimed(t, f, c, other, bridge.Claimed{By: "first"})
	other.Over = "first"
	wantClaimed(t, f, c, other, bridge.Claimed{By: "second"})
	if owner, ok := f.Claimed(c.ID); !ok || owner != "other" {
		t.Errorf("a claim that was taken over is by %q, %v; want other", owner, ok)
	}
	wantClaimed(t, f, c, first, bridge.Claimed{By: "second"})
	wantNext(t, f, c)
}

func inboxOverdue(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	c.Deadline = time.Now().Add(3 * moment).UnixMilli()
	f.Push(c)
	wantClaimed(t, f, c, claimBy("first"), bridge.Claimed{By: "first"})
	<-time.After(time.Until(time.UnixMilli(c.Deadline)) + moment)
	wantNext(t, f, c) // the claimer may be applying the command
	other := claimBy("second")
	wantClaimed(t, f, c, other, bridge.Claimed{By: "first"})
	other.Over = "first"
	wantClaimed(t, f, c, other, bridge.Claimed{Late: true})
	wantClaimed(t, f, c, claimBy("first"), bridge.Claimed{Late: true})
	wantNext(t, f, c) // the command has no answer yet
}

func inboxAnswers(t *testing.T, f InboxFixture) {
	for n, a := range []bridge.Answer{
		{Applied: true, By: "owner-1", Version: bridge.Version{Epoch: 2}, At: itemTime},
		{Detail: "the epoch is 3, not 2; look again with cursor show", By: "owner-1",
			Version: bridge.Version{Epoch: 3, Seq: 8}, At: itemTime},
	} {
		c := commandOf(fmt.Sprint("r", n))
		f.Push(c)
		wantNext(t, f, c)
		if got, ok := f.Answer(c.ID); ok {
			t.Errorf("the command has the answer %+v before it was answered", got)
		}
		wantClaimed(t, f, c, claimBy("session"), bridge.Claimed{By: "session"})
		mustAnswer(t, f, c, a)
		got, ok := f.Answer(c.ID)
		if diff := cmp.Diff(a, got); !ok || diff != "" {
			t.Errorf("answer found %v, differs (-want +got):\n%s", ok, diff)
		}
		wantNone(t, f)
	}
}

func inboxRepeats(t *testing.T, f InboxFixture) {
	first, second := commandOf("r1"), commandOf("r2")
	want := bridge.Answer{Applied: true, By: "owner", Version: bridge.Version{Epoch: 2}}
	f.Push(first)
	wantNext(t, f, first)
	mustAnswer(t, f, first, want)
	f.Push(second)
	for _, late := range []bridge.Answer{{Detail: "too late", By: "stranger"}, {Applied: true, By: "stranger"}} {
		if got, err := f.Inbox.Answer(t.Context(), first, claimBy("other"), late); err != nil || got != want {
			t.Errorf("a later answer returned %+v, %v; want the first one, %+v", got, err, want)
		}
	}
	if got, _ := f.Answer(first.ID); got != want {
		t.Errorf("a later answer changed it to %+v, want %+v", got, want)
	}
	wantNext(t, f, second) // the answer removed no other command
}

func inboxUnanswered(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	f.Push(c)
	f.Withdraw(c)
	for _, applied := range []bool{true, false} {
		got, err := f.Inbox.Answer(t.Context(), c, claimBy("session"), bridge.Answer{Applied: applied, By: "owner"})
		if a, ok := f.Answer(c.ID); !errors.Is(err, bridge.ErrConflict) || ok {
			t.Errorf("an answer to a withdrawn command, applied %v, returned %+v, %v and is recorded as %+v; "+
				"want a conflict", applied, got, err, a)
		}
	}
}

func inboxRefusal(t *testing.T, f InboxFixture) {
	c := commandOf("r1")
	f.Push(c)
	wantRefused(t, f, c, bridge.Claim{})
	wantRefused(t, f, c, claimBy("first"))
	wantClaimed(t, f, c, claimBy("first"), bridge.Claimed{By: "first"})
	other := bridge.Claim{Owner: "other", Session: "second", Over: "first"}
	wantRefused(t, f, c, other) // there is still time to apply the command
	wantClaimed(t, f, c, other, bridge.Claimed{By: "second"})
	wantRefused(t, f, c, claimBy("first"))
	wantNext(t, f, c)
	want := bridge.Answer{Detail: "no", By: "other"}
	if got, err := f.Inbox.Answer(t.Context(), c, other, want); err != nil || got != want {
		t.Errorf("a refusal under a claim returned %+v, %v", got, err)
	}
	if got, _ := f.Answer(c.ID); got != want {
		t.Errorf("the answer is %+v, want %+v", got, want)
	}
	wantNone(t, f)
}

func inboxExpires(t *testing.T, f InboxFixture) {
	want := bridge.ExpiredAnswer("nobody was there")
	expire := func(c bridge.Command, by bridge.Claim) {
		if got, err := f.Inbox.Answer(t.Context(), c, by, want); err != nil || got != want {
			t.Errorf("%s is refused by %+v past its deadline: %+v, %v", c.ID, by, got, err)
		}
		wantNone(t, f)
	}
	unclaimed, claimed := commandOf("r1"), commandOf("r2")
	unclaimed.Deadline = time.Now().Add(-time.Minute).UnixMilli()
	f.Push(unclaimed)
	expire(unclaimed, bridge.Claim{Session: "second", Over: "lost"}) // the claim expires too

	claimed.Deadline = time.Now().Add(3 * moment).UnixMilli()
	f.Push(claimed)
	wantClaimed(t, f, claimed, claimBy("first"), bridge.Claimed{By: "first"})
	<-time.After(time.Until(time.UnixMilli(claimed.Deadline)) + moment)
	wantRefused(t, f, claimed, claimBy("second"))
	expire(claimed, bridge.Claim{Session: "second", Over: "first"})
}

// wantRefused checks that nothing changes if a session refuses a command that it must not
// decide.
func wantRefused(t *testing.T, f InboxFixture, c bridge.Command, by bridge.Claim) {
	t.Helper()
	got, err := f.Inbox.Answer(t.Context(), c, by, bridge.Answer{Detail: "no", By: by.Owner})
	if a, ok := f.Answer(c.ID); !errors.Is(err, bridge.ErrConflict) || ok {
		t.Errorf("a refusal of %s by %+v returned %+v, %v and is recorded as %+v; want a conflict", c.ID, by, got, err, a)
	}
}

func commandOf(id string) bridge.Command {
	return bridge.Command{
		ID: id, Kind: bridge.KindReset, BaseEpoch: 1<<53 + 1, Who: "me", Reason: "a \"reason\" <&> ключ",
		Target: bridge.Target{
			Cursor: "a+b/c=%&#", Tail: bridge.Tail{{1, 2, 3}}, Carried: 1, Start: itemTime,
			Events: 1<<53 + 1, Pages: 9, Entry: &bridge.Version{Epoch: 1, Seq: 2},
		},
		Deadline: time.Now().Add(time.Hour).UnixMilli(),
	}
}

func next(t *testing.T, i bridge.Inbox, wait time.Duration) (bridge.Command, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return i.Next(ctx)
}

func wantNext(t *testing.T, f InboxFixture, want bridge.Command) {
	t.Helper()
	got, err := next(t, f.Inbox, patience)
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("command differs (-want +got):\n%s", diff)
	}
}

func wantNone(t *testing.T, f InboxFixture) {
	t.Helper()
	if c, err := next(t, f.Inbox, moment); err == nil {
		t.Fatalf("next returned %+v, want to wait", c)
	}
}

func claimBy(session string) bridge.Claim { return bridge.Claim{Owner: "owner", Session: session} }

func wantClaimed(t *testing.T, f InboxFixture, c bridge.Command, by bridge.Claim, want bridge.Claimed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := f.Inbox.Claim(ctx, c, by); err != nil || got != want {
		t.Errorf("claim of %s by %+v returned %+v, %v; want %+v", c.ID, by, got, err, want)
	}
}

func mustAnswer(t *testing.T, f InboxFixture, c bridge.Command, a bridge.Answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := f.Inbox.Answer(ctx, c, claimBy("session"), a); err != nil {
		t.Fatalf("answer %s: %v", c.ID, err)
	}
}
