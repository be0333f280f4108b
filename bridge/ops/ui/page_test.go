//go:build browser

package ui_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// Header, slider and table show the same newest commit, even if the history was read earlier.
func TestOneNow(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(60)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	for seq := int64(88413); seq < 88416; seq++ {
		f.set(func() {
			f.reports[0].Live.Version.Seq, f.reports[0].Live.CursorHash = seq, fmt.Sprint("c", seq)
			f.reports[0].Live.Events += 36
			f.reports[0].Live.LastCommit = time.Now()
		})
		p.sees("#position", fmt.Sprint("entry 3.", seq))
		got := read[[]string](p,
			`['slider-text', 'history-rows', 'position-time',`+
				` 'figure-commit'].map((id) => document.getElementById(id).innerText)`)
		position := strings.TrimPrefix(got[2], "position ")
		row, _, _ := strings.Cut(got[1], "\n")
		if !strings.HasPrefix(got[0], fmt.Sprintf("now: entry 3.%d,", seq)) ||
			!strings.HasPrefix(row, fmt.Sprintf("3.%d\t", seq)) || !strings.Contains(row, position) ||
			!strings.Contains(got[3], fmt.Sprintf("entry 3.%d", seq)) {
			t.Errorf("the header is at entry 3.%d, position %q; the slider says %q, the table %q, the figure %q", seq,
				position, got[0], row, got[3])
		}
	}
	got := read[string](p, `document.getElementById('history-rows').rows[1].innerText`)
	if !strings.HasPrefix(got, "3.88411\t") {
		t.Errorf("the second row has become %q", got)
	}
	if got := read[[]string](p,
		`[document.querySelector('#figure-lag .value').innerText, document.getElementById('state-text').innerText]`); !strings.HasPrefix(got[1], got[0]+" behind") {
		t.Errorf("the lag is %q in the figure and %q in the header", got[0], got[1])
	}
}

// Every plan says how many events come again, and so does the slider before the plan.
func TestCounts(t *testing.T) {
	for _, tc := range []struct {
		least, most any
		want        string
	}{
		{36, 36, "36 events come again."}, {1, 1, "1 event comes again."}, {0, 0, "No event comes again."},
		{36, 1036, "36 to 1,036 events come again."}, {0, 1036, "At most 1,036 events come again."},
		{36, nil, "At least 36 events come again."},
		{nil, nil, "How many events come again is not known: the history is gone."},
	} {
		t.Run(tc.want, func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			f.history = entries(60)
			plan := answer{200, object{"stream": "events", "from": object{}, "to": object{}, "repeats_min": tc.least,
				"repeats_max": tc.most, "repeats_pages": nil, "repeats_unknown": "the history is gone",
				"guarantee": "exactly-once", "base_epoch": 3}}
			f.answers = []answer{plan, plan, plan}
			p := open(t, f, 1280)
			p.sees("#history-rows", "3.88411")
			p.press("h")
			p.press(kb.ArrowLeft + kb.ArrowLeft)
			p.sees("#slider-text", "entry 3.88410, committed")
			p.sees("#slider-text", "23,342 events come again")
			for _, begin := range []func(){
				func() { p.click("#slider-move") },
				func() { p.click(`#history-rows [data-key="3.88409"]`) },
				func() {
					p.click("#move")
					p.click("#move-form [value=datetime]")
					p.set("#move-form [name=datetime]", "2026-11-20 13:05:30")
				},
			} {
				begin()
				p.write("#move-form [name=reason]", "why")
				p.click("#move-submit")
				p.sees("#move-again", tc.want)
				p.click("#move-dialog [data-close]")
			}
		})
	}
}

// The slider counts across a rewind that has ended. Before its end, and across a reset, whose
// entries have another count, only the plan has the number.
func TestCountsAcrossEpochs(t *testing.T) {
	for parent, want := range map[string]string{"2.88409": "events come again", "3.88350": "the plan says how many",
		"": "the plan says how many", "2.88408": "the plan says how many"} {
		t.Run(parent, func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			f.history = entries(80)
			if f.history[61]["parent"] = parent; parent == "2.88408" {
				f.history[0]["news_after"] = object{"cursor_hash": "51aa90be7712", "event_time": 0}
			}
			p := open(t, f, 1280)
			p.sees("#history-rows", "3.88411")
			p.press("h")
			p.press(kb.End + kb.Home)
			p.sees("#slider-text", "entry 2.88392, committed")
			p.sees("#slider-text", want)
		})
	}
}

