//go:build browser

package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"exportbridge/bridge"
)

func TestLoads(t *testing.T) {
	f := newFakeBridge(t, running("events"), idle("users"))
	f.history, f.metrics = entries(200), measuredText("events")
	p := open(t, f, 1280)
	p.sees("#state-name", "Running")
	p.sees("#state-text", "42 s behind; caught up in about 14 s.")
	p.sees("#figure-rate .value", "3,127")
	p.sees("#figure-events .value", "48,211,907")
	p.sees("#position", "entry 3.88412")
	p.sees("#members", "bridge-1")
	p.sees("#server-api .measured", "request 84 ms · 200: 99.6 % · 429: 0.4 %")
	p.sees("#stages", "fetch")
	p.sees("#stages-of", "last minute")
	p.sees("#history-rows", "bad deploy of the consumer (ada@ops-1)")
	p.sees("#letters-empty", "No dead letters")
	p.sees("#jobs-empty", "No backfills")
	if n := read[int](p, `document.querySelectorAll('.chart canvas').length`); n != 2 {
		t.Errorf("%d charts are drawn, want 2", n)
	}
	if got := read[string](p, "document.title"); got != "Running · events · exportbridge" {
		t.Errorf("title %q", got)
	}
}

// TestAllStreamsTogether: the page marks measurements of all streams together.
func TestAllStreamsTogether(t *testing.T) {
	f := newFakeBridge(t, running("events"), idle("users"))
	f.metrics = measuredText("")
	p := open(t, f, 1280)
	p.sees("#stages", "fetch")
	p.sees("#stages-of", "last minute, all streams")
	p.sees("#server-api .measured", "request 84 ms (all streams)")
}

func TestFiguresMove(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	p := open(t, f, 1280)
	p.sees("#figure-rate .value", "3,127")
	f.set(func() { f.reports[0].Live.Rate, f.reports[0].Live.Events = 411, 48_300_000 })
	p.sees("#figure-rate .value", "411")
	p.sees("#figure-events .value", "48,300,000")
	f.set(func() {
		down := bridge.Dependency{Since: time.Now(), Trouble: "is down", Error: "dial tcp 10.2.0.9:9092: connection refused"}
		f.reports[0].Live.State, f.reports[0].Live.Error = bridge.StateBackoff, down.Error
		f.reports[0].Live.Dependencies["kafka"] = down
	})
	p.sees("#state-name", "Retrying")
	p.sees("#server-kafka .badge", "down")
	p.sees("#server-kafka .error", "connection refused")
}

func TestReconnects(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.first = []message{logged("WARN", "once", nil)}
	p := open(t, f, 1280, "status of 503", "ERR_INCOMPLETE_CHUNKED_ENCODING")
	p.sees("#link", "Live")
	f.drop() // a cut, which the browser itself mends
	p.wait(`!document.body.classList.contains('stale')`)
	f.set(func() { f.refusing = true }) // an answer, after which it does not ask again
	f.drop()
	p.sees("#link", "Reconnecting")
	p.sees("#lost", "Too many clients. Close other browser tabs. Last update")
	p.until("the page asks again and is refused", func() bool { return f.refusals() > 1 })
	f.set(func() { f.refusing, f.reports[0].Live.Rate = false, 5 })
	p.sees("#link", "Live")
	p.sees("#figure-rate .value", "5.0")
	p.wait(`document.getElementById('lost').hidden`)
	f.set(func() { f.silent = true }) // a connection on which nothing comes
	p.sees("#link", "Reconnecting")
	f.set(func() { f.silent = false })
	p.sees("#link", "Live")
	if n := read[int](p, `document.querySelectorAll('#log li').length`); n != 1 {
		t.Errorf("the log shows %d lines after reconnecting, want 1", n)
	}
}

