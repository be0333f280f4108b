package windows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/windows"
)

// minutes is a list with an entry each minute, n of them, the newest one now.
func minutes(n int) *list {
	l := &list{page: 5}
	l.add(n, time.Now(), -time.Minute)
	return l
}

// TestUnbounded: a list with a start alone is read from there, one without since what is known,
// each
// event once. Events that are not settled are published too.
func TestUnbounded(t *testing.T) {
	for noStart, most := range map[bool]int{false: 12, true: 30} { // requests of ten polls at rest
		synctest.Test(t, func(t *testing.T) {
			l := minutes(200)
			cfg := settings(time.Minute)
			cfg.NoEnd, cfg.NoStart = true, noStart
			x := begin(t, time.Now().Add(-99*time.Minute), l, cfg)
			x.drain()
			x.want(100)
			asked := l.requests
			for range 10 {
				bridge.Sleep(t.Context(), 5*time.Second)
				x.drain()
			}
			if n := l.requests - asked; n > most {
				t.Errorf("%d requests of 10 polls at rest, want at most %d", n, most)
			}
			if len(x.records) != 100 {
				t.Errorf("%d records, want 100", len(x.records))
			}
		})
	}
}

// TestUnboundedParts: what is too much for memory is published in parts, the newest first, and
// each event once.
func TestUnboundedParts(t *testing.T) {
	for _, noStart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := minutes(100)
			cfg := settings(time.Minute)
			cfg.NoEnd, cfg.NoStart, cfg.MaxBytes = true, noStart, 20_000
			x := begin(t, time.Now().Add(-3*time.Hour), l, cfg)
			x.drain()
			x.want(100)
			if x.records[0] == l.all[99].raw() {
				t.Error("the first part has the oldest event")
			}
		})
	}
}

// TestUnboundedRefused: what a list without bounds does not tell blocks the stream.
func TestUnboundedRefused(t *testing.T) {
	for want, change := range map[string]func(*list){
		"EXPORT_FOLLOW=cursor": func(l *list) { l.oldest = true },
		"EXPORT_ITEM_TIME":     func(l *list) { l.undated = true },
		"EXPORT_CURSOR_IN":     func(l *list) { l.noCursor = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := minutes(100)
			change(l)
			cfg := settings(time.Minute)
			cfg.NoEnd, cfg.NoStart = true, true
			_, err := begin(t, time.Now().Add(-time.Hour), l, cfg).step()
			wantFault(t, err, bridge.Permanent, want)
		})
	}
}

// TestUnboundedCapped: a list without an end that is oldest first, or that now begins after
// the known items, is cut off: the items that it leaves out cannot be requested.
func TestUnboundedCapped(t *testing.T) {
	for name, form := range map[string]struct {
		since                  time.Duration
		oldest, noStart, later bool
	}{
		"oldest first": {since: time.Hour, oldest: true},
		"start":        {since: 8 * time.Minute, later: true},
		"neither":      {since: 8 * time.Minute, noStart: true, later: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := minutes(20)
				l.page, l.noCursor, l.oldest = 15, true, form.oldest
				cfg := settings(2 * time.Minute)
				cfg.NoEnd, cfg.NoStart, cfg.PageSize = true, form.noStart, 100
				x := begin(t, time.Now().Add(-form.since), l, cfg)
				if !form.oldest {
					x.drain()
				}
				for i := range 12 * 16 { // a page in each poll is complete
					if form.later {
						l.add(1, time.Now(), 0)
					}
					bridge.Sleep(t.Context(), 5*time.Second)
					if i%12 == 0 && form.later {
						x.drain()
					}
				}
				if form.later && len(x.records) == 0 {
					t.Fatal("no records of lists that were complete")
				}
				l.add(40, time.Now(), 0)
				bridge.Sleep(t.Context(), 5*time.Second)
				want := string(bridge.HintCutOff)
				if form.oldest {
					want = "EXPORT_PAGE_SIZE"
				}
				wantFault(t, x.block(), bridge.Permanent, want)
			})
		})
	}
}

// TestUnboundedStart: a start that the API ignores is found also where it takes no end.
func TestUnboundedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := minutes(10)
		l.noStart = true
		cfg := settings(time.Minute)
		cfg.NoEnd = true
		_, err := begin(t, time.Now().Add(-time.Hour), l, cfg).step()
		wantFault(t, err, bridge.Permanent, "EXPORT_START_PARAM")
	})
}

// TestUnboundedLate: a listing of EXPORT_LATE reads on behind what shorter ones have seen, to
// what they left out.
func TestUnboundedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := minutes(20)
		l.arrival = true
		cfg := settings(time.Minute)
		cfg.NoEnd, cfg.NoStart, cfg.Late = true, true, "1h/15m"
		x := begin(t, time.Now().Add(-5*time.Minute), l, cfg)
		x.drain()
		late := entry{id: "late", seq: 100, at: time.Now().Add(time.Second), visible: time.Now().Add(5 * time.Minute)}
		l.all = append(l.all, late)
		for i := range 15 {
			l.all = append(l.all, entry{id: fmt.Sprint("old", i), seq: 200 + i, at: time.Now().Add(-24 * time.Hour),
				visible: late.visible.Add(time.Second)})
		}
		for range 20 {
			bridge.Sleep(t.Context(), time.Minute)
			x.drain()
		}
		if got := counts(x.records); got[late.raw()] != 1 || len(x.records) != 7 {
			t.Errorf("the late event is %d times in the topic, which has %d records, want 1 and 7", got[late.raw()],
				len(x.records))
		}
	})
}

