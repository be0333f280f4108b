//go:build browser

package ui_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"exportbridge/bridge"
)

// snap writes a picture of the window to the folder SCREENSHOTS, if that is set.
func (p *tab) snap(name string) {
	p.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		p.Fatal(err)
	}
	full, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.Fatal(err)
	}
	out, err := os.Create(filepath.Join(folder, name+".png"))
	if err != nil {
		p.Fatal(err)
	}
	defer out.Close()
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, reduce(full)); err != nil {
		p.Fatal(err)
	}
}

// reduce gives a picture the palette of its 256 most frequent colours, of those
// that differ enough to be seen.
func reduce(full image.Image) *image.Paletted {
	bounds := full.Bounds()
	uses := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			uses[at(x, y)]++
		}
	}
	byUse := slices.SortedFunc(maps.Keys(uses), func(a, b color.RGBA) int { return cmp.Compare(uses[b], uses[a]) })
	var palette color.Palette
	for _, c := range byUse {
		if len(palette) < 256 && (len(palette) == 0 || distance(c, palette[palette.Index(c)].(color.RGBA)) > 60) {
			palette = append(palette, c)
		}
	}
	nearest := make(map[color.RGBA]uint8, len(uses))
	for c := range uses {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return small
}

func distance(a, b color.RGBA) int {
	r, g, u := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + u*u
}

// busy is a bridge at work, for the pictures.
func busy(t *testing.T) *fakeBridge {
	f := newFakeBridge(t, running("events"), idle("users"), idle("sessions"))
	f.history, f.metrics = entries(200), measuredText("events")
	now := time.Now()
	f.reports[0].Live.DeadLettered = 2
	f.letters = []object{
		{"partition": 2, "offset": 1, "time": now.Add(-19 * time.Minute), "reason": "too-large", "message": "1,203,441 bytes, the topic takes 1,048,588", "cursor_hash": "77b0c1d2e3f4", "index": 412, "bytes": 1_203_441},
		{"partition": 0, "offset": 0, "time": now.Add(-3 * time.Hour), "reason": "bad-timestamp", "message": `/timestamp is "yesterday", not a number`, "cursor_hash": "0a94be51c7d8", "index": 7, "bytes": 611},
	}
	f.jobs = []object{
		{"id": "backfill-q3", "kind": "backfill", "stream": "events", "state": "running", "topic": "export.events", "from": "2026-07-01T00:00:00Z", "to": "2026-10-01T00:00:00Z", "windows": 12, "done": 7, "events": 18_442_019, "progress": 0.61},
		{"id": "replay-fraud", "kind": "replay", "stream": "events", "state": "done", "topic": "replay.fraud", "from": "2026-11-18T00:00:00Z", "to": "2026-11-19T00:00:00Z", "windows": 4, "done": 4, "events": 1_204_551, "progress": 1},
	}
	f.first = []message{
		logged("INFO", "owner of the stream", object{"stream": "events", "epoch": 3}),
		logged("WARN", "retry", object{"stream": "events", "error": "GET /events answered 429", "wait": "1.2s"}),
		logged("INFO", "running", object{"stream": "events", "after": "1.2s"}),
		logged("WARN", "dead letter", object{"stream": "events", "reason": "too-large", "count": 1}),
	}
	for n := range 24 {
		f.first = append(f.first, sampled("events", "com.croct.event."+[]string{"pageOpened", "interestShown", "orderPlaced", "tabVisibilityChanged", "goalCompleted"}[(n*n+n/3)%5], 24-n))
	}
	return f
}