// The page shows every string of the server as text.
func TestInert(t *testing.T) {
	attack := func(where string) string {
		return fmt.Sprintf(`%s<img src=x onerror="pwned=1"><script>pwned=2</script>" onfocus="pwned=3" autofocus x="javascript:pwned=4`, where)
	}
	r := running(attack("stream"))
	r.Live.State, r.Live.Reason = bridge.StateBlocked, bridge.Reason(attack("why"))
	r.Live.Error, r.Live.Hint, r.Live.Owner, r.Live.CursorHash = attack("error"), attack("hint"), attack("owner"),
		attack("hash")
	r.Live.Dependencies["api"] = bridge.Dependency{Trouble: attack("trouble"), Error: attack("api")}
	r.Guarantee, r.Notes = attack("guarantee"), []string{attack("note")}
	r.Members = []object{{"client_id": attack("member"), "host": attack("host"), "owner": true}}
	f := newFakeBridge(t, r)
	f.showEvents = true
	f.history = entries(3)
	f.history[1]["kind"], f.history[1]["cursor_hash"] = "reset", attack("cursor")
	f.history[1]["change"] = object{"kind": "reset", "who": attack("who"), "reason": attack("reason")}
	f.letters = []object{{"partition": 1, "offset": 2, "time": time.Now(), "reason": attack("defect"),
		"message": attack("message"), "cursor_hash": attack("page"), "index": 0, "bytes": 7}}
	f.incomplete = attack("incomplete")
	f.jobs = []object{{"id": attack("job"), "kind": attack("kind"), "stream": attack("of"), "state": attack("state"),
		"topic": attack("topic"), "from": attack("from"), "to": nil, "windows": 2, "done": 1, "events": 3}}
	sample := sampled(r.Stream, attack("type"), 0)
	for _, field := range []string{"id", "key_hash", "origin", "value"} {
		sample.data.(object)[field] = attack("sample-" + field)
	}
	f.first = []message{logged("WARN", attack("logged"), object{attack("name"): attack("attr")}), sample}
	f.answers = []answer{
		{200, object{"stream": r.Stream, "from": attack("from"), "to": attack("to"), "guarantee": attack("promise"),
			"repeats_min": 1, "repeats_max": 1, "repeats_pages": 1, "base_epoch": 3, "notes": []string{attack("remark")}}},
		{503, object{"error": attack("refusal"), "hint": attack("advice")}},
	}
	p := open(t, f, 1280, "status of 503")
	for selector, texts := range map[string][]string{
		"#streams": {"stream"}, "#state": {"stream", "why", "error", "hint", "owner", "note"}, "#position-hash": {"hash"},
		"#server-api": {"trouble", "api"},
		"#members":    {"member", "host"}, "footer": {"guarantee"}, "#history-rows": {"cursor", "reason", "who"},
		"#letters-rows": {"defect", "message"},
		"#jobs-rows":    {"job", "kind", "of", "state", "topic", "incomplete"}, "#log": {"logged", "name", "attr"},
		"#samples-rows": {"type", "sample-id", "sample-key_hash", "sample-origin", "sample-value"},
	} {
		for _, text := range texts {
			p.sees(selector, attack(text))
		}
	}
	p.click("#history-rows button")
	p.write("#move-form [name=reason]", "why")
	p.click("#move-submit")
	for _, text := range []string{"stream", "from", "to", "promise", "remark"} {
		p.sees("#move-dialog", attack(text))
	}
	p.set("#move-form [name=confirm]", r.Stream)
	p.click("#move-submit")
	p.sees("#move-problem", attack("refusal")[1:]) // the first letter is capital there
	p.sees("#move-problem", attack("advice")[1:])
	if n := read[int](p, `document.querySelectorAll('img:not(.brand img), [onerror], [onfocus], [autofocus], body script').length`); n != 0 {
		t.Errorf("%d elements came from strings", n)
	}
	if read[bool](p, `'pwned' in window`) {
		t.Error("a string ran as a script")
	}
}

// A payload is shown only if the bridge allows it.
func TestPayloads(t *testing.T) {
	for _, shown := range []bool{false, true} {
		t.Run(fmt.Sprint(shown), func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			sample := sampled("events", "orderPlaced", 0)
			sample.data.(object)["value"], sample.data.(object)["id"],
				sample.data.(object)["key_hash"] = object{"userId": "somebody"}, "an-id", "a-hash"
			f.showEvents, f.first = shown, []message{sample}
			p := open(t, f, 1280)
			p.sees("#samples-rows", "orderPlaced")
			for _, private := range []string{"somebody", "an-id", "a-hash"} {
				if got := read[bool](p, `document.getElementById('samples-table').innerText.includes('`+private+`')`); got != shown {
					t.Errorf("%s is shown: %v, want %v", private, got, shown)
				}
			}
		})
	}
}

func TestSamples(t *testing.T) {
	f := newFakeBridge(t, running("events"), idle("users"))
	for n := range 80 {
		f.first = append(f.first, sampled("events", []string{"pageOpened", "orderPlaced"}[n%2], 80-n),
			sampled("users", "userChanged", 80-n))
	}
	p := open(t, f, 1280)
	p.wait(`document.querySelectorAll('#samples-rows tr').length === 50`)
	p.write("#samples-type", "ORDER")
	p.wait(`document.querySelectorAll('#samples-rows tr').length === 25`)
	p.click(`#streams [data-key="users"]`)
	p.sees("#samples-empty", "No events of this type")
	p.write("#samples-type", strings.Repeat(kb.Backspace, 5))
	p.wait(`document.querySelectorAll('#samples-rows tr').length === 50`)
}

