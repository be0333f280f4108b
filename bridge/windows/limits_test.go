package windows_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/windows"
)

// TestBoundsIgnored: an API that ignores the start or the end of a range is refused, since
// a restart would publish old events again.
func TestBoundsIgnored(t *testing.T) {
	for name, l := range map[string]*list{"EXPORT_START_PARAM": {noStart: true}, "EXPORT_END_PARAM": {noEnd: true}} {
		synctest.Test(t, func(t *testing.T) {
			at := time.Now().Add(-time.Hour)
			l.page, l.all = 5, []entry{{id: "a", at: at, visible: at}}
			_, err := newTopic(t, at.Add(-time.Hour), time.Minute).begin(windows.New(l, settings(time.Minute))).step()
			if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, name) {
				t.Errorf("got %v, want a permanent fault that names %s", err, name)
			}
		})
	}
}

// TestCapped: an API that lists fewer items than asked for, and names no next page, is
// found out and asked for smaller ranges.
func TestCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 50, noCursor: true}
		for i := range 3000 {
			at := began.Add(-time.Duration(i) * 400 * time.Millisecond)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(time.Minute)
		cfg.PageSize = 100
		x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 3000 {
			t.Errorf("%d records, want 3000", len(x.records))
		}
		asked := l.requests
		for range 20 {
			bridge.Sleep(t.Context(), 15*time.Second)
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.requests - asked; n > 60 {
			t.Errorf("%d requests of 20 polls at rest", n)
		}
	})
}

// TestCappedPages: an API that names next pages, or numbers them, and cuts off a listing behind
// some of them is found out and asked for smaller ranges.
func TestCappedPages(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: 10, most: 50, numbers: numbers}
			for i := range 3000 {
				at := began.Add(-time.Duration(i) * 400 * time.Millisecond)
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
			}
			bridge.Sleep(t.Context(), time.Minute)
			cfg := settings(time.Minute)
			cfg.PageSize, cfg.Numbered = 10, numbers
			x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
			if x.drain(); len(x.records) != 3000 || len(counts(x.records)) != 3000 {
				t.Errorf("%d records, %d different ones, want 3000", len(x.records), len(counts(x.records)))
			}
		})
	}
}

// TestCappedBurst: an API that lists fewer items than asked for is found out also if all of
// them are of one second. Without a limit the same items are published.
func TestCappedBurst(t *testing.T) {
	for _, tc := range []struct {
		page            int
		oldest, blocked bool
	}{{50, false, true}, {200, false, false}, {50, true, true}, {200, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: tc.page, noCursor: true, oldest: tc.oldest}
			for i := range 120 {
				at, apart := began, -10*time.Second
				if tc.oldest {
					at, apart = began.Add(-25*time.Minute), 10*time.Second
				}
				if i >= 60 { // listed behind the burst
					at = at.Add(time.Duration(i) * apart)
				}
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
			}
			bridge.Sleep(t.Context(), time.Minute)
			cfg := settings(time.Minute)
			cfg.PageSize = 1000
			x := newTopic(t, began.Add(-30*time.Minute), time.Minute).begin(windows.New(l, cfg))
			more, err := true, error(nil)
			for more && err == nil {
				more, err = x.step()
			}
			x.commit()
			switch f := bridge.FaultOf(err); {
			case tc.blocked && (err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_PAGE_SIZE")):
				t.Errorf("%+v: got %d records and %v, want a permanent fault that names EXPORT_PAGE_SIZE", tc, len(x.records), err)
			case !tc.blocked && (err != nil || len(x.records) != len(l.all)):
				t.Errorf("%+v: %d records and %v, want %d", tc, len(x.records), err, len(l.all))
			}
		})
	}
}

// TestProofMeetsLate: an event that the API shows while a listing is proven whole does not
// make the listing one that was cut off.
func TestProofMeetsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 500, noCursor: true}
		add := func(n int, at time.Time) {
			for range n {
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: at, visible: at})
			}
		}
		add(1, began.Add(-time.Minute))
		add(1, began.Add(-2*time.Minute))
		l.fail = func() error {
			if l.requests == 4 { // behind two for the bounds, and the listing
				add(1, began.Add(-time.Minute))
			}
			return nil
		}
		cfg := settings(time.Minute)
		cfg.PageSize = 1000
		x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
		for range 10 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 5*time.Second)
			add(4, time.Now()) // of one second
		}
		bridge.Sleep(t.Context(), time.Minute)
		for range 2 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != len(l.all) {
			t.Errorf("%d records, want %d", len(x.records), len(l.all))
		}
	})
}

