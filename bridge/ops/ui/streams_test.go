//go:build browser

package ui_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"exportbridge/bridge"
)

// fleet is a bridge with n streams, some of which are in trouble.
func fleet(t *testing.T, n int) *fakeBridge {
	t.Helper()
	reports := make([]report, n)
	for i := range reports {
		name := fmt.Sprintf("tenant-%03d", i)
		reports[i] = idle(name)
		reports[i].Live.Owner = fmt.Sprintf("bridge-%d", i%3)
		switch i {
		case n - 1:
			reports[i].Live.State, reports[i].Live.Reason = bridge.StateBlocked, bridge.ReasonAuth
			reports[i].Live.Error = `GET /events answered 401 Unauthorized: "The API key is not valid"`
		case n - 2:
			reports[i].Live.State, reports[i].Live.Error = bridge.StateBackoff, "503 Service Unavailable"
		case n - 3:
			reports[i].Live.Warnings = doubtfulEnd
		case n - 4:
			reports[i] = running(name)
			reports[i].LagSeconds = (8 * time.Hour).Seconds()
		}
	}
	f := newFakeBridge(t, reports...)
	f.history = entries(20)
	f.jobs = busy(t).jobs
	return f
}

// overview opens the page without the name of a stream.
func overview(t *testing.T, f *fakeBridge, width int64) *tab {
	t.Helper()
	p := open(t, f, width)
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(f.URL+"/"))
	p.sees("#streams-heading", "All streams")
	p.sees("#streams-rows", "Blocked")
	return p
}

// first is the name in the first row.
const first = `document.querySelector('#streams-rows a')?.innerText`

// The page opens on all streams, those in trouble first. Each stream has a page of its own, with
// an address.
func TestOverview(t *testing.T) {
	f := fleet(t, 12)
	p := overview(t, f, 1280)
	p.wait(`[...document.querySelectorAll('#streams-rows a')].map((e) => e.innerText).slice(0, 5).join() === ` +
		`'tenant-011,tenant-010,tenant-009,tenant-008,tenant-000'`)
	for _, text := range []string{"1 blocked", "1 retrying", "1 in doubt", "1 behind", "8 caught up"} {
		p.sees("#states", text)
	}
	p.sees("#streams-rows", "The API key is not valid")
	p.sees("#processes", "bridge-2")
	p.sees("#jobs-rows", "backfill-q3")
	p.wait(`document.title === '3 of 12 streams in trouble · exportbridge'`)
	p.wait(`document.getElementById('icon').getAttribute('href') === 'favicon-bad.svg'`)
	p.click(`#states [data-key="state degraded"]`)
	p.wait(first + ` === 'tenant-009' && document.querySelectorAll('#streams-rows tr').length === 1`)
	p.click(`#states [data-key="state degraded"]`)
	p.click(`#streams-table [data-order=stream]`)
	p.wait(first + ` === 'tenant-000'`)
	p.press("/")
	p.wait(`document.activeElement.id === 'streams-search'`)
	p.set("#streams-search", "KEY is not")
	p.wait(first + ` === 'tenant-011' && document.querySelectorAll('#streams-rows tr').length === 1`)
	p.set("#streams-search", "zzz")
	p.sees("#streams-none", "No stream matches.")
	p.set("#streams-search", "-011")
	p.click(`#streams-rows a`)
	p.sees("#state-stream", "tenant-011")
	p.wait(`location.hash === '#tenant-011' && !document.getElementById('streams-rows').checkVisibility()`)
	p.wait(`document.title === 'Blocked · tenant-011 · exportbridge'`)
	p.do(chromedp.NavigateBack())
	p.sees("#streams-rows", "tenant-011")
	f.set(func() {
		for i := range f.reports {
			f.reports[i] = idle(f.reports[i].Stream)
		}
	})
	p.wait(`document.title === '12 streams · exportbridge'`)
	p.wait(`document.getElementById('icon').getAttribute('href') === 'favicon.svg'`)
	read[any](p, `document.activeElement.blur()`)
	p.press("]")
	p.sees("#state-stream", "tenant-000")
	p.press("o")
	p.wait(`document.getElementById('streams-rows').checkVisibility()`)
}

// A page whose stream is removed returns to the overview, which follows the streams.
func TestRemovedStream(t *testing.T) {
	f := fleet(t, 12)
	p := open(t, f, 1280, "status of 404")
	p.sees("#state-stream", "tenant-000")
	f.set(func() { f.reports = f.reports[1:] })
	p.sees("#streams-total", "11 of 11")
	p.wait(`document.getElementById('lost').hidden`)
	f.set(func() { f.reports = append(f.reports, idle("added")) })
	p.sees("#streams-rows", "added")
}

// A single stream has no overview.
func TestNoOverview(t *testing.T) {
	p := open(t, newFakeBridge(t, running("events")), 1280)
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.fake.URL+"/"))
	p.sees("#state-stream", "events")
	p.press("o")
	p.sees("#state-stream", "events")
}

// The overview is whole with twelve and a thousand streams, at each width, in light and dark.
func TestOverviewFits(t *testing.T) {
	for _, n := range []int{12, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := overview(t, fleet(t, n), 1400)
			p.wait(fmt.Sprintf(`document.querySelectorAll('#streams-rows tr').length === %d`, min(n, 100)))
			p.sees("#jobs-rows", "backfill-q3")
			for _, width := range []int64{375, 768, 1280, 1920} {
				p.resize(width, 900)
				p.fits()
				p.whole()
				p.obeys()
				for _, scheme := range schemes {
					p.portrait(fmt.Sprintf("overview-%d-%d-%s", n, width, scheme), scheme, width)
				}
			}
			if n > 100 {
				p.click("#streams-more")
				p.wait(`document.querySelectorAll('#streams-rows tr').length === 200`)
			}
		})
	}
}
