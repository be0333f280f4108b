package windows_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/windows"
)

// TestFollow follows random lists in all forms, with crashes at any page, errors in the
// middle of a listing, and events that are shown late, and compares the topic with the
// whole list: each event once.
func TestFollow(t *testing.T) {
	for seed := range must.Number[uint64](t, "EXPLORE_SCHEDULES", 4000) / 4 {
		if wrong := follow(t, seed); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

// within is a random duration below d.
func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// follow plays one schedule and returns what is wrong with the topic, or "".
func follow(t *testing.T, seed uint64) (wrong string) {
	synctest.Test(t, func(t *testing.T) { wrong = schedule(t, seed) })
	return wrong
}

func schedule(t *testing.T, seed uint64) (wrong string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	began := time.Now().Truncate(time.Second)
	start := began.Add(-time.Duration(rng.IntN(7200)) * time.Second)
	lookBack := time.Duration(rng.IntN(4)*rng.IntN(20)) * time.Second
	l := &list{
		page: 2 + rng.IntN(5), startOpen: rng.IntN(2) == 0, endClosed: rng.IntN(2) == 0,
		noIDs: rng.IntN(3) == 0, noHeader: rng.IntN(3) == 0,
	}
	cfg := settings(lookBack)
	form := rng.IntN(3) // both bounds, a start, neither
	cfg.NoEnd, cfg.NoStart = form > 0, form == 2
	l.arrival = form == 2 && rng.IntN(2) == 0
	late := lookBack
	if rng.IntN(4) == 0 || l.arrival && rng.IntN(2) == 0 {
		late += time.Duration(1+rng.IntN(10)) * time.Minute
		cfg.Late = late.String() + "/1m"
	}
	l.shared = !l.noIDs && !l.arrival && rng.IntN(4) == 0
	future := form > 0 && rng.IntN(2) == 0
	if l.arrival && future { // nothing is more than ten pages deep
		l.page, cfg.EndExplicit = 12, true
	}
	if l.shared { // no page has the ids of the page before
		l.page, cfg.EndExplicit = 12, true
	}
	life := time.Duration(1+rng.IntN(300)) * time.Second
	for i := range rng.IntN(120) {
		e := entry{id: fmt.Sprint("e", i), seq: i, at: start.Add(within(rng, began.Add(life).Sub(start)))}
		if rng.IntN(2) == 0 { // several at one instant
			e.at = e.at.Truncate(20 * time.Second).Add(time.Second)
		}
		if e.at.Before(start) {
			e.at = start
		}
		if e.at = e.at.Truncate(time.Millisecond); rng.IntN(20) == 0 {
			e.at = start.Add(-within(rng, 3*time.Second))
		}
		e.visible = e.at
		if e.at.After(began.Add(-late)) && rng.IntN(3) == 0 {
			e.visible = e.at.Add(within(rng, late+1900*time.Millisecond))
		}
		if future && rng.IntN(4) == 0 {
			e.visible = e.at.Add(-within(rng, time.Minute))
		}
		if l.shared && i > 0 && rng.IntN(3) == 0 {
			twin, by := l.all[rng.IntN(i)], e.visible.Sub(e.at)
			if e.id, e.at, e.visible = twin.id, twin.at, twin.at; e.at.After(began.Add(-late)) {
				e.visible = e.at.Add(by)
			}
		}
		if l.noIDs && !l.arrival && rng.IntN(4) == 0 { // by arrival not all copies are listed
			e.id = "same"
		}
		l.all = append(l.all, e)
	}
	if kind := rng.IntN(6); form == 0 && kind < 2 && !l.shared { // items come and go while pages are read
		l.numbers, l.offsets = kind == 0, kind == 1
		cfg.Numbered, cfg.Overlaps = true, l.offsets
		l.slow = func() { bridge.Sleep(t.Context(), within(rng, 300*time.Millisecond)) }
		for i := range l.all {
			if e := &l.all[i]; rng.IntN(5) == 0 {
				e.gone = began.Add(within(rng, 10*time.Second)) // while the first windows are listed
				if e.gone.Before(e.visible) {
					e.gone = e.visible.Add(within(rng, time.Minute))
				}
			}
		}
	}
	for i := 0; l.arrival && !future && i < 2*3*l.page &&
		len(l.all) > 0; { // twice, old items are imported behind a new one
		imported := l.all[rng.IntN(len(l.all))].visible.Add(time.Millisecond)
		for range 3 * l.page { // two whole pages at least
			at := start.Add(-time.Hour - within(rng, time.Hour)).Truncate(time.Millisecond)
			l.all = append(l.all, entry{id: fmt.Sprint("old", i), seq: 1000 + i, at: at, visible: imported})
			i++
		}
	}
	cfg.PageSize = 10
	cfg.MaxBytes = int64(2000 + rng.IntN(40000))
	s := newTopic(t, start, cfg)
	failures := 0
	l.fail = func() error {
		if rng.IntN(40) == 0 {
			failures++
			return &bridge.Fault{Class: bridge.Transient, Code: "500", Err: fmt.Errorf("no %d", failures)}
		}
		return nil
	}
	x := s.begin(windows.New(l, cfg))
	for end := began.Add(life + late + 130*time.Second); time.Now().Before(end); {
		more, err := x.step()
		switch {
		case err != nil && bridge.FaultOf(err).Class == bridge.Permanent:
			return err.Error()
		case err != nil, rng.IntN(12) == 0: // a crash, or a rollback
			lister := x.lister
			if rng.IntN(2) == 0 {
				lister = windows.New(l, cfg)
			}
			x = s.begin(lister)
		case rng.IntN(3) == 0 || !more:
			x.commit()
		}
		if !more {
			bridge.Sleep(t.Context(), time.Duration(1+rng.IntN(15))*time.Second)
		}
	}
	want, gone := make(map[string]int), make(map[string]int)
	for _, e := range l.all {
		if !e.at.Before(start) {
			want[l.raw(e)]++
			if !e.gone.IsZero() {
				gone[l.raw(e)]++
			}
		}
	}
	got := counts(s.records)
	for raw, n := range want {
		if got[raw] > n || got[raw] < n-gone[raw] {
			return fmt.Sprintf("%s is %d times in the topic, want %d (form %d, look-back %s, late %q)", raw, got[raw], n, form,
				lookBack, cfg.Late)
		}
	}
	if len(got) > len(want) || len(got) < len(want)-len(gone) {
		return fmt.Sprintf("%d different records, want %d (form %d)", len(got), len(want), form)
	}
	return ""
}

// TestLate: events that come within the range of EXPORT_LATE are published once, and say how
// late they came. At rest the range costs nothing beside the listing that it replaces.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5}
		for i := range 10 {
			l.put(fmt.Sprint(i), began.Add(time.Duration(i)*time.Minute))
			l.all[i].visible = l.all[i].at.Add(time.Duration(i%2) * 2 * time.Hour)
		}
		cfg := settings(time.Minute)
		cfg.Late = "3h/15m"
		x := begin(t, began, l, cfg)
		late := make(map[string]time.Duration)
		polls, first := 0, 0
		for ; time.Since(began) < 4*time.Hour; polls++ {
			at := x.at.Position()
			at.Held = x.index
			p := must.Get(x.lister.Fetch(t.Context(), at))(t)
			for _, e := range p.Events {
				if late[string(e.ID)] != 0 {
					t.Errorf("event %s comes twice", e.ID)
				}
				late[string(e.ID)] = max(e.Late, 1)
			}
			if x.at.Cursor = p.Next; polls == 0 {
				first = l.requests
			}
			bridge.Sleep(t.Context(), time.Minute)
		}
		for i := range 10 {
			from, to := time.Duration(0), time.Duration(1)
			if i%2 == 1 {
				from, to = 2*time.Hour, 2*time.Hour+16*time.Minute
			}
			if by := late[fmt.Sprint(i)]; by < from || by > to {
				t.Errorf("event %d is late by %s, want %s to %s", i, by, from, to)
			}
		}
		if n := l.requests - first; n > polls+20 {
			t.Errorf("%d requests of %d polls", n, polls)
		}
	})
}

