package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// lookAfter is how long a partition may return nothing before its state is
	// checked and Waiting is called; tellEvery is the minimum interval of
	// calls.
	lookAfter = 3 * time.Second
	tellEvery = 15 * time.Second
	// readers bounds the partitions read concurrently where their order is
	// irrelevant.
	readers = 4
	// namedPartitions is the maximum number of partitions that an error names.
	namedPartitions = 3
)

// IncompleteError reports that reading ended before the end of the log.
type IncompleteError struct {
	Topic string
	// Partitions are those not read to their end.
	Partitions []Unread
	// Err is why reading ended: the error of the context, or ErrStalled.
	Err error
}

// Unread is the unread range of a partition.
type Unread struct {
	Partition int32
	Span
	// Cause is why it returned nothing; nil if unknown.
	Cause error
}

// ErrStalled reports that a partition returned nothing for longer than
// Log.Patience.
var ErrStalled = errors.New("partition stalled")

func (e *IncompleteError) Error() string {
	var where []string
	for _, p := range e.Partitions[:min(len(e.Partitions), namedPartitions)] {
		where = append(where, fmt.Sprintf("partition %d is at offset %d of %d", p.Partition, p.From, p.To))
	}
	text := strings.Join(where, ", ")
	if more := len(e.Partitions) - len(where); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("topic %s was not read to its end: %s (%s): %v", e.Topic, text, e.cause(), e.Err)
}

// cause returns the cause, or the possible ones.
func (e *IncompleteError) cause() string {
	for i := range e.Partitions {
		if err := e.Partitions[i].Cause; err != nil {
			return err.Error()
		}
	}
	return "timeout too short, stalled partition, quota throttling or open transaction"
}

func (e *IncompleteError) Unwrap() error { return e.Err }

// Scan calls visit with the records of a span of one partition, control records
// included, and returns the log start. It runs on the caller's goroutine. Its
// errors are those of Read.
func (l *Log) Scan(ctx context.Context, id int32, s Span, visit func(*kgo.Record)) (start int64, err error) {
	p := l.partition(id, s)
	for p.at < s.To {
		c, err := p.next(ctx)
		if err != nil {
			return 0, l.incomplete(ctx, err, []*partition{p})
		}
		for _, r := range c.Records {
			visit(r)
		}
		p.seen, start = p.at, c.Start
	}
	return start, nil
}

// Read calls visit with the records of the spans, in order within a partition.
// It returns at the end of all spans, or with the first error of visit.
// Stopping earlier is always an error: an IncompleteError if ctx has ended or
// Patience is exceeded. Calls of visit are serialized.
func (l *Log) Read(ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error) error {
	return l.together(ctx, l.parts(spans), func(ctx context.Context, g *group) error {
		turns, found := make(chan struct{}, readers), make(chan batch)
		if l.Small {
			turns = make(chan struct{}, 1)
		}
		for _, p := range g.parts {
			g.running.Go(func() {
				select {
				case turns <- struct{}{}:
					defer func() { <-turns }()
					p.run(ctx, found)
				case <-ctx.Done():
				}
			})
		}
		for open := len(g.parts); open > 0; {
			b, err := take(ctx, found)
			if err == nil {
				err = each(b.records, visit)
			}
			if err != nil {
				return err
			}
			if b.last {
				open--
			}
		}
		return nil
	})
}

// Merge is Read in one order across partitions: the smallest of the partitions'
// next records comes first. It calls idle before it waits.
func (l *Log) Merge(
	ctx context.Context, spans map[int32]Span, compare func(a, b *kgo.Record) int,
	visit func(*kgo.Record) error, idle func() error,
) error {
	return l.together(ctx, l.parts(spans), merge(compare, visit, idle))
}

func merge(
	compare func(a, b *kgo.Record) int, visit func(*kgo.Record) error, idle func() error,
) func(context.Context, *group) error {
	return func(ctx context.Context, g *group) error {
		queues := make([]*queue, len(g.parts))
		for i, p := range g.parts {
			p.limit = int32(max(smallFetch, fetchLimit*readers/len(g.parts)))
			q := &queue{found: make(chan batch)}
			queues[i] = q
			g.running.Go(func() { p.run(ctx, q.found) })
		}
		for {
			var first *queue
			for _, q := range queues {
				if err := q.fill(ctx, idle); err != nil {
					return err
				}
				if len(q.records) > 0 && (first == nil || compare(q.records[0], first.records[0]) < 0) {
					first = q
				}
			}
			if first == nil {
				return nil
			}
			r := first.records[0]
			first.records = first.records[1:]
			if err := visit(r); err != nil {
				return err
			}
		}
	}
}

// parts returns the partitions of the spans that are not empty.
func (l *Log) parts(spans map[int32]Span) (parts []*partition) {
	for id, s := range spans {
		if s.From < s.To {
			parts = append(parts, l.partition(id, s))
		}
	}
	slices.SortFunc(parts, func(a, b *partition) int { return int(a.id - b.id) })
	return parts
}

// together reads partitions, of further topics too, each in a goroutine that has ended when
// it returns.
func (l *Log) together(ctx context.Context, parts []*partition, read func(context.Context, *group) error) error {
	g := &group{parts: parts}
	reading, cancel := context.WithCancel(ctx)
	err := read(reading, g)
	cancel()
	g.running.Wait()
	return l.incomplete(ctx, err, g.parts)
}

