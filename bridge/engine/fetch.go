package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/sourcecall"
)

// prefetcher fetches page after page along the cursor. It ends at the end of the results,
// after too many empty pages, or at the first error. One goroutine sends requests, so that
// the next request leaves as soon as the next cursor is known. Another goroutine decodes
// the pages.
//
// A request sends the cursor that was found before decoding. If decoding does not confirm
// that cursor, the page is rejected, and the prefetcher ends. Pages fetched after a
// rejected page are dropped.
type prefetcher struct {
	e        *Engine
	results  chan fetchResult // decoded pages, in order
	fetched  chan fetchResult // pages as they arrived, in order
	freed    chan struct{}    // one element per released page
	buffered atomic.Int64     // bytes of the pages that are not released
	decoded  atomic.Int64     // number of decoded pages
	progress chan struct{}    // has an element when decoded has grown
	cancel   context.CancelCauseFunc
	done     sync.WaitGroup
}

// fetchResult is a page, or the error that ended prefetching.
type fetchResult struct {
	page *bridge.Page
	err  error
	// charged is the charged size of the page in the budget, in bytes.
	charged *int64
	// last is set for the page at which prefetching ends.
	last bool
}

// load is the memory of a stream for Status. The prefetcher writes it, except lagPages,
// which the mirror writes.
type load struct {
	pages, bytes, requests atomic.Int64
	lagPages               atomic.Int64 // pages after the store's checkpoint
	lastPoll               atomic.Int64 // milliseconds since the epoch
	page                   atomic.Int64 // bytes of the last page
}

// prefetchStart is the beginning of a prefetcher.
type prefetchStart struct {
	at bridge.Position
	// empties is the number of empty pages to follow at first, refill the number of
	// consecutive ones after a page with items.
	empties, refill int
	// single ends the prefetcher after one page, even if the page names a next one.
	single bool
}

// startPrefetch begins to fetch. The caller takes results until one has an error or is the
// last, releases every page, and calls stop.
func (e *Engine) startPrefetch(ctx context.Context, s prefetchStart) *prefetcher {
	ctx, cancel := e.watchdog.source.Bound(ctx, e.cfg.FetchTimeout)
	depth := e.cfg.PrefetchPages
	pf := &prefetcher{
		e: e, results: make(chan fetchResult, depth+1), fetched: make(chan fetchResult, depth+1),
		freed: make(chan struct{}, 2*depth+2), progress: make(chan struct{}, 1), cancel: cancel,
	}
	pf.done.Go(func() { pf.fetch(ctx, s) })
	pf.done.Go(func() { pf.decode(ctx, s) })
	return pf
}

// stop ends the prefetcher, waits for its goroutines, and releases the pages that the loop
// did not take.
func (pf *prefetcher) stop() {
	pf.cancel(nil)
	pf.done.Wait()
	for r := range pf.fetched {
		r.release()
	}
	for r := range pf.results {
		r.release()
	}
	pf.e.load.pages.Store(0)
	pf.e.load.bytes.Store(0)
}

func (f fetchResult) release() {
	if f.page != nil {
		f.page.Release()
	}
}

// charge counts the page in the budgets of the stream and of the process until the page is
// released. lent is the size that the process's budget has granted. charge returns the
// charged size, which recharge updates.
func (pf *prefetcher) charge(p *bridge.Page, lent int64) *int64 {
	size, recycle := new(int64), p.Recycle
	pf.recharge(p, max(p.Items, pf.e.cfg.PageSize), size) // the items are not known yet
	pf.e.cfg.Budget.Add(-lent)
	p.Recycle = func(p *bridge.Page) {
		if recycle != nil {
			recycle(p)
		}
		pf.buffered.Add(-*size)
		pf.e.cfg.Budget.Add(-*size)
		pf.freed <- struct{}{} // never waits: the channel has room for all pages
	}
	return size
}

// itemCost is the memory of an item besides its bytes: the event, and in the Sink a record
// of 160 bytes, nine headers of 40 bytes and some text. It matters for small items, which
// may have two bytes.
const itemCost = int64(unsafe.Sizeof(bridge.Event{})) + 600

// recharge updates the charged size once the items are known.
func (pf *prefetcher) recharge(p *bridge.Page, items int, size *int64) {
	now := int64(len(p.Body)) + p.Extra + int64(items)*itemCost
	pf.e.load.bytes.Store(pf.buffered.Add(now - *size))
	pf.e.cfg.Budget.Add(now - *size)
	pf.e.load.page.Store(now)
	*size = now
}