// EXPORT_LATE takes days, as other durations do. It reaches two intervals further.
func TestLateInDays(t *testing.T) {
	t.Parallel()
	for late, want := range map[string]time.Duration{"7d/1h": 170 * time.Hour, "1d12h/PT2H": 40 * time.Hour,
		"8d/1h": 0, "-1d/1h": 0, "1d/-1h": 0, "7d": 0} {
		cfg := windows.DefaultConfig()
		cfg.Late, cfg.Settle = late, 0
		if err := cfg.Validate(); (err == nil) != (want > 0) || err == nil && cfg.Reach() != want {
			t.Errorf("%s reaches %v, %v; want %v", late, cfg.Reach(), err, want)
		}
	}
}

// TestListsAtStart: an event that appears behind the watermark just after it was listed is
// there at the end of a session that begins at once, as "run --once" does.
func TestListsAtStart(t *testing.T) {
	for _, late := range []string{"", "3h/15m"} {
		for _, ahead := range []time.Duration{0, 30 * time.Second} { // of a clock that was set back since
			synctest.Test(t, func(t *testing.T) {
				began := time.Now().Truncate(time.Second)
				l := &list{page: 5}
				cfg := settings(time.Minute)
				cfg.Late = late
				x := begin(t, began.Add(-time.Hour), l, cfg)
				x.at.Cursor = bridge.Watermark{At: began.Add(ahead - cfg.Settle).UnixMilli()}.Cursor()
				x.commit()
				l.put("late", began.Add(-cfg.Settle-30*time.Second))
				x = x.begin(windows.New(l, cfg))
				x.drain()
				x.want(1)
				n := l.requests
				if x.drain(); l.requests != n {
					t.Errorf("%d requests for a list whose end is not settled", l.requests-n)
				}
			})
		}
	}
}

