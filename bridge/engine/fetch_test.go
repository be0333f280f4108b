package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// slowLink is an export whose bodies arrive behind Fetch.
func slowLink(latency, transfer time.Duration) bridgetest.Export {
	return bridgetest.Export{PageSize: 5, Pad: bridge.SmallBody, Latency: latency, Transfer: transfer}
}

// TestLatencyHidesBehindBodies: with the cursor known before the body, the link
// is never idle. Time is virtual.
func TestLatencyHidesBehindBodies(t *testing.T) {
	t.Parallel()
	const pages, latency, transfer = 50, 20 * time.Millisecond, 80 * time.Millisecond
	inBubble(t, slowLink(latency, transfer), func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(5 * pages)
		began := time.Now()
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		// The first body, asked for without a cursor, is waited for.
		if took, want := time.Since(began), pages*transfer+2*latency; took > want {
			t.Errorf("%d pages took %v, want the link's time and two latencies, %v", pages, took, want)
		}
		r.wantOnce()
	})
}

// TestBodyBreaksBehindARequest breaks each body in turn, when the requests
// behind it have left: they are wasted, and nothing else.
func TestBodyBreaksBehindARequest(t *testing.T) {
	t.Parallel()
	const pages = 12
	cut := &bridge.Fault{Class: bridge.Transient, Code: "network", Err: errors.New("cut")}
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		for n := 1; n <= pages; n++ {
			t.Run(fmt.Sprint(mode, " ", n), func(t *testing.T) {
				t.Parallel()
				inBubble(t, slowLink(20*time.Millisecond, 80*time.Millisecond), func(r *harness) {
					if mode == bridge.ExactlyOnce {
						r.exactly()
					}
					r.cfg.Limits.Once = true
					r.source.Grow(5 * pages)
					r.source.BreakBody(n, cut)
					if err := r.run(); err != nil {
						t.Fatal(err)
					}
					r.wantOnce()
					// The page itself once more, the two on their way behind it,
					// and one that leaves at this moment.
					if got := r.source.Requests(); got > pages+4 {
						t.Errorf("%d requests for %d pages with one that broke", got, pages)
					}
				})
			})
		}
	}
}

// TestNothingBehindARefusedPage: a page that turns out to be none when its
// successors are there already is the end of what is published.
func TestNothingBehindARefusedPage(t *testing.T) {
	t.Parallel()
	bad := &bridge.Fault{Class: bridge.Malformed, Code: "schema", Reason: bridge.ReasonSchema, Err: errors.New("member twice")}
	exactlyInBubble(t, slowLink(20*time.Millisecond, 80*time.Millisecond), func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(50)
		for n := 4; n < 100; n++ {
			r.source.BreakBody(n, bad)
		}
		wantBlocked(t, r.run(), bridge.ReasonSchema)
		if got := len(r.values()); got != 15 {
			t.Errorf("%d events are published, want the 15 of the three pages before", got)
		}
	})
}

// TestRestartsWhileBodiesArrive stops the process at every moment, with bodies
// on their way, and breaks some of them.
func TestRestartsWhileBodiesArrive(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		for _, abandon := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/abandon=%v", end, abandon), func(t *testing.T) {
				t.Parallel()
				x := slowLink(7*time.Millisecond, 17*time.Millisecond)
				x.End = end
				exactlyInBubble(t, x, func(r *harness) {
					rnd := rand.New(rand.NewPCG(1, 3))
					r.topic.Latency, r.store.Latency = 11*time.Millisecond, 3*time.Millisecond
					if abandon {
						r.cfg.ShutdownTimeout = time.Nanosecond
					}
					r.source.Grow(100)
					for ms := range 60 {
						if rnd.IntN(3) == 0 {
							r.source.BreakBody(r.source.Requests()+1+rnd.IntN(5), errors.New("cut"))
						}
						r.start()
						r.after(time.Duration(ms*3) * time.Millisecond)
						r.source.Grow(rnd.IntN(12))
						if err := r.end(); err != nil && !errors.Is(err, engine.ErrShutdown) {
							t.Errorf("after %d ms: %v", ms*3, err)
						}
					}
					r.start()
					r.after(3 * time.Minute)
					r.wantOnce()
					r.wantState(bridge.StateIdle, "")
				})
			})
		}
	}
}

// misjudged is a source that knows little of its pages before they have
// arrived.
type misjudged struct {
	*bridgetest.Source
	expected int64
}

