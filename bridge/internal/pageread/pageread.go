// Package pageread reads single pages of an export for what runs beside the
// live stream and may give up.
package pageread

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/sourcecall"
)

const (
	// tries is how often a page is asked for again before Fetch gives up,
	// badTries where the API answers and its answer cannot be used.
	tries, badTries = 8, 2
	// longestBackoff is the longest wait of its own between two of them.
	longestBackoff = 10 * time.Second
)

// Fetch asks for a page and decodes it. What may pass by waiting is tried
// again, for some minutes at most. A call of the source may take timeout, as
// engine.Config.FetchTimeout says. The caller releases the page.
func Fetch(ctx context.Context, source bridge.Source, at bridge.Position, timeout time.Duration) (*bridge.Page, error) {
	for try := 0; ; try++ {
		page, err := once(ctx, source, at, sourcecall.Timeout(timeout))
		if err == nil {
			return page, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fault, ok := errors.AsType[*bridge.Fault](err)
		last := try == tries || ok && fault.HintCode == bridge.HintOverdue // that has been waited for long enough
		if ok && (fault.Class == bridge.Malformed || fault.Class == bridge.BadCursor) {
			last = try >= badTries
		}
		if last || ok && fault.Class == bridge.Permanent {
			return nil, err
		}
		wait := rand.N(min(longestBackoff, 250*time.Millisecond<<try) + 1)
		if ok {
			wait = max(wait, fault.RetryAfter)
		}
		bridge.Sleep(ctx, wait)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// once asks for a page once.
func once(ctx context.Context, source bridge.Source, at bridge.Position, timeout time.Duration) (*bridge.Page, error) {
	var calls sourcecall.Calls
	ctx, cancel := calls.Bound(ctx, timeout)
	defer cancel(nil)
	page, err := calls.Fetch(ctx, source, at)
	if err == nil {
		if err = calls.Decode(source, page); err != nil {
			page.Release()
		}
	}
	if err != nil && ctx.Err() != nil {
		err = calls.Ended(ctx)
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}
