package windows_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// TestIgnoredNumberOfBusyList: an API that ignores the number of a page is noticed also in a list
// that gets an item between two requests.
func TestIgnoredNumberOfBusyList(t *testing.T) {
	for name, form := range map[string]struct{ noEnd, noStart bool }{
		"both bounds": {}, "start": {noEnd: true}, "none": {true, true},
	} {
		for _, busy := range []int{0, 5} { // requests
			t.Run(fmt.Sprint(name, ", ", busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					l := &list{page: 10, numbers: true, ignored: true}
					l.add(95, began.Add(-time.Second), -time.Second)
					bridge.Sleep(t.Context(), time.Minute)
					n := 0
					l.slow = func() {
						if n++; n <= busy {
							at := began.Add(time.Duration(n) * time.Millisecond) // shown late
							if form.noEnd {
								at = time.Now()
							}
							l.put(fmt.Sprint("new", n), at)
						}
					}
					cfg := settings(time.Minute)
					cfg.PageSize, cfg.Numbered, cfg.First, cfg.NoEnd, cfg.NoStart = 10, true, "1", form.noEnd, form.noStart
					x := begin(t, began.Add(-2*time.Hour), l, cfg)
					for range 50 {
						if _, err := x.step(); err != nil {
							wantFault(t, err, bridge.Permanent, "EXPORT_CURSOR_PARAM")
							return
						}
						bridge.Sleep(t.Context(), 10*time.Second)
					}
					x.want(95 + busy)
				})
			})
		}
	}
}

// TestWrongFirstOfBusyList: a wrong number of the first page is noticed also in a list that gets
// an item between two requests.
func TestWrongFirstOfBusyList(t *testing.T) {
	for _, noEnd := range []bool{false, true} {
		t.Run(fmt.Sprint("noEnd ", noEnd), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 10, numbers: true, zero: true} // its first page has the number 0
				l.add(95, began.Add(-time.Second), -time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				n := 0
				l.slow = func() {
					if n++; n <= 5 {
						at := began.Add(time.Duration(n) * time.Millisecond) // shown late
						if noEnd {
							at = time.Now()
						}
						l.put(fmt.Sprint("new", n), at)
					}
				}
				cfg := settings(time.Minute)
				cfg.PageSize, cfg.Numbered, cfg.First, cfg.NoEnd = 10, true, "1", noEnd
				x := begin(t, began.Add(-2*time.Hour), l, cfg)
				for range 50 {
					if _, err := x.step(); err != nil {
						wantFault(t, err, bridge.Permanent, "EXPORT_CURSOR_FIRST")
						return
					}
					bridge.Sleep(t.Context(), 10*time.Second)
				}
				x.want(100)
			})
		})
	}
}

// TestMovedTooMuch: an item without an id that moves to the next numbered page, in a listing that
// is too large for memory, is published once.
func TestMovedTooMuch(t *testing.T) {
	for name, form := range map[string]struct {
		noEnd bool
		when  int
	}{"start only": {true, 4}, "both bounds": {false, 58}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 5, numbers: true, noIDs: true}
				l.add(40, began.Add(-time.Minute+900*time.Millisecond), -time.Millisecond) // within a second
				bridge.Sleep(t.Context(), time.Minute)
				pages := 0
				l.slow = func() {
					if pages++; pages == form.when { // between two pages
						l.add(1, began.Add(-time.Minute+901*time.Millisecond), 0)
					}
				}
				cfg := settings(time.Minute)
				cfg.Numbered, cfg.NoEnd, cfg.MaxBytes = true, form.noEnd, 20*900
				x := begin(t, began.Add(-2*time.Minute), l, cfg)
				x.drain()
				x.want(41)
			})
		})
	}
}

// TestVolatileMoved: an item whose bytes change with each request is published once, although it
// moves to the next numbered page while the list is read.
func TestVolatileMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, numbers: true, volatile: true}
		l.add(20, began.Add(-time.Minute), -time.Second)
		bridge.Sleep(t.Context(), time.Minute)
		pages := 0
		l.slow = func() {
			if pages++; pages == 5 {
				l.add(1, began.Add(-time.Minute+time.Millisecond), 0)
			}
		}
		cfg := settings(10 * time.Minute)
		cfg.Numbered = true
		x := begin(t, began.Add(-2*time.Minute), l, cfg)
		x.drain()
		ids := make(map[string]int)
		for _, r := range x.records {
			var e struct{ ID string }
			_ = json.Unmarshal([]byte(r), &e)
			if ids[e.ID]++; ids[e.ID] > 1 {
				t.Errorf("item %s is published again: %s", e.ID, r)
			}
		}
	})
}