func (m misjudged) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := m.Source.Fetch(ctx, at)
	if err == nil && p.ArrivedAt.IsZero() {
		p.Size = m.expected
	}
	return p, err
}

// TestBudgetCountsWhatHasArrived: pages of another size than was expected of
// them count as what they are, as long as they are there.
func TestBudgetCountsWhatHasArrived(t *testing.T) {
	t.Parallel()
	for name, expected := range map[string]int64{"too little": bridge.SmallBody, "too much": 100 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := slowLink(time.Millisecond, 30*time.Millisecond)
			x.Pad = 100 << 10
			exactlyInBubble(t, x, func(r *harness) {
				r.cfg.PrefetchPages, r.cfg.PrefetchBytes = 20, 500<<10
				r.source.Grow(500)
				r.startWith(engine.Ports{Source: misjudged{r.source, expected}, Inbox: r.inbox})
				r.after(time.Second) // some dozens of pages go through
				if got := len(r.values()); got < 100 {
					t.Errorf("%d events in a second, want more than 100", got)
				}
				r.topic.SetLatency(30 * time.Minute)
				r.after(20 * time.Minute)
				// Those on their way may be more than what was expected of them.
				pages, bytes := r.source.Unreleased(), r.bridge.Status().PrefetchedBytes
				if pages < 3 || pages > 5+3 || bytes/(100<<10) != int64(pages) {
					t.Errorf("%d pages are in memory and counted as %d bytes, want about 5 pages of 100 KB", pages, bytes)
				}
				r.topic.SetLatency(0)
				r.after(time.Hour)
				r.wantOnce()
			})
		})
	}
}

// TestBudgetCountsItems: what an item takes beside its bytes counts too.
func TestBudgetCountsItems(t *testing.T) {
	t.Parallel()
	const items, budget = 200, 1 << 20
	exactlyInBubble(t, bridgetest.Export{PageSize: items, Latency: 50 * time.Millisecond}, func(r *harness) {
		r.cfg.PrefetchPages, r.cfg.PrefetchBytes = 20, budget
		r.start()
		r.after(time.Second)
		r.topic.SetLatency(30 * time.Minute)
		r.source.Grow(20 * items)
		r.after(20 * time.Minute)
		// Any sink needs more than 500 bytes for an event on its way.
		pages, bytes := r.source.Unreleased(), r.bridge.Status().PrefetchedBytes
		if least := int64(pages * items * 500); pages < 3 || bytes < least || bytes > 2*budget {
			t.Errorf("%d pages of %d items are in memory and counted as %d bytes, want at least %d, and the budget of %d kept", pages, items, bytes, least, budget)
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
		r.source.Grow(20 * 5)
		r.after(20 * time.Minute)
		if pages, bytes := r.source.Unreleased(), r.bridge.Status().PrefetchedBytes; pages < 2 || pages > 4 || bytes < int64(pages-1)*extra {
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

// TestRequestsAreObservedWhole: a request ends with its body, wherever that is
// taken in, and taking a page apart begins then. Time is virtual.
func TestRequestsAreObservedWhole(t *testing.T) {
	t.Parallel()
	const pages, latency, transfer = 10, 20 * time.Millisecond, 80 * time.Millisecond
	exactlyInBubble(t, slowLink(latency, transfer), func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(5 * pages)
		r.source.BreakBody(4, &bridge.Fault{Class: bridge.Transient, Code: "network", Err: errors.New("cut")})
		var got fetches
		e, err := engine.New(r.cfg, engine.Ports{Source: r.source, Sink: r.topic.Open("events"), Store: r.store, Inbox: r.inbox, Observer: &got})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(r.t.Context()); err != nil {
			t.Fatal(err)
		}
		codes := make(map[string]int)
		for _, o := range got.seen {
			switch {
			case o.What == bridge.ObserveDecode && o.Took != 0:
				t.Errorf("taking a page apart took %v, with its arrival", o.Took)
			case o.What == bridge.ObserveDecode:
				codes["decoded"]++
			default:
				codes[o.Code]++
				if o.Took < transfer {
					t.Errorf("a request with %q took %v, without its body", o.Code, o.Took)
				}
				if whole := o.Bytes > bridge.SmallBody; whole != (o.Code == "200") {
					t.Errorf("a request with %q brought %d bytes", o.Code, o.Bytes)
				}
			}
		}
		if codes["200"] != pages || codes["network"] != 1 || codes["decoded"] != pages {
			t.Errorf("observed %v, want %d pages and one broken body", codes, pages)
		}
	})
}
