package deadletter_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/windows"
)

// numbered is a list in numbered pages, newest first, which repeats its last page.
type numbered struct {
	*bridgetest.Source
	first, items int64
	owner        bridge.SourceIdentity
	requests     int
}

func numberedItem(ms int64) string {
	return fmt.Sprintf(`{"eventId":"at%d","timestamp":%d,"payload":{}}`, ms, ms)
}

func (n *numbered) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	const size = 2
	n.requests++
	var shown []int64
	for ms := n.first + (n.items-1)*100; ms >= n.first; ms -= 100 {
		if ms >= at.Start && ms < at.End {
			shown = append(shown, ms)
		}
	}
	number, _ := strconv.Atoi(at.Cursor)
	number = min(max(1, number), max(1, (len(shown)+size-1)/size))
	asked, _ := strconv.Atoi(at.Cursor)
	p := &bridge.Page{At: at, Next: strconv.Itoa(max(1, asked) + 1), Source: n.owner, RequestedAt: time.Now(), ArrivedAt: time.Now()}
	for _, ms := range shown[min(len(shown), (number-1)*size):min(len(shown), number*size)] {
		raw := []byte(numberedItem(ms))
		p.Events = append(p.Events, bridge.Event{Raw: raw, ID: []byte(fmt.Sprint("at", ms)), Time: ms, Index: len(p.Events)})
	}
	if p.Items = len(p.Events); p.Items == 0 {
		p.Next = ""
	}
	return p, nil
}

func (*numbered) Decode(*bridge.Page) error { return nil }

// TestRetryListed: the item of a list that is no cursor is listed by its time, also where
// pages are numbered and the last one is repeated, and a job or a first page has written the
// letter. One that is gone is reported, and another tenant's list is rejected.
func TestRetryListed(t *testing.T) {
	t.Parallel()
	const first = 1_700_000_000_000
	retry := func(cursor string, ms int64, live bridge.SourceIdentity) (deadletter.Retried, error) {
		w := newWorld(t)
		source := &numbered{Source: w.source, first: first, items: 60, owner: tenant}
		cfg := windows.DefaultConfig()
		cfg.PageSize, cfg.Numbered, cfg.MaxBytes, cfg.Timeout = 2, true, 1<<20, time.Minute
		place := w.position(numberedItem(ms), fmt.Sprint("at", ms), cursor, 1, "ce_time", time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
		var all []deadletter.Retried
		r := &deadletter.Retry{
			Topic: w.topic, Source: source, Ranges: windows.NewRange(source, cfg), Publisher: w.publisher, Events: w.events, Live: live,
			Done: func(one deadletter.Retried) error { all = append(all, one); return nil },
		}
		if err := r.Run(t.Context(), []deadletter.Place{place}); err != nil {
			return deadletter.Retried{}, err
		}
		if source.requests > 100 {
			t.Errorf("%d requests", source.requests)
		}
		return all[0], nil
	}
	for _, cursor := range []string{"", "w1:2023-11-14T22:13:20Z+1", "r1:1:2:1"} {
		if one, err := retry(cursor, first+3000, tenant); err != nil || one.Result != deadletter.Published {
			t.Errorf("cursor %q: %+v, %v", cursor, one, err)
		}
	}
	if one, err := retry("r1:1:2:1", first+3050, tenant); err != nil || one.Result != deadletter.Refused || !strings.Contains(one.Detail, "does not list it") {
		t.Errorf("gone: %+v, %v", one, err)
	}
	if _, err := retry("r1:1:2:1", first+3000, bridge.SourceIdentity{Organization: "b"}); err == nil || !strings.Contains(err.Error(), "belongs to a//") {
		t.Errorf("another tenant: %v", err)
	}
}

var tenant = bridge.SourceIdentity{Organization: "a"}