// TestGrowsWhileProven: an item that is shown between two requests is no proof that the API
// cuts its lists off.
func TestGrowsWhileProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 50, noCursor: true}
		for i := range 6 {
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at.Add(time.Duration(i) * 100 * time.Millisecond), visible: at.Add(time.Second)})
		}
		l.all[0].visible = at.Add(3 * time.Minute)
		l.fail = func() error {
			if l.requests == 4 { // behind those that look for the bounds, and the first listing
				bridge.Sleep(t.Context(), time.Minute)
			}
			return nil
		}
		bridge.Sleep(t.Context(), 2*time.Minute+30*time.Second)
		cfg := settings(5 * time.Minute)
		cfg.PageSize = 100
		x := newTopic(t, at.Add(-time.Minute), 5*time.Minute).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 6 {
			t.Errorf("%d records, want 6", len(x.records))
		}
	})
}

// TestRejectedCursor: an API whose cursors are rejected after some pages is asked for
// smaller ranges.
func TestRejectedCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, mostPages: 3}
		for i := range 100 {
			at := began.Add(-time.Duration(i) * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		x := newTopic(t, began.Add(-2*time.Hour), time.Second).begin(windows.New(l, settings(time.Second)))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 100 {
			t.Errorf("%d records, want 100", len(x.records))
		}
	})
}

// TestClocks: windows end by the earlier of two clocks, so a clock that is ahead settles
// nothing too early.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, ahead: time.Hour}
		for i := range 20 {
			at := began.Add(time.Duration(i) * 10 * time.Second)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		x := newTopic(t, began.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		for range 60 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 5*time.Second)
		}
		if x.commit(); len(x.records) != 20 {
			t.Errorf("%d records, want 20", len(x.records))
		}
	})
}

// TestClockJumps: the clock of this machine jumps an hour ahead. The watermark does not
// pass what the API has not listed yet, by its own clock.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := newTopic(t, time.Now().Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		follow := func() {
			for range 10 {
				now := time.Now()
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: now.Add(l.ahead), visible: now})
				if _, err := x.step(); err != nil {
					t.Fatal(err)
				}
				bridge.Sleep(t.Context(), 5*time.Second)
			}
		}
		follow()
		bridge.Sleep(t.Context(), time.Hour) // of this clock only
		l.ahead = -time.Hour
		follow()
		for range 2 { // the last one is settled
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != len(l.all) {
			t.Errorf("%d records, want %d", len(x.records), len(l.all))
		}
	})
}

// TestClockWrongOnce: one wrong Date blocks the stream until the API sends a right one.
func TestClockWrongOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := newTopic(t, time.Now().Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		for _, ahead := range []time.Duration{0, -1000 * time.Hour, -1000 * time.Hour} {
			l.ahead = ahead
			_, err := x.step()
			bridge.Sleep(t.Context(), 5*time.Second)
			if err != nil {
				if f := bridge.FaultOf(err); f.Code != "watermark" {
					t.Fatal(err)
				}
				x = x.begin(x.lister)
			}
		}
		l.ahead = 0
		if _, err := x.step(); err != nil {
			t.Errorf("still blocked: %v", err)
		}
	})
}

// TestEmptyPages: empty pages in a window end nothing while they name a next one.
func TestEmptyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 5, empties: 20, all: []entry{{id: "a", at: at, visible: at}}}
		bridge.Sleep(t.Context(), time.Minute)
		x := newTopic(t, at.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		if _, err := x.step(); err != nil {
			t.Fatal(err)
		}
		if x.commit(); len(x.records) != 1 {
			t.Errorf("%d records, want 1", len(x.records))
		}
		l.empties = 1 << 30
		_, err := newTopic(t, at.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second))).step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_MORE_FIELD") {
			t.Errorf("got %v, want a permanent fault that names EXPORT_MORE_FIELD", err)
		}
	})
}

