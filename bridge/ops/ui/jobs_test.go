//go:build browser

package ui_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plannedJob is the answer to a plan of a job.
func plannedJob() answer {
	return answer{200, object{
		"id": "k3xq7a", "kind": "backfill", "stream": "events", "state": "planned", "topic": "export.events",
		"from": "1970-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z",
		"windows": 8, "parallel": 2, "rate_limit": 5, "notes": []string{"the range ends before the stream began"},
		"plan_hash": "5b0f7c9a1e3d2468",
	}}
}

// A backfill is planned, begun once the stream's name is typed, watched and
// cancelled.
func TestBackfill(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.answers = []answer{
		{409, object{"error": "the stream publishes this range",
			"hint": `choose another range, or "allow_overlap": true publishes it again, with the same ce_id`}},
		plannedJob(), {409, object{"error": "the plan has changed", "hint": "plan again"}}, plannedJob(),
		{200, object{"id": "k3xq7a", "kind": "backfill", "stream": "events"}},
		{200, object{"id": "k3xq7a", "kind": "backfill", "stream": "events"}},
	}
	p := open(t, f, 1280, "status of 409")
	p.click("#jobs-begin")
	p.sees("#job-title", "Backfill or replay events")
	p.set("#job-form [name=from]", "earliest")
	p.set("#job-form [name=until]", "2026-02-01 00:00:00")
	p.set("#job-form [name=windows]", "8")
	p.write("#job-form [name=reason]", "restored by the vendor")
	p.click("#job-submit")
	p.sees("#job-problem", "The stream publishes this range.")
	p.click("#job-problem button")
	p.sees("#job-rows", "the earliest event – 2026-02-01")
	for _, text := range []string{"8, 2 at a time", "unknown until it runs", "at most 5 per second",
		"restored by the vendor", "the range ends before"} {
		p.sees("#job-rows", text)
	}
	if !read[bool](p, `document.getElementById('job-submit').disabled`) {
		t.Error("a job can be started without the stream's name")
	}
	p.fits()
	p.obeys()
	p.write("#job-form [name=confirm]", "events")
	p.click("#job-submit")
	p.sees("#job-problem", "The plan has changed.")
	p.click("#job-problem button")
	p.wait(`document.querySelector('#job-form [name=confirm]').value === ''`)
	p.write("#job-form [name=confirm]", "events")
	f.set(func() {
		f.jobs = []object{{"id": "k3xq7a", "kind": "backfill", "stream": "events", "state": "running", "windows": 8,
			"done": 1, "events": 3, "progress": 0.1, "trouble": "the API answered 429",
			"note": "2 of 3 events have a time outside"}}
	})
	p.click("#job-submit")
	p.sees("#toast", "backfill k3xq7a of events started.")
	p.sees("#jobs-rows", "1 of 8 windows")
	p.sees("#jobs-rows", "the API answered 429")
	p.sees("#jobs-rows", "2 of 3 events have a time outside")
	f.set(func() { f.jobs[0]["done"], f.jobs[0]["progress"] = 2, 0.2 })
	p.sees("#jobs-rows", "2 of 8 windows")
	p.click(`#jobs-rows [data-key="k3xq7a cancel"]`)
	p.sees("#hold-title", "Cancel the backfill k3xq7a")
	p.write("#hold-reason", "wrong month")
	p.click("#hold-submit")
	p.sees("#toast", "backfill k3xq7a cancelled.")

	plan := func(overlap bool) object {
		return object{
			"stream": "events", "kind": "backfill", "from": "earliest", "to": "2026-02-01T00:00:00Z", "windows": 8.0,
			"allow_overlap": overlap, "reason": "restored by the vendor", "execute": false,
		}
	}
	start := plan(true)
	start["execute"], start["confirm"], start["id"], start["plan_hash"] = true, "events", "k3xq7a", "5b0f7c9a1e3d2468"
	want := []posted{
		{Path: "/api/v1/jobs", Body: plan(false)}, {Path: "/api/v1/jobs", Body: plan(true)},
		{Path: "/api/v1/jobs", Body: start},
		{Path: "/api/v1/jobs", Body: plan(true)}, {Path: "/api/v1/jobs", Body: start},
		{Path: "/api/v1/jobs/k3xq7a/cancel", Body: object{"reason": "wrong month", "execute": true}},
	}
	if diff := cmp.Diff(want, f.actions()); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// An interrupted job can be resumed; jobs wait for Kafka, not for Redis.
func TestResumeJob(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.jobs = []object{{"id": "k3xq7a", "kind": "replay", "stream": "events", "state": "interrupted", "windows": 8,
		"done": 1, "events": 3, "progress": 0.1}}
	f.incomplete = "a job of stream b is newer"
	f.answers = []answer{{200, object{"id": "k3xq7a", "kind": "replay", "stream": "events"}}}
	p := open(t, f, 1280)
	p.sees("#jobs-rows", "Incomplete: a job of stream b is newer")
	p.click(`#jobs-rows [data-key="k3xq7a resume"]`)
	p.write("#hold-reason", "why")
	p.click("#hold-submit")
	p.sees("#toast", "replay k3xq7a resumed.")
	f.set(func() { loseRedis(f) })
	p.wait(`document.getElementById('pause').disabled && !document.getElementById('jobs-begin').disabled`)
	f.set(func() { loseKafka(f) })
	p.wait(`document.getElementById('jobs-begin').matches('[title*="Kafka is down"]')`)
}
