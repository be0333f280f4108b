package engine

import (
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// warnings returns the reasons to doubt that a running stream publishes all events.
func (s *progress) warnings(c *Config, t *totals) (all []bridge.Warning) {
	warn := func(code, text string, hint bridge.Hint) {
		all = append(all, bridge.Warning{Code: code, Text: text, Hint: c.words(hint)})
	}
	if w := c.doubtfulEnd(&s.last); w != nil {
		all = append(all, *w)
	}
	if s.at.Trusted != 0 {
		warn(bridge.StuckOlder, "the last page lists older items than before: the API may have forgotten the cursor",
			bridge.HintCursorRejected)
	}
	if h := &s.at.Checkpoint; h.Cursor == "" && h.PositionByAPI && h.PositionTime > 0 &&
		h.Origin.Start-h.PositionTime > startSlack.Milliseconds() {
		warn(bridge.WarningStart, fmt.Sprintf(
			"the stream starts at %s, later than the API's clock (%s): events until then are left out",
			h.Origin.StartText(), bridge.InstantText(h.PositionTime)), bridge.HintStartLater)
	}
	if l := s.at.Listing; l != nil && l.Gap != 0 {
		warn(bridge.WarningGap, fmt.Sprintf(
			"events from %s on may be missing: when a session began, the list had none that was known before",
			bridge.InstantText(l.Gap)), bridge.HintGap)
	}
	if t.missKeys(c.KeyPointer) {
		warn(bridge.WarningKeyless, fmt.Sprintf("none of %d events has a key at %s: their records have no order", t.keyless,
			c.KeyPointer), bridge.HintKeyless)
	}
	return all
}

// keylessFrom is the number of events without a key that is no coincidence.
const keylessFrom = 100

// missKeys reports whether events should have a key, but none of this run has one.
func (t *totals) missKeys(pointer string) bool {
	return pointer != "" && t.keyless >= keylessFrom && t.keyless >= t.published
}

// startSlack is how far a start may be ahead of the API's clock. "now" is the time of this
// machine's clock.
const startSlack = time.Minute

// doubtfulEnd returns the warning about a last page that may not be the end, or nil.
func (c *Config) doubtfulEnd(last *position.Findings) *bridge.Warning {
	switch {
	case last.Unread.Where != "":
		return &bridge.Warning{Code: bridge.WarningUnread, Text: last.Unread.Fault().Error(), Hint: last.Unread.Hint}
	case last.FirstAgain:
		return &bridge.Warning{Code: bridge.WarningUnread, Hint: c.words(bridge.HintFirstAgain),
			Text: position.FirstAgainText}
	case last.FullEnd:
		return &bridge.Warning{Code: bridge.StuckFullPage,
			Text: "full page without a next page: the API may hold back more items", Hint: c.words(bridge.HintFullPage)}
	}
	return nil
}
