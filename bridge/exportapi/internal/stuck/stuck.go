// Package stuck tells a page that fails from an API that does.
package stuck

import "time"

// After is how long a page fails until more than patience is needed.
const After = 10 * time.Minute

// Page is the page at a cursor that fails again and again. It is owned by one
// goroutine. The zero value is ready for use.
type Page struct {
	cursor string
	since  time.Time // zero if none fails
}

// Failed notes that the page at the cursor failed, and reports whether it has
// done nothing else for After. Without a cursor there is nothing to go past.
func (p *Page) Failed(cursor string, now time.Time) bool {
	if cursor == "" {
		return false
	}
	if cursor != p.cursor || p.since.IsZero() {
		p.cursor, p.since = cursor, now
	}
	return now.Sub(p.since) >= After
}

// Passed notes that the page at the cursor did not fail.
func (p *Page) Passed(cursor string) {
	if cursor != "" {
		*p = Page{}
	}
}
