package budget

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// inUse is how many bytes are lent.
func (b *Budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// borrower is a stream that takes pages of a budget.
type borrower struct {
	b    *Budget
	held atomic.Int64
	back sync.WaitGroup
}

// page takes one page, which turns out to have so many bytes, and returns it later.
func (s *borrower) page(ctx context.Context, expected, bytes int64, later time.Duration) error {
	if err := s.b.Take(ctx, expected, &s.held); err != nil {
		return err
	}
	bridge.Sleep(ctx, time.Millisecond) // it grows while it is read
	s.held.Add(bytes)
	s.b.Add(bytes - expected)
	s.back.Go(func() {
		time.Sleep(later) //nolint:forbidigo // in a bubble
		s.held.Add(-bytes)
		s.b.Add(-bytes)
	})
	return nil
}

// TestBudgetNeverStops: with any sizes of pages, number of streams and order of calls, all
// streams end, although some are stopped, and all bytes are returned. A deadlock ends the
// bubble.
func TestBudgetNeverStops(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(1, 1000).Draw(r, "limit")
		streams := rapid.IntRange(1, 12).Draw(r, "streams")
		seed := rapid.Uint64().Draw(r, "seed")
		synctest.Test(t, func(t *testing.T) {
			b := New(limit)
			var all sync.WaitGroup
			for i := range streams {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				all.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if random.IntN(4) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(50))*time.Millisecond)
						defer cancel()
					}
					s, last := borrower{b: b}, int64(0)
					for range 20 {
						bytes := random.Int64N(2 * limit)
						if s.page(ctx, last, bytes, time.Duration(random.IntN(40))*time.Millisecond) != nil {
							break
						}
						last = bytes
					}
					s.back.Wait()
				})
			}
			all.Wait()
			if used := b.inUse(); used != 0 || len(b.first)+len(b.more) > 0 {
				t.Errorf("%d bytes of %d used at the end, %d and %d wait", used, limit, len(b.first), len(b.more))
			}
		})
	})
}

// TestBudgetBounds: pages of the expected size do not exceed the budget, and streams that
// catch up leave a quarter to those that have no page.
func TestBudgetBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, ctx := New(100), t.Context()
		var busy borrower
		busy.b = b
		for range 7 {
			must.Do(t, busy.page(ctx, 10, 10, time.Minute))
		}
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		if busy.page(short, 10, 10, time.Minute) == nil {
			t.Error("a stream that catches up takes more than three quarters")
		}
		began := time.Now()
		for range 3 {
			quiet := borrower{b: b}
			if err := quiet.page(ctx, 10, 10, time.Minute); err != nil || time.Since(began) > 10*time.Millisecond {
				t.Errorf("a stream without pages waits for %s, %v", time.Since(began), err)
			}
		}
		if used := b.inUse(); used != 100 {
			t.Errorf("%d bytes used, want all", used)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble
	})
}

// TestBudgetOfOthers: streams whose pages never come back stop no other, also not one that
// has begun to wait with a page.
func TestBudgetOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, ctx := New(100), t.Context()
		stuck, sound := borrower{b: b}, borrower{b: b}
		for _, s := range []struct {
			*borrower
			bytes int64
			later time.Duration
		}{{&sound, 10, time.Second}, {&stuck, 90, time.Hour}} {
			must.Do(t, s.page(ctx, s.bytes, s.bytes, s.later))
		}
		var waits sync.WaitGroup
		waits.Go(func() { _ = stuck.page(ctx, 10, 10, time.Hour) })
		began := time.Now()
		for range 10 {
			must.Do(t, sound.page(ctx, 20, 20, 10*time.Millisecond))
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("10 pages took %s", took)
		}
		if used := b.inUse(); used > 130 {
			t.Errorf("%d bytes of 100 used", used)
		}
		time.Sleep(2 * time.Hour) //nolint:forbidigo // in a bubble
		waits.Wait()
		time.Sleep(2 * time.Hour) //nolint:forbidigo // in a bubble
	})
}
