package windows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
			l.page = 5
			l.add(1, at, 0)
			_, err := begin(t, at.Add(-time.Hour), l, settings(time.Minute)).step()
			wantFault(t, err, bridge.Permanent, name)
		})
	}
}

// TestCapped: an API that lists fewer items than requested, and names no next page, is
// detected and asked for smaller ranges.
func TestCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 50, noCursor: true}
		l.add(3000, began, -400*time.Millisecond)
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(time.Minute)
		cfg.PageSize = 100
		x := begin(t, began.Add(-time.Hour), l, cfg)
		x.drain()
		x.want(3000)
		asked := l.requests
		x.poll(20, 15*time.Second)
		if n := l.requests - asked; n > 60 {
			t.Errorf("%d requests of 20 polls at rest", n)
		}
	})
}

// TestWhole: a listing is complete, with all limits of the API and all ends of pages.
func TestWhole(t *testing.T) {
	type forms map[string]struct {
		list list
		size int // EXPORT_PAGE_SIZE
	}
	for name, form := range (forms{
		"cut off behind some cursors": {list{page: 10, most: 50}, 10},
		"cut off behind some numbers": {list{page: 10, most: 50, numbers: true}, 10},
		"cursors are rejected":        {list{page: 5, mostPages: 3}, 5},
		"short ranges":                {list{page: 5, longest: time.Hour}, 5},
		"the last page is repeated":   {list{page: 3, numbers: true, beyond: "repeat"}, 3},
		"the next page is rejected":   {list{page: 3, numbers: true, beyond: "reject"}, 3},
		// The first page does not count as the whole range: it is full, or has fewer items
		// than requested.
		"numbers are ignored":                 {list{page: 3, numbers: true, ignored: true}, 3},
		"numbers are ignored, short pages":    {list{page: 3, numbers: true, ignored: true}, 10},
		"offsets are ignored":                 {list{page: 3, offsets: true, ignored: true}, 3},
		"offsets are ignored, short pages":    {list{page: 3, offsets: true, ignored: true}, 10},
		"each number is rejected":             {list{page: 3, numbers: true, mostPages: 1}, 3},
		"each number is rejected, short ones": {list{page: 3, numbers: true, mostPages: 1}, 10},
	}) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &form.list
				l.add(300, time.Now(), -time.Minute)
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(3 * time.Hour)
				cfg.PageSize, cfg.Numbered, cfg.Overlaps = form.size, l.numbers || l.offsets, l.offsets
				if l.longest > 0 {
					cfg.MaxWindow = l.longest
				}
				x := begin(t, time.Now().Add(-9*time.Hour), l, cfg)
				x.drain()
				x.want(300)
			})
		})
	}
}

// TestCappedBurst: an API that lists fewer items than requested is detected even if all items
// are of one second. Without a limit the same items are published.
func TestCappedBurst(t *testing.T) {
	for _, tc := range []struct {
		page            int
		oldest, blocked bool
	}{{50, false, true}, {200, false, false}, {50, true, true}, {200, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: tc.page, noCursor: true, oldest: tc.oldest}
			at, apart := began, -10*time.Second
			if tc.oldest {
				at, apart = began.Add(-25*time.Minute), 10*time.Second
			}
			l.add(60, at, 0)
			l.add(60, at.Add(60*apart), apart) // listed behind the burst
			bridge.Sleep(t.Context(), time.Minute)
			cfg := settings(time.Minute)
			cfg.PageSize = 1000
			x := begin(t, began.Add(-30*time.Minute), l, cfg)
			if tc.blocked {
				wantFault(t, x.block(), bridge.Permanent, "EXPORT_PAGE_SIZE")
				return
			}
			x.drain()
			x.want(len(l.all))
		})
	}
}

// TestProofMeetsLate: an event that the API shows while a listing is proven whole does not
// make the listing one that was cut off.
func TestProofMeetsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 500, noCursor: true}
		l.add(2, began.Add(-time.Minute), -time.Minute)
		l.fail = func() error {
			if l.requests == 4 { // behind two for the bounds, and the listing
				l.add(1, began.Add(-time.Minute), 0)
			}
			return nil
		}
		cfg := settings(time.Minute)
		cfg.PageSize = 1000
		x := begin(t, began.Add(-time.Hour), l, cfg)
		for range 10 {
			x.poll(1, 5*time.Second)
			l.add(4, time.Now(), 0)
		}
		bridge.Sleep(t.Context(), time.Minute)
		x.poll(2, 0)
		x.want(len(l.all))
	})
}

// TestGrowsWhileProven: an item that is shown between two requests is no proof that the API
// cuts its lists off.
func TestGrowsWhileProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 50, noCursor: true}
		l.add(6, at, 100*time.Millisecond)
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
		x := begin(t, at.Add(-time.Minute), l, cfg)
		x.drain()
		x.want(6)
	})
}