// TestRejectedNumber: a rejected number is the usual end of some numbered lists: it is no reason
// for a warning, and is not asked for again.
func TestRejectedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 10, numbers: true, beyond: "reject"}
		l.add(25, began.Add(-time.Second), -time.Second)
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(time.Minute)
		cfg.PageSize, cfg.Numbered, cfg.First = 10, true, "1"
		failed, warned := 0, 0
		cfg.Observe = func(o bridge.Observation) {
			if o.Code != "200" {
				failed++
			}
		}
		cfg.Warn = func(string, string) { warned++ }
		x := begin(t, began.Add(-2*time.Minute), l, cfg)
		x.drain()
		x.want(25)
		if failed > 2 || warned > 0 {
			t.Errorf("%d rejected requests in two listings, %d warnings", failed, warned)
		}
	})
}

// TestLeftOut: an item that moves to a page that was read already, because an earlier item is
// deleted, is published, even if all other items of its window are within the look-back of the next.
func TestLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, numbers: true}
		l.add(10, began.Add(-10*time.Minute), time.Second) // full pages, so that this listing is proven
		l.put("old", began.Add(time.Minute))
		l.add(5, began.Add(9*time.Minute), time.Second)
		cfg := settings(time.Minute)
		cfg.Numbered = true
		x := begin(t, began.Add(-time.Hour), l, cfg)
		x.drain()
		bridge.Sleep(t.Context(), 9*time.Minute+20*time.Second)
		pages := 0
		l.slow = func() {
			if pages++; pages == 2 {
				l.all[len(l.all)-1].gone = time.Now()
			}
		}
		x.drain()
		if n := counts(x.records)[l.all[10].raw()]; n != 1 {
			t.Errorf("the item was published %d times", n)
		}
	})
}

// TestOpaqueNumber: a cursor may be an offset, which moves while pages are read. An item without an id
// that is then on two pages is published once, and equal items as often as there are.
func TestOpaqueNumber(t *testing.T) {
	for _, same := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: 4, numbers: true, noIDs: true}
			for i := range 20 {
				l.put(fmt.Sprint(i), began.Add(time.Duration(i)*time.Second-10*time.Minute))
				if same {
					l.all[i].id, l.all[i].at = "same", l.all[0].at
				}
			}
			l.put("late", began.Add(-9*time.Minute))
			l.all[20].visible = began.Add(20 * time.Second) // while pages are read
			l.slow = func() { bridge.Sleep(t.Context(), 3*time.Second) }
			x := begin(t, began.Add(-time.Hour), l, settings(20*time.Minute))
			for range 5 {
				x.drain()
				bridge.Sleep(t.Context(), 70*time.Second)
			}
			if of := counts(x.records); len(x.records) != 21 || !same && len(of) != 21 {
				t.Errorf("same %t: published %v, want 21", same, of)
			}
		})
	}
}

// TestEqualOnPages: published items are listed once at each poll, also if equal ones without an id are on two pages.
func TestEqualOnPages(t *testing.T) {
	requests := make(map[bool]int)
	for _, same := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: 4, noIDs: true}
			l.add(20, began.Add(-10*time.Minute), time.Second)
			for i := range l.all {
				if same {
					l.all[i].id, l.all[i].at = "same", l.all[0].at
				}
			}
			x := begin(t, began.Add(-time.Hour), l, settings(20*time.Minute))
			x.drain()
			l.requests = 0
			bridge.Sleep(t.Context(), 70*time.Second)
			x.drain()
			if requests[same] = l.requests; len(x.records) != 20 {
				t.Errorf("same %t: %d items are published, want 20", same, len(x.records))
			}
		})
	}
	if requests[true] != requests[false] {
		t.Errorf("equal items take %d requests, others %d", requests[true], requests[false])
	}
}
