// Package reconcile compares a past range of an export with the stream's topic
// and repairs it: events that the topic lacks, and that the live stream can no
// longer publish, are published beside it. It changes nothing of the stream.
package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// named is how many missing and extra events, and reasons, a Report names.
const named = 10

// Mode is what Run does about missing events.
type Mode int

// The modes. Rehearse says what Repair would publish, as far as that can be
// known without waiting for the live stream.
const (
	Compare Mode = iota
	Rehearse
	Repair
)

// Config says what is compared.
type Config struct {
	// Stream is the stream's name.
	Stream string
	// Origin is what the Source asks the API for.
	Origin bridge.Origin
	// From is the beginning of the range, To its end, exclusive, in
	// milliseconds since the epoch.
	From, To int64
	// Mode is what to do about missing events.
	Mode Mode
	// Batch is how many events are compared at once at most; each takes about
	// 150 bytes of memory. At least 1.
	Batch int
	// LateThreshold is how long after its time the API takes in an event that
	// is late.
	LateThreshold time.Duration
	// EmptyPages in a row end the range; see bridge.Config.
	EmptyPages int
	// Unmarked is set where records have no headers: all are the stream's.
	Unmarked bool
	// By is who repairs, for the marks.
	By string
}

// Source is the export API.
type Source interface {
	bridge.Source
	// DecodeItem returns a page that holds nothing but one item, given as its
	// bytes.
	DecodeItem(item []byte) (*bridge.Page, error)
	// IngestedAt returns when the API took an item in, in milliseconds since the
	// epoch; 0 where the item does not say.
	IngestedAt(item []byte) int64
}

// Log reads a topic, read_committed; kafkaclient.Log says what each method
// promises.
type Log interface {
	Topic() string
	Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error)
	Ends(ctx context.Context) (map[int32]int64, error)
	After(ctx context.Context, millis int64) (map[int32]int64, error)
	Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error
}

// LiveStream tells where the live stream is.
type LiveStream interface {
	// Walk shows the committed checkpoints to visit, newest first, until it
	// returns false; heartbeats are left out, but for the newest of all.
	Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error
	// Running reports whether a process runs the stream.
	Running(ctx context.Context) (bool, error)
	// Backfills returns those that are not done and publish into the stream's topic.
	Backfills(ctx context.Context) ([]Backfill, error)
}

// Backfill is a range that another job publishes.
type Backfill struct {
	ID       string
	From, To int64 // as in Config
}

// Publisher publishes events beside the live stream, each batch with a mark
// that names them in one transaction.
type Publisher interface {
	// Marks returns what earlier repairs, and this one, have left behind.
	Marks() map[string][]byte
	// Forget removes marks.
	Forget(ctx context.Context, names []string) error
	// Publish publishes the page's events and puts the mark, all or nothing. An
	// error that is a bridge.ErrRefused says that the topic cannot take one of
	// the events. The page stays the caller's.
	Publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error)
	Close()
}

// Ports are what a comparison needs of the world.
type Ports struct {
	Source Source
	Topic  Log
	// DeadLetters is nil where there is no such topic.
	DeadLetters Log
	Live        LiveStream
	// Publisher begins a repair, or a rehearsal that publishes nothing. From
	// then on nothing that an earlier repair has left open can appear.
	Publisher func(context.Context) (Publisher, error)
	// Compared is told of each part of the range, where there is more than one,
	// Waiting what a topic waits for, AwaitingEnd that the stream has to come to
	// the end of the export. Each may be nil.
	Compared    func(Part)
	Waiting     func(error)
	AwaitingEnd func()
}

// Part is a part of the range that was compared.
type Part struct {
	From, To        int64 // as in Config
	Events, Missing int64
}

// Report is what was found. Times are in milliseconds since the epoch.
type Report struct {
	Stream string `json:"stream"`
	Topic  string `json:"topic"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	// API counts the range's events in the API, Held those of them that the
	// topic holds, each once.
	API     int64 `json:"api_events"`
	Held    int64 `json:"topic_events"`
	Missing int64 `json:"missing"`
	// DeadLettered are not in the topic but among the dead letters.
	DeadLettered int64 `json:"dead_lettered"`
	// Extra are in the topic but not in the API's range.
	Extra int64 `json:"extra"`
	// Again counts further copies in the topic, as rewinds make them.
	Again int64    `json:"again"`
	Late  Lateness `json:"late"`
	Parts int      `json:"parts"`
	// MissingEvents and ExtraEvents name the first of them.
	MissingEvents []Event `json:"missing_events,omitempty"`
	ExtraEvents   []Event `json:"extra_events,omitempty"`
	// Position is where the live stream was when the comparison began, 0 where
	// that is not known; AtEnd is true where it was at the end of the export.
	Position int64 `json:"live_position,omitempty"`
	AtEnd    bool  `json:"-"`
	// Repair is nil in the mode Compare.
	Repair *Repaired `json:"repair,omitempty"`
}

// Event names an event.
type Event struct {
	ID string `json:"id"`
	// Time is zero where the event has none.
	Time time.Time `json:"time,omitzero"`
}

// comparison is one Run.
type comparison struct {
	Config
	Ports
	window exportWindow
	start  bridge.Checkpoint // where the live stream was when Run began
	repair *repairer         // nil in the mode Compare
	report Report
}

// Run compares the range, and repairs it if that was asked for. Its errors are
// those of the ports, or a RefusedError.
func Run(ctx context.Context, cfg Config, ports Ports) (*Report, error) {
	c := &comparison{
		Config: cfg, Ports: ports, window: exportWindow{source: ports.Source, emptyPages: cfg.EmptyPages},
		report: Report{Stream: cfg.Stream, Topic: ports.Topic.Topic(), From: cfg.From, To: cfg.To},
	}
	var err error
	if c.start, err = c.newest(ctx); err != nil {
		return nil, err
	}
	c.report.Position, c.report.AtEnd = c.start.PositionTime, atEnd(&c.start)
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
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return &c.report, nil
}

// run compares the range part by part. A part with too many events is halved;
// the next one grows again.
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
			c.Compared(Part{begin, end, p.API, p.Missing})
		}
		begin = end
		if p.API < int64(c.Batch)/4 {
			width = min(2*width, c.To-c.From)
		}
	}
	return nil
}

// add puts a part's findings to those of the range.
func (r *Report) add(p *Report) {
	r.API, r.Held, r.Missing, r.DeadLettered = r.API+p.API, r.Held+p.Held, r.Missing+p.Missing, r.DeadLettered+p.DeadLettered
	r.Extra, r.Again, r.Parts = r.Extra+p.Extra, r.Again+p.Again, r.Parts+1
	r.Late.add(&p.Late)
	r.MissingEvents = firstOf(slices.Concat(r.MissingEvents, p.MissingEvents))
	r.ExtraEvents = firstOf(slices.Concat(r.ExtraEvents, p.ExtraEvents))
}

func firstOf(all []Event) []Event { return all[:min(len(all), named)] }

// timeOf returns an event's time, zero where it has none.
func timeOf(e *bridge.Event) time.Time {
	if e.Time == bridge.NoTime || e.Defect == bridge.DefectTime {
		return time.Time{}
	}
	return time.UnixMilli(e.Time).UTC()
}

// waiting says why nothing moves.
func (c *comparison) waiting(why error) {
	if c.Waiting != nil {
		c.Waiting(why)
	}
}