// Each state has its text, and the page fits a phone.
func TestStates(t *testing.T) {
	now := time.Now()
	with := func(change func(*report)) []report {
		r := running("events")
		change(&r)
		return []report{r}
	}
	for name, tc := range map[string]struct {
		reports []report
		sees    map[string]string
	}{
		"no stream": {nil, map[string]string{"#empty": "This process has no streams"}},
		"idle": {[]report{idle("events")},
			map[string]string{"#state-name": "Caught up", "#state-text": "Next poll in", "#figure-lag": "caught up"}},
		"caught up, and at work": {with(func(r *report) { r.Live.CaughtUp = true }),
			map[string]string{"#state-name": "Caught up", "#state-text": "Next poll now"}},
		"starting": {with(func(r *report) { r.Live.State = bridge.StateStarting }),
			map[string]string{"#state-name": "Starting", "#state-text": "Reading the checkpoint"}},
		"blocked": {with(func(r *report) {
			r.Live.State, r.Live.Reason = bridge.StateBlocked, bridge.ReasonAuth
			r.Live.Error, r.Live.Hint = "GET /events answered 401: the key is not valid",
				"exportbridge check; then EXPORT_API_KEY_FILE"
		}), map[string]string{"#state-name": "Blocked", "#cause": "auth", "#cause dd": "the key is not valid",
			"#cause code": "exportbridge check"}},
		"retrying": {with(func(r *report) {
			r.Live.State, r.Live.Error, r.Live.NextTry = bridge.StateBackoff, "GET /events: connection reset",
				now.Add(20*time.Minute)
		}), map[string]string{"#state-name": "Retrying", "#state-text": "no event is lost. Next attempt in",
			"#cause": "connection reset"}},
		"paused without end": {with(func(r *report) {
			r.Live.State, r.Live.PausedUntil = bridge.StatePaused,
				bridge.Forever
		}),
			map[string]string{"#state-name": "Paused", "#state-text": "until resumed", "#resume": "Resume"}},
		"stopped": {with(func(r *report) {
			r.Live.State, r.Live.Ended = bridge.StateStopped,
				"after 500 events"
		}), map[string]string{"#state-text": "Ended: after 500 events.", "#figure-lag": "ended"}},
		"done, by its checkpoint": {with(func(r *report) {
			r.Live, r.Members = nil, nil
			r.Checkpoint["drained"], r.Checkpoint["origin"] = true, object{"end": now.UnixMilli()}
		}), map[string]string{"#state-name": "Ended", "#state-text": "Ended: the window ended.", "#figure-lag": "ended"}},
		"nobody runs it": {with(func(r *report) { r.Live, r.Members = nil, nil }),
			map[string]string{"#state-name": "Not running", "#state-text": "the last commit",
				"#members-empty": "No known members"}},
		"nothing committed": {with(func(r *report) { r.Live, r.Members, r.Checkpoint = nil, nil, nil }),
			map[string]string{"#state-text": "no commits yet", "#position": "no commits"}},
		"Redis away": {with(func(r *report) { r.Live = nil }),
			map[string]string{"#state-name": "Unknown", "#state-text": "cannot reach Redis"}},
		"something is unknown": {with(func(r *report) { r.Notes = []string{"no checkpoint: Kafka does not answer"} }),
			map[string]string{"#cause": "Kafka does not answer"}},
		"an unknown state": {with(func(r *report) { r.Live.State = "toString" }),
			map[string]string{"#state-name": "Unknown", "#state-text": "toString"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeBridge(t, tc.reports...)
			f.history, f.metrics = entries(40), measuredText("events")
			p := open(t, f, 360)
			for selector, text := range tc.sees {
				p.sees(selector, text)
			}
			p.fits()
		})
	}
}

// A standby shows the owner's status.
func TestStandby(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.first = []message{}
	p := open(t, f, 1280)
	p.sees("#figure-rate .value", "3,127")
	// From now on this process is a standby, and Redis has the owner's status.
	f.set(func() { f.standby = true })
	p.sees("#state-facts", "reported by the owner")
	p.sees("#figure-rate .value", "3,127")
}

func TestHistoryUnreadable(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.historyErr = &answer{503, object{"error": "Redis does not answer", "hint": "redis-cli ping"}}
	p := open(t, f, 1280, "status of 503")
	p.sees("#history-empty", "Not known: Redis does not answer. Run redis-cli ping.")
	f.set(func() { f.historyErr, f.history = nil, entries(3) })
	p.click("#history-retry")
	p.sees("#history-rows", "3.88411")
	if read[bool](p, `document.getElementById('history-retry').checkVisibility()`) {
		t.Error("a history that was read is offered to be read again")
	}
}

