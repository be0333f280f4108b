package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge"
)

// OwnerFixture is a stream without an owner, and processes that can run it. The end of the
// test ends the remaining processes.
type OwnerFixture struct {
	// Open returns the Owner of a new process. instance is its static id; empty is none.
	Open func(instance string) bridge.Owner
	// Elsewhere returns the Owner of a process that runs the same stream in another group.
	Elsewhere func() bridge.Owner
	// Stop ends a process in order, like SIGTERM.
	Stop func(bridge.Owner)
	// Kill ends a process that tells the server nothing.
	Kill func(bridge.Owner)
	// Steer is called before the first Open. The function that it returns makes the server
	// move the stream from its owner to another process that waits for it. Steer is nil if
	// the server cannot do that.
	Steer func() (give func(to bridge.Owner))
	// Break makes the server unreachable. heal makes it answer again, like a new server.
	// Break is nil if the fixture cannot do that.
	Break func() (heal func())
}

const (
	// endlessSession is a session timeout that outlasts every test, so no result of the
	// test depends on it.
	endlessSession = 4 * patience
	// shortSession is the shortest session timeout that servers allow by default.
	shortSession = 6 * time.Second
)

// TestOwner checks an Owner against each sentence of its contract. The server drops a
// process of the fixture after the session timeout.
func TestOwner(t *testing.T, newFixture func(t *testing.T, session time.Duration) OwnerFixture) {
	for _, c := range []struct {
		sentence string
		session  time.Duration
		test     func(*testing.T, OwnerFixture)
	}{
		{"acquire waits until the stream is this process's", endlessSession, ownerWaits},
		{"acquire ends with its context, and can be called again", endlessSession, ownerCancelled},
		{"acquire waits however long its server is away", endlessSession, ownerServerAway},
		{"what waiting does not cure is a permanent fault", endlessSession, ownerTwins},
		{"lost is closed when the stream is to be let go, and another process waits for that", endlessSession, ownerLoses},
		{"confirm says whether the stream is still this process's", endlessSession, ownerConfirms},
		{"confirm without an answer leaves it unknown", endlessSession, ownerUnknown},
		{"shared says whether another process could run the stream", endlessSession, ownerShares},
		{"rival names who can run the stream in another election", endlessSession, ownerRivals},
		{"release lets another process have the stream", endlessSession, ownerReleases},
		{"only the first release counts", endlessSession, ownerReleasesOnce},
		{"a process that stops hands the stream over at once", endlessSession, ownerStops},
		{"a process with a static id that stops hands the stream over at once", endlessSession, ownerStaticStops},
		{"a process with a static id has the stream back at once after a crash", endlessSession, ownerStaticRestarts},
		{"a dead process is replaced after its session", shortSession, ownerDies},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			c.test(t, newFixture(t, c.session))
		})
	}
}

func ownerWaits(t *testing.T, f OwnerFixture) {
	a, b := f.Open(""), f.Open("")
	first := mustAcquire(t, a)
	wantHeld(t, first)
	second := beginAcquire(t, b)
	second.wantWaiting(t)
	first.Release()
	tenure := second.wait(t)
	wantHeld(t, tenure)
	again := beginAcquire(t, a)
	again.wantWaiting(t)
	tenure.Release()
	again.wait(t).Release()
}

func ownerShares(t *testing.T, f OwnerFixture) {
	a := f.Open("")
	tenure := mustAcquire(t, a)
	defer tenure.Release()
	if tenure.Shared(t.Context()) {
		t.Error("shared with nobody else")
	}
	b := f.Open("")
	waiting := beginAcquire(t, b)
	waiting.wantWaiting(t)
	select {
	case <-tenure.Lost(): // the server moves the stream to the newcomer
		tenure.Release()
		tenure = waiting.wait(t)
		beginAcquire(t, a).wantWaiting(t)
	default:
	}
	wantSoon(t, "be shared", func() bool { return tenure.Shared(t.Context()) })
	tenure.Release()
}

func ownerRivals(t *testing.T, f OwnerFixture) {
	tenure := mustAcquire(t, f.Open(""))
	defer tenure.Release()
	wantRival := func(some bool) {
		t.Helper()
		wantSoon(t, fmt.Sprintf("see a rival: %t", some), func() bool {
			who, err := tenure.Rival(t.Context())
			return err == nil && (who != "") == some
		})
	}
	wantRival(false)
	beginAcquire(t, f.Open(""))
	wantRival(false)
	other := f.Elsewhere()
	theirs := mustAcquire(t, other)
	wantRival(true)
	theirs.Release()
	f.Stop(other)
	wantRival(false)
	if f.Break == nil {
		return
	}
	heal := f.Break()
	defer heal()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if who, err := tenure.Rival(ctx); err == nil {
		t.Errorf("rival without a server returned %q and no error", who)
	}
}

