package pageread_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/internal/pageread"
)

// A source that hangs ends at the deadline of the engine, by a fault with a hint, and is
// not asked again. Waits on purpose do not count.
func TestSourceHangs(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Minute
	waits := func(ctx context.Context) {
		resume := bridge.Waiting(ctx)
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		resume()
	}
	for name, tc := range map[string]struct {
		fetch, decode func(context.Context)
		timeout       time.Duration
		ends          time.Duration // 0 if there is a page
	}{
		"fetch":              {fetch: bridgetest.Hang, timeout: timeout, ends: timeout},
		"decode":             {decode: bridgetest.Hang, timeout: timeout, ends: timeout},
		"no time-out is set": {fetch: bridgetest.Hang, ends: 10 * time.Minute},
		"waits on purpose":   {fetch: waits, timeout: timeout},
		"waits on purpose and hangs": {fetch: func(ctx context.Context) { waits(ctx); bridgetest.Hang(ctx) },
			timeout: timeout, ends: time.Hour + timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := &bridgetest.Hanging{Source: bridgetest.NewSource(t, bridgetest.Export{}), InFetch: tc.fetch,
					InDecode: tc.decode}
				source.Grow(3)
				// The caller ends a call that nothing else ends, so that the test fails.
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				began := time.Now()
				page, err := pageread.Fetch(ctx, source, bridge.Position{}, tc.timeout)
				if tc.ends == 0 {
					if err != nil || len(page.Events) != 3 {
						t.Fatalf("%+v, %v", page, err)
					}
					page.Release()
					return
				}
				fault, ok := errors.AsType[*bridge.Fault](err)
				if !ok || fault.HintCode != bridge.HintOverdue || time.Since(began) != tc.ends || source.Calls.Load() != 1 {
					t.Errorf("after %s and %d calls: %v", time.Since(began), source.Calls.Load(), err)
				}
				if n := source.Unreleased(); n != 0 {
					t.Errorf("%d pages are not released", n)
				}
			})
		})
	}
}

// A caller that ends a call gets its own error, at once.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &bridgetest.Hanging{Source: bridgetest.NewSource(t, bridgetest.Export{}), InFetch: bridgetest.Hang}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := pageread.Fetch(ctx, source, bridge.Position{}, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
	})
}
