package windows_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestSharedID: items of one id and time, with other bytes, are several items.
func TestSharedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 5, shared: true}
		for i := range 20 {
			l.put(fmt.Sprint(i/2), at)
		}
		bridge.Sleep(t.Context(), 10*time.Second)
		x := begin(t, at.Add(-time.Minute), l, settings(time.Minute))
		x.poll(5, 5*time.Second)
		x.want(20)
	})
}

// TestSharedIDMoves: items of one id and time are distinguished in any order of the list, and
// if the API shows one of them later.
func TestSharedIDMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 50, shared: true}
		for i := range 20 {
			l.put(fmt.Sprint(i/2), at)
			l.all[i].visible = at.Add(time.Duration(i%2) * 30 * time.Second)
		}
		bridge.Sleep(t.Context(), 10*time.Second)
		cfg := settings(time.Minute)
		cfg.PageSize = 100
		x := begin(t, at.Add(-time.Minute), l, cfg)
		for i := range 30 {
			l.oldest = i%4 > 1
			x.poll(1, 2*time.Second)
		}
		x.want(20)
	})
}

// TestSharedIDLast: an item that shares the id and time of a published one is published, also if
// only one listing has both, in any order.
func TestSharedIDLast(t *testing.T) {
	for _, oldest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			at := time.Now()
			l := &list{page: 5, shared: true, oldest: oldest}
			l.put("same", at)
			l.put("same", at)
			l.all[1].visible = at.Add(65 * time.Second)
			bridge.Sleep(t.Context(), 10*time.Second)
			cfg := settings(time.Minute)
			cfg.EndExplicit = true // no second listing proves the first one
			x := begin(t, at.Add(-time.Minute), l, cfg)
			for range 4 {
				x.drain()
				bridge.Sleep(t.Context(), 70*time.Second)
			}
			x.want(2)
		})
	}
}

// TestVolatileMoves: an item that moves to the next page while pages are read, and has other bytes in
// each response, is published once. Items of one id on two pages are two items, also if one listing
// has both.
func TestVolatileMoves(t *testing.T) {
	for name, l := range map[string]*list{
		"volatile": {page: 4, numbers: true, volatile: true}, "shared": {page: 4, numbers: true, shared: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			for i := range 20 {
				l.put(fmt.Sprint(i), began.Add(time.Duration(i)*time.Second-10*time.Minute))
			}
			l.put("late", began.Add(-9*time.Minute))
			cfg := settings(20 * time.Minute)
			if l.volatile {
				l.all[20].visible = began.Add(20 * time.Second) // while pages are read
			} else {
				cfg.LookBack = time.Minute // only one window lists them
				for i := range l.all {
					l.all[i].id, l.all[i].at = fmt.Sprint(i%8), l.all[0].at
				}
			}
			l.slow = func() { bridge.Sleep(t.Context(), 3*time.Second) }
			cfg.EndExplicit = true // no second listing proves the first one
			x := begin(t, began.Add(-time.Hour), l, cfg)
			for range 5 {
				x.drain()
				bridge.Sleep(t.Context(), 70*time.Second)
			}
			if len(x.records) != 21 {
				t.Errorf("%s: %d items are published, want 21: %v", name, len(x.records), counts(x.records))
			}
		})
	}
}

// keyed is the index of a topic that ignores changes of items.
type keyed struct {
	keys  map[bridge.ItemKey]bool
	bytes map[string]bool
}

func (k *keyed) Match(e *bridge.Event) bool {
	if e.Shared {
		return k.bytes[string(e.Raw)]
	}
	return k.keys[e.ItemKey()]
}

// TestSharedIDRestart: an item that shares the id and time of others is published after a restart,
// if the topic has none with its bytes. Those that the topic has are not published again, and
// neither is one that has changed.
func TestSharedIDRestart(t *testing.T) {
	for _, tc := range []struct {
		topic, want string // numbers of items
	}{{"0", "12"}, {"1", "02"}, {"2", "01"}, {"02", "1"}, {"012", ""}, {"", "012"}, {"x", "two"}} {
		for _, oldest := range []bool{false, true} {
			for _, numbers := range []bool{false, true} {
				t.Run(fmt.Sprintf("topic %q, oldest first %t, numbers %t", tc.topic, oldest, numbers), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						got := restarted(t, &list{page: 5, shared: true, oldest: oldest, numbers: numbers}, tc.topic)
						if got != tc.want && (tc.want != "two" || len(got) != 2) { // the third one is the changed one
							t.Errorf("published %q, want %q", got, tc.want)
						}
					})
				})
			}
		}
	}
}

// restarted lists three items of one id and time once, with some of them in the topic, and returns
// the numbers of those that are published.
func restarted(t *testing.T, l *list, topic string) string {
	t.Helper()
	at := time.Now().Truncate(time.Second)
	for range 3 {
		l.put("same", at)
	}
	bridge.Sleep(t.Context(), 10*time.Minute) // only the first window lists them
	cfg := settings(time.Minute)
	cfg.Numbered = l.numbers
	x := begin(t, at.Add(-time.Minute), l, cfg)
	index := &keyed{make(map[bridge.ItemKey]bool), make(map[string]bool)}
	for _, n := range topic {
		e := bridge.Event{ID: []byte("same"), Time: at.UnixMilli()}
		index.keys[e.ItemKey()] = true
		index.bytes[fmt.Sprintf(`{"id":"same","seq":%c}`, n)] = true
	}
	var got []byte
	for more := true; more; {
		p := x.at.Position()
		p.Held = index
		page := must.Get(x.lister.Fetch(t.Context(), p))(t)
		for i := range page.Events {
			raw := page.Events[i].Raw
			got = append(got, raw[len(raw)-2])
		}
		more, x.at.Cursor = !page.Tail(), page.Next
	}
	slices.Sort(got)
	return string(got)
}
