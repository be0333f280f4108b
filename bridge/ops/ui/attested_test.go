//go:build browser

package ui_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestAttested: the figure shows the last attested period at each width, and is absent without
// BRIDGE_ATTEST.
func TestAttested(t *testing.T) {
	for _, width := range []int64{375, 768, 1280, 1920} {
		f := newFakeBridge(t, idle("events"))
		p := open(t, f, width)
		p.sees("#state-name", "Caught up")
		if !read[bool](p, `document.getElementById('figure-attested').hidden`) {
			t.Errorf("%d px: the figure is shown without an attestation", width)
		}
		f.set(func() {
			f.reports[0].Live.Attested = &bridge.Attested{
				Seq: 7, To: time.Date(2026, 11, 1, 13, 0, 0, 0, time.UTC), Missing: 2, Repaired: 1_003, Pending: 3,
			}
		})
		p.sees("#figure-attested .note", "2 missing, 1,003 repaired, 3 periods pending")
		p.sees("#figure-attested .value", "13:00")
		wide := `document.documentElement.scrollWidth <= innerWidth && ` +
			`[...document.querySelectorAll('#figure-attested p')].every((e) => e.scrollWidth <= e.clientWidth)`
		if !read[bool](p, wide) || !read[bool](p, `document.getElementById('figure-attested').classList.contains('is-bad')`) {
			t.Errorf("%d px: the figure does not fit, or does not show that events are missing", width)
		}
		f.set(func() { f.reports[0].Live.Attested = &bridge.Attested{Error: "no right", Hint: "grant it"} })
		p.sees("#figure-attested .note", "no record")
	}
}