// fetch requests page after page, within the budget of pages and bytes.
func (pf *prefetcher) fetch(ctx context.Context, s prefetchStart) {
	defer close(pf.fetched)
	at := s.at
	handed := int64(0) // number of pages passed to decode
	var pages int
	for {
		for pages >= 2 && (pages >= pf.e.cfg.PrefetchPages || pf.buffered.Load() >= pf.e.cfg.PrefetchBytes) {
			select {
			case <-pf.freed:
				pages--
				pf.note(pages)
			case <-pf.progress: // a page may be smaller than expected
			case <-ctx.Done():
				return
			}
		}
		lent := pf.e.load.page.Load()
		if pf.e.cfg.Budget.Take(ctx, lent, &pf.buffered) != nil {
			return
		}
		p, err := pf.request(ctx, at)
		if err != nil {
			pf.e.cfg.Budget.Add(-lent)
			pf.fetched <- fetchResult{err: err}
			return
		}
		charged := pf.charge(p, lent)
		pages = pf.collectFreed(pages + 1)
		pf.note(pages)
		last := p.Tail() || s.single
		at.Cursor = p.Next // read before decode gets the page, which may release it
		// A small page may be empty. It is decoded before the next request, because the
		// rules limit how many empty pages are followed.
		small := len(p.Body) < bridge.SmallBody
		pf.fetched <- fetchResult{page: p, charged: charged, last: last}
		handed++
		if last || len(at.Cursor) > bridge.MaxCursor {
			return
		}
		if small && !pf.awaitDecoded(ctx, handed) {
			return
		}
	}
}

// awaitDecoded waits until that many pages are decoded. It reports whether fetching
// continues.
func (pf *prefetcher) awaitDecoded(ctx context.Context, pages int64) bool {
	for pf.decoded.Load() < pages {
		select {
		case <-pf.progress:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// collectFreed subtracts the pages that were released in the meantime, without waiting.
func (pf *prefetcher) collectFreed(pages int) int {
	for {
		select {
		case <-pf.freed:
			pages--
		default:
			return pages
		}
	}
}

func (pf *prefetcher) note(pages int) {
	pf.e.load.pages.Store(int64(pages))
	pf.e.load.bytes.Store(pf.buffered.Load())
}

// errNoPage is the error of a Source that violates its contract.
var errNoPage = errors.New("Source.Fetch returned neither a page nor an error")

func (pf *prefetcher) request(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	began := time.Now()
	p, err := pf.e.watchdog.source.Fetch(ctx, pf.e.ports.Source, at)
	if p == nil && err == nil {
		err = &bridge.Fault{Class: bridge.Permanent, Code: "no-page", Reason: bridge.ReasonConfig, Err: errNoPage}
	}
	if ctx.Err() != nil {
		if p != nil {
			p.Release()
		}
		return nil, pf.e.watchdog.source.Ended(ctx)
	}
	if err != nil && bridge.FaultOf(err).Unsent {
		return nil, err
	}
	pf.e.load.requests.Add(1)
	if err == nil {
		pf.e.load.lastPoll.Store(time.Now().UnixMilli())
	}
	if pf.e.cfg.listing() { // a windows source reports its own requests: one page takes several, or none
		return p, err
	}
	o := bridge.Observation{What: bridge.ObserveFetch, Took: time.Since(began), Code: "200"}
	if err != nil {
		o.Code = bridge.FaultOf(err).Code
	} else {
		o.Bytes = int64(len(p.Body))
	}
	pf.e.observe(o)
	return p, err
}

func (pf *prefetcher) decodePage(ctx context.Context, p *bridge.Page) error {
	began := time.Now()
	err := pf.e.watchdog.source.Decode(pf.e.ports.Source, p)
	if ctx.Err() != nil && err != nil {
		return pf.e.watchdog.source.Ended(ctx)
	}
	if err == nil {
		pf.e.observe(bridge.Observation{What: bridge.ObserveDecode, Took: time.Since(began), Events: p.Items,
			Code: fullness(p.Items, pf.e.cfg.PageSize)})
	}
	return err
}

// fullness returns the word of ObserveDecode for the number of items of a page.
func fullness(items, size int) string {
	switch {
	case items == 0:
		return "empty"
	case items < size:
		return "partial"
	}
	return "full"
}

// decode decodes the pages in order and ends the prefetcher after too many empty ones.
func (pf *prefetcher) decode(ctx context.Context, s prefetchStart) {
	defer close(pf.results)
	defer pf.cancel(nil) // ends fetching too
	left := s.empties
	for r := range pf.fetched {
		if r.err != nil {
			pf.results <- r
			return
		}
		if ctx.Err() != nil {
			r.release()
			break
		}
		if err := pf.decodePage(ctx, r.page); err != nil {
			r.release()
			pf.results <- fetchResult{err: err}
			return
		}
		pf.recharge(r.page, r.page.Items, r.charged)
		if r.page.Items > 0 {
			left = s.refill
		} else if left--; left < 0 {
			r.last = true
		}
		pf.results <- r
		if r.last {
			return
		}
		pf.decoded.Add(1)
		select {
		case pf.progress <- struct{}{}:
		default:
		}
	}
	if sourcecall.Overdue(ctx) { // otherwise the loop ended ctx, and needs no error
		pf.results <- fetchResult{err: pf.e.watchdog.source.Ended(ctx)}
	}
}
