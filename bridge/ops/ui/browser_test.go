//go:build browser

package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// patience is how long a test waits for the page to show something.
const patience = 15 * time.Second

var chromium context.Context

func TestMain(m *testing.M) {
	// Chromium has no sandbox for root, which is who runs tests in containers.
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.Flag("host-resolver-rules", "MAP *.example.com 127.0.0.1"))...)
	browser, closeBrowser := chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintf(os.Stderr, "start Chromium: %v\nTry: apt-get install chromium, then make browser\n", err)
		os.Exit(1)
	}
	chromium = browser //nolint:fatcontext // one browser for all tests
	code := m.Run()
	closeBrowser()
	stop()
	os.Exit(code)
}

// tab is a page in a browser of its own: no storage is shared.
type tab struct {
	*testing.T
	ctx  context.Context
	fake *fakeBridge

	mu      sync.Mutex // guards console
	console []string
}

// open shows the page of a fake bridge at a width, and fails the test at its
// end if the console holds anything that was not expected: an exception, or
// something that the content security policy forbids.
func open(t *testing.T, f *fakeBridge, width int64, expected ...string) *tab {
	t.Helper()
	p := visit(t, f, width, expected...)
	p.wait(`document.getElementById('loading').hidden`)
	return p
}

// visit is open without waiting until the page has loaded.
func visit(t *testing.T, f *fakeBridge, width int64, expected ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 90*time.Second)
	p := &tab{T: t, ctx: ctx, fake: f}
	p.do(chromedp.Navigate("about:blank"))
	messages := chromedp.Console(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.console = append(p.console, fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		p.unexpected(expected)
		stop()
		cancel()
		reading.Wait()
	})
	p.resize(width, 900)
	address := f.URL + "/"
	if len(f.reports) > 0 {
		address += "#" + url.PathEscape(f.reports[0].Stream)
	}
	p.do(chromedp.Navigate(address))
	return p
}

func (p *tab) unexpected(expected []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.console {
		known := false
		for _, e := range expected {
			known = known || strings.Contains(m, e)
		}
		if !known {
			p.Errorf("console: %s", m)
		}
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.Fatal(err)
	}
}

// read evaluates an expression in the page.
func read[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true. The library's own way to wait makes
// a function from a string, which the policy of the page forbids.
func (p *tab) wait(expression string) {
	p.Helper()
	p.until(expression, func() bool { return read[bool](p, "Boolean("+expression+")") })
}

// until waits until something is so.
func (p *tab) until(what string, so func() bool) {
	p.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			p.snap("failed-" + strings.ReplaceAll(p.Name(), "/", "-"))
			p.Fatalf("waited in vain for %s; the page shows:\n%.1000s", what, read[string](p, "(document.querySelector('dialog[open]') ?? document.body).innerText"))
		case <-tick.C:
		}
	}
}

// sees waits until an element is there to be seen with a text in it.
func (p *tab) sees(selector, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && e.innerText.includes(%q))`, selector, text))
}

// write types into a field, after what is there.
func (p *tab) write(selector, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`(document.querySelector(%q).focus(), document.activeElement === document.querySelector(%q))`, selector, selector))
	p.press(text)
}

// set puts a value into a field, for those that are not typed into.
func (p *tab) set(selector, value string) {
	p.Helper()
	read[bool](p, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.value = %q;
		return e.dispatchEvent(new Event('input', {bubbles: true}));
	})()`, selector, value))
}

func (p *tab) press(keys string) {
	p.Helper()
	p.do(chromedp.KeyEvent(keys))
}

func (p *tab) resize(width, height int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// scheme is what the system prefers, light or dark.
func (p *tab) scheme(name string) {
	p.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.Fatal(err)
	}
}

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

// TestAllStreamsTogether: the page says what is measured of all streams of the process.
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

// done is what an action is answered that was applied.
func done(epoch int) answer {
	return answer{200, object{"applied": true, "by": "bridge-0", "epoch": epoch, "seq": 0, "at": time.Now()}}
}

