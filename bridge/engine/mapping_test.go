package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// unreadable is an item whose time is text.
func unreadable(n int) string {
	return fmt.Sprintf(`{"eventId":"iso-%d","userId":"u","timestamp":"2026-11-01T00:00:00Z"}`, n)
}

// appendUnreadable lists n items that cannot be read.
func appendUnreadable(r *harness, n int) {
	listed := len(r.source.Items())
	for i := range n {
		r.source.Append(unreadable(listed + i))
	}
}

// lettersIn counts the dead letters.
func (r *harness) lettersIn() (n int) {
	for _, rec := range r.topic.Records() {
		if rec.Defect != bridge.DefectNone {
			n++
		}
	}
	return n
}

// TestAllItemsUnreadable: a stream of which nothing can be read stops before it
// fills the dead letters; exceptions do not stop it.
func TestAllItemsUnreadable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pageSize int
		list     func(r *harness)
		letters  int // committed before the stream blocks; -1 if it does not block
	}{
		"the first page":             {50, func(r *harness) { appendUnreadable(r, 500) }, 0},
		"the first page is the last": {50, func(r *harness) { appendUnreadable(r, 30) }, 0},
		"one item":                   {50, func(r *harness) { appendUnreadable(r, 1) }, -1},
		"a few":                      {50, func(r *harness) { appendUnreadable(r, 9) }, -1},
		"few a page from the start":  {5, func(r *harness) { appendUnreadable(r, 500) }, 95},
		"one can be read on the first": {50,
			func(r *harness) { appendUnreadable(r, 40); r.source.Grow(1); appendUnreadable(r, 900) }, -1},
		"a thousand later": {50, func(r *harness) { r.source.Grow(20); appendUnreadable(r, 2000) }, 980},
		"less than a thousand later": {50, func(r *harness) {
			r.source.Grow(20)
			appendUnreadable(r, 999)
			r.source.Grow(1)
			appendUnreadable(r, 999)
		}, -1},
		"within one long page": {5000, func(r *harness) { r.source.Grow(20); appendUnreadable(r, 1500); r.source.Grow(20) },
			0},
	} {
		rowInModes(t, name, bridgetest.Export{PageSize: tc.pageSize}, func(r *harness) {
			r.cfg.PageSize = tc.pageSize
			tc.list(r)
			r.start()
			for range 3 { // restarts do not begin anew
				r.after(7 * time.Minute)
				r.end()
				r.start()
			}
			r.after(7 * time.Minute)
			c := r.store.Checkpoint()
			if tc.letters < 0 {
				r.wantState(bridge.StateIdle, "")
				if got := int(c.Events); got != len(r.source.Items()) {
					r.t.Errorf("the stream passed %d of %d items", got, len(r.source.Items()))
				}
				return
			}
			r.wantState(bridge.StateBlocked, bridge.ReasonMapping)
			if got := r.lettersIn(); got != tc.letters {
				r.t.Errorf("%d dead letters, want %d", got, tc.letters)
			}
			if s := r.bridge.Status(); !strings.Contains(s.Error, "bad-timestamp") || s.Hint != string(bridge.HintMapping) {
				r.t.Errorf("says %q, hint %q", s.Error, s.Hint)
			}
			if log := r.log.String(); strings.Contains(log, "2026-11-01") || strings.Contains(log, "iso-") {
				r.t.Error("an item is in the log")
			}
		})
	}
}

// TestWaysOutOfMapping: the operator can make the items dead letters, or skip them.
func TestWaysOutOfMapping(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 50}, func(r *harness) {
		appendUnreadable(r, 2000)
		r.startFor(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonMapping)
		r.end()
		r.cfg.DivertAll = true
		r.startFor(time.Minute)
		r.wantState(bridge.StateIdle, "")
		if got := r.lettersIn(); got != 2000 {
			t.Errorf("%d dead letters, want all 2000", got)
		}
	})
	exactlyInBubble(t, bridgetest.Export{PageSize: 50}, func(r *harness) {
		appendUnreadable(r, 50)
		r.follow(100, time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonMapping)
		next := ""
		for _, at := range r.source.Asked() {
			if next = at.Cursor; next != "" {
				break
			}
		}
		r.apply("over", bridge.Target{Cursor: next})
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(100)
	})
}

// timeless is a source of a resource whose items may have no time: those that
// are open.
type timeless struct{ *bridgetest.Source }

func (s timeless) Decode(p *bridge.Page) error {
	err := s.Source.Decode(p)
	for i := range p.Events {
		if e := &p.Events[i]; bytes.Contains(e.Raw, []byte(`"open":true`)) {
			e.Time, e.Defect = bridge.NoTime, bridge.DefectNone
		}
	}
	return err
}

// TestEventsWithoutTime: they are published like others, move no position in
// time, and are no measure of how late events are.
func TestEventsWithoutTime(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		open := func(n int) {
			for i := range n {
				r.source.Append(fmt.Sprintf(`{"eventId":"open-%d","open":true}`, len(r.source.Items())+i))
			}
		}
		open(2000)
		r.startWith(engine.Ports{Source: timeless{r.source}, Inbox: r.inbox})
		r.after(time.Hour)
		r.wantState(bridge.StateIdle, "")
		if c := r.store.Checkpoint(); c.LastEventTime != 0 || c.Unreadable != 0 || c.Events != 2000 {
			t.Errorf("last event time %d, %d unreadable, %d events; want none, none, 2000", c.LastEventTime, c.Unreadable,
				c.Events)
		}
		r.grow(20, time.Hour)
		last := r.store.Checkpoint().LastEventTime
		open(20)
		r.after(time.Hour)
		if c := r.store.Checkpoint(); last == 0 || c.LastEventTime != last {
			t.Errorf("last event time %d, want that of the last event with one, %d", c.LastEventTime, last)
		}
		r.wantOnce()
		for _, o := range r.observed(bridge.ObserveCommit, "") {
			for _, at := range o.Times {
				if at == bridge.NoTime {
					t.Error("no time is observed as one")
				}
			}
		}
		r.apply("back", bridge.Target{})
		r.after(time.Hour)
		r.wantEvents(2 * 2040)
	})
}
