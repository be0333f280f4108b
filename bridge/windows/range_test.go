package windows_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/windows"
)

// TestRange reads adjacent ranges of random lists in all forms, with crashes at any page and
// errors in the middle of a listing, and compares what comes with the whole list: each item of
// the ranges once, and no other.
func TestRange(t *testing.T) {
	for seed := range must.Number[uint64](t, "EXPLORE_SCHEDULES", 4000) / 10 {
		if wrong := playRange(t, seed); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

// playRange plays one schedule and returns what is wrong, or "".
func playRange(t *testing.T, seed uint64) (wrong string) {
	synctest.Test(t, func(t *testing.T) { wrong = readRanges(t, seed) })
	return wrong
}

func readRanges(t *testing.T, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 3))
	now := time.Now()
	span := time.Duration(300+rng.IntN(7200)) * time.Second
	begins, ends := now.Add(-span), now
	if rng.IntN(2) == 0 {
		ends = ends.Add(-span / 3)
	}
	l := &list{
		page: 2 + rng.IntN(5), startOpen: rng.IntN(2) == 0, endClosed: rng.IntN(2) == 0,
		noIDs: rng.IntN(3) == 0, noHeader: rng.IntN(3) == 0, oldest: rng.IntN(3) == 0, shared: rng.IntN(6) == 0,
		ahead: []time.Duration{0, -5 * time.Second, -20 * time.Second, time.Minute}[rng.IntN(4)],
	}
	cfg := settings(time.Minute)
	cfg.PageSize, cfg.MaxBytes = 10, int64(2000+rng.IntN(40000))
	if rng.IntN(4) == 0 {
		cfg.MaxWindow = time.Duration(1+rng.IntN(20)) * time.Minute
		l.longest = cfg.MaxWindow
	}
	placed := rng.IntN(3) == 0 // the API selects by the time of arrival
	for i := range rng.IntN(150) {
		e := entry{id: fmt.Sprint("e", i), seq: i, at: begins.Add(within(rng, span))}
		switch rng.IntN(4) {
		case 0: // several at one instant
			e.at = e.at.Truncate(20 * time.Second)
		case 1: // at a border
			e.at = begins.Add(time.Duration(rng.IntN(5)) * ends.Sub(begins) / 4)
		}
		if e.at = e.at.Truncate(time.Millisecond); placed {
			e.placed = e.at.Add(within(rng, 4*time.Second) - within(rng, 3*time.Second))
		} else if l.noIDs && rng.IntN(4) == 0 {
			e.id = "same"
		}
		if !l.noHeader { // the list shows an item at its time, by the clock of the API
			e.visible = e.at.Add(-l.ahead)
		}
		l.all = append(l.all, e)
	}
	switch form := rng.IntN(6); form {
	case 0, 1: // items come and go while pages are read
		l.numbers, l.offsets = form == 0, form == 1
		cfg.Numbered, cfg.Overlaps = true, l.offsets
		if l.beyond = []string{"", "repeat", "reject"}[rng.IntN(3)]; l.noIDs && l.beyond == "repeat" {
			l.beyond = "" // equal items may fill pages
		} else if l.beyond == "reject" { // in a second no page is full
			l.page, cfg.PageSize = 30, 40
		}
		l.slow = func() { bridge.Sleep(t.Context(), within(rng, 300*time.Millisecond)) }
		for i := range l.all {
			if e := &l.all[i]; rng.IntN(8) == 0 {
				e.gone = now.Add(within(rng, 10*time.Second))
			}
		}
	case 2:
		l.mostPages, l.page = 2+rng.IntN(2), 9 // behind which a cursor is rejected
	case 3:
		l.noCursor, l.page = true, 40
		cfg.PageSize = []int{40, 100}[rng.IntN(2)]
	}
	wrong := 0
	l.fail = func() error {
		if rng.IntN(40) == 0 {
			wrong++
			return &bridge.Fault{Class: bridge.Transient, Code: "500", Err: fmt.Errorf("no %d", wrong)}
		}
		return nil
	}
	x := &rangeReader{t: t, rng: rng, list: l, cfg: cfg, got: make(map[string]int)}
	x.crash = []int{2, 4, 1000}[rng.IntN(3)]
	got, parts := x.got, 1+rng.IntN(3)
	border := func(i int) int64 {
		return begins.UnixMilli() + ends.Sub(begins).Milliseconds()*int64(i)/int64(parts)
	}
	for i := range parts {
		x.read(bridge.Position{Start: border(i), End: border(i + 1), Window: true})
	}
	want, gone := make(map[string]int), make(map[string]int)
	for _, e := range l.all {
		raw := l.raw(e)
		if e.at.UnixMilli() >= border(0) && e.at.UnixMilli() < border(parts) {
			want[raw]++
		}
		outside := e.place().Before(begins.Add(4*time.Second)) || e.place().After(ends.Add(-4*time.Second))
		if placed && outside || !e.gone.IsZero() {
			gone[raw]++ // it may be of the neighbours
			want[raw] = max(want[raw], 1)
		}
	}
	for raw, n := range want {
		if got[raw] > n || got[raw] < n-gone[raw] {
			x.fail("%s came %d times, want %d, or %d less (page %d, numbered %t)", raw, got[raw], n, gone[raw], l.page,
				cfg.Numbered)
		}
	}
	for raw := range got {
		if want[raw] == 0 {
			x.fail("%s is not of the ranges", raw)
		}
	}
	return x.wrong
}