// wantSoon waits until a condition is true.
func wantSoon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > patience {
			t.Fatalf("did not come to %s within %s", what, patience)
		}
	}
}

func ownerCancelled(t *testing.T, f OwnerFixture) {
	a, b := f.Open(""), f.Open("")
	first := mustAcquire(t, a)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		if _, err := b.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire of a stream that another process has returned %v, want the context's error", err)
		}
		cancel()
	}
	first.Release()
	mustAcquire(t, b).Release()
}

func ownerServerAway(t *testing.T, f OwnerFixture) {
	if f.Break == nil {
		t.Skip("this fixture cannot make the server unreachable (Break is nil)")
	}
	a := f.Open("")
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if _, err := a.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("acquire without a server returned %v, want the context's error", err)
	}
	waiting := beginAcquire(t, a)
	waiting.wantWaiting(t)
	heal()
	tenure := waiting.wait(t)
	wantHeld(t, tenure)
	tenure.Release()
}

// ownerTwins runs two processes with one static id, a mistake of the operator. The newer
// process may be the replacement of the older one. After the newer one ends, the older one
// soon owns the stream again.
func ownerTwins(t *testing.T, f OwnerFixture) {
	a, b := f.Open("twin"), f.Open("twin")
	older := mustAcquire(t, a)
	newer := mustAcquire(t, b)
	receive(t, older.Lost(), "the older process to be told")
	wantDeposed(t, older)
	older.Release()
	for range 2 {
		_, err := acquire(t, a)
		wantTwin(t, err)
	}
	select {
	case <-newer.Lost():
		t.Error("the newer process lost the stream to the older one")
	default:
	}
	wantHeld(t, newer)
	newer.Release()
	f.Stop(b)
	for began := time.Now(); ; {
		back, err := acquire(t, a)
		if err == nil {
			wantHeld(t, back)
			back.Release()
			return
		}
		retry := time.NewTimer(wantTwin(t, err))
		<-retry.C
		if time.Since(began) > patience {
			t.Fatalf("the older process has not come back within %s", patience)
		}
	}
}

// wantTwin checks the error of a process whose static id another process uses, and returns
// the delay until the next attempt.
func wantTwin(t *testing.T, err error) time.Duration {
	t.Helper()
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Class != bridge.Permanent || fault.Reason != bridge.ReasonOwner || fault.Hint == "" {
		t.Fatalf("acquire of the older process returned %v, want a permanent fault of the owner with a hint", err)
	}
	if fault.RetryAfter <= 0 || fault.RetryAfter > patience/2 {
		t.Fatalf("the older process is to ask again after %s, want some seconds", fault.RetryAfter)
	}
	return fault.RetryAfter
}

func ownerLoses(t *testing.T, f OwnerFixture) {
	if f.Steer == nil {
		t.Skip("this fixture cannot make the server take a stream away (Steer is nil)")
	}
	give := f.Steer()
	a, b := f.Open(""), f.Open("")
	first := mustAcquire(t, a)
	second := beginAcquire(t, b)
	second.wantWaiting(t)
	give(b)
	receive(t, first.Lost(), "lost to be closed")
	second.wantWaiting(t) // the owner has not released the stream
	back := make(chan struct{})
	go func() {
		first.Release()
		close(back)
	}()
	tenure := second.wait(t)
	receive(t, back, "release to return")
	wantHeld(t, tenure)
	wantDeposed(t, first)

	again := beginAcquire(t, a) // the process still waits for the stream
	again.wantWaiting(t)
	give(a)
	receive(t, tenure.Lost(), "lost to be closed")
	tenure.Release()
	third := again.wait(t)
	wantHeld(t, third)
	wantDeposed(t, first)
	third.Release()
}

func ownerConfirms(t *testing.T, f OwnerFixture) {
	a, b := f.Open(""), f.Open("")
	first := mustAcquire(t, a)
	for range 3 {
		wantHeld(t, first)
	}
	second := beginAcquire(t, b) // the process joins, which does not affect the owner
	second.wantWaiting(t)
	wantHeld(t, first)
	first.Release()
	wantDeposed(t, first)
	tenure := second.wait(t)
	wantDeposed(t, first)
	wantHeld(t, tenure)
	tenure.Release()
}

func ownerUnknown(t *testing.T, f OwnerFixture) {
	if f.Break == nil {
		t.Skip("this fixture cannot make the server unreachable (Break is nil)")
	}
	tenure := mustAcquire(t, f.Open(""))
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if err := tenure.Confirm(ctx); err == nil || errors.Is(err, bridge.ErrNotOwner) {
		t.Errorf("confirm without a server returned %v, want another error than ErrNotOwner", err)
	}
	heal()
	tenure.Release()
}

