// Package pageread reads single pages of an export beside the live stream. Unlike the
// stream, its callers may give up.
package pageread

import (
	"context"
	"math/rand/v2"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/sourcecall"
)

const (
	// tries is the maximum number of requests before Fetch gives up, badTries the number
	// after unusable responses.
	tries, badTries = 8, 2
	// longestBackoff is the longest wait between two tries, unless the server asks for a
	// longer one.
	longestBackoff = 10 * time.Second
)

// Fetch requests a page and decodes it. It retries transient faults, for some minutes at
// most. timeout bounds a call of the source; see engine.Config.FetchTimeout. The caller
// releases the page.
func Fetch(ctx context.Context, source bridge.Source, at bridge.Position, timeout time.Duration) (*bridge.Page, error) {
	for try := 0; ; try++ {
		page, err := Once(ctx, source, at, sourcecall.Timeout(timeout))
		if err == nil {
			return page, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fault := bridge.FaultOf(err)
		last := try == tries || fault.HintCode == bridge.HintOverdue // an overdue call has waited long
		if fault.Class == bridge.Malformed || fault.Class == bridge.BadCursor {
			last = try >= badTries
		}
		if last || fault.Class == bridge.Permanent {
			return nil, err
		}
		bridge.Sleep(ctx, max(rand.N(min(longestBackoff, 250*time.Millisecond<<try)+1), fault.RetryAfter))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// Once requests a page once, and decodes it. The caller releases the page.
func Once(ctx context.Context, source bridge.Source, at bridge.Position, timeout time.Duration) (*bridge.Page, error) {
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