// TestPlaced: an API selects by the time of arrival and shows the time of clients. Each
// item is published, with any time.
func TestPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 500}
		cfg := settings(0)
		cfg.PageSize = 1000
		x := begin(t, began.Add(-2*time.Minute), l, cfg)
		for range 20 {
			now := time.Now()
			for age := range 100 { // of the client's clock, in all half seconds
				at := now.Add(-time.Duration(age) * 500 * time.Millisecond)
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: at, placed: now, visible: now})
			}
			bridge.Sleep(t.Context(), 5*time.Second)
			x.poll(1, 0)
			x.commit()
		}
		bridge.Sleep(t.Context(), time.Minute)
		x.poll(2, 0)
		x.want(len(l.all))
	})
}

// TestNumberedCopies: an item without an id that a page lists again, since another one came
// before it, is published once.
func TestNumberedCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 2, numbers: true, noIDs: true}
		l.add(3, began.Add(-10*time.Minute), -time.Minute)
		l.fail = func() error {
			if l.requests == 4 { // behind two for the bounds, and the first page
				l.put("new", began.Add(-9*time.Minute))
			}
			return nil
		}
		cfg := settings(2 * time.Hour)
		cfg.Numbered = true
		x := begin(t, began.Add(-30*time.Minute), l, cfg)
		x.drain()
		x.want(4)
	})
}

// TestNumberFirst: a first page that has another number than EXPORT_CURSOR_FIRST would make
// the listing leave out the page of that number.
func TestNumberFirst(t *testing.T) {
	for _, n := range []int{2, 5, 30} { // entries, of pages of 3
		synctest.Test(t, func(t *testing.T) {
			l := minutes(n)
			l.page, l.numbers, l.zero = 3, true, true
			bridge.Sleep(t.Context(), time.Minute)
			cfg := settings(2 * time.Hour)
			cfg.Numbered, cfg.First = true, "1"
			_, err := begin(t, time.Now().Add(-time.Hour), l, cfg).step()
			wantFault(t, err, bridge.Permanent, "EXPORT_CURSOR_FIRST")
			l.zero, l.mostPages = false, 1
			_, err = begin(t, time.Now().Add(-time.Hour), l, cfg).step()
			wantFault(t, err, bridge.Permanent, "EXPORT_CURSOR_FIRST")
			l.mostPages = 0
			x := begin(t, time.Now().Add(-time.Hour), l, cfg)
			x.drain()
			x.want(n)
			asked := l.requests
			bridge.Sleep(t.Context(), 10*time.Second)
			if x.drain(); l.requests-asked > (n+2)/3+1 {
				t.Errorf("%d requests of a listing at rest, want one for each page and one behind", l.requests-asked)
			}
		})
	}
}