// The page calls a rewind a rewind, as the command line does; its commit has the kind reset.
func TestKinds(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(70)
	for i, kind := range []string{"reset", "pause", "resume"} {
		f.history[5+i]["kind"], f.history[5+i]["change"] = kind, object{"kind": kind, "who": "ada", "reason": "why"}
	}
	f.history[9]["kind"] = "heartbeat"
	f.history[9]["change"] = object{"kind": "rewind", "who": "ada",
		"reason": "of an earlier entry"} // the last change until then
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	kinds := `[...document.querySelectorAll('#history-rows td:nth-child(4)')].map((e) => e.innerText).filter((kind) ` +
		`=> kind !== 'data').join(' ')`
	if got := read[string](p, kinds); got != "reset pause resume heartbeat rewind" {
		t.Errorf("the history shows %q", got)
	}
	if got := read[[]string](p,
		`[...document.querySelectorAll('#marks .mark')].map((e) => e.title.split(' at ')[0] + ' ' + e.className)`); !slices.Equal(got, []string{
		"reset mark is-reset", "pause mark is-pause", "resume mark is-resume", "rewind mark is-rewind",
	}) {
		t.Errorf("the slider shows %q", got)
	}
	p.resize(390, 900)
	p.sees("#history-rows .narrow", "rewind:")
	p.click("#changes-only")
	p.wait(`document.querySelectorAll('#history-rows tr').length === 4`)
}

// Without Redis events flow and actions wait: the page says so, in amber.
func TestWithoutRedis(t *testing.T) {
	f := busy(t)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	f.set(func() { loseRedis(f) })
	p.sees("#state-text", "Redis is down; events flow; actions wait.")
	p.sees("#state-name", "Running, in doubt")
	p.wait(`document.title.startsWith('Running, in doubt')`)
	p.sees("#act-why", "Redis is down")
	for selector, what := range map[string]string{
		"#pause": "disabled", "#move": "disabled", "#slider-move": "disabled",
		`#history-rows [data-key="3.88411"]`: "disabled",
	} {
		p.wait(fmt.Sprintf(`document.querySelector(%q)?.matches(':%s[title*="Redis is down"]')`, selector, what))
	}
	colour := func(selector string) string {
		return read[string](p, fmt.Sprintf(`getComputedStyle(document.querySelector(%q)).color`, selector))
	}
	if got, amber := colour("#state .chip"), colour("#act-why"); got != amber {
		t.Errorf("the state is %s, want amber, %s", got, amber)
	}
	p.press("p")
	p.sees("#toast", "Redis is down")
	f.set(func() { f.reports[0].Live.Dependencies["redis"] = bridge.Dependency{Up: true, Since: time.Now()} })
	p.wait(`!document.getElementById('pause').disabled && document.getElementById('pause').title === '' && ` +
		`document.getElementById('act-why').hidden`)
	p.wait(`!document.querySelector('#history-rows [data-key="3.88411"]').disabled`)
}

// Without Kafka nothing is committed, and the page does not claim to know its contents.
func TestWithoutKafka(t *testing.T) {
	f := busy(t)
	loseKafka(f)
	p := open(t, f, 1280, "status of 503")
	p.sees("#state-text", "Kafka is down; the stream waits; no event is lost. Next attempt in")
	p.sees("#act-why", "Kafka is down")
	p.sees("#members-empty", "Not known: Kafka is down.")
	p.sees("#letters-empty", "Not known: Kafka does not answer")
	p.sees("#jobs-empty", "Not known: Kafka does not answer")
	if got := read[string](p, `document.body.innerText`); strings.Contains(got, "No dead letters") ||
		strings.Contains(got, "No known") || strings.Contains(got, " --") {
		t.Errorf("the page claims to know, or shows a flag of the command line: %s", got)
	}
	f.set(func() { f.recordsErr = nil }) // an answer in a moment when Kafka was there
	p.click("#letters-retry")
	p.sees("#letters-empty", "Not known: Kafka is down.")
	f.set(func() { // at least once the position is in Redis
		f.reports[0].Live.Mode = bridge.AtLeastOnce
	})
	p.wait(`!document.getElementById('pause').disabled`)
}

