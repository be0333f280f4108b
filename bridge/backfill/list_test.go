package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/windows"
)

// list is the world's export as a list that is no cursor: newest first, with the events of
// half a second each, in pages of six.
type list struct {
	events          int
	numbers, offset bool // the pages have, else a cursor
	beyond          string
	pages           int // more than so many are rejected, 0 is no limit
	capped          bool
	longest         time.Duration // range of a request, 0 is the default
	requests        atomic.Int64
}

func (l *list) ranges(source bridge.Source) bridge.Source {
	cfg := windows.DefaultConfig()
	cfg.PageSize, cfg.MaxBytes, cfg.Timeout = 6, 1<<20, time.Minute
	if l.longest > 0 {
		cfg.MaxWindow = l.longest
	}
	cfg.Numbered, cfg.Overlaps = l.numbers || l.offset, l.offset
	return slowly{windows.NewRange(source, cfg)}
}

// slowly is a Source whose pages come one by one, so that each is committed.
type slowly struct{ bridge.Source }

func (s slowly) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := s.Source.Fetch(ctx, at)
	bridge.Sleep(ctx, 20*time.Millisecond)
	return p, err
}

func (l *list) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	const size = 6
	l.requests.Add(1)
	bridge.Sleep(ctx, time.Millisecond)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var shown []int
	for i := l.events - 1; i >= 0; i-- {
		if ms := second(0) + int64(i)*500; ms >= at.Start && ms < at.End {
			shown = append(shown, i)
		}
	}
	number, _ := strconv.Atoi(at.Cursor)
	skip, last := number, max(1, (len(shown)+size-1)/size)
	if l.numbers {
		if number = max(1, number); number > last && l.beyond == "reject" {
			return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("no such page")}
		}
		if skip = (number - 1) * size; l.beyond == "repeat" {
			skip = min(skip, (last-1)*size)
		}
	}
	if l.pages > 0 && number >= l.pages*size {
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errors.New("the cursor has expired")}
	}
	now := time.Now()
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now.Truncate(time.Second)}
	rest := shown[min(len(shown), skip):]
	for _, i := range rest[:min(len(rest), size)] {
		ms := second(0) + int64(i)*500
		raw := fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, ms)
		p.Events = append(p.Events, bridge.Event{Raw: []byte(raw), ID: []byte(fmt.Sprint("e", i)), Time: ms, Index: len(p.Events)})
	}
	p.Items = len(p.Events)
	switch {
	case l.numbers && p.Items > 0:
		p.Next = strconv.Itoa(number + 1)
	case l.offset && (p.Items > 1 || p.Items == 1 && at.Cursor == ""):
		p.Next = strconv.Itoa(skip + p.Items - 1)
	case !l.numbers && !l.offset && !l.capped && len(rest) > size:
		p.Next = strconv.Itoa(skip + size)
	}
	return p, nil
}

func (*list) Decode(*bridge.Page) error { return nil }

// TestRunList: a job over a list that is no cursor, which is killed again and again, publishes
// each event once: its pages are numbered, its cursors expire, or it is cut off. A transaction
// in doubt does no harm.
func TestRunList(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]*list{
		"repeats the last page": {numbers: true, beyond: "repeat"}, "empty behind the last page": {numbers: true},
		"offsets": {offset: true}, "rejected cursor": {pages: 3}, "capped": {capped: true}, "cursor": {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 0, func(t *testing.T, w *world) {
				form.events, w.list = 240, form
				plan := w.plan(100, 2)
				plan.Version = 2
				job, kills := w.begin(plan), 0
				for after := 60 * time.Millisecond; ; after += 7 * time.Millisecond {
					if kills%2 == 1 {
						w.topic.FailNext([]bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted}[kills/2%2])
					}
					ctx, cancel := context.WithTimeout(t.Context(), after)
					done, err := w.start(job).Do(ctx)
					cancel()
					if err == nil {
						if done.Totals().Events != 200 || done.EndedEmpty() > 0 || done.Totals().Outside > 0 {
							t.Errorf("done: %+v", done)
						}
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					got := w.job()
					if n := got.Totals().Events; n > 0 && n < 200 {
						kills++
					}
					job = w.resumed()
				}
				if kills < 3 {
					t.Errorf("killed %d times in the middle", kills)
				}
				w.wantOnce(200)
			})
		})
	}
}

// TestListResumed: a job is resumed with the EXPORT_FOLLOW that it was begun with.
func TestListResumed(t *testing.T) {
	t.Parallel()
	inWorld(t, 10, func(t *testing.T, w *world) {
		w.begin(w.plan(10, 2))
		w.list = &list{}
		if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.OtherSource {
			t.Errorf("a job by cursor of a stream by windows: %v", err)
		}
	})
	inWorld(t, 10, func(t *testing.T, w *world) {
		w.list = &list{events: 10}
		p, err := w.planner().Plan(t.Context(), &backfill.Spec{ID: "aaaaaa", Kind: backfill.Replay, From: second(0), To: second(10)}, time.Now())
		if err != nil || p.Job.Version != 2 {
			t.Fatalf("%+v, %v", p, err)
		}
		p.Job.Kind = backfill.Backfill
		w.begin(p.Job)
		w.list = nil
		if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.OtherSource {
			t.Errorf("a job by windows of a stream by cursor: %v", err)
		}
	})
}

// TestListLimit: the rate limit of a job counts the requests for its lists, not its pages.
func TestListLimit(t *testing.T) {
	t.Parallel()
	inWorld(t, 0, func(t *testing.T, w *world) {
		w.list = &list{events: 240, numbers: true, beyond: "repeat"}
		plan := w.plan(100, 2)
		plan.Version, plan.RateLimit = 2, 1
		began := time.Now()
		if _, err := w.start(w.begin(plan)).Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Duration(w.list.requests.Load()-1)*time.Second {
			t.Errorf("%d requests in %s, at most one a second", w.list.requests.Load(), took)
		}
		w.wantOnce(200)
	})
}

// TestListGap: pages without events, each for many requests, do not end a window.
func TestListGap(t *testing.T) {
	t.Parallel()
	inWorld(t, 0, func(t *testing.T, w *world) {
		w.list = &list{events: 20, longest: time.Minute}
		plan := w.plan(10, 1)
		plan.Version, plan.RateLimit = 2, 1
		plan.From -= 2 * time.Hour.Milliseconds()
		plan.Windows[0].From = plan.From
		if job, err := w.start(w.begin(plan)).Do(t.Context()); err != nil || job.Totals().Pages < 10 || job.EndedEmpty() > 0 {
			t.Errorf("%+v, %v", job, err)
		}
		w.wantOnce(20)
	})
}
