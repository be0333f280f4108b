package deadletter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/windows"
)

// numbered is a list in numbered pages that repeats its last page, of an item each 100 ms.
type numbered struct {
	*bridgetest.Source
	list bridgetest.List
}

func (n *numbered) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return n.list.Fetch(ctx, at)
}

func (n *numbered) Decode(p *bridge.Page) error { return n.list.Decode(p) }

func numberedItem(ms int64) string {
	return fmt.Sprintf(`{"eventId":"at%d","timestamp":%d,"payload":{}}`, ms, ms)
}

// TestRetryListed: the item of a list that is no cursor is listed by its time, also where
// pages are numbered and the last one is repeated, and a job or a first page has written the
// letter. One that is gone is reported, and another tenant's list is rejected.
func TestRetryListed(t *testing.T) {
	t.Parallel()
	const first = 1_700_000_000_000
	retry := func(cursor string, ms int64, live bridge.SourceIdentity) (deadletter.Retried, error) {
		w := newWorld(t)
		source := &numbered{w.source, bridgetest.List{Size: 2, Paging: bridgetest.ByNumber, Beyond: "repeat", Source: tenant}}
		for ms := int64(first); ms < first+6000; ms += 100 {
			e := bridge.Event{Raw: []byte(numberedItem(ms)), ID: []byte(fmt.Sprint("at", ms)), Time: ms}
			source.list.Items = append(source.list.Items, e)
		}
		cfg := windows.DefaultConfig()
		cfg.PageSize, cfg.Numbered, cfg.MaxBytes, cfg.Timeout = 2, true, 1<<20, time.Minute
		place := w.position(numberedItem(ms), fmt.Sprint("at", ms), cursor, 1, "ce_time",
			time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
		var all []deadletter.Retried
		r := w.retrying(func(one deadletter.Retried) error { all = append(all, one); return nil })
		r.Source, r.Ranges, r.Live = source, windows.NewRange(source, cfg), live
		if err := r.Run(t.Context(), []deadletter.Place{place}); err != nil {
			return deadletter.Retried{}, err
		}
		if n := source.list.Requests(); n > 120 {
			t.Errorf("%d requests", n)
		}
		return all[0], nil
	}
	for _, cursor := range []string{"", "w1:2023-11-14T22:13:20Z+1", "r1:1:2:1"} {
		if one, err := retry(cursor, first+3000, tenant); err != nil || one.Result != deadletter.Published {
			t.Errorf("cursor %q: %+v, %v", cursor, one, err)
		}
	}
	if one, err := retry("r1:1:2:1", first+3050, tenant); err != nil || one.Result != deadletter.Refused ||
		!strings.Contains(one.Detail, "does not list it") {
		t.Errorf("gone: %+v, %v", one, err)
	}
	if _, err := retry("r1:1:2:1", first+3000, bridge.SourceIdentity{Organization: "b"}); err == nil ||
		!strings.Contains(err.Error(), "belongs to a//") {
		t.Errorf("another tenant: %v", err)
	}
}

var tenant = bridge.SourceIdentity{Organization: "a"}
