package position

import (
	"time"

	"exportbridge/bridge"
)

const (
	// EmptyAllowance is the number of consecutive empty pages that are followed at once.
	EmptyAllowance = 3
	// emptyPatience is the number of empty pages with a new cursor that are followed if
	// nothing distinguishes them from the end of the results.
	emptyPatience = 2000
	// emptyStep is the time by which each of these pages lengthens the wait.
	emptyStep = 200 * time.Microsecond
	// recentEvent is the maximum age of the newest event of a stream that is at the end
	// of the results.
	recentEvent = time.Minute
	// gained is the time that the position must gain on the clock within gainWindow to show
	// that the stream catches up.
	gained, gainWindow = 10 * time.Second, time.Minute
)

// EmptyRun counts empty pages with a new cursor. They can be a part of the export where
// nothing matches. They can also be the end of the results of an API whose every answer has
// a new cursor. Both look the same, so this is the rule:
//
//   - If the API marks its end in another way, such pages are not the end. Such ways are no
//     cursor, the same cursor twice in a row (once may be chance), or a circle.
//   - Otherwise they are the end if the newest event was recent when it was read,
//     and after emptyPatience pages.
//   - Until the end the stream is not caught up and follows: the first
//     EmptyAllowance pages at once, then at the API's pace with a wait that grows
//     with each page, up to the poll interval. So 1,000 pages take two minutes,
//     and a misread API ends up with one request per poll interval.
//
// An event alone does not reset the count: otherwise an export that lists its events hours
// late, one at a time, would get requests without pause. An event resets the count while
// the position gains on the clock, which means that the stream catches up. A stream begins
// with EmptyRun{Allowance: EmptyAllowance}.
type EmptyRun struct {
	Allowance int  // remaining empty pages to follow at once
	Empties   int  // empty pages in a row
	spent     int  // empty pages that lengthen the wait
	AtTail    bool // the last page was the end of the results
	Circles   bool // the last cursor led back to an empty page
	recent    bool // the newest event was recent when it was read

	newest int64     // time of the newest event
	at     time.Time // when newest was recorded
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

// look compares the newest event with the server's clock, if the page has the server's
// time.
func (p *EmptyRun) look(page *bridge.Page, newest int64) {
	p.recent = page.Time().Sub(time.UnixMilli(newest)).Abs() <= recentEvent
}

// Tail records that the last page was the end of the results.
func (p *EmptyRun) Tail() { p.AtTail, p.Circles, p.spent = true, false, 0 }

// Ended reports whether the last page was certainly the end of the results.
func (p *EmptyRun) Ended() bool { return p.AtTail || p.Circles }

// Continues reports whether the export continues after the last page.
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
