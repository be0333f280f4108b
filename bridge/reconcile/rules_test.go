package reconcile_test

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/reconcile"
)

// TestCompareBeyondOtherRules: a record under other rules that changed ids is none of the range's events if its time is
// outside the range. So the range can be compared, unless the API selects by another time.
func TestCompareBeyondOtherRules(t *testing.T) {
	all := withoutIngestion(items(4)) // without an ingestion time, a missing event is looked for in the whole topic
	for name, test := range map[string]struct {
		held      []item
		at, first int64 // of the record, and of the first event
		rejected  bool
	}{
		"nothing is missing":  {all, second(-100_000), all[0].at, false},
		"an event is missing": {all[1:], second(-100_000), all[0].at, false},
		"inside the range":    {all[1:], second(1), all[0].at, true},
		"another time":        {all[1:], second(-100_000), second(-500), true},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, all, nil, func(t *testing.T, w *world) {
				w.ports.Source, w.cfg.Redacted = misdated{source{w.source}, test.first}, "new/k2+ids"
				at := time.UnixMilli(test.at).UTC()
				w.topic.Append(0, fakelog.Record(at, `{"eventId":"hash by k1"}`, "eb-stream", stream,
					"ce_id", "hash by k1", "ce_time", at.Format(time.RFC3339Nano), "eb-redacted", "old/k1+ids"))
				for _, i := range test.held {
					r := i.record()
					r.Headers = append(r.Headers, fakelog.Record(at, "", "eb-redacted", w.cfg.Redacted).Headers...)
					w.topic.Append(1, r)
				}
				if test.rejected {
					w.refused(reconcile.Compare, reconcile.OtherRules)
					return
				}
				held := int64(len(test.held))
				want(t, "compared", w.must(reconcile.Compare), counts{API: 4, Held: held, Missing: 4 - held})
			})
		})
	}
}

// replacing is an export one of whose events has a constant in place of an encrypted value.
type replacing struct {
	source
	id string
}

func (s replacing) Decode(p *bridge.Page) error {
	err := s.source.Decode(p)
	for i := range p.Events {
		e := &p.Events[i]
		sums := bridge.NewSums(sha256.Sum256, e.Raw, e.ID, false)
		sums.Replaced = string(e.ID) == s.id
		e.Sums = &sums
	}
	return err
}

// TestCompareReplaced: an event of a forgotten subject is compared by its id. Events that share
// an id are compared by their bytes, and rejected if one of them is of a forgotten subject.
func TestCompareReplaced(t *testing.T) {
	all := items(6)
	all[4].id, all[4].form = all[3].id, "other"
	for id, rejected := range map[string]bool{"e0": false, "e3": true} {
		t.Run(id, func(t *testing.T) {
			inOwnWorld(t, all, all[:5], func(t *testing.T, w *world) {
				w.ports.Source = replacing{source{w.source}, id}
				if rejected {
					w.refused(reconcile.Compare, reconcile.OtherRules)
					return
				}
				want(t, "compared", w.must(reconcile.Compare), counts{API: 6, Held: 5, Missing: 1})
			})
		})
	}
}

// keyless is a Source that cannot have the keys of encrypted values.
type keyless struct{ source }

var errKeys = &bridge.Fault{Class: bridge.Transient, Code: "event_keys", Err: errors.New("no keys")}

func (keyless) DecodeItem([]byte) (*bridge.Page, error) { return nil, errKeys }

// TestRepairWithoutKeys: a record or a dead letter without headers is of an unknown event while there are no keys of
// encrypted values. The repair ends, and does not publish the event again.
func TestRepairWithoutKeys(t *testing.T) {
	all := items(2)
	for name, add := range map[string]func(w *world, r *kgo.Record){
		"record":      func(w *world, r *kgo.Record) { r.Headers = nil; w.topic.Append(0, r) },
		"dead letter": func(w *world, r *kgo.Record) { r.Headers = r.Headers[:1]; w.dead.Append(0, r) },
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, all, all[:1], func(t *testing.T, w *world) {
				add(w, all[1].record())
				w.ports.Source = keyless{source{w.source}}
				w.cfg.Mode = reconcile.Repair
				if _, err := reconcile.Run(t.Context(), w.cfg, w.ports); !errors.Is(err, errKeys) || len(w.repair.published) > 0 {
					t.Errorf("published %v, error %v", w.repair.published, err)
				}
			})
		})
	}
}
