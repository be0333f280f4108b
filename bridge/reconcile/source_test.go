package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/reconcile"
)

// TestOtherSource: pages of another tenant than the live stream's are neither
// compared nor published. Where one of the two is unknown, they agree.
func TestOtherSource(t *testing.T) {
	t.Parallel()
	a := bridge.SourceIdentity{Organization: "a", Workspace: "w", Application: "web"}
	b := bridge.SourceIdentity{Organization: "b", Workspace: "w", Application: "web"}
	other := a
	other.Workspace = "test"
	for name, test := range map[string]struct {
		live, page bridge.SourceIdentity
		refused    bool
	}{
		"another organization": {a, b, true},
		"another workspace":    {a, other, true},
		"the same":             {a, a, false},
		"a stream without one": {bridge.SourceIdentity{}, b, false},
		"pages without one":    {a, bridge.SourceIdentity{}, false},
	} {
		for _, mode := range []reconcile.Mode{reconcile.Compare, reconcile.Rehearse, reconcile.Repair} {
			t.Run(name, func(t *testing.T) {
				inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
					w.source = bridgetest.NewSource(t, bridgetest.Export{PageSize: 4, Identity: test.page})
					w.ports.Source = source{w.source}
					for _, i := range items(10) {
						w.source.Append(i.raw())
					}
					w.live.trail[0].Source = test.live
					if !test.refused {
						want(t, "compared", w.must(mode), counts{API: 10, Missing: 10})
						return
					}
					err := w.refused(mode, reconcile.OtherSource)
					if !strings.Contains(err.Error(), test.live.String()) || !strings.Contains(err.Error(), test.page.String()) {
						t.Errorf("%q does not name both", err)
					}
					if len(w.repair.published) > 0 || w.source.Requests() != 1 {
						t.Errorf("published %v after %d requests", w.repair.published, w.source.Requests())
					}
				})
			})
		}
	}
}

// TestOtherRequest: nothing is requested with settings of another list than the stream's.
func TestOtherRequest(t *testing.T) {
	t.Parallel()
	request := func(host, path string) bridge.Fingerprint {
		return bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: host},
			{Name: bridge.PartPath, Value: path}})
	}
	rules := bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: "a"},
		{Name: bridge.PartPath, Value: "/x"}, {Name: bridge.PartRules, Value: "rules/k1"}})
	for live, refused := range map[bridge.Fingerprint]bool{"": false, request("a", "/x"): false,
		request("a", "/y"): true, request("b", "/x"): true, rules: true} {
		for _, mode := range []reconcile.Mode{reconcile.Compare, reconcile.Rehearse, reconcile.Repair} {
			inWorld(t, nil, items(10), func(t *testing.T, w *world) {
				w.cfg.Origin.Request, w.live.trail[0].Origin.Request = request("a", "/x"), live
				if !refused {
					w.must(mode)
				} else if w.refused(mode, reconcile.OtherSource); w.source.Requests() > 0 {
					t.Errorf("%d requests", w.source.Requests())
				}
			})
		}
	}
}

// TestSourceHangs: a source that hangs ends the comparison by the engine's deadline.
func TestSourceHangs(t *testing.T) {
	inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
		w.ports.Source, w.cfg.FetchTimeout, w.cfg.Mode = source{&bridgetest.Hanging{Source: w.source,
			InFetch: bridgetest.Hang}}, 5*time.Minute, reconcile.Compare
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		_, err := reconcile.Run(ctx, w.cfg, w.ports)
		if fault, ok := errors.AsType[*bridge.Fault](err); !ok || fault.HintCode != bridge.HintOverdue {
			t.Errorf("hangs: %v", err)
		}
	})
}

// behind is an export whose last page comes from a server with a clock that is behind.
type behind struct{ reconcile.Source }

func (b behind) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := b.Source.Fetch(ctx, at)
	if err == nil && p.Next == "" {
		p.ServerTime = p.ServerTime.Add(-time.Minute)
	}
	return p, err
}

// TestRepairClockBehind: the stream has passed what was read once it is after the latest Date of the
// pages, not after the last one.
func TestRepairClockBehind(t *testing.T) {
	all := withoutIngestion(items(10))
	inOwnWorld(t, all, all[:5], func(t *testing.T, w *world) {
		w.ports.Source = behind{w.ports.Source}
		w.live.commit(atEnd(6, time.Now().Add(-time.Second).UnixMilli()))
		time.AfterFunc(10*time.Second, func() {
			w.topic.Append(1, all[5].record())
			w.live.commit(atEnd(7, time.Now().UnixMilli()))
		})
		want(t, "repaired", w.must(reconcile.Repair), counts{API: 10, Held: 6, Missing: 4})
	})
}

// TestFirstPageNamesItself: an API that names the cursor of the page itself while that is not full lists
// the first page twice. So does one that ignores the cursor: while the stream cannot tell them apart, a
// comparison is rejected. An item without an id would be compared twice.
func TestFirstPageNamesItself(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pageSize, missing int
		doubt, bare, none bool
	}{
		"not full": {pageSize: 100, missing: 40}, "full": {pageSize: 40},
		"the stream is in doubt": {pageSize: 100, doubt: true}, "an item has no id": {pageSize: 100, bare: true},
		"the stream has no cursor": {pageSize: 100, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
				w.cfg.PageSize = test.pageSize
				first := &w.live.trail[0]
				first.Border.FirstNext, first.Drained = bridge.DigestCursor(first.Cursor), !test.doubt
				if test.none {
					first.Cursor, first.Drained, first.Border = "", false, bridge.Border{}
				}
				var raws []string
				for n, i := range items(40) {
					if n == 0 && test.bare {
						i.id = ""
					}
					raws = append(raws, i.raw())
				}
				w.source.Serve(func(bridge.Position) bridgetest.Answer {
					return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":"a"}`, strings.Join(raws, ","))}
				})
				if test.missing == 0 {
					_ = w.refused(reconcile.Compare, reconcile.CursorCycle)
					return
				}
				want(t, "compared", w.must(reconcile.Compare), counts{API: 40, Missing: 40})
			})
		})
	}
}