func ownerReleases(t *testing.T, f OwnerFixture) {
	a, b := f.Open(""), f.Open("")
	for range 2 { // the stream moves there and back
		mustAcquire(t, a).Release()
		tenure := mustAcquire(t, b)
		wantHeld(t, tenure)
		tenure.Release()
	}
}

func ownerReleasesOnce(t *testing.T, f OwnerFixture) {
	a := f.Open("")
	first := mustAcquire(t, a)
	first.Release()
	second := mustAcquire(t, a)
	first.Release()
	wantHeld(t, second)
	select {
	case <-second.Lost():
		t.Error("a second release of an earlier tenure took the stream away")
	default:
	}
	second.Release()
}

func ownerStops(t *testing.T, f OwnerFixture) { ownerHandsOver(t, f, "", "") }

func ownerStaticStops(t *testing.T, f OwnerFixture) { ownerHandsOver(t, f, "a", "b") }

// ownerHandsOver stops the owner while another process waits, before and after the owner
// releases the stream.
func ownerHandsOver(t *testing.T, f OwnerFixture, first, second string) {
	a, b := f.Open(first), f.Open(second)
	tenure := mustAcquire(t, a)
	waiting := beginAcquire(t, b)
	waiting.wantWaiting(t)
	tenure.Release()
	f.Stop(a)
	held := waiting.wait(t)
	wantHeld(t, held)

	c := f.Open(first)
	next := beginAcquire(t, c)
	next.wantWaiting(t)
	f.Stop(b) // b has not released the stream
	receive(t, held.Lost(), "lost to be closed by the stop")
	held.Release()
	last := next.wait(t)
	wantHeld(t, last)
	last.Release()
}

func ownerStaticRestarts(t *testing.T, f OwnerFixture) {
	a, b := f.Open("a"), f.Open("b")
	mustAcquire(t, a)
	standby := beginAcquire(t, b)
	standby.wantWaiting(t)
	f.Kill(a)
	restarted := f.Open("a")
	tenure := mustAcquire(t, restarted)
	wantHeld(t, tenure)
	standby.wantWaiting(t)
	tenure.Release()
	f.Stop(restarted)
	standby.wait(t).Release()
}

func ownerDies(t *testing.T, f OwnerFixture) {
	a, b := f.Open(""), f.Open("")
	mustAcquire(t, a)
	standby := beginAcquire(t, b)
	standby.wantWaiting(t)
	f.Kill(a)
	tenure := standby.wait(t)
	wantHeld(t, tenure)
	tenure.Release()
}

// acquisition is a call of Acquire that may wait.
type acquisition struct {
	result chan acquired
}

type acquired struct {
	tenure bridge.Ownership
	err    error
}

// beginAcquire calls Acquire on another goroutine, which the test waits for.
func beginAcquire(t *testing.T, o bridge.Owner) *acquisition {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &acquisition{result: make(chan acquired, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tenure, err := o.Acquire(ctx)
		a.result <- acquired{tenure, err}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// wantWaiting checks that Acquire still waits after a moment.
func (a *acquisition) wantWaiting(t *testing.T) {
	t.Helper()
	select {
	case r := <-a.result:
		t.Fatalf("acquire did not wait: it returned %v, %v", r.tenure, r.err)
	case <-time.After(moment):
	}
}

func (a *acquisition) wait(t *testing.T) bridge.Ownership {
	t.Helper()
	r := receive(t, a.result, "acquire to return")
	if r.err != nil {
		t.Fatalf("acquire: %v", r.err)
	}
	return r.tenure
}

func acquire(t *testing.T, o bridge.Owner) (bridge.Ownership, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return o.Acquire(ctx)
}

func mustAcquire(t *testing.T, o bridge.Owner) bridge.Ownership {
	t.Helper()
	tenure, err := acquire(t, o)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return tenure
}

// wantHeld checks that the process owns the stream.
func wantHeld(t *testing.T, o bridge.Ownership) {
	t.Helper()
	if err := confirm(t, o); err != nil {
		t.Errorf("confirm of the owner: %v", err)
	}
}

// wantDeposed checks that the process no longer owns the stream.
func wantDeposed(t *testing.T, o bridge.Ownership) {
	t.Helper()
	if err := confirm(t, o); !errors.Is(err, bridge.ErrNotOwner) {
		t.Errorf("confirm of a deposed owner returned %v, want ErrNotOwner", err)
	}
}

func confirm(t *testing.T, o bridge.Ownership) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return o.Confirm(ctx)
}
