package engine

import "time"

// batch counts the pages taken since the last commit. The sink sends their events
// while the next page is fetched.
type batch struct {
	pages, events int
	began         time.Time // when the first page was taken
	position      int64     // the time of one of the last events
	short         bool      // the last page is probably the end for now
}

const (
	// growMost is how long a batch grows after its first page.
	growMost = 200 * time.Millisecond
	// growShare bounds the wait of a batch for pages: it is at most a tenth of the stream's
	// lag.
	growShare = 10
	// slowBatch is the duration of a commit that shows that batches are too large for the
	// present speed of the brokers. After the transaction timeout, a whole batch is sent
	// again.
	slowBatch = 2 * time.Second
	mostPages = 1024 // maximum pages of a batch
)

// sizer decides how large a batch grows, from the waits for pages and the durations of
// commits. Owned by the commit loop.
type sizer struct {
	breadth int           // maximum pages of a batch
	gap     time.Duration // running mean of the wait for a page
	waiting time.Duration // the wait for the next page so far
	items   int           // number of items of the last page with items
}

// begin resets the sizer before the first page.
func (s *sizer) begin(pageSize int) { s.items, s.waiting = pageSize, 0 }

// short records a page, and reports whether it is probably the end for now: it has at most
// half the items of the page before. Some APIs never fill the page size.
func (s *sizer) short(items int) bool {
	before := s.items
	if items > 0 {
		s.items = items
	}
	return 2*items <= before
}

// full reports whether to commit a batch while fetching continues.
func (s *sizer) full(b batch) bool {
	return b.pages >= s.breadth || time.Since(b.began) >= growMost
}

// ripe returns when to commit a batch that has pages, if no further page is ready. While a
// stream is behind, consumers do not need its events within milliseconds, and a commit
// costs the brokers as much as a thousand events. Then the batch waits for more pages, in
// proportion to the age of its events. At the end of the results, and with a slow API, it
// does not wait: no page would arrive in time.
func (s *sizer) ripe(b batch) time.Time {
	if b.short || s.gap >= growMost {
		return b.began
	}
	behind := time.Since(time.UnixMilli(b.position)) // since 1970 if no event had a time
	return b.began.Add(min(growMost, behind/growShare))
}

// arrived ends the wait for a page, and returns the length of the wait.
func (s *sizer) arrived(waited time.Duration) time.Duration {
	waited += s.waiting
	s.waiting = 0
	s.gap += (waited - s.gap) / 8
	return waited
}

// committed makes the next batches smaller after a slow or failed commit, and larger again
// after any other commit.
func (s *sizer) committed(pages int, took time.Duration, err error) {
	switch {
	case pages == 0:
	case err != nil || took > slowBatch:
		s.breadth = max(1, pages/2)
	default:
		s.breadth = min(mostPages, 2*s.breadth)
	}
}
