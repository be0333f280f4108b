package backfill_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
)

// TestRunCutOff: a window whose only page is full, or has a next cursor that no setting selects, may
// lack events. It publishes none, and the job does not end. A full page is the end if the API has
// named a next page before.
func TestRunCutOff(t *testing.T) {
	t.Parallel()
	unread := bridge.Unread{Where: "/paging/next", Hint: "set EXPORT_CURSOR_FIELD=/paging/next"}
	for name, tc := range map[string]struct {
		cuts    *cuts
		seconds int
		paged   bool
		blocked string
	}{
		"cut off":                {&cuts{}, 10, false, "a full page of 4 items names no next one"},
		"another cursor":         {&cuts{unread: unread}, 10, true, "/paging/next"},
		"cut off, known to page": {&cuts{}, 4, true, ""},
		"short":                  {&cuts{}, 3, false, ""},
		"one full page":          {nil, 4, true, ""},
		"full pages":             {nil, 8, false, ""},
	} {
		inWorld(t, 20, func(t *testing.T, w *world) {
			w.cuts = tc.cuts
			plan := w.plan(tc.seconds, 1)
			plan.Paged = tc.paged
			job, err := w.start(w.begin(plan)).Do(t.Context())
			if tc.blocked == "" {
				if w.wantOnce(tc.seconds); err != nil || job.State != backfill.Done {
					t.Errorf("%s: %s, %v", name, job.State, err)
				}
				return
			}
			wantBlocked(t, err, bridge.ReasonConfig, tc.blocked)
			w.wantOnce(0)
			if left := w.job(); left.Ended() > 0 {
				t.Errorf("%s: the window has ended", name)
			}
		})
	}
}

// TestRunFirstAgain: a window whose first page comes again, at its own cursor, may lack events: the API may
// ignore the cursor. The window does not end, unless the live stream or another window has seen that the API
// heeds cursors.
func TestRunFirstAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ heeded, elsewhere, done bool }{
		"in doubt": {}, "known to the stream": {heeded: true, done: true},
		"known from a window": {elsewhere: true, done: true},
	} {
		inWorld(t, 20, func(t *testing.T, w *world) {
			w.ignores = true
			plan := w.plan(16, 2)
			plan.PageSize, plan.CursorHeeded = 10, tc.heeded
			if tc.elsewhere {
				plan.Windows[0].Ended, plan.Windows[0].Pages = "on its last page", 3
			}
			job, err := w.start(w.begin(plan)).Do(t.Context())
			if tc.done {
				if err != nil || job.State != backfill.Done {
					t.Errorf("%s: %s, %v", name, job.State, err)
				}
				return
			}
			wantBlocked(t, err, bridge.ReasonConfig, "leads to the first page")
			if left := w.job(); left.Ended() > 0 {
				t.Errorf("%s: a window has ended", name)
			}
		})
	}
}

// TestCutOffElsewhere: a window that another process has ended shows that the API names next pages.
func TestCutOffElsewhere(t *testing.T) {
	t.Parallel()
	inWorld(t, 20, func(t *testing.T, w *world) {
		w.cuts = &cuts{}
		plan := w.plan(8, 2)
		plan.Windows[0].Ended, plan.Windows[0].Pages = "at the end", 2
		if job, err := w.start(w.begin(plan)).Do(t.Context()); err != nil || job.State != backfill.Done {
			t.Errorf("%s, %v", job.State, err)
		}
	})
}

// TestPlanPaged: a job knows whether the API has named a next page to the live stream, also if the
// stream learns it after the plan.
func TestPlanPaged(t *testing.T) {
	t.Parallel()
	inWorld(t, 10, func(t *testing.T, w *world) {
		beside, _ := w.beside()
		var hashes []string
		for _, cursor := range []string{"", "c1"} {
			beside.Live = checkpoints{{Cursor: cursor, Origin: bridge.Origin{Start: second(5000)},
				Border: bridge.Border{FirstNext: bridge.DigestCursor("c0")}, PositionTime: second(6000)}}
			p, err := beside.Plan(t.Context(),
				&backfill.Spec{ID: "a2b3c4", Kind: backfill.Replay, From: second(0), To: second(10)}, time.Now())
			if err != nil || p.Job.Paged != (cursor != "") || p.Job.CursorHeeded != p.Job.Paged {
				t.Fatalf("cursor %q: planned %+v, %v", cursor, p, err)
			}
			hashes = append(hashes, p.Hash())
		}
		if hashes[0] != hashes[1] {
			t.Error("the plan has changed")
		}
		w.begin(w.plan(10, 2))
		w.live = checkpoints{{Cursor: "c1"}}
		if job := w.resumed(); !job.Paged || !w.job().Paged || !w.job().CursorHeeded {
			t.Errorf("resumed %+v", job)
		}
	})
}
