package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// TestUnreadCursor: a first page with a part that looks like a next cursor is not the end of
// the results. The stream warns, its position stays at its last event, and the stream does
// not count as drained.
func TestUnreadCursor(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		event := time.Now().Add(-time.Hour)
		page := fmt.Sprintf(`{"items":[{"eventId":"1","timestamp":%d}],"nextCursor":""}`, event.UnixMilli())
		unread := bridge.Unread{Where: "/paging/next", Hint: "set EXPORT_CURSOR_FIELD=/paging/next"}
		r.source.Serve(func(at bridge.Position) bridgetest.Answer { return bridgetest.Answer{Body: page, Unread: unread} })
		r.startFor(time.Minute)
		s := r.bridge.Status()
		if len(s.Warnings) != 1 || s.Warnings[0].Code != bridge.WarningUnread || s.Warnings[0].Hint != unread.Hint ||
			!s.EndDoubtful() {
			t.Errorf("warnings %+v", s.Warnings)
		}
		if got := s.Position; got.UnixMilli() != event.UnixMilli() {
			t.Errorf("position %s, want that of the last event, %s", got, event)
		}
		if c, err := r.store.Load(t.Context()); err != nil || c.Drained {
			t.Errorf("drained %t, error %v", c.Drained, err)
		}
		unread = bridge.Unread{}
		r.after(time.Minute)
		if s := r.bridge.Status(); len(s.Warnings) > 0 || s.Position.Before(event.Add(time.Hour)) {
			t.Errorf("afterwards: warnings %+v, position %s", s.Warnings, s.Position)
		}
	})
}

// TestFirstPageAgain: an API that ignores the cursor, and lists fewer items than were asked for, looks like
// one whose last page names itself. The stream says so until a page has other items.
func TestFirstPageAgain(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		n := 50
		r.source.Serve(func(bridge.Position) bridgetest.Answer {
			return inclusive(func() int { return n + 1 }, n, 0, "none")(bridge.Position{})
		})
		r.startFor(time.Minute)
		s := r.bridge.Status()
		if len(s.Warnings) != 1 || s.Warnings[0].Code != bridge.WarningUnread || !s.EndDoubtful() ||
			s.Warnings[0].Hint != string(bridge.HintFirstAgain) {
			t.Errorf("warnings %+v", s.Warnings)
		}
		if c, err := r.store.Load(t.Context()); err != nil || c.Drained {
			t.Errorf("drained %t, error %v", c.Drained, err)
		}
		r.wantCounts(50, 50)
		r.after(time.Minute)
		r.end()
	})
}

// TestWindowFirstPageAgain: in a window, the first page of TestFirstPageAgain is no end.
func TestWindowFirstPageAgain(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		r.cfg.Origin.Start, r.cfg.Origin.End = 1, time.Now().UnixMilli()
		r.source.Serve(func(bridge.Position) bridgetest.Answer {
			return inclusive(func() int { return 51 }, 50, 0, "none")(bridge.Position{})
		})
		r.startFor(time.Minute)
		if f, ok := errors.AsType[*bridge.Fault](r.end()); !ok || f.HintCode != bridge.HintFirstAgain {
			t.Errorf("the window ended with %+v", f)
		}
		r.wantCounts(50, 50)
	})
}

// TestWindowFirstPageAgainEarly: a window whose end is ahead waits at the first page of TestFirstPageAgain with
// the warning of a stream: more items may follow by then.
func TestWindowFirstPageAgainEarly(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		r.cfg.Origin.Start, r.cfg.Origin.End = 1, time.Now().Add(time.Hour).UnixMilli()
		r.source.Serve(func(bridge.Position) bridgetest.Answer {
			return inclusive(func() int { return 51 }, 50, 0, "none")(bridge.Position{})
		})
		r.startFor(time.Minute)
		if s := r.bridge.Status(); s.State == bridge.StateBlocked || len(s.Warnings) != 1 || !s.EndDoubtful() {
			t.Errorf("%s, warnings %+v", s.State, s.Warnings)
		}
		r.after(time.Hour)
		if f, ok := errors.AsType[*bridge.Fault](r.end()); !ok || f.HintCode != bridge.HintFirstAgain {
			t.Errorf("the window ended with %+v", f)
		}
		r.wantCounts(50, 50)
	})
}

