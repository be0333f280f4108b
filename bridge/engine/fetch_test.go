package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// malformed is a source some of whose pages turn out to be none.
type malformed struct {
	*bridgetest.Source
	from int // the first page that is refused, counted from 1
	page int
	with error
}

func (s *malformed) Decode(p *bridge.Page) error {
	if s.page++; s.page >= s.from {
		return s.with
	}
	return s.Source.Decode(p)
}

// TestNothingBehindARefusedPage: a page that turns out to be none when its
// successors are there already is the end of what is published.
func TestNothingBehindARefusedPage(t *testing.T) {
	t.Parallel()
	bad := &bridge.Fault{Class: bridge.Malformed, Code: "schema", Reason: bridge.ReasonSchema,
		Err: errors.New("member twice")}
	exactlyInBubble(t, bridgetest.Export{PageSize: 5, Pad: bridge.SmallBody, Latency: 20 * time.Millisecond},
		func(r *harness) {
			r.cfg.Limits.Once = true
			r.source.Grow(50)
			err := r.runWith(engine.Ports{Source: &malformed{Source: r.source, from: 4, with: bad}, Inbox: r.inbox})
			wantBlocked(t, err, bridge.ReasonSchema)
			r.wantEvents(15)
		})
}

// TestBudgetCountsItems: what an item takes beside its bytes counts too.
func TestBudgetCountsItems(t *testing.T) {
	t.Parallel()
	const items, budget = 200, 1 << 20
	exactlyInBubble(t, bridgetest.Export{PageSize: items, Latency: 50 * time.Millisecond}, func(r *harness) {
		r.cfg.PrefetchPages, r.cfg.PrefetchBytes = 20, budget
		r.startFor(time.Second)
		r.topic.SetLatency(30 * time.Minute)
		r.grow(20*items, 20*time.Minute)
		// Any sink needs more than 500 bytes for an event on its way.
		pages, bytes := r.source.Unreleased(), r.bridge.Status().PrefetchedBytes
		if least := int64(pages * items * 500); pages < 3 || bytes < least || bytes > 2*budget {
			t.Errorf("%d pages of %d items are in memory and counted as %d bytes, want at least %d, and the budget of %d kept",
				pages, items, bytes, least, budget)
		}
		r.topic.SetLatency(0)
		r.after(time.Hour)
		r.wantOnce()
	})
}

// wordy is a Source whose events take memory beside their page.
type wordy struct {
	*bridgetest.Source
	extra int64
}

func (w wordy) Decode(p *bridge.Page) error {
	err := w.Source.Decode(p)
	p.Extra = w.extra
	return err
}

// TestBudgetCountsTexts: what the texts of events take beside the page counts too.
func TestBudgetCountsTexts(t *testing.T) {
	t.Parallel()
	const budget, extra = 1 << 20, 1 << 19
	exactlyInBubble(t, bridgetest.Export{PageSize: 5, Latency: 50 * time.Millisecond}, func(r *harness) {
		r.cfg.PrefetchPages, r.cfg.PrefetchBytes = 20, budget
		r.startWith(engine.Ports{Source: wordy{r.source, extra}})
		r.after(time.Second)
		r.topic.SetLatency(30 * time.Minute)
		r.grow(20*5, 20*time.Minute)
		if pages, bytes := r.source.Unreleased(), r.bridge.Status().PrefetchedBytes; pages < 2 || pages > 4 ||
			bytes < int64(pages-1)*extra {
			t.Errorf("%d pages are in memory and counted as %d bytes, want at most 4 of %d", pages, bytes, extra)
		}
		r.topic.SetLatency(0)
		r.after(time.Hour)
		r.wantOnce()
	})
}

// fetches keeps what is observed of requests and pages.
type fetches struct {
	mu   sync.Mutex // guards seen
	seen []bridge.Observation
}

func (f *fetches) Observe(o bridge.Observation) {
	if o.What == bridge.ObserveFetch || o.What == bridge.ObserveDecode {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen = append(f.seen, o)
	}
}

// TestRequestsAreObserved: each request and each page is observed once. Time is
// virtual.
func TestRequestsAreObserved(t *testing.T) {
	t.Parallel()
	const pages, latency = 10, 80 * time.Millisecond
	exactlyInBubble(t, bridgetest.Export{PageSize: 5, Latency: latency}, func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(5 * pages)
		r.source.FailRequest(4, &bridge.Fault{Class: bridge.Transient, Code: "network", Err: errors.New("cut")})
		var got fetches
		must.Do(t, r.runWith(engine.Ports{Observer: &got}))
		codes := make(map[string]int)
		for _, o := range got.seen {
			switch {
			case o.What == bridge.ObserveDecode && o.Took != 0:
				t.Errorf("taking a page apart took %v, with its request", o.Took)
			case o.What == bridge.ObserveDecode:
				codes["decoded"]++
			default:
				codes[o.Code]++
				if o.Took < latency {
					t.Errorf("a request with %q took %v, want %v", o.Code, o.Took, latency)
				}
				if whole := o.Bytes > 0; whole != (o.Code == "200") {
					t.Errorf("a request with %q brought %d bytes", o.Code, o.Bytes)
				}
			}
		}
		if codes["200"] != pages || codes["network"] != 1 || codes["decoded"] != pages {
			t.Errorf("observed %v, want %d pages and one broken body", codes, pages)
		}
	})
}