// rangeReader reads ranges of a list and counts in got what is committed. Before one of
// crash pages it crashes.
type rangeReader struct {
	t     *testing.T
	rng   *rand.Rand
	list  *list
	cfg   windows.Config
	crash int
	got   map[string]int
	wrong string
}

func (x *rangeReader) fail(format string, values ...any) {
	x.wrong = cmp.Or(x.wrong, fmt.Sprintf(format, values...))
}

func (x *rangeReader) read(at bridge.Position) {
	t, rng, l := x.t, x.rng, x.list
	r := windows.NewRange(l, x.cfg)
	var batch []string
	next := at
	last := int64(0)
	for range 20_000 {
		p, err := r.Fetch(t.Context(), next)
		if err != nil && bridge.FaultOf(err).Class == bridge.Permanent {
			x.fail("%v", err)
			return
		}
		if err != nil || rng.IntN(x.crash) == 0 {
			if next, batch, last = at, nil, 0; rng.IntN(2) == 0 {
				r = windows.NewRange(l, x.cfg)
			}
			continue
		}
		for i := range p.Events {
			e := &p.Events[i]
			if batch = append(batch, string(e.Raw)); len(l.all) > 0 && l.all[0].placed.IsZero() && e.Time < last {
				x.fail("event %s of %d comes behind %d", e.ID, e.Time, last)
			}
			last = e.Time
		}
		if p.Tail() && p.Time().UnixMilli() < at.End { // the end of the range is to come
			bridge.Sleep(t.Context(), time.Second)
			continue
		}
		if next.Cursor = p.Next; p.Tail() || rng.IntN(2) == 0 {
			for _, raw := range batch {
				x.got[raw]++
			}
			batch, at.Cursor = nil, p.Next
		}
		if p.Tail() {
			return
		}
	}
	x.fail("the range does not end")
}

// TestRangeMemory: a range that does not fit into memory takes not many more requests than
// one that does: no part is listed for each of its pages.
func TestRangeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := func(most int64) int {
			l := &list{page: 20}
			for i := range 2000 {
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: time.Now().Add(time.Duration(i-2000) * time.Second / 4)})
			}
			cfg := settings(time.Minute)
			cfg.PageSize, cfg.MaxBytes = 20, most
			x := &rangeReader{t: t, rng: rand.New(rand.NewPCG(1, 4)), list: l, cfg: cfg, crash: 1000, got: make(map[string]int)}
			x.read(bridge.Position{Start: time.Now().Add(-10 * time.Minute).UnixMilli(), End: time.Now().UnixMilli(),
				Window: true})
			if len(x.got) != 2000 || x.wrong != "" {
				t.Errorf("%d items of 2000, %s", len(x.got), x.wrong)
			}
			return l.requests
		}
		if much, little := requests(1<<30), requests(100_000); little > 3*much {
			t.Errorf("%d requests, %d without a limit", little, much)
		} else {
			t.Logf("%d requests, %d without a limit", little, much)
		}
	})
}

// TestRangeEndsByOneClock: a range is read to its end also if the API's clock has passed the end
// and that of this machine has not.
func TestRangeEndsByOneClock(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &list{page: 20, ahead: time.Minute}
			ends := time.Now().Add(l.ahead)
			for i := range 120 {
				at := ends.Add(time.Duration(i-120) * time.Second)
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at.Add(-l.ahead)})
			}
			cfg := settings(time.Minute)
			cfg.PageSize = 20
			x := &rangeReader{t: t, rng: rand.New(rand.NewPCG(1, 4)), list: l, cfg: cfg, crash: 1000, got: make(map[string]int)}
			from, want := ends.Add(-2*time.Minute), 120
			if begun { // the whole range is ahead of this machine's clock
				from, want = ends.Add(-30*time.Second), 30
			}
			x.read(bridge.Position{Start: from.UnixMilli(), End: ends.UnixMilli(), Window: true})
			if len(x.got) != want || x.wrong != "" {
				t.Errorf("%d items of %d, %s", len(x.got), want, x.wrong)
			}
		})
	}
}

// TestRangeWrongDate: one page with an old Date, as of a cache, does not hold a range up.
func TestRangeWrongDate(t *testing.T) {
	for wrong := 1; wrong < 8; wrong++ {
		synctest.Test(t, func(t *testing.T) {
			l, now := &list{page: 20}, time.Now()
			l.add(30, now.Add(-3*time.Hour), 6*time.Minute)
			l.fail = func() error {
				if l.ahead = 0; l.requests == wrong {
					l.ahead = -24 * time.Hour
				}
				return nil
			}
			cfg := settings(time.Minute)
			cfg.PageSize = 20
			x := &rangeReader{t: t, rng: rand.New(rand.NewPCG(1, 4)), list: l, cfg: cfg, crash: 1000, got: make(map[string]int)}
			x.read(bridge.Position{Start: now.Add(-3 * time.Hour).UnixMilli(), End: now.UnixMilli(), Window: true})
			if took := time.Since(now); len(x.got) != 30 || x.wrong != "" || took > time.Minute {
				t.Errorf("request %d: %d items of 30 in %s, %s", wrong, len(x.got), took, x.wrong)
			}
		})
	}
}
