//go:build browser

package ui_test

import (
	"strings"
	"testing"

	"exportbridge/bridge"
)

var doubtfulEnd = []bridge.Warning{{
	Code: bridge.WarningUnread,
	Text: "the page names no next page, but has /paging/next, which looks like a next cursor",
	Hint: "if it is the next cursor, set EXPORT_CURSOR_FIELD=/paging/next",
}}

// For a stream without events, the page does not claim that all events are in Kafka.
func TestNoEventYet(t *testing.T) {
	f := newFakeBridge(t, idle("events"))
	live := f.reports[0].Live
	live.Events, live.Published, live.DeadLettered = 0, 0, 0
	p := open(t, f, 1280)
	p.sees("#state-name", "Caught up")
	p.sees("#state-text", "The API has listed no event so far.")
}

// A stream with a warning is amber and shows the warning. The page does not claim what the
// warning doubts.
func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		warnings []bridge.Warning
		chip     string
		claims   bool
	}{
		"none":           {nil, "Caught up", true},
		"a doubtful end": {doubtfulEnd, "Caught up, in doubt", false},
		"something else": {[]bridge.Warning{{Code: "another", Text: "something is odd"}}, "Caught up, in doubt", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeBridge(t, idle("events"))
			f.reports[0].Live.Warnings, f.reports[0].Live.BorderRepeats = tc.warnings, 3
			p := open(t, f, 1280)
			p.sees("#state-name", tc.chip)
			p.sees("#cause", "3 items listed again")
			for _, w := range tc.warnings {
				p.sees("#cause", w.Text)
				p.sees("#cause", w.Hint)
			}
			got := read[[]string](p,
				`[document.getElementById('state').className, document.getElementById('state-text').innerText]`)
			if amber := strings.Contains(got[0], "is-degraded"); amber != (tc.warnings != nil) ||
				strings.Contains(got[1], "All exported events") != tc.claims {
				t.Errorf("the page shows %q", got)
			}
		})
	}
}
