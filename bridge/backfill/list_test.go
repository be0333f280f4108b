package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/windows"
)

// list is the world's export as a list that is no cursor, with the events of half a second
// each, in pages of six.
type list struct {
	*bridgetest.List
	longest time.Duration // range of a request, 0 is the default
}

// listed is a list of so many events.
func listed(events int, form *bridgetest.List) *list {
	l := &list{List: form}
	l.Size, l.Latency = 6, time.Millisecond
	for i := range events {
		ms := second(0) + int64(i)*500
		raw := fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, ms)
		l.Items = append(l.Items, bridge.Event{Raw: []byte(raw), ID: []byte(fmt.Sprint("e", i)), Time: ms})
	}
	return l
}

func (l *list) ranges(source bridge.Source) bridge.Source {
	cfg := windows.DefaultConfig()
	cfg.PageSize, cfg.MaxBytes, cfg.Timeout = 6, 1<<20, time.Minute
	if l.longest > 0 {
		cfg.MaxWindow = l.longest
	}
	cfg.Overlaps = l.Paging == bridgetest.ByOffset
	cfg.Numbered = cfg.Overlaps || l.Paging == bridgetest.ByNumber
	return slowly{windows.NewRange(source, cfg)}
}

// slowly is a Source whose pages come one by one, so that each is committed.
type slowly struct{ bridge.Source }

func (s slowly) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := s.Source.Fetch(ctx, at)
	bridge.Sleep(ctx, 20*time.Millisecond)
	return p, err
}

// TestRunList: a job over a list that is no cursor, which is killed again and again, publishes
// each event once: its pages are numbered, its cursors expire, or it is cut off. A transaction
// in doubt does no harm.
func TestRunList(t *testing.T) {
	t.Parallel()
	all := 0
	for name, form := range map[string]*bridgetest.List{
		"repeats the last page":      {Paging: bridgetest.ByNumber, Beyond: "repeat"},
		"empty behind the last page": {Paging: bridgetest.ByNumber},
		"offsets":                    {Paging: bridgetest.ByOffset},
		"rejected cursor":            {MaxPages: 3},
		"capped":                     {Paging: bridgetest.Unpaged},
		"cursor":                     {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 0, func(t *testing.T, w *world) {
				w.list = listed(240, form)
				plan := w.plan(100, 2)
				plan.Version = 2
				job, kills := w.begin(plan), 0
				for after := 60 * time.Millisecond; ; after += 23 * time.Millisecond {
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
				if kills == 0 { // few where a retry happens to wait for a short time
					t.Error("never killed in the middle")
				}
				all += kills
				w.wantOnce(200)
			})
		})
	}
	if all < 18 {
		t.Errorf("killed %d times in the middle of all forms", all)
	}
}

// TestListResumed: a job is resumed with the EXPORT_FOLLOW that it was begun with.
func TestListResumed(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		w.begin(w.plan(10, 2))
		w.list = listed(0, &bridgetest.List{})
		if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.OtherSource {
			t.Errorf("a job by cursor of a stream by windows: %v", err)
		}
	})
	inWorld(t, 10, func(t *testing.T, w *world) {
		w.list = listed(10, &bridgetest.List{})
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
	inOwnWorld(t, 0, func(t *testing.T, w *world) {
		w.list = listed(240, &bridgetest.List{Paging: bridgetest.ByNumber, Beyond: "repeat"})
		plan := w.plan(100, 2)
		plan.Version, plan.RateLimit = 2, 1
		began := time.Now()
		must.Get(w.start(w.begin(plan)).Do(t.Context()))(t)
		if took := time.Since(began); took < time.Duration(w.list.Requests()-1)*time.Second {
			t.Errorf("%d requests in %s, at most one a second", w.list.Requests(), took)
		}
		w.wantOnce(200)
	})
}

// TestListGap: pages without events, each for many requests, do not end a window.
func TestListGap(t *testing.T) {
	inOwnWorld(t, 0, func(t *testing.T, w *world) {
		w.list = listed(20, &bridgetest.List{})
		w.list.longest = time.Minute
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
