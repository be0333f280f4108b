package engine

import "time"

// batch is what was taken since the last commit. Its events are on their way:
// the sink sends them while the next page is fetched.
type batch struct {
	pages, events int
	began         time.Time // when the first page was taken
}

const (
	// growMost is how long a batch grows. A crash repeats as much fetching.
	growMost = 200 * time.Millisecond
	// growShare times its growth is what a batch waits for at most of how far
	// the stream is behind: its events come late by no more than a tenth.
	growShare = 10
	// A commit that takes longer than slowBatch is too large for the brokers as
	// they are: at their transaction time-out all of it would have to be sent
	// again.
	slowBatch = 2 * time.Second
	// mostPages is the most that one batch has.
	mostPages = 1024
)

// sizer is how large a batch grows, learnt from how pages come and commits go.
// Owned by the commit loop.
type sizer struct {
	breadth int           // pages in one batch at most
	gap     time.Duration // how long a page is waited for: a running mean
}

// full reports whether a batch is to be committed although fetching goes on.
func (s *sizer) full(b batch) bool {
	return b.pages >= s.breadth || time.Since(b.began) >= growMost
}

// ripe returns when a batch, which has pages, is to be committed although no
// further one is ready. While a stream is behind, nobody waits for its events
// within milliseconds, and each commit costs the brokers as much as a thousand
// events: so the batch waits for more pages, the longer the further behind its
// position is. At the end of the results it is committed at once, as the page
// there is the last one; and also where the next page would come too late.
func (s *sizer) ripe(b batch, position int64) time.Time {
	if s.gap >= growMost {
		return b.began
	}
	behind := time.Since(time.UnixMilli(position)) // far, where no event has said a time
	return b.began.Add(min(growMost, behind/growShare))
}

// waited notes how long a page was waited for.
func (s *sizer) waited(d time.Duration) { s.gap += (d - s.gap) / 8 }

// committed makes the next batches smaller after one that was slow or failed,
// and larger again while they are quick.
func (s *sizer) committed(pages int, took time.Duration, err error) {
	switch {
	case pages == 0:
	case err != nil || took > slowBatch:
		s.breadth = max(1, pages/2)
	case took < slowBatch/4:
		s.breadth = max(1, min(mostPages, 2*s.breadth))
	}
}
