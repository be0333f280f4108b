// Package reconcile compares a past range of an export with the stream's topic and
// repairs it: it publishes the events that are missing and that the live stream can
// no longer publish. The stream itself does not change.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/kafkaclient"
)

// named is the maximum number of missing events, extra events and reasons in a
// Report.
const named = 10

// Mode is how Run treats missing events.
type Mode int

// The modes. Rehearse reports what Repair would publish, without waiting for the
// live stream.
const (
	Compare Mode = iota
	Rehearse
	Repair
)

// Config is the range to compare, and how.
type Config struct {
	// Stream is the stream's name.
	Stream string
	// Origin is what the Source requests from the API.
	Origin bridge.Origin
	// From is the beginning of the range, To its end, exclusive, in
	// milliseconds since the epoch.
	From, To int64
	// Mode is how missing events are treated.
	Mode Mode
	// Batch is the maximum number of events that are compared at once, at least 1;
	// each takes about 150 bytes of memory.
	Batch int
	// LateThreshold is the delay between event time and ingestion time from which
	// on an event is late.
	LateThreshold time.Duration
	// EmptyPages in a row end the range; see engine.Config.
	EmptyPages int
	// PageSize is the number of items of a full page, 0 if unknown. EndExplicit is set if a page says
	// whether more pages follow; see engine.Config.
	PageSize    int
	EndExplicit bool
	// FetchTimeout is how long a call of the Source may take; see engine.Config.
	FetchTimeout time.Duration
	// Unmarked is set if the stream's records have no headers: all records that name no
	// stream then count as the stream's. Otherwise only those whose event the export has.
	Unmarked bool
	// By is the operator, recorded in the marks.
	By string
	// Redacted names the rules for private data that the Source applies, empty for none.
	Redacted string
	// Topics are the topics by Event.Route, if there are several, Routes is Routes.Text.
	Topics []string
	Routes string
}

// Source is the export API.
type Source interface {
	deadletter.Source
	// IngestedAt returns an item's ingestion time in milliseconds since the epoch;
	// 0 if it has none.
	IngestedAt(item []byte) int64
}

// LiveStream is the live stream.
type LiveStream interface {
	bridge.CheckpointLog
	// Running reports whether a process runs the stream.
	Running(ctx context.Context) (bool, error)
	// Status returns what the owner of the stream reports; false if that is unknown.
	Status(ctx context.Context) (bridge.Status, bool)
	// Backfills returns the unfinished backfills into the stream's topic.
	Backfills(ctx context.Context) ([]Backfill, error)
}

// Backfill is the range of a backfill.
type Backfill struct {
	ID       string
	From, To int64 // as in Config
}

// Publisher publishes events, each batch with a mark that names them.
type Publisher interface {
	deadletter.Publisher
	// Forget removes marks.
	Forget(ctx context.Context, names []string) error
	Close()
}

// Ports are the systems that a comparison uses.
type Ports struct {
	Source Source
	// Ranges reads ranges of a Source without a lasting cursor, and marks their end; nil
	// is the Source itself.
	Ranges bridge.Source
	Topic  deadletter.EventLog
	// DeadLetters is nil if the topic does not exist.
	DeadLetters deadletter.Log
	// Retried returns a function that reports whether a retry has published a dead
	// letter, by the marks at the call of Retried; nil if there are none.
	Retried func(ctx context.Context) (func(*deadletter.DeadLetter) bool, error)
	Live    LiveStream
	// Publisher begins a repair, or a rehearsal that publishes nothing. It ends the open
	// transaction of an earlier repair.
	Publisher func(context.Context) (Publisher, error)
	// Compared is called with each part of the range, if there are several, Waiting
	// with why a topic cannot be read yet, AwaitingEnd before the wait for the
	// stream to reach the end of the export. Each may be nil.
	Compared    func(Progress)
	Waiting     func(error)
	AwaitingEnd func()
}

// Progress is the result for a part of the range.
type Progress struct {
	From, To        int64 // as in Config
	Events, Missing int64
}