func TestNarrow(t *testing.T) {
	long := strings.Repeat("averylongnamewithoutaspace", 4)
	r := running(long)
	r.Live.State, r.Live.Error, r.Live.Owner = bridge.StateBlocked, long, long
	f := newFakeBridge(t, r, idle("users"), idle("sessions"), idle("another-stream"))
	f.token = "s3cret"
	f.history = entries(60)
	f.history[2]["kind"], f.history[2]["change"] = "reset", object{"who": long, "reason": long}
	f.letters = []object{{"partition": 1, "offset": 2, "time": time.Now(), "reason": long, "message": long,
		"cursor_hash": long, "index": 0, "bytes": 7}}
	f.jobs = []object{{"id": long, "kind": "replay", "stream": long, "state": "running", "topic": long, "windows": 2,
		"done": 1, "events": 3}}
	f.first = []message{logged("WARN", long, object{long: long}), sampled(long, long, 0)}
	p := open(t, f, 360)
	p.sees("#letters-rows", long)
	p.fits()
	p.click("#unlock")
	p.fits()
	p.press(kb.Escape)
	p.press("?")
	p.sees("#help-dialog", "Keyboard")
	p.fits()
}

func TestKeyboard(t *testing.T) {
	f := newFakeBridge(t, running("events"), idle("users"))
	f.history = entries(100)
	p := open(t, f, 1280)
	p.sees("#state-stream", "events")
	p.press("?")
	p.sees("#help-dialog", "previous or next stream")
	p.press("]") // not while a dialog is open
	p.press(kb.Escape)
	p.wait(`!document.getElementById('help-dialog').open`)
	p.sees("#state-stream", "events")
	p.press("]")
	p.sees("#state-stream", "users")
	if got := read[string](p, "location.hash"); got != "#users" {
		t.Errorf("the address says %q", got)
	}
	p.press("[")
	p.sees("#state-stream", "events")
	p.sees("#slider-text", "now: entry 3.88412")
	p.press("h")
	p.press(kb.ArrowLeft)
	p.press(kb.ArrowLeft)
	p.sees("#slider-text", "entry 3.88410, committed")
	p.sees("#history-rows tr.chosen", "3.88410")
	p.press("m")
	p.wait(`document.querySelector('#move-form [name=entry]').value === '3.88410'`)
	p.wait(`document.activeElement.name === 'reason'`)
	p.press("tpe?") // text now, no shortcuts
	if got := read[string](p, `document.activeElement.value`); !strings.HasSuffix(got, "tpe?") {
		t.Errorf("the reason typed is %q", got)
	}
	p.press(kb.Escape)
	p.press("f")
	p.wait(`document.activeElement.id === 'samples-type'`)
}

// Every control has a name and a visible focus.
func TestAccessible(t *testing.T) {
	f := newFakeBridge(t, running("events"), idle("users"))
	f.history = entries(3)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	controls := 0
	for {
		p.press(kb.Tab)
		got := read[map[string]string](p, `(() => {
			const e = document.activeElement;
			const name = e.ariaLabel || e.innerText || [...(e.labels ?? [])].map((l) => l.innerText).join('');
			return {tag: e.tagName, what: e.outerHTML.slice(0, 120), name: name.trim(), outline: getComputedStyle(e).outlineStyle};
		})()`)
		if got["tag"] == "BODY" { // once around
			break
		}
		controls++
		if got["name"] == "" || got["outline"] == "none" {
			t.Errorf("no name or no visible focus: %v", got)
		}
	}
	if controls < 15 {
		t.Errorf("the keyboard reaches %d controls, want at least 15", controls)
	}
}

func TestTheme(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	p := open(t, f, 1280)
	background := `getComputedStyle(document.body).backgroundColor`
	p.scheme("light")
	light := read[string](p, background)
	p.scheme("dark")
	dark := read[string](p, background)
	if light == dark {
		t.Fatalf("light and dark are both %s", light)
	}
	p.click("#theme")
	if got := read[string](p, background); got != light {
		t.Errorf("after the switch the background is %s, want %s", got, light)
	}
	p.do(chromedp.Reload())
	p.wait(`document.getElementById('loading').hidden`)
	if got := read[string](p, background); got != light {
		t.Errorf("after a reload the background is %s, want %s", got, light)
	}
}

// The slider follows the mouse and offers the rewind.
func TestSlider(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(100)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	p.click("#slider")
	p.wait(`!document.getElementById('slider-move').disabled`)
	chosen := read[string](p, `document.querySelector('tr.chosen td').innerText`)
	p.click("#slider-move")
	p.wait(fmt.Sprintf(`document.querySelector('#move-form [name=entry]').value === %q`, chosen))
}
