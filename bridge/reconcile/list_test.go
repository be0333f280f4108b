package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/reconcile"
	"exportbridge/bridge/windows"
)

// numbered is the export in numbered pages.
type numbered struct {
	reconcile.Source
	list bridgetest.List
}

func (n *numbered) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return n.list.Fetch(ctx, at)
}

func (n *numbered) Decode(p *bridge.Page) error { return n.list.Decode(p) }

// listed returns an export that lists items in pages of four, and the settings that read it by windows.
func (w *world) listed(all []item) (*numbered, windows.Config) {
	list := &numbered{w.ports.Source, bridgetest.List{Size: 4}}
	for _, i := range all {
		e := bridge.Event{Raw: []byte(i.raw()), Time: i.at}
		if i.id != "" {
			e.ID = []byte(i.id)
		}
		list.list.Items = append(list.list.Items, e)
	}
	cfg := windows.DefaultConfig()
	cfg.PageSize, cfg.MaxBytes, cfg.Timeout = 4, 1<<20, time.Minute
	return list, cfg
}

// TestNumbered: a range in numbered pages is compared and repaired, if the API repeats its
// last page or rejects the next number, in one part or in many, with ids or without.
func TestNumbered(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		beyond   string
		nameless bool
	}{{"repeat", false}, {"reject", false}, {"reject", true}} {
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
					list, cfg := w.listed(all)
					list.list.Paging, list.list.Beyond, cfg.Numbered = bridgetest.ByNumber, form.beyond, true
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

// stale answers from a cache, with the Date of long ago.
type stale struct {
	*numbered
	date  time.Time
	until int64 // ranges that begin before it, in milliseconds since the epoch
}

func (s stale) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := s.numbered.Fetch(ctx, at)
	if err == nil && at.Start < s.until {
		p.ServerTime = s.date
	}
	return p, err
}

// TestRangeNotOver: a range that ends after the API's clock was not read to its end, so that
// nothing says that it has no missing events. The Date of a check of bounds alone is no clock.
func TestRangeNotOver(t *testing.T) {
	inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
		list, cfg := w.listed(items(50))
		for date, position := range map[int64]int64{second(-60): 0, second(30): second(30)} {
			api := stale{list, time.UnixMilli(date), time.Now().Add(24 * time.Hour).UnixMilli()}
			w.ports.Source, w.ports.Ranges = list, windows.NewRange(api, cfg)
			if e := w.refused(reconcile.Compare, reconcile.NotPassed); e.Position != position {
				t.Errorf("position %d, want %d: %v", e.Position, position, e)
			}
			api.until = second(-10)
			w.ports.Ranges = windows.NewRange(api, cfg)
			want(t, "compared", w.must(reconcile.Compare), counts{API: 50, Missing: 50})
		}
	})
}

// once answers one request from a cache, with the Date of long ago.
type once struct {
	*numbered
	requests, wrong int
}

func (o *once) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := o.numbered.Fetch(ctx, at)
	if err != nil {
		return nil, err
	}
	p.ServerTime = time.Now()
	if o.requests++; o.requests == o.wrong {
		p.ServerTime = time.UnixMilli(second(-24 * 3600))
	}
	return p, nil
}

// TestOneOldDate: a range is read to its end although one answer has an old Date.
func TestOneOldDate(t *testing.T) {
	inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
		list, cfg := w.listed(items(50))
		w.cfg.From = second(-6 * 3600) // several parts
		api := &once{numbered: list}
		for more := true; more; more = api.requests >= api.wrong {
			api.requests, api.wrong = 0, api.wrong+1
			w.ports.Source, w.ports.Ranges = list, windows.NewRange(api, cfg)
			if found, err := w.run(reconcile.Compare); err != nil || found.API != 50 {
				t.Errorf("request %d: %+v, %v", api.wrong, found, err)
			}
		}
	})
}