// TestClocks: windows end by the earlier of two clocks, so a clock that is ahead settles
// nothing too early.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, ahead: time.Hour}
		l.add(20, began, 10*time.Second)
		x := begin(t, began.Add(-time.Minute), l, settings(time.Second))
		x.poll(60, 5*time.Second)
		x.want(20)
	})
}

// TestClockJumps: the clock of this machine jumps an hour ahead. The watermark does not
// pass what the API has not listed yet, by its own clock.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := begin(t, time.Now().Add(-time.Minute), l, settings(time.Second))
		follow := func() {
			for range 10 {
				now := time.Now()
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: now.Add(l.ahead), visible: now})
				x.poll(1, 5*time.Second)
			}
		}
		follow()
		bridge.Sleep(t.Context(), time.Hour) // of this clock only
		l.ahead = -time.Hour
		follow()
		x.poll(2, 0) // the last one is settled
		x.want(len(l.all))
	})
}

// TestClockWrongOnce: one wrong Date blocks the stream until the API sends a right one.
func TestClockWrongOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := begin(t, time.Now().Add(-time.Minute), l, settings(time.Second))
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
		x.poll(1, 0)
	})
}

// TestEmptyPages: empty pages in a window end nothing while they name a next one.
func TestEmptyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 5, empties: 20}
		l.add(1, at, 0)
		bridge.Sleep(t.Context(), time.Minute)
		x := begin(t, at.Add(-time.Minute), l, settings(time.Second))
		x.poll(1, 0)
		x.want(1)
		l.empties = 1 << 30
		_, err := begin(t, at.Add(-time.Minute), l, settings(time.Second)).step()
		wantFault(t, err, bridge.Permanent, "EXPORT_MORE_FIELD")
	})
}

// TestFailing: an API that fails now and then is asked again within a listing of many ranges,
// which would never end otherwise.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		l.fail = func() error {
			if l.requests%10 == 0 {
				return &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("away"), Hint: "ask"}
			}
			return nil
		}
		var said []string
		cfg := settings(3 * time.Hour)
		cfg.MaxWindow, cfg.Observe = 10*time.Minute, func(bridge.Observation) {}
		cfg.Warn = func(text, hint string) { said = append(said, text+", try: "+hint) }
		x := begin(t, time.Now().Add(-9*time.Hour), l, cfg)
		x.drain()
		if len(said) == 0 || slices.ContainsFunc(said, func(s string) bool { return s != said[0] }) ||
			said[0] != "a listing waits for a page: its request failed (503) and is repeated, try: ask" {
			t.Errorf("the listing says %.200q", said)
		}
	})
}

// cached is a source behind a cache that keeps first pages, with their Date.
type cached struct {
	*list
	first *bridge.Page
}

func (c *cached) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	if at.Cursor != "" {
		return c.list.Fetch(ctx, at)
	}
	if c.first == nil || time.Since(c.first.RequestedAt) > 10*time.Minute {
		first, err := c.list.Fetch(ctx, at)
		if c.first = first; err != nil {
			return nil, err
		}
	}
	p := *c.first
	p.Events = slices.Clone(p.Events)
	p.RequestedAt, p.ArrivedAt = time.Now(), time.Now()
	return &p, nil
}

// TestCachedPage: the watermark does not pass what the oldest page of a listing can have.
func TestCachedPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 50}
		l.add(100, began.Add(-20*time.Minute), 5*time.Second)
		l.add(150, began, 5*time.Second)
		cfg := settings(time.Minute)
		cfg.NoStart, cfg.NoEnd = true, true
		x := newTopic(t, began.Add(-time.Minute), cfg).begin(windows.New(&cached{list: l}, cfg))
		x.poll(300, 5*time.Second)
		x.want(150)
	})
}

// behind is a source whose pages before the last one have a Date long ago.
type behind struct{ *list }

func (b behind) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := b.list.Fetch(ctx, at)
	if err == nil && p.Next != "" {
		p.ServerTime = p.ServerTime.Add(-24 * time.Hour)
	}
	return p, err
}

// TestPageBehind: a window with a page that is older than the watermark cannot end. The stream says
// so, and does not list the window again at once.
func TestPageBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, slow: func() { bridge.Sleep(t.Context(), 100*time.Millisecond) }}
		l.add(100, began.Add(-5*time.Hour), time.Minute)
		cfg := settings(time.Minute)
		cfg.MaxWindow = time.Hour
		x := newTopic(t, began.Add(-6*time.Hour), cfg).begin(windows.New(behind{l}, cfg))
		err := x.block()
		if f := bridge.FaultOf(err); err == nil || f.Code != "watermark" || l.requests > 60 {
			t.Errorf("%d requests, and %v", l.requests, err)
		}
	})
}

