package kafkasink

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/spare"
)

const (
	// smallPage is a page size, in records, whose memory is always kept.
	smallPage = 2000
	keptText  = 4 << 20 // the maximum text, in bytes, whose memory is kept
)

// inflightPage is a page in flight to the brokers: its records and their memory. The
// records point into the page. The last promise of the records releases the page: until
// then the client may resend any record, afterwards it reads none.
type inflightPage struct {
	page     *bridge.Page // nil for checkpoints and marks
	delivery *delivery
	left     atomic.Int64 // records whose promise has not run

	records []kgo.Record
	headers []kgo.RecordHeader // of all records, one after the other
	text    []byte             // header values built for one record

	promise func(*kgo.Record, error) // keep, bound once: a page allocates no closure
	home    *inflightPages           // nil where the memory is not used again
}

// ownRecords returns an inflightPage of records that are not events.
func ownRecords(records ...kgo.Record) *inflightPage {
	p := &inflightPage{records: records}
	p.promise = p.keep
	return p
}

// reserve allocates the memory of the whole page at once; headers are those of an event.
// Memory that grows piece by piece stays in use while records point into it.
func (p *inflightPage) reserve(events, headers, text int) {
	p.records = slices.Grow(p.records, events)
	p.headers = slices.Grow(p.headers, events*headers)
	p.text = slices.Grow(p.text, text)
}

// keep is the promise of each record. It runs on the client's goroutine.
func (p *inflightPage) keep(r *kgo.Record, err error) {
	d := p.delivery
	d.settle(r, err)
	if p.left.Add(-1) == 0 {
		if err == nil && p.home != nil && p.home.sampled != nil {
			p.home.sampled(r)
		}
		p.finish() // before the delivery can be done: then no page is in use
	}
	d.leave()
}

// finish releases the page and reuses its memory.
func (p *inflightPage) finish() {
	if p.page != nil {
		p.page.Release()
		p.page = nil
	}
	if p.home != nil {
		p.home.give(p)
	}
}

var freePages spare.List[*inflightPage]

// TrimMemory frees the memory of pages that no Sink of the process has needed since the
// last call. It may be called concurrently.
func TrimMemory() { freePages.Trim() }

// inflightPages are the pages of one Sink.
type inflightPages struct {
	sampled func(*kgo.Record) // as in Config; never changed
	records atomic.Int64      // running mean of the pages' records
}

func (p *inflightPages) take() *inflightPage {
	page, ok := freePages.Take(spare.Any)
	if !ok {
		page = ownRecords()
	}
	page.home = p
	// The memory still points to its last page until the pointers are overwritten. That
	// wastes little: the memory of pages is used again too.
	page.records, page.headers, page.text = page.records[:0], page.headers[:0], page.text[:0]
	return page
}

// give returns a page's memory, and drops memory far larger than current pages need. If
// two calls run at once, the mean may miss one.
func (p *inflightPages) give(page *inflightPage) {
	mean := cmp.Or(p.records.Load(), int64(len(page.records)))
	mean += (int64(len(page.records)) - mean) / 8
	p.records.Store(mean)
	if int64(cap(page.records)) <= max(4*mean, smallPage) && cap(page.text) <= keptText {
		page.home, page.delivery = nil, nil
		freePages.Give(page)
	}
}

// addReceipt adds the receipt of a page to t, that of its batch.
func addReceipt(t *bridge.Receipt, r bridge.Receipt) {
	t.Published += r.Published
	t.Restamped += r.Restamped
	t.Dropped += r.Dropped
	t.Mismatched += r.Mismatched
	t.Bytes += r.Bytes
	for defect, n := range r.DeadLettered {
		if t.DeadLettered == nil {
			t.DeadLettered = make(map[bridge.Defect]int)
		}
		t.DeadLettered[defect] += n
	}
}
