package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
	"exportbridge/bridge/windows"
)

// numbered is the export in numbered pages, newest first.
type numbered struct {
	reconcile.Source
	items   []item
	rejects bool // a number behind the last page, which it repeats otherwise
}

func (n *numbered) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	const size = 4
	var shown []item
	for _, i := range slices.Backward(n.items) {
		if i.at >= at.Start && i.at < at.End {
			shown = append(shown, i)
		}
	}
	asked, _ := strconv.Atoi(at.Cursor)
	number, last := max(1, asked), max(1, (len(shown)+size-1)/size)
	if number > last && n.rejects {
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("no such page")}
	}
	from := (min(number, last) - 1) * size
	now := time.Now()
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now.Truncate(time.Second)}
	for _, i := range shown[from:min(len(shown), from+size)] {
		e := bridge.Event{Raw: []byte(i.raw()), Time: i.at, Index: len(p.Events)}
		if i.id != "" {
			e.ID = []byte(i.id)
		}
		p.Events = append(p.Events, e)
	}
	if p.Items = len(p.Events); p.Items > 0 {
		p.Next = strconv.Itoa(number + 1)
	}
	return p, nil
}

func (*numbered) Decode(*bridge.Page) error { return nil }

// TestNumbered: a range in numbered pages is compared and repaired, whether the API repeats
// its last page or rejects the number behind it, in one part or in many, with ids or without.
func TestNumbered(t *testing.T) {
	t.Parallel()
	for _, form := range []struct{ rejects, nameless bool }{{false, false}, {true, false}, {true, true}} {
		for _, batch := range []int{1000, 7} {
			t.Run(fmt.Sprintf("%+v in parts of %d", form, batch), func(t *testing.T) {
				all := items(50)
				for i := range all {
					if form.nameless {
						all[i].id = ""
						all[i].form = fmt.Sprint(i / 3 * 3) // some are equal but for their times
					}
				}
				missing := []int{0, 7, 49}
				var published []item
				for i := range all {
					if !slices.Contains(missing, i) {
						published = append(published, all[i])
					}
				}
				inWorld(t, nil, published, func(t *testing.T, w *world) {
					list := &numbered{w.ports.Source, all, form.rejects}
					cfg := windows.DefaultConfig()
					cfg.Numbered, cfg.PageSize, cfg.MaxBytes, cfg.Timeout = true, 4, 1<<20, time.Minute
					w.ports.Source, w.ports.Ranges = list, windows.NewRange(list, cfg)
					w.cfg.Batch = batch
					want(t, "compared", w.must(reconcile.Compare), counts{API: 50, Held: 47, Missing: 3})
					r := w.must(reconcile.Repair)
					if r.Repair.Events != 3 || len(w.repaired()) != 3 || r.EndedEmpty {
						t.Errorf("repaired %+v, published %v", r.Repair, w.repair.published)
					}
					want(t, "repaired", w.must(reconcile.Compare), counts{API: 50, Held: 50})
				})
			})
		}
	}
}