// incomplete turns the end of ctx or a stall into an IncompleteError.
func (l *Log) incomplete(ctx context.Context, err error, parts []*partition) error {
	why := ctx.Err()
	if errors.Is(err, ErrStalled) {
		why = ErrStalled
	} else if why == nil || !errors.Is(err, why) {
		return err
	}
	e := &IncompleteError{Topic: l.name, Err: why}
	unread := func(p *partition) bool { return p.seen < p.span.To }
	if i := slices.IndexFunc(parts, unread); i >= 0 { // of several topics the error names one
		e.Topic = parts[i].log.name
	}
	for _, p := range parts {
		if unread(p) && p.log.name == e.Topic {
			e.Partitions = append(e.Partitions, Unread{Partition: p.id, Span: Span{p.seen, p.span.To}, Cause: p.cause})
		}
	}
	return e
}

// group is a set of partitions read concurrently.
type group struct {
	parts   []*partition
	running sync.WaitGroup
}

// batch is a run of a partition's records; last marks the end of its span.
type batch struct {
	records []*kgo.Record
	last    bool
	err     error
}

// queue is what was read of a partition but not visited yet.
type queue struct {
	batch
	found chan batch
}

// fill waits for records unless the queue has some or has ended.
func (q *queue) fill(ctx context.Context, idle func() error) (err error) {
	for len(q.records) == 0 && !q.last && err == nil {
		select {
		case q.batch = <-q.found:
			err = q.batch.err
			continue
		default:
		}
		if err = idle(); err == nil {
			q.batch, err = take(ctx, q.found)
		}
	}
	return err
}

func take(ctx context.Context, found <-chan batch) (batch, error) {
	select {
	case b := <-found:
		return b, b.err
	case <-ctx.Done():
		return batch{}, ctx.Err()
	}
}

func each(records []*kgo.Record, visit func(*kgo.Record) error) error {
	for _, r := range records {
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// run reads the partition's span to its end.
func (p *partition) run(ctx context.Context, found chan<- batch) {
	for p.at < p.span.To {
		c, err := p.next(ctx)
		b := batch{last: p.at >= p.span.To, err: err}
		b.records = slices.DeleteFunc(c.Records, func(r *kgo.Record) bool { return r.Attrs.IsControl() })
		if len(b.records) == 0 && !b.last && err == nil {
			continue
		}
		select {
		case found <- b:
			p.seen = p.at
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// next returns the next records of the span, possibly none.
func (p *partition) next(ctx context.Context) (Chunk, error) {
	c, err := p.fetch(ctx, p.at)
	if err != nil {
		return Chunk{}, err
	}
	if i := slices.IndexFunc(c.Records, func(r *kgo.Record) bool { return r.Offset >= p.span.To }); i >= 0 {
		c.Records = c.Records[:i]
	}
	if c.Next > p.at {
		if c.Start > p.at && p.log.Skipped != nil {
			p.log.telling.Lock()
			p.log.Skipped(p.id, Span{p.at, min(c.Start, p.span.To)})
			p.log.telling.Unlock()
		}
		p.at, p.moved = c.Next, time.Now()
		if p.moved.After(p.heard) {
			p.heard, p.cause = p.moved, nil // otherwise the partition counts as throttled from now on
		}
		return c, nil
	}
	return c, errors.Join(p.cut(ctx), p.stalled())
}

// cut reports whether the log was truncated below the end of the span.
func (p *partition) cut(ctx context.Context) error {
	if time.Since(p.moved) < lookAfter || time.Since(p.looked) < lookAfter {
		return nil
	}
	p.looked = time.Now()
	s, high, err := p.log.highOf(ctx, p.id)
	switch {
	case err != nil:
		p.cause = err
	case high < p.span.To:
		return p.failed(p.at, fmt.Errorf("log truncated: it now ends at %d, not at %d", high, p.span.To))
	case s.To < p.span.To:
		p.cause = fmt.Errorf("open transaction from offset %d", s.To)
	default:
		p.cause = errors.New("the broker responds without records")
	}
	return nil
}

// stalled reports a stall to Waiting, and returns an error when Patience is
// exceeded.
func (p *partition) stalled() error {
	if time.Since(p.moved) >= lookAfter {
		p.tell()
	}
	if most := p.log.Patience; most > 0 && time.Since(p.heard) >= most {
		return fmt.Errorf("%w: no records for %s", ErrStalled, most)
	}
	return nil
}

// tell calls Waiting, at most every tellEvery.
func (p *partition) tell() {
	l := p.log
	if l.Waiting == nil {
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	if time.Since(l.told) < tellEvery {
		return
	}
	l.told = time.Now()
	err := fmt.Errorf("partition %d of %s returns no records after offset %d", p.id, l.name, p.at)
	if p.at < p.span.To {
		err = fmt.Errorf("partition %d of %s is at offset %d of %d", p.id, l.name, p.at, p.span.To)
	}
	if p.cause != nil {
		err = fmt.Errorf("%w: %w", err, p.cause)
	}
	l.Waiting(err)
}
