//go:build browser

package ui_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"exportbridge/bridge"
)

// patience is how long a test waits for the page to show something.
const patience = 15 * time.Second

var chromium context.Context

func TestMain(m *testing.M) {
	// Chromium has no sandbox for root, which is who runs tests in containers.
	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
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
	p.do(chromedp.Navigate(f.URL + "/"))
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
			p.Fatalf("waited in vain for %s; the page shows:\n%.1000s", what,
				read[string](p, "(document.querySelector('dialog[open]') ?? document.body).innerText"))
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
	p.wait(fmt.Sprintf(`(document.querySelector(%q).focus(), document.activeElement === document.querySelector(%q))`,
		selector, selector))
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
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name},
		{Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.Fatal(err)
	}
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

// fits fails where something is wider than the window.
func (p *tab) fits() {
	p.Helper()
	if got := read[[]int](p, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		p.Errorf("the page is %d wide in a window of %d; the widest: %s", got[0], got[1], read[string](p,
			`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth && `+
				`(e.offsetParent === document.body || !e.closest('.scroll'))).map((e) => e.tagName + '#' + e.id + '.' + `+
				`e.className).join(' ')`))
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