// TestFirstPageAgainSmaller: with fewer items per page, an API that heeds the cursor pages, and the doubt of
// TestFirstPageAgain ends for good. One that ignores the cursor stays in doubt.
func TestFirstPageAgainSmaller(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"heeded": true, "ignored": false} {
		rowInModes(t, name, bridgetest.Export{PageSize: 100}, func(r *harness) {
			const n = 50
			size := 100
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				from := 0
				if heeds && at.Cursor != "" {
					fmt.Sscanf(at.Cursor, "c%d", &from)
				}
				var items []string
				to := min(from+size, n)
				for i := from; i < to; i++ {
					items = append(items, sparseItem(fmt.Sprintf("e%d", i), i))
				}
				if to == n {
					to = from // a page that is not full names itself
				}
				return answer(fmt.Sprintf("c%d", to), items...)
			})
			for _, size = range []int{100, 20, 100} {
				r.cfg.PageSize = size
				r.startFor(time.Minute)
				s, want := r.bridge.Status(), !heeds || r.store.Checkpoint().Cursor == "c0"
				if got := s.EndDoubtful() || s.State == bridge.StateBlocked; got != want {
					r.t.Errorf("heeds %t, %d per page: doubtful %t, want %t", heeds, size, got, want)
				}
				r.end()
			}
			r.wantCounts(n, n)
		})
	}
}

// TestFutureStart: a start ahead of the API's clock leaves events out, so the stream
// does not say that it has all of them. Until that time has come it warns.
func TestFutureStart(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		r.cfg.Origin.Start = time.Now().Add(time.Hour).UnixMilli()
		r.source.Serve(func(bridge.Position) bridgetest.Answer {
			return answer("")
		})
		r.startFor(time.Minute)
		if s := r.bridge.Status(); len(s.Warnings) != 1 || s.Warnings[0].Code != bridge.WarningStart || !s.EndDoubtful() {
			t.Errorf("warnings %+v", s.Warnings)
		}
		r.after(2 * time.Hour)
		if s := r.bridge.Status(); len(s.Warnings) > 0 {
			t.Errorf("afterwards: warnings %+v", s.Warnings)
		}
	})
}

// TestKeyless: where a key was set and no event has one, the stream warns; where some
// have one, or none is wanted, it does not.
func TestKeyless(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pointer string
		events  int
		keyed   bool
		warns   bool
	}{
		"matches nothing": {"/tenant", 150, false, true}, "few": {"/tenant", 5, false, false},
		"matches some": {"/tenant", 150, true, false}, "no key wanted": {"", 150, false, false},
	} {
		row(t, name, bridgetest.Export{PageSize: 1000}, func(r *harness) {
			r.cfg.KeyPointer = tc.pointer
			items := ""
			for i := range tc.events {
				user := ""
				if tc.keyed && i == 7 {
					user = `"userId":"u",`
				}
				items += fmt.Sprintf(`,{"eventId":"%d",%s"timestamp":%d}`, i, user, time.Now().UnixMilli())
			}
			page := `{"items":[` + items[1:] + `],"nextCursor":""}`
			r.source.Serve(func(bridge.Position) bridgetest.Answer { return bridgetest.Answer{Body: page} })
			r.startFor(time.Minute)
			s := r.bridge.Status()
			if warned := len(s.Warnings) == 1 && s.Warnings[0].Code == bridge.WarningKeyless; warned != tc.warns ||
				s.EndDoubtful() {
				r.t.Errorf("warnings %+v", s.Warnings)
			}
		})
	}
}