// TestUnboundedFuture: an event of the future is published when its time comes, however many
// others were listed before it by then.
func TestUnboundedFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := minutes(40)
		l.arrival = true
		ahead := entry{id: "ahead", seq: 100, at: time.Now().Add(20 * time.Minute), visible: time.Now()}
		l.all = append(l.all, ahead)
		l.add(20, time.Now(), 10*time.Second)
		cfg := settings(time.Minute)
		cfg.NoEnd, cfg.NoStart = true, true
		var warned []string
		cfg.Warn = func(text, _ string) { warned = append(warned, text) }
		x := begin(t, time.Now().Add(-5*time.Minute), l, cfg)
		for range 30 {
			if x.drain(); time.Now().Before(ahead.at) && counts(x.records)[ahead.raw()] > 0 {
				t.Fatal("the event is published before its time")
			}
			bridge.Sleep(t.Context(), time.Minute)
		}
		if got := counts(x.records)[ahead.raw()]; got != 1 ||
			!slices.ContainsFunc(warned, func(text string) bool { return strings.Contains(text, "future") }) {
			t.Errorf("the event is %d times in the topic, want 1; the warnings are %q", got, warned)
		}
	})
}

// withDefect makes one item of a list a dead letter. Its time is known.
type withDefect struct {
	*list
	id     string
	defect bridge.Defect
}

func (s withDefect) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := s.list.Fetch(ctx, at)
	for i := 0; err == nil && i < len(p.Events); i++ {
		if e := &p.Events[i]; string(e.ID) == s.id {
			e.Defect = s.defect
		}
	}
	return p, err
}

// TestDeadLetterWithoutStart: an item that cannot be published, but whose time is known, is a
// dead letter also in a list without a start.
func TestDeadLetterWithoutStart(t *testing.T) {
	for _, defect := range []bridge.Defect{bridge.DefectNone, bridge.DefectPrivate, bridge.DefectBadText} {
		t.Run(string(defect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 5}
				l.add(20, began.Add(-time.Minute), -time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(time.Minute)
				cfg.NoStart, cfg.NoEnd = true, true
				x := newTopic(t, began.Add(-time.Hour), cfg).begin(windows.New(withDefect{l, "7", defect}, cfg))
				x.drain()
				x.want(20)
			})
		})
	}
}

// TestDeletedFuture: a deleted event of the future does not make a listing without a start read
// the whole list.
func TestDeletedFuture(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprint(deleted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 5}
				l.add(1000, began.Add(-time.Second), -time.Minute)
				l.put("future", began.Add(24*time.Hour))
				l.all[1000].visible = began
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(time.Minute)
				cfg.NoStart, cfg.NoEnd = true, true
				x := begin(t, began.Add(-time.Hour), l, cfg)
				x.drain()
				bridge.Sleep(t.Context(), 10*time.Second)
				x.poll(2, 10*time.Second)
				if deleted {
					l.all[1000].gone = time.Now()
				}
				l.put("new", time.Now())
				bridge.Sleep(t.Context(), 10*time.Second)
				asked := l.requests
				x.poll(1, 0)
				if n := l.requests - asked; n > 20 {
					t.Errorf("%d requests of one listing", n)
				}
			})
		})
	}
}

// TestFutureItemDeleted: an item of the future that is deleted before its time is no sign that later listings are
// cut off.
func TestFutureItemDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 20}
		l.add(3, began.Add(-time.Minute), time.Second)
		l.all = append(l.all, entry{id: "future", seq: 3, at: began.Add(time.Hour), visible: began,
			gone: began.Add(time.Minute)})
		cfg := settings(time.Minute)
		cfg.PageSize, cfg.NoEnd = 20, true
		x := begin(t, began.Add(-time.Hour), l, cfg)
		x.poll(20, 30*time.Second)
		l.add(10, time.Now().Add(-10*time.Second), time.Second)
		x.drain()
		x.want(13)
	})
}

// TestAllChanged: items that have all changed since the listing before are no sign that the API cuts the list off.
func TestAllChanged(t *testing.T) {
	for name, form := range map[string]struct {
		noStart bool
		late    string
		polls   int // before the items change, one a minute
	}{
		"start":         {polls: 1},
		"none":          {noStart: true, polls: 1},
		"range of Late": {late: "1h/30m", polls: 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &list{page: 20}
				cfg := settings(10 * time.Minute)
				cfg.PageSize, cfg.NoEnd, cfg.NoStart, cfg.OnChanged, cfg.Late = 20, true, form.noStart, "publish", form.late
				x := begin(t, time.Now().Add(-time.Hour), l, cfg)
				x.drain() // with Late, this listing is of that range
				bridge.Sleep(t.Context(), time.Minute)
				l.add(10, time.Now().Add(-5*time.Minute), time.Second)
				x.drain()
				x.poll(form.polls, time.Minute)
				l.shared = true // which gives them other bytes
				x.poll(30, time.Minute)
				x.want(20)
			})
		})
	}
}