// An unknown figure is shown as unknown, and a stream that does not read does not catch up.
func TestNotes(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.metrics = measuredText("events")
	p := open(t, f, 1280)
	notes := func(want ...string) {
		t.Helper()
		text := `['lag', 'rate', 'events', 'dead',` +
			` 'commit'].map((id) => document.querySelector('#figure-' + id + ' .note').innerText).join('|')`
		p.until(strings.Join(want, "|"), func() bool {
			return strings.HasPrefix(read[string](p, text), strings.Join(want, "|"))
		})
	}
	notes("caught up in 14 s", "4.1 × real time", "in 49,120 pages", "since the process started", "ago, entry 3.88412")
	p.sees("#server-kafka .measured", "0 failed transactions")
	p.sees("#server-redis .measured", "0 failed writes")
	p.wait(`document.getElementById('slider-now').disabled === (document.getElementById('slider-now').title !== '')`)
	f.set(func() { f.reports[0].Live.State = bridge.StatePaused })
	notes("behind the export", "over 10 s", "in 49,120 pages")
	f.set(func() { f.reports = []report{{Stream: "events", Known: true}} })
	p.do(chromedp.Reload())
	notes("not known", "", "", "", "no commits")
}

// A pause of a stream without commits cannot work; a reset can.
func TestNothingToPause(t *testing.T) {
	f := newFakeBridge(t, report{Stream: "events", Known: true})
	p := open(t, f, 1280)
	p.wait(`document.getElementById('pause').disabled && !document.getElementById('move').disabled`)
	p.sees("#act-why", "Pausing requires a first commit.")
}

// Times have 24 hours in any language, and streams' names are marked.
func TestTimesAndNames(t *testing.T) {
	f := busy(t)
	f.answers = []answer{done(4)}
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	if got := read[[]string](p,
		`[...document.querySelectorAll('time')].map((e) => e.title).filter((text) => /[AP]M/.test(text) || `+
			`!/\d\d:\d\d:\d\d/.test(text))`); len(got) > 0 {
		t.Errorf("times have twelve hours: %q", got)
	}
	if n := read[int](p, `document.querySelectorAll('input[type^=datetime], input[type=time]').length`); n > 0 {
		t.Errorf("%d fields show times as the browser's language does", n)
	}
	p.click("#pause")
	p.sees("#hold-title code", "events")
	p.write("#hold-reason", "why")
	p.click("#hold-submit")
	p.sees("#toast code", "events")
	p.sees("#jobs-rows code", "events")
	p.click("#move")
	p.sees("#move-title code", "events")
	p.click("#move-form [value=datetime]")
	p.set("#move-form [name=datetime]", "1:05 PM")
	if read[bool](p, `document.querySelector('#move-form [name=datetime]').validity.valid`) {
		t.Error("1:05 PM is accepted as a time")
	}
}

// A hint that this page can follow is a button.
func TestRemedies(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	block(f)
	f.reports[0].Live.Hint = "exportbridge reset --to-current, which accepts the topic"
	p := open(t, f, 1280)
	p.sees("#cause code", "exportbridge reset")
	p.click("#cause dd button:not(.small)")
	p.sees("#move-title", "Move the cursor of events")
}

// The charts have a gap where figures are unknown.
func TestGaps(t *testing.T) {
	p := open(t, newFakeBridge(t, running("events")), 1280)
	got := must.Get(chromedp.Run(p.ctx, chromedp.Evaluate[[][]*float64](`import('./charts.js').then(({Series}) => {
		const live = new Series();
		for (const at of [1000, 1001, 1002, 1060, 1061]) live.add(at, 5, 7);
		const seeded = new Series();
		const entry = (at, events) => ({epoch: 1, at: new Date(at * 1000).toISOString(), position: new Date((at - 3) * 1000).toISOString(), events});
		seeded.seed([entry(1320, 400), entry(1310, 300), entry(1010, 200), entry(1000, 100)], 1600);
		return [live.lag, live.rate, seeded.lag, seeded.rate];
	})`, chromedp.EvalAwaitPromise)))(t)
	for i, want := range []string{"5 5 5 - 5 5", "7 7 7 - 7 7", "3 3 - - 3 3 - -", "- 10 0 0 0.3333333333333333 10 0 0"} {
		var text []string
		for _, v := range got[i] {
			if v == nil {
				text = append(text, "-")
			} else {
				text = append(text, fmt.Sprint(*v))
			}
		}
		if got := strings.Join(text, " "); got != want {
			t.Errorf("series %d is %s, want %s", i, got, want)
		}
	}
}

