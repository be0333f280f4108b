package ops_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/control"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/ops"
)

// counted counts the reads of one kind: each takes a second.
type counted struct {
	now, most, all atomic.Int32
}

func (c *counted) read() {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	c.all.Add(1)
	<-time.After(time.Second)
	c.now.Add(-1)
}

// heavy counts the reads for queries.
type heavy struct {
	fakeController
	letters, jobs, entries, states counted

	mu    sync.Mutex // guards all below
	limit []int      // of the dead letters that were asked for
	query []bridge.HistoryQuery
}

func (h *heavy) DeadLetters(_ context.Context, _ string, limit int) ([]deadletter.DeadLetter, error) {
	h.mu.Lock()
	h.limit = append(h.limit, limit)
	h.mu.Unlock()
	h.letters.read()
	return make([]deadletter.DeadLetter, limit), nil
}

func (h *heavy) Jobs(context.Context) ([]backfill.Listed, error) {
	h.jobs.read()
	return nil, nil
}

func (h *heavy) History(_ context.Context, q bridge.HistoryQuery) (control.History, error) {
	h.mu.Lock()
	h.query = append(h.query, q)
	h.mu.Unlock()
	h.entries.read()
	return control.History{}, nil
}

func (h *heavy) Status(context.Context) control.Report {
	h.states.read()
	return control.Report{}
}

func heavySite() (*site, *heavy) {
	h := &heavy{}
	return newSite(ops.Config{}, func(p *ops.Parts) {
		p.Records, p.Controller = h, func(string) ops.Controller { return h }
	}), h
}

// ask sends n requests at once and returns the statuses of the answers.
func (s *site) atOnce(n int, line func(i int) string) (codes []int) {
	codes = make([]int, n)
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { codes[i] = s.do(ask{line: line(i)}).Code })
	}
	asking.Wait()
	slices.Sort(codes)
	return slices.Compact(codes)
}

// A query of the status of many streams reads few of them at a time.
func TestStatusOfManyStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, streams := &heavy{}, make([]ops.Stream, 3*control.AtOnce)
		for i := range streams {
			streams[i] = &fakeStream{status: bridge.Status{Stream: fmt.Sprintf("s-%d", i)}}
		}
		s := newSite(ops.Config{}, func(p *ops.Parts) {
			p.Streams, p.Controller = func() []ops.Stream { return streams }, func(string) ops.Controller { return h }
		})
		w := s.do(ask{line: "GET /api/v1/status"})
		if most, all := h.states.most.Load(), h.states.all.Load(); w.Code != 200 || most != control.AtOnce ||
			int(all) != len(streams) {
			t.Errorf("%d: %d reads, %d at once", w.Code, all, most)
		}
	})
}

// However many requests arrive, one read of a kind is in progress, and equal requests share an
// answer whose read began after they arrived.
func TestQueriesReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := heavySite()
		for _, tc := range []struct {
			line string
			*counted
		}{
			{"GET /api/v1/streams/events/dead-letters?limit=7", &h.letters},
			{"GET /api/v1/jobs", &h.jobs},
			{"GET /api/v1/streams/events/history?limit=7", &h.entries},
			{"GET /api/v1/status", &h.states},
		} {
			if codes := s.atOnce(16, func(i int) string {
				return tc.line +
					strings.Repeat("&x=1", i*strings.Count(tc.line, "?"))
			}); !slices.Equal(codes, []int{200}) {
				t.Errorf("%s: answers %d", tc.line, codes)
			}
			if most, all := tc.most.Load(), tc.all.Load(); most != 1 || all > 2 {
				t.Errorf("%s: %d reads, %d at once; want 1 at once, shared by the requests that waited", tc.line, all, most)
			}
			all := tc.all.Load()
			<-time.After(time.Minute)
			s.do(ask{line: tc.line})
			if tc.all.Load() != all+1 {
				t.Errorf("%s: the answer of a minute ago is still given", tc.line)
			}
		}
	})
}

// Different requests of a kind wait for each other, and delay no other kind.
func TestQueriesReadOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := heavySite()
		var asking sync.WaitGroup
		for _, line := range []string{"GET /api/v1/streams/events/dead-letters?limit=%d",
			"GET /api/v1/streams/events/history?limit=%d"} {
			asking.Go(func() { s.atOnce(16, func(i int) string { return fmt.Sprintf(line, i+1) }) })
		}
		synctest.Wait()
		began := time.Now()
		if w := s.do(ask{line: "GET /api/v1/session"}); w.Code != 200 || time.Since(began) > 0 {
			t.Errorf("session: %d after %s", w.Code, time.Since(began))
		}
		if w := s.do(ask{line: "GET /api/v1/status"}); w.Code != 200 || time.Since(began) > time.Second {
			t.Errorf("status: %d after %s", w.Code, time.Since(began))
		}
		asking.Wait()
		if l, e := h.letters.most.Load(), h.entries.most.Load(); l != 1 || e != 1 {
			t.Errorf("%d reads of dead letters and %d of history at once, want 1", l, e)
		}
		for _, q := range h.query {
			if !q.Brief {
				t.Errorf("asks for %+v, with what it does not show", q)
			}
		}
		slices.Sort(h.limit)
		for i, n := range h.limit {
			if n != i+2 { // one more shows that there are more
				t.Errorf("limit=%d reads %d dead letters", i+1, n)
			}
		}
	})
}

// A client that disconnects does not affect the answers of other clients.
func TestQueryOfALeavingClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := heavySite()
		ctx, leave := context.WithCancel(t.Context())
		go s.do(ask{line: "GET /api/v1/jobs", ctx: ctx})
		synctest.Wait()
		leave()
		if w := s.do(ask{line: "GET /api/v1/jobs"}); w.Code != 200 || h.jobs.all.Load() != 2 {
			t.Errorf("%d %s after %d reads", w.Code, w.Body, h.jobs.all.Load())
		}
	})
}

// TestDeadLettersAreKept: dead letters are read at most once a second.
func TestDeadLettersAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := heavySite()
		for range 10 {
			s.do(ask{line: "GET /api/v1/streams/events/dead-letters"})
		}
		if n := h.letters.all.Load(); n != 1 {
			t.Errorf("%d reads in %s", n, time.Second)
		}
	})
}
