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
	// lookKept is how long a report is kept that was read from Redis and Kafka.
	lookKept = 5 * time.Second
	// looksAtOnce is how many streams a feed reads at a time.
	looksAtOnce = 16
	// briefsKept is how long the briefs of all streams are kept.
	briefsKept = time.Second
)

// looks are the reports that were read from Redis and Kafka, for all feeds together: each
// stream is read by one feed at a time, and at most every lookKept.
type looks struct {
	mu  sync.Mutex // guards all
	all map[string]*look
}

type look struct {
	turn   chan struct{} // held while one reads
	mu     sync.Mutex    // guards all below
	report control.Report
	at     time.Time // when its reading began; zero before
	since  time.Time // a report from before is too old
}

func (l *looks) of(stream string) *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[string]*look)
	}
	if l.all[stream] == nil {
		l.all[stream] = &look{turn: make(chan struct{}, 1)}
	}
	return l.all[stream]
}

// last returns the newest report of a stream; false if there is none.
func (l *looks) last(stream string) (control.Report, bool) {
	k := l.of(stream)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report, !k.at.IsZero()
}

// outdate makes the last report of a stream too old.
func (l *looks) outdate(stream string) {
	k := l.of(stream)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since = time.Now()
}

// refresh reads the report of a stream if the last one is too old. If another feed reads
// it, refresh waits for that.
func (l *looks) refresh(ctx context.Context, stream string, read func(context.Context) control.Report) {
	k := l.of(stream)
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return
	}
	at := time.Now()
	k.mu.Lock()
	fresh := at.Sub(k.at) < lookKept && !k.at.Before(k.since)
	k.mu.Unlock()
	if fresh {
		return
	}
	report := read(ctx)
	if ctx.Err() != nil {
		return // half of it is missing
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.report, k.at = report, at
}

// watch reads what a feed shows from Redis and Kafka until ctx ends: the stream shown, if
// any, and the state of the streams that another process owns.
func (h *handler) watch(ctx context.Context, watching *sync.WaitGroup, shown string) {
	if h.Controller == nil {
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
			if c := h.Controller(shown); c != nil {
				h.details.refresh(ctx, shown, c.Status)
			}
		})
	}
	repeat(func() { h.glance(ctx) })
}

// glance reads the state of the streams that another process owns.
func (h *handler) glance(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	places := make(chan struct{}, looksAtOnce)
	for _, s := range h.Streams() {
		own := s.Status()
		c := h.Controller(own.Stream)
		if own.Leader || c == nil {
			continue
		}
		places <- struct{}{}
		reading.Go(func() {
			defer func() { <-places }()
			h.glances.refresh(ctx, own.Stream, c.Glance)
		})
	}
}

// merged is what is known of a stream: its status in this process, and in looked what was
// read from Redis and Kafka. The owner's status counts if that is another process.
func merged(own *bridge.Status, looked *looks, now time.Time) (r control.Report, asked, elsewhere bool) {
	r, asked = looked.last(own.Stream)
	if !asked {
		r = control.NewReport(own.Stream, own.Mode)
	}
	if elsewhere = !own.Leader && r.Live != nil && r.Live.Leader; !elsewhere {
		r.Live = own
	}
	r.LagSeconds, r.CaughtUpIn = 0, -1
	r.Measure(now)
	return r, asked, elsewhere
}

// board has the briefs of all streams for all feeds.
type board struct {
	mu     sync.Mutex // guards all below
	at     time.Time
	briefs []control.Brief // never changed
}

// briefsOf returns the briefs of all streams, at most briefsKept old.
func (h *handler) briefsOf(now time.Time) []control.Brief {
	b := &h.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.at) < briefsKept {
		return b.briefs
	}
	streams := h.Streams()
	b.at, b.briefs = now, make([]control.Brief, len(streams))
	for i, s := range streams {
		own := s.Status()
		r, _, _ := merged(&own, &h.glances, now)
		b.briefs[i] = r.Brief(now)
	}
	return b.briefs
}

// detail is all that is known of the stream shown.
type detail struct {
	control.Report
	Brief control.Brief `json:"brief"`
	// Asked is false until Redis and Kafka were read.
	Asked bool `json:"asked"`
	// Elsewhere: another process owns the stream, Live is its status.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// ManyDead and EndDoubtful are as in control.ManyDead and Status.EndDoubtful.
	ManyDead    bool `json:"many_dead_letters,omitempty"`
	EndDoubtful bool `json:"end_doubtful,omitempty"`
	// Servers are the servers as this process sees them, which passes requests to the
	// owner.
	Servers map[string]bridge.Dependency `json:"servers,omitempty"`
}

func (h *handler) detailOf(s Stream, now time.Time) detail {
	own := s.Status()
	r, asked, elsewhere := merged(&own, &h.details, now)
	return detail{
		Report: r, Brief: r.Brief(now), Asked: asked, Elsewhere: elsewhere, ManyDead: control.ManyDead(r.Live),
		EndDoubtful: r.Live.EndDoubtful(), Servers: own.Dependencies,
	}
}

// named returns a stream by name, nil for an unknown one.
func (h *handler) named(stream string) Stream {
	all := h.Streams()
	i := slices.IndexFunc(all, func(s Stream) bool { return s.Status().Stream == stream })
	if i < 0 {
		return nil
	}
	return all[i]
}
