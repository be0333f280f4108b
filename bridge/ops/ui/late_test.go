//go:build browser

package ui_test

import (
	"maps"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
)

// planFor is the plan of a move of a stream at an epoch.
func planFor(stream string, least int) answer {
	return answer{200, object{
		"stream": stream, "from": "of " + stream, "to": "to a place of " + stream, "repeats_min": least, "repeats_max": least,
		"guarantee": "exactly-once", "base_epoch": 3,
	}}
}

// TestLatePlan: the plan of a stream whose dialog was closed is not shown, and not executed, in
// the dialog of another stream.
func TestLatePlan(t *testing.T) {
	f := newFakeBridge(t, running("events"), running("users"))
	late := make(chan struct{})
	f.late, f.answers = late, []answer{planFor("events", 111), planFor("users", 222), done(4)}
	p := open(t, f, 1280)
	p.click("#move")
	p.click("#move-form [value=shift]")
	p.set("#move-form [name=shift]", "5")
	p.write("#move-form [name=reason]", "of events")
	p.click("#move-submit")
	p.until("the plan is requested", func() bool { return len(f.actions()) == 1 })
	p.press(kb.Escape)
	p.press("]")
	p.sees("#state-stream", "users")
	p.click("#move")
	close(late)
	p.wait(`performance.getEntriesByType('resource').some((e) => e.name.endsWith('/events/move'))`)
	p.click("#move-form [value=shift]")
	p.set("#move-form [name=shift]", "7")
	p.write("#move-form [name=reason]", "of users")
	p.click("#move-submit")
	p.sees("#move-rows", "of users")
	p.sees("#move-again", "222 events come again.")
	p.write("#move-form [name=confirm]", "users")
	p.click("#move-submit")
	p.sees("#toast", "users moved to entry 4.0")
	body := func(shift float64, reason string, executed object) object {
		o := object{"to": object{"shift": shift}, "reason": reason, "execute": false}
		maps.Copy(o, executed)
		return o
	}
	if diff := cmp.Diff([]posted{
		{Path: "/api/v1/streams/events/move", Body: body(-5, "of events", nil)},
		{Path: "/api/v1/streams/users/move", Body: body(-7, "of users", nil)},
		{Path: "/api/v1/streams/users/move", Body: body(-7, "of users", object{"execute": true, "confirm": "users", "base_epoch": 3.0})},
	}, f.actions()); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestLateAnswer: the late answer to an action whose dialog was closed is told, and leaves the
// next dialog open and without a problem.
func TestLateAnswer(t *testing.T) {
	for _, tc := range []struct {
		name string
		answer
		told string
	}{
		{"done", done(4), "events paused at entry 4.0"},
		{"rejected", answer{409, object{"error": "request fts6vj is withdrawn, nothing was changed"}},
			"Request fts6vj is withdrawn, nothing was changed."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeBridge(t, running("events"), running("users"))
			late := make(chan struct{})
			f.late, f.answers = late, []answer{tc.answer}
			p := open(t, f, 1280, "status of 409")
			p.click("#pause")
			p.write("#hold-reason", "why")
			p.click("#hold-submit")
			p.until("the pause is requested", func() bool { return len(f.actions()) == 1 })
			p.press(kb.Escape)
			p.press("]")
			p.sees("#state-stream", "users")
			p.click("#pause")
			close(late)
			p.sees("#toast", tc.told)
			if !read[bool](p, `document.getElementById('hold-dialog').open`) {
				t.Error("the answer for events has closed the dialog of users")
			}
			if got := read[string](p, `document.querySelector('#hold-dialog .problem').textContent`); got != "" {
				t.Errorf("the dialog of users shows %q", got)
			}
		})
	}
}
