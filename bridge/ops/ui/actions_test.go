//go:build browser

package ui_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// done is the answer to an applied action.
func done(epoch int) answer {
	return answer{200, object{"applied": true, "by": "bridge-0", "epoch": epoch, "seq": 0, "at": time.Now()}}
}

func TestRewind(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(200)
	planned := answer{200, object{
		"stream": "events", "from": object{"epoch": 3, "seq": 88412, "events": 48_211_907},
		"to":          object{"epoch": 3, "seq": 88409},
		"repeats_min": 31_170, "repeats_max": 31_170, "repeats_pages": 39, "guarantee": "exactly-once", "base_epoch": 3,
	}}
	f.answers = []answer{
		planned,
		{409, object{"error": "the stream was moved by somebody else meanwhile", "hint": "plan it again"}},
		planned,
		done(4),
	}
	p := open(t, f, 1280, "status of 409")
	p.click(`#history-rows [data-key="3.88409"]`)
	p.sees("#move-dialog", "Step 1 of 2")
	p.write("#move-form [name=reason]", "  bad deploy ")
	p.click("#move-submit")
	p.sees("#move-again", "31,170 events come again.")
	p.sees("#move-rows", "39 pages, published again with the same ids")
	p.sees("#move-rows", "bad deploy") // the reason, once more
	if got := len(f.actions()); got != 1 {
		t.Fatalf("%d actions for a plan, want 1", got)
	}
	if !read[bool](p, `document.getElementById('move-submit').disabled`) {
		t.Error("a stream can be moved without its name")
	}
	p.write("#move-form [name=confirm]", "event")
	if !read[bool](p, `document.getElementById('move-submit').disabled`) {
		t.Error("half the stream's name is enough to move it")
	}
	p.write("#move-form [name=confirm]", "s")
	p.click("#move-submit")
	p.sees("#move-problem", "The stream was moved by somebody else meanwhile.")
	p.click("#move-problem button") // Plan again
	p.wait(`document.getElementById('move-problem').hidden && document.querySelector('#move-form [name=confirm]').value === ''`)
	p.write("#move-form [name=confirm]", "events")
	p.click("#move-submit")
	p.sees("#toast", "events moved to entry 4.0, acknowledged by bridge-0.")
	plan := object{"to": object{"entry": "3.88409"}, "reason": "bad deploy", "execute": false}
	order := object{"to": object{"entry": "3.88409"}, "reason": "bad deploy", "execute": true, "confirm": "events",
		"base_epoch": 3.0}
	path := "/api/v1/streams/events/move"
	if diff := cmp.Diff([]posted{{Path: path, Body: plan}, {Path: path, Body: order}, {Path: path, Body: plan},
		{Path: path, Body: order}}, f.actions()); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// Each of the other targets.
func TestMoveTargets(t *testing.T) {
	for _, tc := range []struct {
		choice, field, value string
		want                 object
	}{
		{"shift", "shift", "250", object{"shift": -250.0}},
		{"datetime", "datetime", "2026-11-20T13:05:30", object{"datetime": "2026-11-20T13:05:30Z"}},
		{"event_time", "event_time", "2026-11-20", object{"event_time": "2026-11-20T00:00:00Z"}},
		{"earliest", "", "", object{"earliest": true}},
		{"current", "", "", object{"current": true}},
		{"latest", "", "", object{"latest": true}},
	} {
		t.Run(tc.choice, func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			f.answers = []answer{{200, object{
				"stream": "events", "from": object{"epoch": 3, "seq": 88412}, "to": "events from there on",
				"repeats_min": 754, "repeats_max": nil, "repeats_pages": nil, "guarantee": "exactly-once", "base_epoch": 3,
			}}}
			p := open(t, f, 1280)
			if _, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride,
				emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"}); err != nil {
				t.Fatal(err) // the page speaks UTC wherever it is
			}
			p.click("#move")
			p.click("#move-form [value=" + tc.choice + "]")
			if tc.field != "" {
				p.set("#move-form [name="+tc.field+"]", tc.value)
			}
			p.write("#move-form [name=reason]", "why")
			p.click("#move-submit")
			p.sees("#move-again", "At least 754 events come again.")
			if diff := cmp.Diff(object{"to": tc.want, "reason": "why", "execute": false}, f.actions()[0].Body); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestActionNeedsReason(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	p := open(t, f, 1280)
	p.click("#pause")
	p.click("#hold-submit")
	p.write("#hold-reason", "   ")
	p.click("#hold-submit")
	if !read[bool](p, `document.getElementById('hold-dialog').open && !document.getElementById('hold-reason').validity.valid`) || len(f.actions()) > 0 {
		t.Errorf("an action went out without a reason: %v", f.actions())
	}
}

func TestPauseAndResume(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.answers = []answer{done(4), {200, object{"applied": false, "detail": "the stream is not paused", "by": "bridge-0",
		"epoch": 4, "seq": 0}}, done(5)}
	p := open(t, f, 1280)
	p.click("#pause")
	p.set("#hold-length", "30m")
	p.write("#hold-reason", "the vendor migrates")
	p.click("#hold-submit")
	p.sees("#toast", "events paused at entry 4.0, acknowledged by bridge-0.")
	f.set(func() {
		f.reports[0].Live.State, f.reports[0].Live.PausedUntil = bridge.StatePaused,
			time.Now().Add(30*time.Minute).UnixMilli()
		f.reports[0].Changes = []object{{"kind": "pause", "who": "http:10.0.0.7", "reason": "the vendor migrates"}}
	})
	p.sees("#state-text", "Paused until ")
	p.sees("#cause", "the vendor migrates")
	p.sees("#cause", "http:10.0.0.7")
	p.click("#resume")
	p.write("#hold-reason", "done")
	p.click("#hold-submit")
	p.sees("#hold-dialog .problem", "The stream is not paused.")
	p.click("#hold-submit")
	p.sees("#toast", "events resumed")
	want := []posted{
		{Path: "/api/v1/streams/events/pause", Body: object{"reason": "the vendor migrates", "for": "30m"}},
		{Path: "/api/v1/streams/events/resume", Body: object{"reason": "done"}},
		{Path: "/api/v1/streams/events/resume", Body: object{"reason": "done"}},
	}
	if diff := cmp.Diff(want, f.actions()); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestToken(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.token, f.answers = "s3cret", []answer{done(4)}
	p := open(t, f, 1280, "status of 401")
	stored := `sessionStorage.getItem('exportbridge-token')`
	p.click("#pause")
	p.write("#token", "wrong")
	p.click("#token-dialog [type=submit]")
	p.sees("#token-dialog .problem", "Invalid token.")
	if got := read[*string](p, stored); got != nil || len(f.actions()) > 0 {
		t.Errorf("a wrong token is kept (%v) or used: %v", got, f.actions())
	}
	p.set("#token", "s3cret")
	p.click("#token-dialog [type=submit]")
	p.write("#hold-reason", "why")
	p.click("#hold-submit")
	p.sees("#toast", "events paused")
	if got := f.actions()[0].Token; got != "Bearer s3cret" {
		t.Errorf("the action's Authorization is %q", got)
	}
	if n := read[int](p, `Object.values(localStorage).concat(document.cookie).join('').includes('s3cret') ? 1 : 0`); n != 0 {
		t.Error("the token outlives the tab")
	}

	f.set(func() { f.token = "another" }) // somebody changed it
	p.click("#pause")
	p.write("#hold-reason", "why")
	p.click("#hold-submit")
	p.sees("#hold-dialog .problem", "The token is not the bridge's.")
	p.wait(stored + " === null")
	p.click("#hold-dialog [data-close]")
	p.sees("#unlock", "Unlock")
}

func TestReadOnly(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.write = false
	p := open(t, f, 1280)
	p.sees("#unlock", "Read-only")
	if !read[bool](p, `['pause', 'move', 'unlock'].every((id) => document.getElementById(id).disabled)`) {
		t.Error("actions are offered to somebody who may not act")
	}
	p.press("p")
	p.sees("#toast", "HTTP_ADMIN_TOKEN_FILE")
}

// The remaining time of a job is known after two observations.
func TestJobTakesYet(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	one := func(state string, progress, worked float64) {
		f.set(func() {
			f.jobs = []object{{"id": "k3xq7a", "kind": "backfill", "stream": "events", "state": state, "windows": 4, "done": 1,
				"events": 3, "progress": progress, "progress_with_events": worked}}
		})
		f.drop() // the page looks again when it is connected again
	}
	one("running", 0.25, 0.1)
	p := open(t, f, 1280)
	p.sees("#jobs-rows", "1 of 4")
	if got := read[string](p, "document.getElementById('jobs-rows').textContent"); strings.Contains(got, "left") {
		t.Errorf("one look says %q", got)
	}
	one("running", 0.4, 0.1) // through empty windows, which take no time
	p.wait(`document.querySelector('#jobs-rows progress').value === 0.4`)
	p.sees("#jobs-rows", "remaining time unknown")
	one("running", 0.5, 0.2)
	p.sees("#jobs-rows", "s left")
	if got := read[float64](p, "document.querySelector('#jobs-rows progress').value"); got != 0.5 {
		t.Errorf("the bar is at %v", got)
	}
	one("interrupted", 0.5, 0.2)
	p.sees("#jobs-rows", "interrupted")
	if got := read[string](p, "document.getElementById('jobs-rows').textContent"); strings.Contains(got, "left") {
		t.Errorf("an interrupted job says %q", got)
	}
}
