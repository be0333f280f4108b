package ops

import (
	"context"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

const (
	// reportKept is the age at which a report from Redis and Kafka is read again,
	// reportUsable the age at which it is no longer shown.
	reportKept   = 5 * time.Second
	reportUsable = 30 * time.Second
	// unknownUsable is reportUsable of a stream that no process reports. Without Redis, a round
	// of questions about a thousand streams takes minutes.
	unknownUsable = 10 * time.Minute
	// briefsKept is how long the briefs of all streams are kept.
	briefsKept = time.Second
)

// reportCache has the reports of streams from Redis and Kafka, for all feeds. One feed at a
// time reads the report of a stream, at most every reportKept.
type reportCache struct {
	mu  sync.Mutex // guards all
	all map[string]*cachedReport
}

type cachedReport struct {
	turn   chan struct{} // held by the feed that reads
	mu     sync.Mutex    // guards all below
	report control.Report
	at     time.Time // when the feed began to read report; zero without one
	since  time.Time // a report from before since is outdated
}

func (c *reportCache) of(stream string) *cachedReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]*cachedReport)
	}
	if c.all[stream] == nil {
		c.all[stream] = &cachedReport{turn: make(chan struct{}, 1)}
	}
	return c.all[stream]
}

// last returns the last report of a stream that has this status in this process; false if there is
// none, or it is too old to be shown.
func (c *reportCache) last(own *bridge.Status) (control.Report, bool) {
	r := c.of(own.Stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	usable := reportUsable
	if r.report.Live == nil && !own.Leader {
		usable = unknownUsable
	}
	return r.report, time.Since(r.at) < usable
}

// drop forgets the report of a stream that this process owns: it says nothing of the next owner.
func (c *reportCache) drop(stream string) {
	r := c.of(stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}

// invalidate has the report of a stream read again.
func (c *reportCache) invalidate(stream string) {
	r := c.of(stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
}

// refresh reads the report of a stream if the last one is outdated. While another feed
// reads the report, refresh waits.
func (c *reportCache) refresh(ctx context.Context, stream string, read func(context.Context) control.Report) {
	r := c.of(stream)
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return
	}
	at := time.Now()
	r.mu.Lock()
	fresh := at.Sub(r.at) < reportKept && !r.at.Before(r.since)
	r.mu.Unlock()
	if fresh {
		return
	}
	report := read(ctx)
	if ctx.Err() != nil {
		return // half of it is missing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report, r.at = report, at
}

// watcher has what feeds show of the streams, for all feeds.
type watcher struct {
	streams    func() []Stream
	controller func(stream string) Controller // may be nil
	// glances has the short reports for briefs, details those of shown streams.
	glances, details reportCache

	mu     sync.Mutex // guards all below
	at     time.Time
	briefs []control.Brief // never changed
}

// invalidate has the reports of a stream read again.
func (w *watcher) invalidate(stream string) {
	w.details.invalidate(stream)
	w.glances.invalidate(stream)
}

// watch refreshes the reports that a feed needs until ctx ends: the details of the stream
// shown, if any, and the state of all streams that this process does not own.
func (w *watcher) watch(ctx context.Context, watching *sync.WaitGroup, shown string) {
	if w.controller == nil {
		return
	}
	repeat := func(read func()) {
		watching.Go(func() {
			for ctx.Err() == nil {
				read()
				bridge.Sleep(ctx, time.Second)
			}
		})
	}
	if shown != "" {
		repeat(func() {
			if c := w.controller(shown); c != nil {
				w.details.refresh(ctx, shown, c.Status)
			}
		})
	}
	repeat(func() { w.glance(ctx) })
}

// glance refreshes the state of all streams that this process does not own.
func (w *watcher) glance(ctx context.Context) {
	all := w.streams()
	control.Each(len(all), func(i int) {
		own := all[i].Status()
		if own.Leader {
			w.glances.drop(own.Stream)
		} else if c := w.controller(own.Stream); c != nil {
			w.glances.refresh(ctx, own.Stream, c.Glance)
		}
	})
}

// merged returns the status of a stream in this process, completed by the cached report.
// elsewhere is true if another process owns the stream and its status replaces own. If this
// process stands by for an owner that does not report, Live is nil: its own calm state would
// hide that nobody may run the stream.
func merged(own *bridge.Status, cache *reportCache, now time.Time) (r control.Report, asked, elsewhere bool) {
	r, asked = cache.last(own)
	if !asked {
		r = control.NewReport(own.Stream, own.Mode)
	}
	elsewhere = !own.Leader && r.Live != nil && r.Live.Leader
	switch {
	case elsewhere:
	case asked && !own.Leader && own.State == bridge.StateStandby:
		r.Live = nil
	default:
		r.Live = own
	}
	r.LagSeconds, r.CaughtUpIn = 0, -1
	r.Measure(now)
	return r, asked, elsewhere
}

// briefsOf returns the briefs of all streams, at most briefsKept old.
func (w *watcher) briefsOf(now time.Time) []control.Brief {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.at) < briefsKept {
		return w.briefs
	}
	streams := w.streams()
	w.at, w.briefs = now, make([]control.Brief, len(streams))
	for i, s := range streams {
		own := s.Status()
		r, _, _ := merged(&own, &w.glances, now)
		w.briefs[i] = r.Brief(now)
	}
	return w.briefs
}

// detail is all that the process knows of the stream shown.
type detail struct {
	control.Report
	Brief control.Brief `json:"brief"`
	// Asked is false while there is no report from Redis and Kafka.
	Asked bool `json:"asked"`
	// Elsewhere is true if another process owns the stream; Live is that process's status.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// ManyDead and EndDoubtful are as in control.ManyDead and Status.EndDoubtful.
	ManyDead    bool `json:"many_dead_letters,omitempty"`
	EndDoubtful bool `json:"end_doubtful,omitempty"`
	// Servers are the dependencies as this process sees them. Requests to the owner go
	// through this process.
	Servers map[string]bridge.Dependency `json:"servers,omitempty"`
}

func (w *watcher) detailOf(s Stream, now time.Time) detail {
	own := s.Status()
	r, asked, elsewhere := merged(&own, &w.details, now)
	return detail{
		Report: r, Brief: r.Brief(now), Asked: asked, Elsewhere: elsewhere, Servers: own.Dependencies,
		ManyDead: r.Live != nil && control.ManyDead(r.Live), EndDoubtful: r.Live != nil && r.Live.EndDoubtful(),
	}
}

// named returns a stream by name, nil for an unknown one.
func (w *watcher) named(stream string) Stream {
	all := w.streams()
	i := slices.IndexFunc(all, func(s Stream) bool { return s.Status().Stream == stream })
	if i < 0 {
		return nil
	}
	return all[i]
}
