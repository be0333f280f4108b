package reconcile_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/reconcile"
)

// TestCompareDeadLetterLongID: a letter without its item has the beginning of a long id, and names the item by the sum.
func TestCompareDeadLetterLongID(t *testing.T) {
	all := []item{{id: "e0", at: second(0)}, {id: strings.Repeat("i", 300), at: second(1)}}
	inOwnWorld(t, all, all[:1], func(t *testing.T, w *world) {
		raw := all[1].raw()
		sub := kafkarecord.Substitute{ID: bridge.CutID(all[1].id), Size: len(raw),
			SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(raw))), Index: 1}
		w.dead.Append(0, fakelog.Record(time.UnixMilli(second(3)), string(sub.Encode()), "eb-stream", stream,
			"eb-index", "1"))
		want(t, "compared", w.must(reconcile.Compare), counts{API: 2, Held: 1, Dead: 1})
	})
}

// TestCompareDeadLetterSharedID: of two events with one id, one is in the topic, and the other one is a letter without
// its item, which names it by the sum.
func TestCompareDeadLetterSharedID(t *testing.T) {
	all := []item{{id: "e0", at: second(0)}, {id: "e0", at: second(1)}}
	inOwnWorld(t, all, all[:1], func(t *testing.T, w *world) {
		raw := all[1].raw()
		sub := kafkarecord.Substitute{ID: "e0", Size: len(raw), Index: 1,
			SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(raw)))}
		w.dead.Append(0, fakelog.Record(time.UnixMilli(second(3)), string(sub.Encode()), "eb-stream", stream,
			"eb-index", "1", "ce_id", "e0"))
		want(t, "compared", w.must(reconcile.Compare), counts{API: 2, Held: 1, Dead: 1})
	})
}

// withholding is an export whose events have private data that no rule can be applied to.
type withholding struct{ source }

func (s withholding) Decode(p *bridge.Page) error {
	err := s.source.Decode(p)
	for i := range p.Events {
		e := &p.Events[i]
		sums := bridge.NewSums(sha256.Sum256, e.Raw, e.ID, false)
		e.Raw, e.Sums, e.Defect = nil, &sums, bridge.DefectPrivate
	}
	return err
}

// TestCompareWithheldSharedID: two events with one id have no bytes to tell them apart, because no rule for private
// data can be applied. The sum in a letter tells which of the two is a letter, and the other one is missing.
func TestCompareWithheldSharedID(t *testing.T) {
	all := []item{{id: "e0", at: second(0)}, {id: "e0", at: second(1)}}
	for letters := range len(all) + 1 {
		t.Run(fmt.Sprint(letters), func(t *testing.T) {
			inOwnWorld(t, all, nil, func(t *testing.T, w *world) {
				w.ports.Source = withholding{source{w.source}}
				for n := range all[:letters] {
					sub := kafkarecord.Substitute{ID: "e0", Index: n,
						SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(all[n].raw())))}
					w.dead.Append(0, fakelog.Record(time.UnixMilli(second(3)), string(sub.Encode()), "eb-stream", stream,
						"eb-index", fmt.Sprint(n), "ce_id", "e0"))
				}
				want(t, "compared", w.must(reconcile.Compare),
					counts{API: 2, Dead: int64(letters), Missing: int64(len(all) - letters)})
			})
		})
	}
}