func TestRewind(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(200)
	planned := answer{200, object{
		"stream": "events", "from": object{"epoch": 3, "seq": 88412, "events": 48_211_907}, "to": object{"epoch": 3, "seq": 88409},
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
	order := object{"to": object{"entry": "3.88409"}, "reason": "bad deploy", "execute": true, "confirm": "events", "base_epoch": 3.0}
	path := "/api/v1/streams/events/move"
	if diff := cmp.Diff([]posted{{Path: path, Body: plan}, {Path: path, Body: order}, {Path: path, Body: plan}, {Path: path, Body: order}}, f.actions()); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// Each of the other ways to say where to.
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
			if _, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"}); err != nil {
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
	f.answers = []answer{done(4), {200, object{"applied": false, "detail": "the stream is not paused", "by": "bridge-0", "epoch": 4, "seq": 0}}, done(5)}
	p := open(t, f, 1280)
	p.click("#pause")
	p.set("#hold-length", "30m")
	p.write("#hold-reason", "the vendor migrates")
	p.click("#hold-submit")
	p.sees("#toast", "events paused at entry 4.0, acknowledged by bridge-0.")
	f.set(func() {
		f.reports[0].Live.State, f.reports[0].Live.PausedUntil = bridge.StatePaused, time.Now().Add(30*time.Minute).UnixMilli()
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

// Strings of the server are text, whatever they hold.
func TestInert(t *testing.T) {
	attack := func(where string) string {
		return fmt.Sprintf(`%s<img src=x onerror="pwned=1"><script>pwned=2</script>" onfocus="pwned=3" autofocus x="javascript:pwned=4`, where)
	}
	r := running(attack("stream"))
	r.Live.State, r.Live.Reason = bridge.StateBlocked, bridge.Reason(attack("why"))
	r.Live.Error, r.Live.Hint, r.Live.Owner, r.Live.CursorHash = attack("error"), attack("hint"), attack("owner"), attack("hash")
	r.Live.Dependencies["api"] = bridge.Dependency{Trouble: attack("trouble"), Error: attack("api")}
	r.Guarantee, r.Notes = attack("guarantee"), []string{attack("note")}
	r.Members = []object{{"client_id": attack("member"), "host": attack("host"), "owner": true}}
	f := newFakeBridge(t, r)
	f.showEvents = true
	f.history = entries(3)
	f.history[1]["kind"], f.history[1]["cursor_hash"] = "reset", attack("cursor")
	f.history[1]["change"] = object{"kind": "reset", "who": attack("who"), "reason": attack("reason")}
	f.letters = []object{{"partition": 1, "offset": 2, "time": time.Now(), "reason": attack("defect"), "message": attack("message"), "cursor_hash": attack("page"), "index": 0, "bytes": 7}}
	f.jobs = []object{{"id": attack("job"), "kind": attack("kind"), "stream": attack("of"), "state": attack("state"), "topic": attack("topic"), "from": attack("from"), "to": nil, "windows": 2, "done": 1, "events": 3}}
	sample := sampled(r.Stream, attack("type"), 0)
	for _, field := range []string{"id", "key_hash", "origin", "value"} {
		sample.data.(object)[field] = attack("sample-" + field)
	}
	f.first = []message{logged("WARN", attack("logged"), object{attack("name"): attack("attr")}), sample}
	f.answers = []answer{
		{200, object{"stream": r.Stream, "from": attack("from"), "to": attack("to"), "guarantee": attack("promise"), "repeats_min": 1, "repeats_max": 1, "repeats_pages": 1, "base_epoch": 3, "notes": []string{attack("remark")}}},
		{503, object{"error": attack("refusal"), "hint": attack("advice")}},
	}
	p := open(t, f, 1280, "status of 503")
	for selector, texts := range map[string][]string{
		"#streams": {"stream"}, "#state": {"stream", "why", "error", "hint", "owner", "note"}, "#position-hash": {"hash"}, "#server-api": {"trouble", "api"},
		"#members": {"member", "host"}, "footer": {"guarantee"}, "#history-rows": {"cursor", "reason", "who"}, "#letters-rows": {"defect", "message"},
		"#jobs-rows": {"job", "kind", "of", "state", "topic"}, "#log": {"logged", "name", "attr"},
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

// A payload is shown only where the bridge says that it may be.
func TestPayloads(t *testing.T) {
	for _, shown := range []bool{false, true} {
		t.Run(fmt.Sprint(shown), func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			sample := sampled("events", "orderPlaced", 0)
			sample.data.(object)["value"], sample.data.(object)["id"], sample.data.(object)["key_hash"] = object{"userId": "somebody"}, "an-id", "a-hash"
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
		f.first = append(f.first, sampled("events", []string{"pageOpened", "orderPlaced"}[n%2], 80-n), sampled("users", "userChanged", 80-n))
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
		"no stream":              {nil, map[string]string{"#empty": "This process has no streams"}},
		"idle":                   {[]report{idle("events")}, map[string]string{"#state-name": "Caught up", "#state-text": "Next poll in", "#figure-lag": "caught up"}},
		"caught up, and at work": {with(func(r *report) { r.Live.CaughtUp = true }), map[string]string{"#state-name": "Caught up", "#state-text": "Next poll now"}},
		"starting":               {with(func(r *report) { r.Live.State = bridge.StateStarting }), map[string]string{"#state-name": "Starting", "#state-text": "Reading the checkpoint"}},
		"blocked": {with(func(r *report) {
			r.Live.State, r.Live.Reason = bridge.StateBlocked, bridge.ReasonAuth
			r.Live.Error, r.Live.Hint = "GET /events answered 401: the key is not valid", "exportbridge check; then EXPORT_API_KEY_FILE"
		}), map[string]string{"#state-name": "Blocked", "#cause": "auth", "#cause dd": "the key is not valid", "#cause code": "exportbridge check"}},
		"retrying": {with(func(r *report) {
			r.Live.State, r.Live.Error, r.Live.NextTry = bridge.StateBackoff, "GET /events: connection reset", now.Add(20*time.Minute)
		}), map[string]string{"#state-name": "Retrying", "#state-text": "no event is lost. Next attempt in", "#cause": "connection reset"}},
		"paused without end": {with(func(r *report) { r.Live.State, r.Live.PausedUntil = bridge.StatePaused, bridge.Forever }),
			map[string]string{"#state-name": "Paused", "#state-text": "until resumed", "#resume": "Resume"}},
		"stopped":              {with(func(r *report) { r.Live.State, r.Live.Ended = bridge.StateStopped, "after 500 events" }), map[string]string{"#state-text": "Ended: after 500 events."}},
		"nobody runs it":       {with(func(r *report) { r.Live, r.Members = nil, nil }), map[string]string{"#state-name": "Not running", "#state-text": "the last commit", "#members-empty": "No known members"}},
		"nothing committed":    {with(func(r *report) { r.Live, r.Members, r.Checkpoint = nil, nil, nil }), map[string]string{"#state-text": "no commits yet", "#position": "no commits"}},
		"Redis away":           {with(func(r *report) { r.Live = nil }), map[string]string{"#state-name": "Unknown", "#state-text": "cannot reach Redis"}},
		"something is unknown": {with(func(r *report) { r.Notes = []string{"no checkpoint: Kafka does not answer"} }), map[string]string{"#cause": "Kafka does not answer"}},
		"an unknown state":     {with(func(r *report) { r.Live.State = "toString" }), map[string]string{"#state-name": "Unknown", "#state-text": "toString"}},
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

// fits fails where something is wider than the window.
func (p *tab) fits() {
	p.Helper()
	if got := read[[]int](p, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		p.Errorf("the page is %d wide in a window of %d; the widest: %s", got[0], got[1], read[string](p,
			`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth && (e.offsetParent === document.body || !e.closest('.scroll'))).map((e) => e.tagName + '#' + e.id + '.' + e.className).join(' ')`))
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
			f.jobs = []object{{"id": "k3xq7a", "kind": "backfill", "stream": "events", "state": state, "windows": 4, "done": 1, "events": 3, "progress": progress, "progress_with_events": worked}}
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

func TestNarrow(t *testing.T) {
	long := strings.Repeat("averylongnamewithoutaspace", 4)
	r := running(long)
	r.Live.State, r.Live.Error, r.Live.Owner = bridge.StateBlocked, long, long
	f := newFakeBridge(t, r, idle("users"), idle("sessions"), idle("another-stream"))
	f.token = "s3cret"
	f.history = entries(60)
	f.history[2]["kind"], f.history[2]["change"] = "reset", object{"who": long, "reason": long}
	f.letters = []object{{"partition": 1, "offset": 2, "time": time.Now(), "reason": long, "message": long, "cursor_hash": long, "index": 0, "bytes": 7}}
	f.jobs = []object{{"id": long, "kind": "replay", "stream": long, "state": "running", "topic": long, "windows": 2, "done": 1, "events": 3}}
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

// Every control has a name, and is seen when it has the focus.
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