// TestNumberIgnoredMore: a page that says that more items follow is not the last one, even
// if the API lists it again.
func TestNumberIgnoredMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 3, numbers: true, ignored: true}
		l.add(1, at, 0)
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(time.Minute)
		cfg.Numbered, cfg.EndExplicit = true, true
		_, err := begin(t, at.Add(-time.Minute), l, cfg).step()
		wantFault(t, err, bridge.Transient, "EXPORT_CURSOR_PARAM")
		wantFault(t, err, bridge.Transient, "EXPORT_MORE_FIELD") // it may say so on every page
	})
}

// TestOrder: a window is published oldest first, in every order of its list.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, want := time.Now(), make([]string, 50)
		l := &list{page: 3}
		for i := range 50 {
			before := i * 7 % 50
			l.put(fmt.Sprint(i), began.Add(-time.Duration(before)*time.Minute))
			want[49-before] = l.all[i].raw()
		}
		bridge.Sleep(t.Context(), time.Minute)
		x := begin(t, began.Add(-time.Hour), l, settings(time.Minute))
		if x.drain(); !slices.Equal(x.records, want) {
			t.Errorf("records %q, want %q", x.records, want)
		}
	})
}

// TestChanged: an item whose bytes change is published once, or with each change if that
// is set. Items of one id and several times are several items.
func TestChanged(t *testing.T) {
	for onChanged, want := range map[string]int{"ignore": 3, "publish": 12} {
		synctest.Test(t, func(t *testing.T) {
			l := &list{page: 5, volatile: true}
			for i := range 3 {
				l.put("same", time.Now().Add(time.Duration(i)*time.Second))
			}
			bridge.Sleep(t.Context(), 10*time.Second)
			cfg := settings(time.Minute)
			cfg.OnChanged, cfg.EndExplicit = onChanged, true
			x := begin(t, time.Now().Add(-time.Minute), l, cfg)
			for range 4 {
				x.drain()
				bridge.Sleep(t.Context(), 5*time.Second)
			}
			x.want(want)
		})
	}
}

// TestOnceAtLimit: a run that ends at the end of the list publishes all that the first listing of
// a session finds, although it is more than memory holds.
func TestOnceAtLimit(t *testing.T) {
	for _, noEnd := range []bool{false, true} {
		t.Run(fmt.Sprint("noEnd ", noEnd), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 50}
				l.add(10, began.Add(-time.Minute), -time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(5 * time.Minute)
				cfg.NoEnd, cfg.PageSize, cfg.MaxBytes = noEnd, 50, 20*900
				x := begin(t, began.Add(-10*time.Minute), l, cfg)
				x.drain()
				l.add(100, began.Add(-time.Minute-500*time.Millisecond), -time.Second) // shown late
				cfg.Settle = time.Minute                                               // raised
				x = x.topic.begin(windows.New(l, cfg))
				x.drain()
				x.want(110)
			})
		})
	}
}

// TestLateOfOldEvent: the delay of an event is right, however old the event is.
func TestLateOfOldEvent(t *testing.T) {
	for _, at := range []string{"1970-01-01T00:00:00Z", "1601-01-01T00:00:00Z"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				old, _ := time.Parse(time.RFC3339, at)
				l := &list{page: 5}
				l.put("a", began.Add(-time.Minute))
				l.all[0].placed, l.all[0].at = l.all[0].at, old
				bridge.Sleep(t.Context(), time.Minute)
				x := begin(t, began.Add(-2*time.Hour), l, settings(time.Minute))
				p := x.at.Position()
				p.Held = x.index
				page := must.Get(x.lister.Fetch(t.Context(), p))(t)
				late, counted := page.Events[0].Late, bridge.Late{}
				if counted.Add(late); late < 20*365*24*time.Hour {
					t.Errorf("late by %s, counted as %q", late, counted.Text())
				}
			})
		})
	}
}
