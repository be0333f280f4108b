//go:build browser

package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"exportbridge/bridge"
)

var (
	widths  = []int64{360, 768, 1024, 1280, 1920}
	schemes = []string{"light", "dark"}
)

// block makes the first stream one that the API has refused for eleven minutes.
func block(f *fakeBridge) {
	r, ago := &f.reports[0], time.Now().Add(-11*time.Minute)
	r.Live.State, r.Live.Reason, r.Live.Since, r.Live.Rate, r.Live.Pace = bridge.StateBlocked, bridge.ReasonAuth, ago, 0, 0
	r.Live.Error = `GET /events answered 401 Unauthorized: "The API key is not valid"`
	r.Live.Hint, r.LagSeconds = "exportbridge check, after renewing EXPORT_API_KEY_FILE", 702
	r.Live.LastCommit, r.Live.PrefetchedPages, r.Live.PrefetchedBytes = ago, 0, 0
	r.Live.Dependencies["api"] = bridge.Dependency{Since: ago, Trouble: "refuses the key", Error: "401 Unauthorized"}
	for _, e := range f.history {
		e["at"], e["position"] = e["at"].(time.Time).Add(-11*time.Minute), e["position"].(time.Time).Add(-11*time.Minute)
	}
}

func loseRedis(f *fakeBridge) {
	for _, r := range f.reports {
		r.Live.Dependencies["redis"] = bridge.Dependency{Since: time.Now().Add(-3 * time.Minute), Trouble: "is down",
			Error: "dial tcp 10.2.0.7:6379: connect: connection refused"}
	}
	f.reports[0].Notes = []string{"live status unknown: dial tcp 10.2.0.7:6379: connect: connection refused"}
}

func loseKafka(f *fakeBridge) {
	for i := range f.reports {
		r := &f.reports[i]
		r.Live.Dependencies["kafka"] = bridge.Dependency{Since: time.Now().Add(-2 * time.Minute), Trouble: "is down",
			Error: "dial tcp 10.2.0.9:9092: connect: connection refused"}
		r.Live.State, r.Live.CaughtUp, r.Live.Rate, r.Live.Pace, r.LagSeconds = bridge.StateBackoff, false, 0, 0, 162
		r.Live.Error, r.Live.NextTry = "kafka is down: dial tcp 10.2.0.9:9092: connect: connection refused",
			time.Now().Add(24*time.Second)
		r.Members, r.Known = nil, false
		r.Notes = []string{"group members unknown: dial tcp 10.2.0.9:9092: connect: connection refused"}
	}
	f.letters, f.jobs = nil, nil
	f.recordsErr = &answer{503,
		object{"error": "Kafka does not answer: dial tcp 10.2.0.9:9092: connect: connection refused",
			"hint": "run exportbridge dlq list --stream events --timeout 10m, which waits longer"}}
}

// because puts the first stream into a state for a reason.
func because(state bridge.State, reason bridge.Reason, err, hint string) func(f *fakeBridge) {
	return func(f *fakeBridge) {
		l := f.reports[0].Live
		l.State, l.Reason, l.Error, l.Hint, l.Since = state, reason, err, hint, time.Now().Add(-4*time.Minute)
		l.NextTry, l.Rate, l.Pace, l.Failures = time.Now().Add(40*time.Second), 0, 0, 7
		f.reports[0].LagSeconds = 282
	}
}

