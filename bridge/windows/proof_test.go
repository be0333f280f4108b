package windows_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/windows"
)

// TestVaryingCap: an API that cuts off its listings at a number of items that varies is detected.
func TestVaryingCap(t *testing.T) {
	for _, first := range []int{40, 41, 60} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 40, noCursor: true}
				l.add(300, began.Add(-time.Second), -4*time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				l.slow = func() {
					if l.page = 40; l.requests == 3 { // the first listing, behind two requests for the bounds
						l.page = first
					}
				}
				cfg := settings(time.Minute)
				cfg.PageSize = 100
				x := begin(t, began.Add(-50*time.Minute), l, cfg)
				x.drain()
				x.want(300)
			})
		})
	}
}

// TestCapBesideOutlier: one item whose time is outside the range does not hide that the API cuts
// off a listing.
func TestCapBesideOutlier(t *testing.T) {
	for _, oldest := range []bool{false, true} {
		for name, at := range map[string]time.Duration{"none": 0, "older": -2 * time.Hour, "future": 24 * time.Hour} {
			t.Run(fmt.Sprint(name, ", oldest first ", oldest), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					l := &list{page: 50, noCursor: true, oldest: oldest}
					l.add(120, began, -20*time.Second)
					if at != 0 { // selected by another time than its own
						l.put("x", began.Add(at))
						x := &l.all[120]
						if x.placed = began.Add(-time.Second); oldest {
							x.placed = began.Add(-40*time.Minute + time.Second)
						}
						x.visible = x.placed
					}
					bridge.Sleep(t.Context(), time.Minute)
					cfg := settings(time.Minute)
					cfg.PageSize = 100
					x := begin(t, began.Add(-50*time.Minute), l, cfg)
					x.drain()
					x.want(len(l.all))
				})
			})
		}
	}
}

// TestRangeCutOff: jobs, verify and the attestation notice what a stream notices.
func TestRangeCutOff(t *testing.T) {
	for name, change := range map[string]func(l *list, began time.Time){
		"none": func(*list, time.Time) {},
		"an item of another time": func(l *list, began time.Time) {
			l.put("x", began.Add(-2*time.Hour))
			e := &l.all[len(l.all)-1]
			e.placed, e.visible = began.Add(-time.Second), began.Add(-time.Second)
		},
		"a varying cap": func(l *list, _ time.Time) {
			l.slow = func() {
				if l.page = 40; l.requests == 4 { // the first listing of the range
					l.page = 50
				}
			}
		},
		"numbers are ignored": func(l *list, began time.Time) {
			l.noCursor, l.numbers, l.ignored, l.page = false, true, true, 10
			l.slow = func() {
				if l.requests > 3 && l.requests <= 5 {
					l.put(fmt.Sprint("new", l.requests), began.Add(time.Duration(l.requests)*time.Millisecond))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 50, noCursor: true}
				l.add(300, began.Add(-time.Second), -4*time.Second)
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(time.Minute)
				cfg.PageSize = 100
				change(l, began)
				if cfg.Numbered = l.numbers; cfg.Numbered {
					cfg.PageSize, cfg.First = 10, "1"
				}
				r, got := windows.NewRange(l, cfg), make(map[string]int)
				at := bridge.Position{Start: began.Add(-50 * time.Minute).UnixMilli(),
					End: began.Add(10 * time.Second).UnixMilli(), Window: true}
				for more := true; more; more = at.Cursor != "" {
					p, err := r.Fetch(t.Context(), at)
					if err != nil {
						return // noticed
					}
					for _, e := range p.Events {
						got[string(e.ID)]++
					}
					at.Cursor = p.Next
				}
				if len(got) < len(l.all) {
					t.Errorf("%d of %d events, and no error", len(got), len(l.all))
				}
			})
		})
	}
}

// TestProofMeetsLag: a list whose servers do not show a new event at the same time, or that loses
// one event while it gets another, does not look cut off for ever.
func TestProofMeetsLag(t *testing.T) {
	for _, kind := range []string{"lag", "deletion"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 500}
				l.add(2, began.Add(-time.Minute), -time.Minute)
				if kind == "deletion" {
					l.put("gone", began.Add(-90*time.Second))
				}
				l.slow = func() {
					switch {
					case kind == "lag" && l.requests == 4: // behind two for the bounds, and the listing
						l.put("new", began.Add(-time.Minute))
					case kind == "lag" && l.requests == 7: // a server that does not know the new event yet
						l.all[2].visible = time.Now().Add(time.Second)
					case kind == "deletion" && l.requests == 4:
						l.put("new", began.Add(-time.Minute))
						l.all[2].gone = time.Now()
					}
				}
				cfg := settings(time.Minute)
				cfg.PageSize = 1000
				x := begin(t, began.Add(-time.Hour), l, cfg)
				for i := range 10 {
					must.Get(x.step())(t)
					bridge.Sleep(t.Context(), 5*time.Second)
					for j := range 4 { // within a second
						l.put(fmt.Sprint(i, "-", j), time.Now())
					}
				}
			})
		})
	}
}
