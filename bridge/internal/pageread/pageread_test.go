package pageread_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/internal/pageread"
)

// hanging is a Source that hangs in a call once.
type hanging struct {
	*bridgetest.Source
	fetch, decode func(ctx context.Context)
	calls         atomic.Int64
	ctx           context.Context // of the page that is decoded
}

func (h *hanging) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	h.calls.Add(1)
	h.ctx = ctx
	if h.fetch != nil {
		h.fetch(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return h.Source.Fetch(ctx, at)
}

func (h *hanging) Decode(p *bridge.Page) error {
	if h.decode != nil {
		h.decode(h.ctx)
		if h.ctx.Err() != nil {
			return h.ctx.Err()
		}
	}
	return h.Source.Decode(p)
}

// A source that hangs ends at the deadline of the engine, by a fault with a hint, and is
// not asked again. Waits on purpose do not count.
func TestSourceHangs(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Minute
	hang := func(ctx context.Context) { <-ctx.Done() }
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
		"fetch":                      {fetch: hang, timeout: timeout, ends: timeout},
		"decode":                     {decode: hang, timeout: timeout, ends: timeout},
		"no time-out is set":         {fetch: hang, ends: 10 * time.Minute},
		"waits on purpose":           {fetch: waits, timeout: timeout},
		"waits on purpose and hangs": {fetch: func(ctx context.Context) { waits(ctx); hang(ctx) }, timeout: timeout, ends: time.Hour + timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := &hanging{Source: bridgetest.NewSource(t, bridgetest.Export{}), fetch: tc.fetch, decode: tc.decode}
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
				if !ok || fault.HintCode != bridge.HintOverdue || time.Since(began) != tc.ends || source.calls.Load() != 1 {
					t.Errorf("after %s and %d calls: %v", time.Since(began), source.calls.Load(), err)
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
		source := &hanging{Source: bridgetest.NewSource(t, bridgetest.Export{}), fetch: func(ctx context.Context) { <-ctx.Done() }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := pageread.Fetch(ctx, source, bridge.Position{}, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
	})
}