// conditions are the conditions that an operator meets.
var conditions = []struct {
	name     string
	change   func(f *fakeBridge)
	act      func(p *tab)
	expected []string
}{
	{name: "running"},
	{name: "caught-up", change: func(f *fakeBridge) {
		caught := idle("events")
		caught.Live.DeadLettered = 2
		f.reports[0] = caught
	}},
	{name: "warned", change: func(f *fakeBridge) {
		caught := idle("events")
		caught.Live.Warnings = doubtfulEnd
		f.reports[0] = caught
	}},
	{name: "days-later", change: daysLater},
	{name: "paused", change: func(f *fakeBridge) {
		f.reports[0].Live.State, f.reports[0].Live.PausedUntil = bridge.StatePaused,
			time.Now().Add(22*time.Minute).UnixMilli()
		f.reports[0].Changes = []object{{"kind": "pause", "who": "ada@ops-1", "reason": "the vendor migrates"}}
	}},
	{name: "blocked", change: block},
	{name: "behind", change: func(f *fakeBridge) {
		f.reports[0].LagSeconds, f.reports[0].Live.Rate = 8*3600, 41_200
	}},
	{name: "retrying", change: func(f *fakeBridge) {
		because(bridge.StateBackoff, "",
			`fetch page at cursor 9f3c21a07be4 from api.example.com: 503 Service Unavailable: "maintenance until 15:00"`,
			"if it persists, report it to the operator of the API: the failure is on its side")(f)
		f.reports[0].Live.Dependencies["api"] = bridge.Dependency{Since: time.Now().Add(-4 * time.Minute),
			Trouble: "answers with errors", Error: "503 Service Unavailable"}
		for n := range 6 {
			f.first = append(f.first,
				logged("WARN", "retrying", object{"stream": "events", "error": "503 Service Unavailable", "failures": n + 1,
					"in": "12s"}))
		}
	}},
	{name: "blocked-cursor", change: because(bridge.StateBlocked, bridge.ReasonCursor,
		`fetch page at cursor 9f3c21a07be4 from api.example.com: 410 Gone: "The cursor has expired"`,
		"exportbridge cursor rewind --shift-by -1 --stream events --execute")},
	{name: "blocked-config", change: because(bridge.StateBlocked, bridge.ReasonConfig,
		`fetch first page from api.example.com: 404 Not Found: "No route for GET /v1/event"`,
		"check EXPORT_URL and EXPORT_PATH")},
	{name: "dead-letters", change: func(f *fakeBridge) {
		caught := idle("events")
		caught.Live.DeadLettered, caught.Live.Published = 56_821, 11_020
		f.reports[0], f.more = caught, true
		for n := range 48 {
			f.letters = append(f.letters, object{
				"partition": n % 3, "offset": 56_800 - n, "time": time.Now().Add(-time.Duration(n) * time.Second),
				"reason": "bad-timestamp", "message": "the item has no readable time at /timestamp",
				"cursor_hash": "0a94be51c7d8", "index": n, "bytes": 611, "headers": object{
					"__dlq.errors.topic": "export.events", "__dlq.errors.message": "the item has no readable time at /timestamp",
					"ce_type": "com.croct.event.orderPlaced", "eb-stage": "decode", "eb-stream": "events",
				},
			})
		}
	}, act: func(p *tab) {
		p.click(`#letters-rows [data-key="fold 0:56800"]`)
		p.sees("#letters-rows .details", "decode")
	}},
	{name: "peak", change: func(f *fakeBridge) {
		daysLater(f) // as shortly after midnight: the widest rows
		for i, e := range f.history[:150] {
			e["events"] = 48_211_907 - 40*i
		}
		for _, e := range f.history[150:] {
			e["events"] = e["events"].(int) - 900_000
		}
	}},
	{name: "kafka-away", change: loseKafka, expected: []string{"status of 503"}},
	{name: "redis-away", change: loseRedis},
	{name: "standby", change: func(f *fakeBridge) { f.standby = true }},
	{name: "no-stream-yet", change: func(f *fakeBridge) {
		f.reports = []report{{Stream: "events", Known: true, Guarantee: f.reports[0].Guarantee}}
		f.history, f.first, f.letters, f.jobs, f.metrics = nil, nil, nil, nil, ""
	}},
	{name: "plan", change: func(f *fakeBridge) {
		f.answers = []answer{{200, object{
			"stream": "events", "from": object{"epoch": 3, "seq": 88412, "events": 48_211_907},
			"to":          object{"text": "entry 3.88390   2026-11-20 14:02:31Z"},
			"repeats_min": 251_170, "repeats_max": 251_170, "repeats_pages": 286, "guarantee": "exactly-once", "base_epoch": 3,
		}}}
	}, act: func(p *tab) {
		p.click(`#history-rows [data-key="3.88390"]`)
		p.write("#move-form [name=reason]", "bad deploy of the consumer")
		p.resize(360, 900)
		p.whole()
		p.obeys()
		p.portrait("move-360", "light", 360)
		p.click("#move-submit")
		p.sees("#move-again", "251,170")
	}},
	{name: "job", change: func(f *fakeBridge) { f.answers = []answer{plannedJob()} }, act: func(p *tab) {
		p.click("#jobs-begin")
		p.set("#job-form [name=from]", "earliest")
		p.set("#job-form [name=until]", "2026-02-01 00:00")
		p.write("#job-form [name=reason]", "restored by the vendor")
		p.whole()
		p.obeys()
		p.click("#job-submit")
		p.sees("#job-rows", "k3xq7a")
	}},
	{name: "history", act: func(p *tab) {
		p.press("h")
		p.press(strings.Repeat(kb.ArrowLeft, 7))
		p.sees("#slider-text", "come again")
	}},
}

