package position

import (
	"time"

	"exportbridge/bridge"
)

const (
	// EmptyAllowance is how many empty pages in a row are followed at once.
	EmptyAllowance = 3
	// emptyPatience is how many empty pages with a new cursor are followed if nothing
	// tells them from the end of the results.
	emptyPatience = 2000
	// emptyStep is by how much each of them lengthens the wait.
	emptyStep = 200 * time.Microsecond
	// recentEvent is the maximum age of the newest event of a stream that is at the end
	// of the results.
	recentEvent = time.Minute
	// gained is how far the position must gain on the clock within gainWindow
	// to show that the stream catches up.
	gained, gainWindow = 10 * time.Second, time.Minute
)

// EmptyRun counts empty pages with a new cursor. They can be a part of the export where
// nothing matches, or the end of the results of an API that hands out a new cursor with
// each answer. Both look the same, so this is the rule:
//
//   - Where the API marks its end otherwise, by no cursor, the same one twice in
//     a row (once may be chance), or a circle, such pages are not the end.
//   - Otherwise they are the end if the newest event was recent when it was read,
//     and after emptyPatience pages.
//   - Until the end the stream is not caught up and follows: the first
//     EmptyAllowance pages at once, then at the API's pace with a wait that grows
//     with each page, up to the poll interval. So 1,000 pages take two minutes,
//     and an API that is misread is asked once a poll interval in the end.
//
// An event alone does not reset the count: an export that lists its events hours late,
// one at a time, would be asked without pause. An event resets it while the position
// gains on the clock, as it does while the stream catches up. A stream begins with
// EmptyRun{Allowance: EmptyAllowance}.
type EmptyRun struct {
	Allowance int  // empty pages that are still followed at once
	Empties   int  // empty pages in a row
	spent     int  // empty pages that count for the wait
	AtTail    bool // the last page was the end of the results
	Circles   bool // it led back to an empty page
	recent    bool // the newest event was recent when it was read

	newest int64     // the newest event's time
	at     time.Time // when newest was noted
}

// filled counts a page with items.
func (p *EmptyRun) filled(page *bridge.Page, newest int64) {
	p.Empties, p.Allowance = 0, EmptyAllowance
	p.look(page, newest)
	passed, moved := page.RequestedAt.Sub(p.at), time.Duration(newest-p.newest)*time.Millisecond
	if p.at.IsZero() || moved > 2*passed+gained {
		p.spent = 0
	} else if passed < gainWindow {
		return
	}
	p.newest, p.at = newest, page.RequestedAt
}

// Skipped counts an empty page with a new cursor.
func (p *EmptyRun) Skipped(page *bridge.Page, newest int64) {
	if p.spent == 0 {
		p.look(page, newest)
	}
	p.Empties++
	p.spent++
	p.Allowance = max(0, p.Allowance-1)
}

// look compares the newest event with the server's clock, if the page has its time.
func (p *EmptyRun) look(page *bridge.Page, newest int64) {
	p.recent = page.Time().Sub(time.UnixMilli(newest)).Abs() <= recentEvent
}

// Tail notes that the last page was the end of the results.
func (p *EmptyRun) Tail() { p.AtTail, p.Circles, p.spent = true, false, 0 }

// Ended reports whether the last page was the end of the results for certain.
func (p *EmptyRun) Ended() bool { return p.AtTail || p.Circles }

// Continues reports whether the export goes on after the last page.
func (p *EmptyRun) Continues(marksEnd bool) bool {
	return !p.Ended() && (marksEnd || !p.recent && p.spent < emptyPatience)
}

// Wait returns how long to wait before the next page.
func (p *EmptyRun) Wait(poll time.Duration) time.Duration {
	if p.Allowance > 0 {
		return 0
	}
	return min(poll, time.Duration(p.spent)*emptyStep)
}
