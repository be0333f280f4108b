// Package budget bounds the memory for pages of all streams of a process together.
package budget

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget bounds the memory for pages, in bytes, of all streams of a process together. Its
// methods may be called concurrently.
//
// Before a stream requests a page, it takes the size of its last page. Once the page has
// arrived, the stream corrects that size without a wait: pages that are larger than
// expected exceed the budget, and delay the next ones. The brokers' acknowledgements return
// pages, even those of other streams than the waiting one. A stream without pages, as at
// the end of the results, comes first, and only such a stream may take the last quarter.
type Budget struct {
	limit int64 // bytes

	mu    sync.Mutex // guards all below
	used  int64
	first []*loan   // requests of streams without pages, oldest first
	more  []*loan   // requests of streams with pages, oldest first
	moved time.Time // when bytes were last returned or granted
	busy  time.Time // when a stream with pages was last granted bytes
}

// loan is a stream's request for bytes.
type loan struct {
	bytes   int64
	held    *atomic.Int64 // bytes that the stream has taken
	granted chan struct{}
}

// stalled is the time without returned bytes after which a stream without pages exceeds the
// budget. Otherwise, brokers that do not answer other streams would stop this one.
const stalled = time.Second

// New returns a Budget with this limit, in bytes.
func New(bytes int64) *Budget { return &Budget{limit: bytes} }

// Take waits for bytes for a stream that has held. The error is that of ctx. A nil Budget has
// no limit.
func (b *Budget) Take(ctx context.Context, bytes int64, held *atomic.Int64) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	more := held.Load() != 0
	if len(b.first)+len(b.more) == 0 && b.fits(bytes, more) { // the common case: allocates nothing
		b.charge(bytes, more)
		b.mu.Unlock()
		return nil
	}
	l := &loan{bytes, held, make(chan struct{})}
	if !more {
		b.first = append(b.first, l)
	} else {
		b.more = append(b.more, l)
	}
	b.grant()
	b.mu.Unlock()
	for {
		overdue := time.NewTimer(stalled)
		select {
		case <-l.granted:
			overdue.Stop()
			return nil
		case <-overdue.C:
			b.exceed()
		case <-ctx.Done():
			overdue.Stop()
			b.withdraw(l)
			return ctx.Err()
		}
	}
}

// exceed grants the oldest request of a stream without pages, if no bytes were returned or
// granted for a while.
func (b *Budget) exceed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more = slices.DeleteFunc(b.more, func(l *loan) bool {
		back := l.held.Load() == 0
		if back {
			b.first = append(b.first, l)
		}
		return back
	})
	if len(b.first) > 0 && time.Since(b.moved) >= stalled {
		b.lend(&b.first, false)
	}
	b.grant()
}

// withdraw withdraws a request, which may have been granted in the meantime.
func (b *Budget) withdraw(l *loan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := false
	for _, queue := range []*[]*loan{&b.first, &b.more} {
		if i := slices.Index(*queue, l); i >= 0 {
			waiting, *queue = true, slices.Delete(*queue, i, i+1)
		}
	}
	if !waiting {
		b.used -= l.bytes
	}
	b.grant()
}

// Busy returns when a stream last had several pages, like a stream that catches up.
func (b *Budget) Busy() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy
}

// Add corrects the number of bytes that a stream has taken; a negative number returns
// bytes. It never waits.
func (b *Budget) Add(bytes int64) {
	if b == nil || bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used += bytes; bytes < 0 {
		b.moved = time.Now()
		b.grant()
	}
}

// grant grants the requests that fit. The caller holds mu.
func (b *Budget) grant() {
	for len(b.first) > 0 && b.fits(b.first[0].bytes, false) {
		b.lend(&b.first, false)
	}
	for len(b.first) == 0 && len(b.more) > 0 && b.fits(b.more[0].bytes, true) {
		b.lend(&b.more, true)
	}
}

// fits reports whether bytes may be granted to a stream; more is set if the stream has
// pages. An unused budget grants any size, since a page may be larger than the budget. The
// caller holds mu.
func (b *Budget) fits(bytes int64, more bool) bool {
	limit := b.limit
	if more {
		limit = limit / 4 * 3
	}
	return b.used == 0 || b.used+bytes <= limit
}

// lend grants the first request of a queue. The caller holds mu.
func (b *Budget) lend(queue *[]*loan, more bool) {
	l := (*queue)[0]
	*queue = slices.Delete(*queue, 0, 1)
	b.charge(l.bytes, more)
	close(l.granted)
}

// charge counts bytes as granted. The caller holds mu.
func (b *Budget) charge(bytes int64, more bool) {
	b.used += bytes
	if b.moved = time.Now(); more {
		b.busy = b.moved
	}
}
