//go:build browser

package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for the page to show something, tabTime how long its tab
// may be open: long, because other tests may need the processor.
const (
	patience = time.Minute
	tabTime  = 10 * time.Minute
)

var chromium context.Context

func TestMain(m *testing.M) {
	// Chromium has no sandbox for root, and containers run tests as root.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP *.example.com 127.0.0.1"))
	if shell, err := exec.LookPath("chromium-headless-shell"); err == nil { // Chromium without windows: half the work
		options = append(options, chromedp.ExecPath(shell))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
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

// open shows the page of a fake bridge at a width. At its end, the test fails if the console
// has an unexpected message: an exception, or a violation of the content security policy.
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
	ctx, stop := context.WithTimeout(ctx, tabTime)
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

// read evaluates a JavaScript expression in the page.
func read[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true. The library's own wait makes a function from a
// string, which the policy of the page forbids.
func (p *tab) wait(expression string) {
	p.Helper()
	p.until(expression, func() bool { return read[bool](p, "Boolean("+expression+")") })
}

// until waits until a function returns true.
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

// sees waits until a visible element contains a text.
func (p *tab) sees(selector, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && e.innerText.includes(%q))`,
		selector, text))
}

// write types into a field, after what is there.
func (p *tab) write(selector, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`(document.querySelector(%q).focus(), document.activeElement === document.querySelector(%q))`,
		selector, selector))
	p.press(text)
}

// set sets the value of a field without typing.
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

// fits fails if an element is wider than the window.
func (p *tab) fits() {
	p.Helper()
	if got := read[[]int](p, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		p.Errorf("the page is %d wide in a window of %d; the widest: %s", got[0], got[1], read[string](p,
			`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth && (e.offsetParent === document.body || !e.closest('.scroll'))).map((e) => e.tagName + '#' + e.id + '.' + e.className).join(' ')`))
	}
}
