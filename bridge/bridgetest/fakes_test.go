package bridgetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
)

// spy is a testing.TB that remembers what a fake complains about.
type spy struct {
	testing.TB
	mu       sync.Mutex // guards all below
	errors   []string
	cleanups []func()
}

func (s *spy) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors = append(s.errors, fmt.Sprintf(format, args...))
}

func (s *spy) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *spy) end() string {
	for _, f := range s.cleanups {
		f()
	}
	return strings.Join(s.errors, "\n")
}

// TestFakesComplain breaks each contract once and reads what the fake says.
func TestFakesComplain(t *testing.T) {
	t.Parallel()
	for want, misuse := range map[string]func(*testing.T, *spy){
		"never given": func(t *testing.T, s *spy) {
			if _, err := bridgetest.NewSource(s, bridgetest.Export{}).Fetch(t.Context(),
				bridge.Position{Cursor: "x"}); err == nil {
				t.Error("an unknown cursor was accepted")
			}
		},
		"1 pages were never released": func(t *testing.T, s *spy) { fetched(t, source(s, 5)) },
		"released or not ours": func(t *testing.T, s *spy) {
			src := source(s, 5)
			p := fetched(t, src)
			p.Release()
			if err := src.Decode(p); err == nil {
				t.Error("a released page was decoded")
			}
		},
		"decoded after": func(t *testing.T, s *spy) {
			src := source(s, 5)
			first, second := fetched(t, src), fetched(t, src)
			decode(t, src, second)
			decode(t, src, first)
			first.Release()
			second.Release()
		},
		"without a session": func(t *testing.T, s *spy) {
			if _, err := bridgetest.NewTopic(s, bridge.AtLeastOnce).Open("events").Publish(t.Context(),
				batch(t, 1).Batch); err == nil {
				t.Error("publish without a session returned nil")
			}
		},
		"is sent without a session": func(t *testing.T, s *spy) {
			if err := bridgetest.NewTopic(s, bridge.AtLeastOnce).Open("events").Send(t.Context(),
				batch(t, 1).Pages[0]); err == nil {
				t.Error("send without a session returned nil")
			}
		},
		"used after its release": func(t *testing.T, s *spy) {
			b := batch(t, 1)
			b.Pages[0].Release()
			publish(t, opened(t, s, bridge.AtLeastOnce), b)
		},
		`is of stream "other"`: func(t *testing.T, s *spy) {
			b := batch(t, 1)
			b.Checkpoint.Stream = "other"
			publish(t, opened(t, s, bridge.AtLeastOnce), b)
		},
		"comes after event": func(t *testing.T, s *spy) {
			b := batch(t, 1)
			b.Pages[0].Events[0].Index = 9
			publish(t, opened(t, s, bridge.AtLeastOnce), b)
		},
		"the session's last": func(t *testing.T, s *spy) {
			sink := opened(t, s, bridge.AtLeastOnce)
			publish(t, sink, batch(t, 2))
			publish(t, sink, batch(t, 2))
		},
		"the newest committed": func(t *testing.T, s *spy) {
			topic := bridgetest.NewTopic(s, bridge.ExactlyOnce)
			for range 2 {
				sink := topic.Open("events")
				recovered(t, sink)
				publish(t, sink, batch(t, 2))
			}
		},
		"which is not after it": func(t *testing.T, s *spy) {
			c := batch(t, 2).Checkpoint
			advance(t, bridgetest.NewStore(s, "events"), c, c)
		},
		"before its events are acknowledged": func(t *testing.T, s *spy) {
			store := bridgetest.NewStore(s, "events")
			store.Acknowledged = bridgetest.NewTopic(s, bridge.AtLeastOnce).Acknowledged
			advance(t, store, bridge.Checkpoint{}, batch(t, 2).Checkpoint)
		},
		"another one when read back": func(t *testing.T, s *spy) {
			c := batch(t, 2).Checkpoint
			c.Cursor = "\xff"
			advance(t, bridgetest.NewStore(s, "events"), bridge.Checkpoint{}, c)
		},
		"which was never pushed": func(t *testing.T, s *spy) {
			if _, err := bridgetest.NewInbox(s).Answer(t.Context(), bridge.Command{ID: "r1"}, bridge.Claim{},
				bridge.Answer{Applied: true}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := &spy{TB: t}
			misuse(t, s)
			if said := s.end(); !strings.Contains(said, want) {
				t.Errorf("the fake said %q, want %q", said, want)
			}
		})
	}
}

// TestSourceEnds reads each kind of export to its end, lets it grow, and reads
// on: a reader that keeps to the rule of a tail sees every item.
func TestSourceEnds(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		for _, noIDs := range []bool{false, true} {
			t.Run(fmt.Sprint(end, " without ids ", noIDs), func(t *testing.T) {
				t.Parallel()
				s := bridgetest.NewSource(t, bridgetest.Export{PageSize: 4, End: end, NoIDs: noIDs})
				seen := map[string]bool{}
				at := bridge.Position{}
				for round := range 60 {
					if round%3 == 0 {
						s.Grow(3)
					}
					at = read(t, s, at, seen)
				}
				for range 10 {
					at = read(t, s, at, seen)
				}
				for _, item := range s.Items() {
					if !seen[string(item.Raw)] {
						t.Errorf("item %s was never shown", item.Raw)
					}
				}
				if len(seen) < 40 || s.Requests() != 70 {
					t.Errorf("%d items seen in %d requests", len(seen), s.Requests())
				}
			})
		}
	}
}

