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

// prefetcher fetches page after page along the cursor. It ends at the end of the
// results, after too many empty pages, or at the first error. One goroutine sends
// requests, so that the next one leaves as soon as the next cursor is known. The other
// decodes the pages.
//
// Each request sends the cursor that decoding confirms, or the page is rejected, which
// ends the prefetcher. Pages fetched after a rejected page are dropped.
type prefetcher struct {
	e        *Engine
	results  chan fetchResult // decoded pages, in order
	fetched  chan fetchResult // pages as they arrived, in order
	freed    chan struct{}    // one for each released page
	buffered atomic.Int64     // bytes of the pages that are not released
	decoded  atomic.Int64     // pages decoded
	progress chan struct{}    // filled when decoded has grown
	cancel   context.CancelCauseFunc
	done     sync.WaitGroup
}

// fetchResult is a page, or the error that ended prefetching.
type fetchResult struct {
	page *bridge.Page
	err  error
	// charged is what the page counts in the budget, in bytes.
	charged *int64
	// last is set on the page that prefetching ends with.
	last bool
}

// load is what a stream holds in memory, for Status. The prefetcher writes it, the
// mirror writes lagPages.
type load struct {
	pages, bytes, requests atomic.Int64
	lagPages               atomic.Int64 // pages after the store's checkpoint
	lastPoll               atomic.Int64 // milliseconds since the epoch
	page                   atomic.Int64 // bytes of the last page
}

// prefetchStart is where and how a prefetcher begins.
type prefetchStart struct {
	at bridge.Position
	// empties is how many empty pages it follows at first, refill how
	// many in a row after a page with items.
	empties, refill int
	// single ends it after one page, even if that names a next one.
	single bool
}

// startPrefetch begins to fetch. The caller takes results until one has an error or
// is the last, releases every page, and calls stop.
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

// stop ends the prefetcher, waits for its goroutines and releases what nobody took.
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

// charge counts the page in the budgets of the stream and of the process until the page
// is released. lent is what the process's budget has granted for it. It returns the
// charged size, which recharge updates.
func (pf *prefetcher) charge(p *bridge.Page, lent int64) *int64 {
	size, recycle := new(int64), p.Recycle
	pf.recharge(p, max(p.Items, pf.e.cfg.PageSize), size) // the items are not known yet
	pf.e.cfg.Budget.add(-lent)
	p.Recycle = func(p *bridge.Page) {
		if recycle != nil {
			recycle(p)
		}
		pf.buffered.Add(-*size)
		pf.e.cfg.Budget.add(-*size)
		pf.freed <- struct{}{} // never waits: it has room for all pages
	}
	return size
}

// itemCost is the memory of an item beside its bytes: the event, and in the Sink a
// record of 160 bytes, nine headers of 40 bytes and some text. It counts most where
// items are small: an item may have two bytes.
const itemCost = int64(unsafe.Sizeof(bridge.Event{})) + 600

// recharge updates the charged size once the items are known.
func (pf *prefetcher) recharge(p *bridge.Page, items int, size *int64) {
	now := int64(len(p.Body)) + p.Extra + int64(items)*itemCost
	pf.e.load.bytes.Store(pf.buffered.Add(now - *size))
	pf.e.cfg.Budget.add(now - *size)
	pf.e.load.page.Store(now)
	*size = now
}

// fetch asks for page after page, within the budget of pages and bytes.
func (pf *prefetcher) fetch(ctx context.Context, s prefetchStart) {
	defer close(pf.fetched)
	at := s.at
	handed := int64(0) // pages handed over to be decoded
	var pages int
	for {
		for pages >= 2 && (pages >= pf.e.cfg.PrefetchPages || pf.buffered.Load() >= pf.e.cfg.PrefetchBytes) {
			select {
			case <-pf.freed:
				pages--
				pf.note(pages)
			case <-pf.progress: // a page may have turned out smaller than expected
			case <-ctx.Done():
				return
			}
		}
		lent := pf.e.load.page.Load()
		if pf.e.cfg.Budget.take(ctx, lent, &pf.buffered) != nil {
			return
		}
		p, err := pf.request(ctx, at)
		if err != nil {
			pf.e.cfg.Budget.add(-lent)
			pf.fetched <- fetchResult{err: err}
			return
		}
		charged := pf.charge(p, lent)
		pages = pf.collectFreed(pages + 1)
		pf.note(pages)
		last := p.Tail() || s.single
		at.Cursor = p.Next // read before decode gets the page, which may then be released
		// A small page may be empty. It is decoded before the next request: otherwise a
		// run of empty pages would be followed further than the rules allow.
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

// awaitDecoded waits until that many pages are decoded, and reports whether
// fetching goes on.
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

// collectFreed subtracts the pages released meanwhile, without waiting.
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
	if pf.e.cfg.listing() { // the source observes its requests: a page takes several, or none
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

// fullness is how ObserveDecode names a page of so many items.
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
	if sourcecall.Overdue(ctx) { // else the loop ended it, and needs no error
		pf.results <- fetchResult{err: pf.e.watchdog.source.Ended(ctx)}
	}
}