// TestManyDeadLetters: the state is amber while many events are dead letters, and says
// which are most frequent. A row opens the letter's headers, and commands for it.
func TestManyDeadLetters(t *testing.T) {
	caught := idle("events")
	caught.Live.DeadLettered, caught.Live.Published = 84, 16
	f := newFakeBridge(t, caught)
	p := open(t, f, 1280)
	p.sees("#state-name", "Caught up, in doubt")
	p.sees("#state-text", "84 of the events since the start are in the dead-letter topic.")
	p.sees("#figure-dead .note", "84 % of events since the process started")
	f.set(func() {
		f.more, f.reports[0].Live.DeadLettered, f.reports[0].Live.Published = true, 56_821, 16
		for i, reason := range []string{"too-large", "bad-timestamp", "bad-timestamp", "bad-timestamp"} {
			f.letters = append(f.letters, object{
				"partition": 0, "offset": i, "time": time.Now(), "reason": reason,
				"message": "the item has no readable time at /at", "cursor_hash": "0a94be51c7d8", "index": 7, "bytes": 611,
				"headers": object{"ce_type": "orderPlaced", "eb-stage": "decode"},
			})
		}
	})
	p.sees("#letters-total", "newest 4 of 56,821 since the process started")
	p.sees("#letters-most", "Most often bad-timestamp at /at: 3 of the newest 4.")
	p.sees("#cause", "most often bad-timestamp at /at: 3 of the newest 4")
	p.click(`#letters-rows [data-key="fold 0:2"]`)
	p.sees("#letters-rows .details", "orderPlaced")
	for _, command := range []string{"show 0:2", "retry 0:2", "list --reason bad-timestamp",
		"retry --all --reason bad-timestamp"} {
		p.sees("#letters-rows .details code", "exportbridge dlq "+command+" --stream events")
	}
	p.click("#letters-refresh") // what is open stays open
	p.sees("#letters-rows .details", "orderPlaced")
	p.resize(360, 900)
	p.fits()
	p.whole()
	p.obeys()
	p.click(`#letters-rows [data-key="fold 0:2"]`)
	p.wait(`document.querySelector('#letters-rows .details') === null`)
	if css := read[string](p, `document.getElementById('state').className`); css != "card state is-degraded" {
		t.Errorf("class %q", css)
	}
}

// TestFarBehind: a stream that is far behind is not just running, and catches up
// only if its pace shows it.
func TestFarBehind(t *testing.T) {
	for name, pace := range map[string]float64{"Catching up": 4, "Behind": 0.5} {
		t.Run(name, func(t *testing.T) {
			late := running("events")
			late.LagSeconds, late.Live.Pace = (8 * time.Hour).Seconds(), pace // the position follows
			p := open(t, newFakeBridge(t, late), 1280)
			p.sees("#state-name", name)
			if css := read[string](p, `document.getElementById('state').className`); css != "card state is-behind" {
				t.Errorf("class %q", css)
			}
		})
	}
}

// A server that answers is not down: its box and the sentence describe the failure.
func TestTroubles(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	block(f)
	p := open(t, f, 1280)
	p.sees("#server-api .badge", "refuses the key")
	f.set(func() {
		l := f.reports[0].Live
		l.State, l.Dependencies["api"] = bridge.StateBackoff, bridge.Dependency{Since: time.Now(),
			Trouble: "fails the TLS handshake", Error: "x509"}
		l.Dependencies["redis"] = bridge.Dependency{Since: time.Now(), Error: "from an older version"}
	})
	p.sees("#server-api .badge", "fails the TLS handshake")
	p.sees("#server-redis .badge", "down")
	p.sees("#state-text", "The export API fails the TLS handshake and Redis is down; the stream waits")
}

// An API without a start refuses an event time: the dialog says why, and what works.
func TestNoStart(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.answers = []answer{{409, object{"error": "EXPORT_START_PARAM is empty: the export cannot start at a time",
		"hint": "use a rewind, or the earliest event"}}}
	p := open(t, f, 1280, "status of 409")
	p.click("#move")
	p.click("#move-form [value=event_time]")
	p.set("#move-form [name=event_time]", "2026-11-20 13:00")
	p.write("#move-form [name=reason]", "why")
	p.click("#move-submit")
	p.sees("#move-problem", "the export cannot start at a time.")
	p.sees("#move-problem", "Use a rewind, or the earliest event.")
}