// read follows one page, releases it, and returns where the next one is.
func read(t *testing.T, s *bridgetest.Source, at bridge.Position, seen map[string]bool) bridge.Position {
	t.Helper()
	p := must.Get(s.Fetch(t.Context(), at))(t)
	defer p.Release()
	decode(t, s, p)
	for _, e := range p.Events {
		seen[string(e.Raw)] = true
	}
	if p.Tail() {
		return at
	}
	return bridge.Position{Cursor: p.Next}
}

func TestSourceWindow(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSource(t, bridgetest.Export{PageSize: 2})
	for n := range 10 {
		s.Append(fmt.Sprintf(`{"eventId":"%d","timestamp":%d}`, n, n))
	}
	seen := map[string]bool{}
	at := bridge.Position{Start: 3, End: 6, Window: true}
	for range 5 {
		next := read(t, s, at, seen)
		at.Cursor = next.Cursor
	}
	if len(seen) != 3 {
		t.Errorf("the window showed %v, want the items 3 to 5", seen)
	}
}

func TestFailRequest(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSource(t, bridgetest.Export{})
	s.FailRequest(2, bridgetest.ErrInjected)
	for n := 1; n <= 3; n++ {
		p, err := s.Fetch(t.Context(), bridge.Position{})
		if failed := errors.Is(err, bridgetest.ErrInjected); failed != (n == 2) {
			t.Errorf("request %d returned %v", n, err)
		}
		if err == nil {
			p.Release()
		}
	}
}

// TestFakesInABubble shows that the fakes wait in virtual time only, and that
// what waits for a broken server ends with its context or when it is healed.
func TestFakesInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := bridgetest.NewSource(t, bridgetest.Export{Latency: time.Hour})
		fetched(t, s).Release()
		topic := bridgetest.NewTopic(t, bridge.AtLeastOnce)
		topic.Latency = time.Hour
		sink := topic.Open("events")
		recovered(t, sink)
		publish(t, sink, batch(t, 1))
		heal := topic.Break()
		go func() {
			<-time.After(time.Hour)
			heal()
		}()
		recovered(t, sink)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := bridgetest.NewInbox(t).Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("next returned %v", err)
		}
		if took := time.Since(began); took != 4*time.Hour {
			t.Errorf("it all took %s, want 4h", took)
		}
	})
}

func TestStoreRollsBack(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewStore(t, "events")
	from := bridge.Checkpoint{}
	for seq := range 3 {
		to := batch(t, seq).Checkpoint
		advance(t, s, from, to)
		from = to
	}
	s.RollBack(2)
	if c := s.Checkpoint(); c.Seq != 0 || len(s.History()) != 1 {
		t.Errorf("after a roll-back by two the store holds %s, with %d in its history", c.Version, len(s.History()))
	}
	s.RollBack(5)
	if s.Get() != nil {
		t.Errorf("after a roll-back of everything the store holds %s", s.Get())
	}
}

func source(t testing.TB, items int) *bridgetest.Source {
	s := bridgetest.NewSource(t, bridgetest.Export{PageSize: 2})
	s.Grow(items)
	return s
}

func fetched(t *testing.T, s *bridgetest.Source) *bridge.Page {
	t.Helper()
	p := must.Get(s.Fetch(t.Context(), bridge.Position{}))(t)
	return p
}

func decode(t *testing.T, s *bridgetest.Source, p *bridge.Page) {
	t.Helper()
	must.Do(t, s.Decode(p))
}

// batch returns a batch with one page of two events and its checkpoint.
func batch(t *testing.T, seq int) bridgetest.Load {
	t.Helper()
	s := source(t, 4)
	p := fetched(t, s)
	decode(t, s, p)
	t.Cleanup(p.Release)
	return bridgetest.Load{Pages: []*bridge.Page{p}, Batch: bridge.Batch{Checkpoint: bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: "events", Version: bridge.Version{Seq: int64(seq)},
		Kind: bridge.KindData, Cursor: p.Next, Origin: bridge.Origin{Resource: "events"},
	}}}
}

func opened(t *testing.T, s *spy, mode bridge.Mode) bridge.Sink {
	t.Helper()
	sink := bridgetest.NewTopic(s, mode).Open("events")
	recovered(t, sink)
	return sink
}

func recovered(t *testing.T, s bridge.Sink) {
	t.Helper()
	if _, err := s.Recover(t.Context(), nil); err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Fatal(err)
	}
}

func publish(t *testing.T, s bridge.Sink, b bridgetest.Load) {
	t.Helper()
	must.Get(b.Publish(t.Context(), s))(t)
}

func advance(t *testing.T, s *bridgetest.Store, from, to bridge.Checkpoint) {
	t.Helper()
	must.Do(t, s.Advance(t.Context(), from, to))
}