// TestScreenshots takes the pictures of the README, and some more to look at.
func TestScreenshots(t *testing.T) {
	for _, tc := range []struct {
		name, scheme  string
		width, height int64
		change        func(f *fakeBridge)
		act           func(p *tab)
	}{
		{name: "light", scheme: "light", width: 1280, height: 1360},
		{name: "dark", scheme: "dark", width: 1280, height: 1360},
		{name: "narrow", scheme: "light", width: 390, height: 1500},
		{name: "blocked", scheme: "light", width: 1280, height: 640, change: func(f *fakeBridge) {
			r := &f.reports[0]
			r.Live.State, r.Live.Reason, r.Live.Since, r.Live.Rate, r.Live.Pace = bridge.StateBlocked, bridge.ReasonAuth, time.Now().Add(-11*time.Minute), 0, 0
			r.Live.Error = `GET /events answered 401 Unauthorized: "The API key is not valid"`
			r.Live.Hint, r.CaughtUpIn, r.LagSeconds = "exportbridge check, after renewing EXPORT_API_KEY_FILE", -1, 702
			r.Live.LastCommit, r.Live.PrefetchedPages, r.Live.PrefetchedBytes = time.Now().Add(-11*time.Minute), 0, 0
			r.Live.Dependencies["api"] = bridge.Dependency{Since: time.Now().Add(-11 * time.Minute), Error: "401 Unauthorized"}
			for _, e := range f.history {
				e["at"], e["position"] = e["at"].(time.Time).Add(-11*time.Minute), e["position"].(time.Time).Add(-11*time.Minute)
			}
		}},
		{name: "plan", scheme: "dark", width: 1280, height: 900, change: func(f *fakeBridge) {
			f.answers = []answer{{200, object{
				"stream": "events", "from": object{"epoch": 3, "seq": 88412, "events": 48_211_907}, "to": "entry 3.88390   2026-11-20 14:02:31Z",
				"repeats_min": 251_170, "repeats_max": 251_170, "repeats_pages": 286, "guarantee": "exactly-once", "base_epoch": 3,
			}}}
		}, act: func(p *tab) {
			p.click(`#history-rows [data-key="3.88390"]`)
			p.write("#move-form [name=reason]", "bad deploy of the consumer")
			p.click("#move-submit")
			p.sees("#move-plan", "251,170")
		}},
		{name: "lost", scheme: "dark", width: 1280, height: 700, act: func(p *tab) {
			p.fake.set(func() { p.fake.refusing = true })
			p.fake.drop()
			p.sees("#lost", "Last update")
		}},
		{name: "paused", scheme: "light", width: 1280, height: 640, change: func(f *fakeBridge) {
			f.reports[0].Live.State, f.reports[0].Live.PausedUntil = bridge.StatePaused, time.Now().Add(22*time.Minute).UnixMilli()
			f.reports[0].Changes = []object{{"kind": "pause", "who": "ada@ops-1", "reason": "the vendor migrates"}}
		}},
		{name: "narrow-dark", scheme: "dark", width: 360, height: 3600},
		{name: "empty", scheme: "light", width: 1280, height: 500, change: func(f *fakeBridge) { f.reports = nil }},
		{name: "new", scheme: "light", width: 1280, height: 1180, change: func(f *fakeBridge) {
			f.reports = []report{{Stream: "events", CaughtUpIn: -1, Guarantee: f.reports[0].Guarantee}}
			f.history, f.first, f.letters, f.jobs, f.metrics = nil, nil, nil, nil, ""
		}},
		{name: "token", scheme: "light", width: 1280, height: 640, change: func(f *fakeBridge) { f.token = "x" }, act: func(p *tab) {
			p.click("#pause")
			p.write("#token", "wrong")
			p.click("#token-dialog [type=submit]")
			p.sees("#token-dialog .problem", "Invalid token.")
		}},
		{name: "help", scheme: "light", width: 1280, height: 640, act: func(p *tab) { p.press("?") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := busy(t)
			if tc.change != nil {
				tc.change(f)
			}
			p := open(t, f, tc.width, "status of 503", "ERR_INCOMPLETE_CHUNKED_ENCODING")
			p.resize(tc.width, tc.height)
			p.scheme(tc.scheme)
			if len(f.reports) > 0 {
				p.wait(`document.querySelectorAll('.chart canvas').length === 2 && document.getElementById('letters-empty').innerText !== 'Loading…'`)
				p.wait(`document.querySelectorAll('#history-rows tr').length === 200 || !document.getElementById('history-empty').hidden`)
			}
			if tc.act != nil {
				tc.act(p)
			}
			p.fits()
			p.settle()
			p.snap(tc.name)
		})
	}
}

// settle waits until the page has been drawn with what it knows.
func (p *tab) settle() {
	p.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 300))`, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatal(err)
	}
}
