package bridgetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
)

func TestOwnerConformance(t *testing.T) {
	t.Parallel()
	conformance.TestOwner(t, func(t *testing.T, session time.Duration) conformance.OwnerFixture {
		g := bridgetest.NewGroup(t)
		g.AllowMisuse, g.SessionTimeout = true, session
		other := bridgetest.NewGroup(t)
		g.Rivals(other)
		return conformance.OwnerFixture{
			Open:      func(instance string) bridge.Owner { return g.Open(instance) },
			Stop:      func(o bridge.Owner) { o.(*bridgetest.Owner).Close() },
			Kill:      func(o bridge.Owner) { g.Isolate(o.(*bridgetest.Owner)) },
			Steer:     func() func(bridge.Owner) { return func(o bridge.Owner) { g.Give(o.(*bridgetest.Owner)) } },
			Break:     g.Break,
			Elsewhere: func() bridge.Owner { return other.Open("") },
		}
	})
}

// TestGroupComplains breaks each rule once and reads what the fake says.
func TestGroupComplains(t *testing.T) {
	t.Parallel()
	for want, misuse := range map[string]func(*testing.T, *bridgetest.Group){
		"never released": func(t *testing.T, g *bridgetest.Group) { own(t, g.Open("")) },
		"has not released": func(t *testing.T, g *bridgetest.Group) {
			o := g.Open("")
			tenure := own(t, o)
			g.Revoke()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := o.Acquire(ended); err == nil {
				t.Error("the stream was given twice")
			}
			tenure.Release()
		},
		"two calls": func(t *testing.T, g *bridgetest.Group) {
			synctest.Test(t, func(t *testing.T) {
				heal := g.Break()
				o := g.Open("")
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					if _, err := o.Acquire(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("acquire without a server returned %v", err)
					}
				}()
				synctest.Wait()
				ended, end := context.WithCancel(t.Context())
				end()
				if _, err := o.Acquire(ended); err == nil {
					t.Error("acquire with an ended context returned nil")
				}
				cancel()
				<-done
				heal()
			})
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := &spy{TB: t}
			misuse(t, bridgetest.NewGroup(s))
			if said := s.end(); !strings.Contains(said, want) {
				t.Errorf("the fake said %q, want %q", said, want)
			}
		})
	}
}

// TestGroupInABubble tells an owner everything that can be told, in virtual
// time: an owner that does not let go loses the stream after a while, and so
// does one that is cut off.
func TestGroupInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := bridgetest.NewGroup(t)
		a, b := g.Open("a"), g.Open("b")
		first := own(t, a)
		took := func(what string, want time.Duration, do func()) {
			t.Helper()
			began := time.Now()
			do()
			if d := time.Since(began); d != want {
				t.Errorf("%s took %s, want %s", what, d, want)
			}
		}
		g.Revoke()
		<-first.Lost()
		var second bridge.Ownership
		took("waiting for an owner that does not let go", g.Patience, func() { second = own(t, b) })
		first.Release()
		heal := g.Isolate(b)
		if err := second.Confirm(t.Context()); !errors.Is(err, bridgetest.ErrDown) || errors.Is(err, bridge.ErrNotOwner) {
			t.Errorf("confirm of a process that is cut off returned %v", err)
		}
		var third bridge.Ownership
		took("waiting for an owner that is cut off", g.SessionTimeout, func() { third = own(t, a) })
		<-second.Lost()
		heal()
		if err := second.Confirm(t.Context()); !errors.Is(err, bridge.ErrNotOwner) {
			t.Errorf("confirm of a process that was cut off returned %v", err)
		}
		second.Release()
		if err := third.Confirm(t.Context()); err != nil {
			t.Errorf("a late release took the stream from its owner: %v", err)
		}
		refused := errors.New("refused")
		g.FailConfirm(4, refused)
		if err := third.Confirm(t.Context()); !errors.Is(err, refused) {
			t.Errorf("confirm that is to fail returned %v", err)
		}
		g.Expire()
		<-third.Lost()
		third.Release()
		own(t, b).Release()
	})
}

func own(t *testing.T, o *bridgetest.Owner) bridge.Ownership {
	t.Helper()
	tenure, err := o.Acquire(t.Context())
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return tenure
}
