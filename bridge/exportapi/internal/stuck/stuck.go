// Package stuck detects a page that keeps failing.
package stuck

import "time"

// After is how long a page must fail before it counts as stuck.
const After = 10 * time.Minute

// Page is the page at a cursor that keeps failing. It is owned by one goroutine. The zero
// value is ready for use.
type Page struct {
	cursor string
	since  time.Time // the first failure; zero if no page fails
}

// Failed records that the page at a cursor failed, and reports whether it has failed for
// After without success. It ignores the first page, which cannot be skipped.
func (p *Page) Failed(cursor string, now time.Time) bool {
	if cursor == "" {
		return false
	}
	if cursor != p.cursor || p.since.IsZero() {
		p.cursor, p.since = cursor, now
	}
	return now.Sub(p.since) >= After
}

// Passed records that the page at a cursor did not fail.
func (p *Page) Passed(cursor string) {
	if cursor != "" {
		*p = Page{}
	}
}