// A peak does not flatten the other rates: it is above the scale, and named.
func TestPeak(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(200)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	p.wait(`document.getElementById('clipped').innerText === ''`)
	for name, tc := range map[string]struct{ values, want string }{
		"steady":          {"Array.from({length: 100}, (_, i) => 100 + i)", "199"},
		"a peak":          {"Array.from({length: 100}, (_, i) => (i < 5 ? 90000 : 100))", "300"},
		"bursts":          {"Array.from({length: 100}, (_, i) => (i % 10 ? 0 : 50))", "50"},
		"little is known": {"[5, 90000, 7]", "90000"},
		"nothing":         {"[null, null]", "0"},
	} {
		got, err := chromedp.Run(p.ctx,
			chromedp.Evaluate[string](`import('./charts.js').then(({usualTop}) => String(usualTop(`+tc.values+`)))`,
				chromedp.EvalAwaitPromise))
		if err != nil || got != tc.want {
			t.Errorf("%s: the scale ends at %s, want %s; %v", name, got, tc.want, err)
		}
	}
	f.set(func() { f.reports[0].Live.Rate = 900_000 })
	p.sees("#clipped", "▲ peak 900,000 at ")
}

// On a phone, a long type keeps its end, and an ellipsis marks the cut.
func TestLongTypes(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	const begin, end = "com.example.a-company-with-a-name.and-a-department.event.", "tabVisibilityChanged"
	f.first = []message{sampled("events", begin+end, 0), sampled("events", strings.Repeat("endless", 20), 1)}
	p := open(t, f, 360)
	p.sees("#samples-rows", end)
	for _, show := range []bool{false, true} {
		f.set(func() { f.showEvents = show })
		p.do(chromedp.Reload())
		p.sees("#samples-rows", end)
		cut := `[...document.querySelectorAll('td.type bdi')].map((e) => e.innerText.slice(0,` +
			` 7) + ' ' + (e.scrollWidth > e.clientWidth) + ' ' + (e.clientWidth > 10)).join(' | ')`
		if got := read[string](p, cut); !show && got != "endless true true | com.exa true true | tabVisi false true" {
			t.Errorf("shown: %s", got)
		}
		if got := read[string](p, `document.querySelector('td.type:has(.begin)').title`); got != begin+end {
			t.Errorf("the title is %q", got)
		}
		p.fits()
	}
	p.whole()
}

// Entries of empty pages and messages that repeat are one row each, which opens.
func TestFolds(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(20)
	for i := 3; i < 9; i++ {
		f.history[i]["events"] = f.history[9]["events"]
	}
	for n := range 5 {
		f.first = append(f.first, logged("WARN", "retrying", object{"stream": "events", "error": "503", "failures": n}))
	}
	f.first = append(f.first, logged("WARN", "retrying", object{"stream": "events", "error": "another"}))
	p := open(t, f, 1280)
	rows := func(selector string, want int) {
		t.Helper()
		p.wait(fmt.Sprintf(`document.querySelectorAll(%q).length === %d`, selector, want))
	}
	p.sees("#history-rows", "6 entries without new events")
	rows("#history-rows tr", 15)
	rows("#log li", 2)
	p.sees("#log", "× 5")
	p.sees("#log", "failures=4") // the newest
	p.click(`#history-rows .fold`)
	rows("#history-rows tr", 20)
	p.click(`#history-rows .fold`)
	rows("#history-rows tr", 15)
	p.click(`#log .fold`)
	rows("#log li", 6)
	p.press("h")
	p.press(strings.Repeat(kb.ArrowLeft, 5)) // an entry within the fold
	p.sees("#history-rows tr.chosen", "3.88407")
	rows("#history-rows tr", 20)
	p.resize(360, 900)
	p.fits()
	p.whole()
	p.obeys()
}

// The first minutes after a start do not flatten the bars of the history.
func TestBars(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(200)
	for i, e := range f.history[190:] {
		e["events"] = e["events"].(int) - 4_000_000*(i+1)
	}
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	p.wait(`(() => {
		const bars = document.getElementById('bars');
		const line = bars.getContext('2d').getImageData(0, Math.floor(0.8 * bars.height), bars.width, 1).data;
		return line.filter((v, i) => i % 4 === 3 && v > 0).length > bars.width / 2;
	})()`)
}