// daysLater moves all times to another day, so that they are shown with their date.
func daysLater(f *fakeBridge) {
	for _, list := range [][]object{f.history, f.letters} {
		for _, row := range list {
			for _, field := range []string{"at", "position", "time"} {
				if at, ok := row[field].(time.Time); ok {
					row[field] = at.AddDate(0, 0, -20)
				}
			}
		}
	}
	for _, m := range f.first {
		m.data.(object)["time"] = time.Now().AddDate(0, 0, -20)
	}
}

// The page is whole in each condition, at each width, in light and dark.
func TestConditions(t *testing.T) {
	for _, c := range conditions {
		t.Run(c.name, func(t *testing.T) {
			f := busy(t)
			if c.change != nil {
				c.change(f)
			}
			p := open(t, f, 1400, c.expected...)
			p.loaded()
			if c.act != nil {
				c.act(p)
			}
			for _, width := range widths {
				p.resize(width, 900)
				p.fits()
				p.whole()
				p.obeys()
				for _, scheme := range schemes {
					p.portrait(fmt.Sprintf("%s-%d-%s", c.name, width, scheme), scheme, width)
				}
			}
		})
	}
}

// loaded waits until the lists are loaded.
func (p *tab) loaded() {
	p.Helper()
	p.wait(`document.querySelectorAll('.chart canvas').length === 2 && ` +
		`document.getElementById('letters-empty').innerText !== 'Loading…' && ` +
		`document.getElementById('jobs-empty').innerText !== 'Loading…'`)
	p.wait(`document.querySelectorAll('#history-rows tr').length === 200 || ` +
		`!document.getElementById('history-empty').innerText.startsWith('Loading')`)
}

// whole fails if a table is wider than its card, or a figure is cut.
func (p *tab) whole() {
	p.Helper()
	for _, cut := range read[[]string](p, `[...document.querySelectorAll('.scroll, .figure .value, dialog[open]')].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
		.map((e) => innerWidth + ' pixels: ' + (e.ariaLabel ?? e.className) + ' of ' + e.scrollWidth + ' in ' + e.clientWidth)`) {
		p.Errorf("cut at %s", cut)
	}
}

// portrait is a picture of the whole page.
func (p *tab) portrait(name, scheme string, width int64) {
	p.Helper()
	if pictures == "" {
		return
	}
	p.scheme(scheme)
	height := int64(900)
	if !read[bool](p, `Boolean(document.querySelector('dialog[open]'))`) {
		height = read[int64](p, `document.body.scrollHeight`)
	}
	p.resize(width, height)
	p.settle()
	p.keep("states/"+name, p.shot())
}