// TestMisreadTimes: items of the future, and old ones of a list without a start, are left out. If all
// times are impossible, they are misread: seconds as milliseconds, or microseconds.
func TestMisreadTimes(t *testing.T) {
	for name, tc := range map[string]struct {
		read    func(time.Time) int64
		noStart bool
	}{
		"seconds":                     {time.Time.Unix, true},
		"microseconds":                {time.Time.UnixMicro, true},
		"microseconds, after a start": {time.Time.UnixMicro, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &list{page: 5}
			for i := range 20 {
				at := time.Now().Add(time.Duration(i-10) * time.Minute)
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: time.UnixMilli(tc.read(at)), placed: at, visible: at})
			}
			cfg := settings(time.Second)
			cfg.NoStart, cfg.NoEnd, cfg.EndExplicit = tc.noStart, true, true
			t.Log(name)
			err := begin(t, time.Now().Add(-time.Hour), l, cfg).block()
			wantFault(t, err, bridge.Permanent, "EXPORT_ITEM_TIME_FORMAT")
		})
	}
}

// TestPlaceholderTimes: a quiet list may have only an item without a true time. That is no mistake of
// the settings.
func TestPlaceholderTimes(t *testing.T) {
	for _, noStart := range []bool{true, false} {
		for _, at := range []time.Time{time.UnixMilli(0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
			synctest.Test(t, func(t *testing.T) {
				l := &list{page: 5}
				l.all = []entry{{id: "placeholder", at: at, placed: time.Now()}}
				cfg := settings(time.Second)
				cfg.NoStart, cfg.NoEnd, cfg.EndExplicit = noStart, true, true
				x := begin(t, time.Now().Add(-time.Hour), l, cfg)
				x.poll(2, time.Minute)
				l.put("other", time.Now())
				x.poll(2, time.Minute)
				if x.commit(); len(x.records) == 0 || !strings.Contains(strings.Join(x.records, ""), "other") {
					t.Errorf("at %v, the other item is not published: %v", at, x.records)
				}
			})
		}
	}
}

// TestClock: a watermark ahead of the API's clock blocks the stream.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := begin(t, time.Now().Add(time.Hour), &list{page: 5}, settings(time.Minute)).step()
		wantFault(t, err, bridge.Permanent, string(bridge.HintWatermark))
	})
}

// TestCutOff: an API that lists a full page and names no next one is asked for smaller
// ranges; for more than a page in one second the stream blocks.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, noCursor: true}
		l.add(40, began, -30*time.Second)
		bridge.Sleep(t.Context(), time.Minute)
		x := begin(t, began.Add(-time.Hour), l, settings(time.Minute))
		x.drain()
		x.want(40)
		l.add(5, time.Now(), 0)
		bridge.Sleep(t.Context(), time.Minute)
		_, err := x.step()
		wantFault(t, err, bridge.Permanent, "EXPORT_PAGE_SIZE")
	})
}

// TestHighestOffset: an API that lists nothing behind some offset has more events in smaller
// ranges, as far as those exist.
func TestHighestOffset(t *testing.T) {
	for apart, lists := range map[time.Duration]bool{time.Minute: true, time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			from := time.Now().Add(-time.Hour).Truncate(time.Second)
			l := &list{page: 4, offsets: true, highest: 6}
			l.add(30, from.Add(apart), apart)
			cfg := settings(time.Minute)
			cfg.Numbered, cfg.Overlaps, cfg.PageSize = true, true, 40
			p, err := windows.NewRange(l, cfg).Fetch(t.Context(),
				bridge.Position{Start: from.UnixMilli(), End: from.Add(40 * time.Minute).UnixMilli(), Window: true})
			if lists && (err != nil || p.Items != 30) || !lists &&
				(err == nil || bridge.FaultOf(err).Class != bridge.Transient) {
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

// endless is a list whose last page names a next one for ever, each time by a new cursor.
type endless struct{ *list }

func (e endless) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	own := at
	own.Cursor, _, _ = strings.Cut(at.Cursor, "!")
	p, err := e.list.Fetch(ctx, own)
	if err != nil {
		return nil, err
	}
	if p.At = at; p.Next == "" {
		p.Next = fmt.Sprintf("%s!%d", own.Cursor, e.requests)
	}
	return p, nil
}

// TestEndless: a list that repeats its last page for ever does not end. The stream says so, and
// publishes no item twice.
func TestEndless(t *testing.T) {
	for _, items := range []int{1, 3, 11, 13} {
		for _, noIDs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				at := time.Now()
				l := &list{page: 5, noIDs: noIDs}
				l.add(items, at, time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(time.Second)
				cfg.MaxBytes = 20_000
				x := begin(t, at.Add(-time.Minute), l, cfg)
				x.lister = windows.New(endless{l}, cfg)
				l.fail = func() error {
					if l.requests > 20_000 {
						t.Fatal("the listing has no end")
					}
					return nil
				}
				class, word := bridge.Malformed, "cursor-ignored"
				if items%l.page == 1 && !noIDs { // an API may begin each page with the item of the cursor
					class, word = bridge.Permanent, "EXPORT_MORE_FIELD"
				}
				wantFault(t, x.block(), class, word)
				x.want(0)
			})
		}
	}
}
