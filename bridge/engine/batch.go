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
	// growTimes is how many times longer a batch grows than its commit takes
	// where pages come in quick succession, so that committing takes little of
	// the time.
	growTimes = 8
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
	breadth int // pages in one batch at most
	// cost is what a commit takes, gap how long a page is waited for: running
	// means.
	cost, gap time.Duration
}

// full reports whether a batch is to be committed although fetching goes on.
func (s *sizer) full(b batch) bool {
	return b.pages >= s.breadth || time.Since(b.began) >= growMost
}

// ripe returns when a batch, which has pages, is to be committed although no
// further one is ready. Where the pages are far between that is at once: the
// commit is over before the next one comes. Where they come quicker than commits
// it is worth waiting for them, since nothing is taken while a commit runs.
func (s *sizer) ripe(b batch) time.Time {
	if s.gap >= s.cost {
		return b.began
	}
	return b.began.Add(min(growTimes*s.cost, growMost))
}

// waited notes how long a page was waited for.
func (s *sizer) waited(d time.Duration) { s.gap = average(s.gap, d) }

// committed makes the next batches smaller after one that was slow or failed,
// and larger again while they are quick.
func (s *sizer) committed(pages int, took time.Duration, err error) {
	if pages > 0 && err == nil {
		s.cost = average(s.cost, took)
	}
	switch {
	case pages == 0:
	case err != nil || took > slowBatch:
		s.breadth = max(1, pages/2)
	case took < slowBatch/4:
		s.breadth = max(1, min(mostPages, 2*s.breadth))
	}
}

// average moves a running mean by an eighth towards d.
func average(mean, d time.Duration) time.Duration { return mean + (d-mean)/8 }
