//go:build browser

package ui_test

import (
	"exportbridge/bridge"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
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

// Strings of the server are text, whatever they hold.
func TestInert(t *testing.T) {
	attack := func(where string) string {
		return fmt.Sprintf(`%s<img src=x onerror="pwned=1"><script>pwned=2</script>" onfocus="pwned=3" autofocus `+
			`x="javascript:pwned=4`, where)
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
		"#jobs-rows":    {"job", "kind", "of", "state", "topic"}, "#log": {"logged", "name", "attr"},
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
	if n := read[int](p,
		`document.querySelectorAll('img:not(.brand img), [onerror], [onfocus], [autofocus], body script').length`); n != 0 {
		t.Errorf("%d elements came from strings", n)
	}
	if read[bool](p, `'pwned' in window`) {
		t.Error("a string ran as a script")
	}
}

// A payload is shown only where the bridge says that it may be.
func TestPayloads(t *testing.T) {
	for _, shown := range []bool{false, true} {
		t.Run(fmt.Sprint(shown), func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			sample := sampled("events", "orderPlaced", 0)
			data := sample.data.(object)
			data["value"], data["id"], data["key_hash"] = object{"userId": "somebody"}, "an-id", "a-hash"
			f.showEvents, f.first = shown, []message{sample}
			p := open(t, f, 1280)
			p.sees("#samples-rows", "orderPlaced")
			for _, private := range []string{"somebody", "an-id", "a-hash"} {
				if got := read[bool](p,
					`document.getElementById('samples-table').innerText.includes('`+private+`')`); got != shown {
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

// What each state says, and that the page fits a phone in all of them.
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
		"idle": {[]report{idle("events")}, map[string]string{"#state-name": "Caught up",
			"#state-text": "Next poll in", "#figure-lag": "caught up"}},
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
		}), map[string]string{"#state-text": "Ended: after 500 events."}},
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

// A process that stands by shows what the owner says.
func TestStandby(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.first = []message{}
	p := open(t, f, 1280)
	p.sees("#figure-rate .value", "3,127")
	// The live connection tells of a standby from now on, Redis still of the owner.
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

// How long a job takes yet is known from two looks on.
func TestJobTakesYet(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	one := func(state string, progress, worked float64) {
		f.set(func() {
			f.jobs = []object{{"id": "k3xq7a", "kind": "backfill", "stream": "events", "state": state, "windows": 4,
				"done": 1, "events": 3, "progress": progress, "progress_with_events": worked}}
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