// TestLongestRange: no request asks for more than the API lists in one query, whatever the
// look-back.
func TestLongestRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, longest: time.Hour}
		for i := range 50 {
			at := began.Add(-time.Duration(i) * 10 * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(3 * time.Hour)
		cfg.MaxWindow = time.Hour
		x := newTopic(t, began.Add(-9*time.Hour), 3*time.Hour).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 50 {
			t.Errorf("%d records, want 50", len(x.records))
		}
	})
}

// TestFailing: an API that fails now and then is asked again within a listing of many ranges,
// which would never end otherwise.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		l.fail = func() error {
			if l.requests%10 == 0 {
				return &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("away")}
			}
			return nil
		}
		var said []string
		cfg := settings(3 * time.Hour)
		cfg.MaxWindow, cfg.Observe = 10*time.Minute, func(bridge.Observation) {}
		cfg.Warn = func(text, _ string) { said = append(said, text) }
		x := newTopic(t, time.Now().Add(-9*time.Hour), 3*time.Hour).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(strings.Join(said, "\n"), "a listing waits") {
			t.Errorf("nothing says that it waits: %q", said)
		}
	})
}

// TestClock: a watermark ahead of the API's clock blocks the stream.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newTopic(t, time.Now().Add(time.Hour), time.Minute).begin(windows.New(&list{page: 5}, settings(time.Minute))).step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || f.Code != "watermark" {
			t.Errorf("got %v, want a permanent fault about the watermark", err)
		}
	})
}

// TestCutOff: an API that lists a full page and names no next one is asked for smaller
// ranges; for more than a page in one second the stream blocks.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, noCursor: true}
		for i := range 40 {
			at := began.Add(-time.Duration(i) * 30 * time.Second)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		s := newTopic(t, began.Add(-time.Hour), time.Minute)
		x := s.begin(windows.New(l, settings(time.Minute)))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		x.commit()
		if len(s.records) != 40 {
			t.Errorf("%d records, want 40", len(s.records))
		}
		for i := range 5 {
			at := time.Now()
			l.all = append(l.all, entry{id: fmt.Sprint("b", i), seq: 100 + i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		_, err := x.step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_PAGE_SIZE") {
			t.Errorf("got %v, want a permanent fault that names EXPORT_PAGE_SIZE", err)
		}
	})
}

// TestHighestOffset: an API that lists nothing behind some offset has more events in smaller
// ranges, as far as those exist.
func TestHighestOffset(t *testing.T) {
	for apart, lists := range map[time.Duration]bool{time.Minute: true, time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			from := time.Now().Add(-time.Hour).Truncate(time.Second)
			l := &list{page: 4, offsets: true, highest: 6}
			for i := range 30 {
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: from.Add(time.Duration(i+1) * apart)})
			}
			cfg := settings(time.Minute)
			cfg.Numbered, cfg.Overlaps, cfg.PageSize = true, true, 40
			p, err := windows.NewRange(l, cfg).Fetch(t.Context(), bridge.Position{Start: from.UnixMilli(), End: from.Add(40 * time.Minute).UnixMilli(), Window: true})
			if lists && (err != nil || p.Items != 30) || !lists && (err == nil || bridge.FaultOf(err).Class != bridge.Transient) {
				t.Errorf("events %s apart: %+v, %v", apart, p, err)
			}
		})
	}
}

// TestEqualItemsInNumberedPages: equal items may fill several pages. A page that is repeated
// ends the listing where it has fewer items than a page can have.
func TestEqualItemsInNumberedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Now().Add(-time.Hour).Truncate(time.Second)
		l := &list{page: 4, numbers: true, noIDs: true}
		add := func(id string, at time.Time, n int) {
			for range n {
				l.all = append(l.all, entry{id: id, seq: len(l.all), at: at})
			}
		}
		add("many", from.Add(time.Minute), 12)
		add("few", from.Add(11*time.Minute), 3)
		cfg := settings(time.Minute)
		cfg.Numbered, cfg.PageSize = true, 4
		r := windows.NewRange(l, cfg)
		for i, want := range []int{12, 3} {
			l.beyond = []string{"", "repeat"}[i]
			begin := from.Add(time.Duration(i) * 10 * time.Minute)
			at := bridge.Position{Start: begin.UnixMilli(), End: begin.Add(5 * time.Minute).UnixMilli(), Window: true}
			if p, err := r.Fetch(t.Context(), at); err != nil || p.Items != want {
				t.Errorf("page of %d equal items: %+v, %v", want, p, err)
			}
		}
	})
}
