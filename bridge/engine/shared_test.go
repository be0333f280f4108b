package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// sharing is an item of many that have the same id.
func sharing(n int) string {
	return fmt.Sprintf(`{"eventId":"same","userId":"u","timestamp":%d,"n":%d}`, time.Now().UnixMilli(), n)
}

// TestDifferentItemsOfOneID: they are published once each, or all but the first
// become dead letters; never are they dropped in silence.
func TestDifferentItemsOfOneID(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"publish", "bad-event"} {
		rowInModes(t, policy, bridgetest.Export{PageSize: 20}, func(r *harness) {
			r.cfg.PageSize, r.cfg.OnSharedID = 20, policy
			all := 0
			list := func(n int) {
				for range n {
					all++
					r.source.Append(sharing(all))
				}
			}
			r.source.Grow(3)
			list(30) // 17 on the first page, 13 on the next, which stays the tail
			r.startFor(time.Minute)
			list(2) // the tail grows
			r.after(time.Minute)
			r.end()
			r.start() // and is read again
			r.after(time.Minute)
			list(1)
			r.after(time.Minute)
			events, letters := 3+2, 16+12+2+1 // the first of each page
			if policy == "publish" {
				events, letters = 3+33, 0
				r.wantOnce()
			}
			if got, dead := len(r.values()), r.lettersIn(); got != events || dead != letters {
				r.t.Errorf("%d events and %d dead letters, want %d and %d", got, dead, events, letters)
			}
			told := 0
			for _, o := range r.observed(bridge.ObserveCommit, "") {
				if told += o.Shared; o.Repeated+o.Changed+o.Vanished > 0 {
					r.t.Errorf("observed %d repeated, %d changed, %d vanished", o.Repeated, o.Changed, o.Vanished)
				}
			}
			if told != 31 {
				r.t.Errorf("%d items are told of, want 31", told)
			}
		})
	}
}

// TestSharedIDAfterALoss: what a process remembers of items that Kafka has lost
// must not tell those apart that are still there.
func TestSharedIDAfterALoss(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		one, two := sharing(1), sharing(2)
		serve := func(pages map[string]string) {
			r.source.Serve(func(at bridge.Position) bridgetest.Answer { return bridgetest.Answer{Body: pages[at.Cursor]} })
		}
		serve(map[string]string{"": `{"items":[` + one + `],"nextCursor":null}`})
		r.startFor(time.Minute)
		kept := len(r.topic.Kept())
		serve(map[string]string{"": `{"items":[` + one + `],"nextCursor":"c"}`, "c": `{"items":[` + two +
			`],"nextCursor":null}`})
		r.after(time.Minute)
		r.topic.Forget("events", len(r.topic.Kept())-kept)
		serve(map[string]string{"": `{"items":[` + one + `,` + two + `],"nextCursor":null}`}) // a larger page
		r.topic.FailNext(bridgetest.Failed)
		r.after(2 * time.Minute)
		if diff := cmp.Diff([]string{one, two}, r.values()); diff != "" {
			r.t.Errorf("the topic holds (-want +got):\n%s", diff)
		}
	})
}
