//go:build browser

package ui_test

import (
	"bytes"
	"cmp"
	"errors"
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
)

// pictures is the folder for pictures; without it, none are written.
var pictures = os.Getenv("SCREENSHOTS")

// snap writes a small picture of the window.
func (p *tab) snap(name string) {
	p.Helper()
	if pictures == "" {
		return
	}
	full, err := png.Decode(bytes.NewReader(p.shot()))
	if err != nil {
		p.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduce(full)); err != nil {
		p.Fatal(err)
	}
	p.keep(name, small.Bytes())
}

// shot is a picture of the window.
func (p *tab) shot() []byte {
	p.Helper()
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		p.Fatal(err)
	}
	return shot.Data
}

func (p *tab) keep(name string, picture []byte) {
	p.Helper()
	file := filepath.Join(pictures, name+".png")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, picture, 0o600)); err != nil {
		p.Fatal(err)
	}
}

// reduce reduces a picture to its 256 most frequent colours that differ visibly.
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
		{"partition": 2, "offset": 1, "time": now.Add(-19 * time.Minute), "reason": "too-large",
			"message": "the record takes 1203441 bytes, topic export.events takes 1048588", "cursor_hash": "77b0c1d2e3f4",
			"index": 412, "bytes": 1_203_441},
		{"partition": 0, "offset": 0, "time": now.Add(-3 * time.Hour), "reason": "bad-timestamp",
			"message": "the item has no readable time at /timestamp", "cursor_hash": "0a94be51c7d8", "index": 7, "bytes": 611},
	}
	f.jobs = []object{
		{"id": "backfill-q3", "kind": "backfill", "stream": "events", "state": "running", "topic": "export.events",
			"from": "2026-07-01T00:00:00Z", "to": "2026-10-01T00:00:00Z", "windows": 12, "done": 7, "events": 18_442_019,
			"progress": 0.61},
		{"id": "replay-fraud", "kind": "replay", "stream": "events", "state": "done", "topic": "replay.fraud",
			"from": "2026-11-18T00:00:00Z", "to": "2026-11-19T00:00:00Z", "windows": 4, "done": 4, "events": 1_204_551,
			"progress": 1},
	}
	f.first = []message{
		logged("INFO", "ownership acquired", object{"stream": "events"}),
		logged("WARN", "retrying", object{"stream": "events", "error": "429 Too Many Requests", "in": "1.2s"}),
		logged("INFO", "recovered", object{"stream": "events", "after": "1.2s", "was": "retrying"}),
		logged("WARN", "items sent to the dead-letter topic", object{"stream": "events", "items": object{"too-large": 1}}),
	}
	for n := range 24 {
		f.first = append(f.first,
			sampled("events", "com.croct.event."+[]string{"pageOpened", "interestShown", "orderPlaced",
				"tabVisibilityChanged", "goalCompleted"}[(n*n+n/3)%5], 24-n))
	}
	return f
}

// TestScreenshots takes the pictures of the documents.
func TestScreenshots(t *testing.T) {
	for _, tc := range []struct {
		name, scheme  string
		width, height int64
		change        func(f *fakeBridge)
	}{
		{name: "light", scheme: "light", width: 1280, height: 1360},
		{name: "dark", scheme: "dark", width: 1280, height: 1360},
		{name: "narrow", scheme: "light", width: 390, height: 1500},
		{name: "blocked", scheme: "light", width: 1280, height: 640, change: block},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := busy(t)
			if tc.change != nil {
				tc.change(f)
			}
			p := open(t, f, tc.width)
			p.resize(tc.width, tc.height)
			p.scheme(tc.scheme)
			p.loaded()
			p.settle()
			p.snap(tc.name)
		})
	}
}

// settle waits until the page is drawn.
func (p *tab) settle() {
	p.Helper()
	_, err := chromedp.Run(p.ctx,
		chromedp.Evaluate[bool](`new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 300))`,
			chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatal(err)
	}
}