// Report is the result of Run. Times are in milliseconds since the epoch.
type Report struct {
	Stream string `json:"stream"`
	Topic  string `json:"topic"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	// API counts the range's events in the API. Held counts those of them that are in the
	// topic, each once.
	API     int64 `json:"api_events"`
	Held    int64 `json:"topic_events"`
	Missing int64 `json:"missing"`
	// Digest is the digest of the events that API counts.
	Digest Digest `json:"digest"`
	// DeadLettered counts the events that are among the dead letters only.
	DeadLettered int64 `json:"dead_lettered"`
	// Deleted counts the absent events that the retention of their topic, or of an earlier
	// one, may have deleted: they are not missing. The topics keep all events from KeptFrom
	// on; 0 if nothing was deleted.
	Deleted  int64 `json:"deleted_by_retention,omitempty"`
	KeptFrom int64 `json:"kept_from,omitempty"`
	// Extra counts the events that are in the topic only.
	Extra int64 `json:"extra"`
	// Dropped counts the API's events that a route drops.
	Dropped int64 `json:"dropped_by_route,omitempty"`
	// Topics has counts by topic, if there are several.
	Topics []TopicCount `json:"topics,omitempty"`
	// Undated counts the API's events without a time. The records of such events are in
	// no range: Extra does not count them.
	Undated int64 `json:"undated,omitempty"`
	// Outside counts the API's events whose time is outside the range: the API selects
	// by another time, or ignores a bound.
	Outside int64 `json:"outside_range,omitempty"`
	// Again counts further copies in the topic, for instance after a rewind.
	Again int64    `json:"again"`
	Late  Lateness `json:"late"`
	Parts int      `json:"parts"`
	// EndedEmpty is true if consecutive empty pages ended the range or a part of it, and
	// the API has never marked its end. Then more events may follow.
	EndedEmpty bool `json:"ended_empty,omitempty"`
	// MissingEvents and ExtraEvents are the first ten.
	MissingEvents []Event `json:"missing_events,omitempty"`
	ExtraEvents   []Event `json:"extra_events,omitempty"`
	// Position is the live position when the comparison began, 0 if unknown. AtEnd is
	// true if the stream was then at the end of the export.
	Position int64 `json:"live_position,omitempty"`
	AtEnd    bool  `json:"-"`
	// Repair is nil in the mode Compare.
	Repair *Repaired `json:"repair,omitempty"`
}

// TopicCount counts the events that the routes send to a topic. Listed events in none of the
// counts are dead letters or deleted.
type TopicCount struct {
	Topic  string `json:"topic"`
	Listed int64  `json:"listed"`
	Held   int64  `json:"in_topic"`
	// Elsewhere counts the events that only another topic of the stream has, as after a change
	// of the routes.
	Elsewhere int64 `json:"in_other_topic,omitempty"`
	Missing   int64 `json:"missing"`
	Repaired  int64 `json:"repaired,omitempty"`
}

// countOf returns the count of the topic of a route, nil for none.
func countOf(topics []TopicCount, route uint8) *TopicCount {
	if int(route) >= len(topics) {
		return nil
	}
	return &topics[route]
}

// countsOf returns no events of each topic.
func countsOf(topics []string) []TopicCount {
	all := make([]TopicCount, len(topics))
	for i, name := range topics {
		all[i].Topic = name
	}
	return all
}

// Event identifies an event.
type Event struct {
	ID string `json:"id"`
	// Time is the event time, zero if there is none.
	Time time.Time `json:"time,omitzero"`
}

// comparison is one Run.
type comparison struct {
	Config
	Ports
	pages  rangeReader
	start  bridge.Checkpoint  // the live stream when Run began
	repair *repairer          // nil in the mode Compare
	kept   []kafkaclient.Kept // what the topics keep, as last asked
	asOf   time.Time          // the latest time of the API's clock
	report Report
}

// Run compares the range and, in the mode Repair, repairs it. Errors are those of the
// ports, or a *RejectedError.
func Run(ctx context.Context, cfg Config, ports Ports) (*Report, error) {
	c := &comparison{
		Config: cfg, Ports: ports,
		pages: rangeReader{
			source: cmp.Or(ports.Ranges, bridge.Source(ports.Source)), timeout: cfg.FetchTimeout, emptyPages: cfg.EmptyPages,
			lists: ports.Ranges != nil, pageSize: cfg.PageSize, endExplicit: cfg.EndExplicit,
		},
		report: Report{
			Stream: cfg.Stream, Topic: ports.Topic.Topic(), From: cfg.From, To: cfg.To, Topics: countsOf(cfg.Topics),
		},
	}
	c.pages.check = c.checkSource
	var err error
	if c.start, err = bridge.Newest(ctx, c.Live); err == nil {
		err = c.checkRequest()
	}
	if err != nil {
		return nil, err
	}
	readOn(ctx, c.Live, &c.start, c.To)
	c.pages.marksEnd = c.start.MarksEnd || ports.Ranges != nil
	c.report.Position, c.report.AtEnd = c.start.PositionTime, atEnd(&c.start)
	c.pages.unproven = !position.Heeded(&c.start)
	if c.kept, err = ports.Topic.Kept(ctx); err != nil {
		return nil, err
	}
	if cfg.Mode != Compare {
		if err := c.repairable(ctx); err != nil {
			return nil, err
		}
		if c.repair, err = c.openRepair(ctx); err != nil {
			return nil, err
		}
		defer c.repair.Close()
		c.report.Repair = &c.repair.Repaired
	}
	err = c.run(ctx)
	c.report.EndedEmpty = c.pages.cut
	if err != nil {
		return nil, err
	}
	return &c.report, nil
}

// run compares the range part by part. It halves a part with too many events, also if the API cuts it
// off. Later parts grow again.
func (c *comparison) run(ctx context.Context) error {
	width := c.To - c.From
	for begin := c.From; begin < c.To; {
		end := begin + min(width, c.To-begin)
		p, err := c.compare(ctx, begin, end)
		if errors.Is(err, errTooMany) {
			width = (end - begin) / 2
			continue
		}
		if err != nil {
			return err
		}
		c.report.add(p)
		if c.Compared != nil && (begin > c.From || end < c.To) {
			c.Compared(Progress{begin, end, p.API, p.Missing})
		}
		begin = end
		if p.API < int64(c.Batch)/4 {
			width = min(2*width, c.To-c.From)
		}
	}
	return nil
}

// add adds the counts of a part.
func (r *Report) add(p *Report) {
	r.Digest.add(p.Digest)
	r.API, r.Held, r.Missing = r.API+p.API, r.Held+p.Held, r.Missing+p.Missing
	r.DeadLettered += p.DeadLettered
	r.Extra, r.Again, r.Parts = r.Extra+p.Extra, r.Again+p.Again, r.Parts+1
	r.Outside, r.Dropped = r.Outside+p.Outside, r.Dropped+p.Dropped
	r.Undated, r.Deleted, r.KeptFrom = r.Undated+p.Undated, r.Deleted+p.Deleted, max(r.KeptFrom, p.KeptFrom)
	r.Late.add(&p.Late)
	for i := range p.Topics {
		to, from := &r.Topics[i], &p.Topics[i]
		to.Listed, to.Held, to.Elsewhere = to.Listed+from.Listed, to.Held+from.Held, to.Elsewhere+from.Elsewhere
		to.Missing += from.Missing
	}
	r.MissingEvents = firstOf(slices.Concat(r.MissingEvents, p.MissingEvents))
	r.ExtraEvents = firstOf(slices.Concat(r.ExtraEvents, p.ExtraEvents))
}

func firstOf(all []Event) []Event { return all[:min(len(all), named)] }

// timeOf returns an event's time, zero if it has none.
func timeOf(e *bridge.Event) time.Time {
	if e.Time == bridge.NoTime || e.Defect == bridge.DefectTime {
		return time.Time{}
	}
	return time.UnixMilli(e.Time).UTC()
}
