package engine

import (
	"time"

	"exportbridge/bridge"
)

// emptyRun is how the stream stands with empty pages that lead on to a new cursor.
// They can be a part of the export where nothing matches, or the end of the
// results of an API that hands out a new cursor with each answer. The API's
// answers look the same, so this is the rule:
//
//   - Where the API marks its end otherwise, by no cursor, the same one twice in
//     a row (once may be chance), or a circle, such pages are not the end.
//   - Otherwise they are the end if the newest event was recent when it was read,
//     and after emptyPatience pages.
//   - Until the end the stream is not caught up and follows: the first
//     emptyAllowance pages at once, then at the API's pace with a wait that grows
//     with each page, up to the poll interval. So 1,000 pages take two minutes,
//     and an API that is misread is asked once a poll interval in the end.
//
// Events alone do not begin the count anew: an export that lists its events
// hours late, one at a time, would be asked without pause. They do when the
// position gains on the clock, as it does while the stream catches up.
type emptyRun struct {
	allowance int  // empty pages that are still followed at once
	empties   int  // empty pages in a row
	spent     int  // empty pages that count for the wait
	atTail    bool // the last page was the end of the results
	circles   bool // it led back to an empty page
	recent    bool // the newest event was recent when it was read

	newest int64     // the newest event's time
	at     time.Time // when that was so
}

// filled notes a page with items.
func (p *emptyRun) filled(page *bridge.Page, newest int64) {
	p.empties, p.allowance = 0, emptyAllowance
	p.look(page, newest)
	passed, moved := page.RequestedAt.Sub(p.at), time.Duration(newest-p.newest)*time.Millisecond
	if p.at.IsZero() || moved > 2*passed+gained {
		p.spent = 0
	} else if passed < gainWindow {
		return
	}
	p.newest, p.at = newest, page.RequestedAt
}

// skipped notes an empty page that leads on.
func (p *emptyRun) skipped(page *bridge.Page, newest int64) {
	if p.spent == 0 {
		p.look(page, newest)
	}
	p.empties++
	p.spent++
	p.allowance = max(0, p.allowance-1)
}

// look compares the newest event with the server's clock, if it tells.
func (p *emptyRun) look(page *bridge.Page, newest int64) {
	p.recent = page.Time().Sub(time.UnixMilli(newest)).Abs() <= recentEvent
}

// ended reports whether the last page was the end of the results for certain.
func (p *emptyRun) ended() bool { return p.atTail || p.circles }

// continues reports whether the export goes on behind the last page.
func (p *emptyRun) continues(marksEnd bool) bool {
	return !p.ended() && (marksEnd || !p.recent && p.spent < emptyPatience)
}

// wait is how long to wait before the next page.
func (p *emptyRun) wait(poll time.Duration) time.Duration {
	if p.allowance > 0 {
		return 0
	}
	return min(poll, time.Duration(p.spent)*emptyStep)
}
