package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// deskTimeout is how long the running bridge has to acknowledge what somebody
// wants over HTTP: less than a page or a proxy waits.
const deskTimeout = 20 * time.Second

// desk answers the HTTP server by what the commands are made of, so that both
// say and do the same.
type desk struct {
	client *cursorstore.Client
	all    *config.Settings
	jobs   kafkasink.JobLogs
}

// newDesk copies the settings, so that a look at Kafka does not count as what
// the running streams see of it.
func newDesk(client *cursorstore.Client, s *config.Settings) *desk {
	own := *s
	own.Streams = slices.Clone(s.Streams)
	return &desk{client: client, all: &own}
}

// at calls f with the position of a stream.
func (d *desk) at(name string, f func(*position) error) error {
	st, err := streamNamed(d.all, name)
	if err != nil {
		return err
	}
	p, err := positionOf(d.client, d.all, st, config.UsesKafka)
	if err != nil {
		return err
	}
	defer p.sink.Close()
	return answerable(f(p))
}

// answerable gives an error of a command the status of an answer.
func answerable(err error) error {
	if err == nil {
		return nil
	}
	e := &ops.Error{Status: http.StatusServiceUnavailable, Err: err}
	known, ok := errors.AsType[*exitError](hinted(err))
	if ok {
		e.Hint = known.hint
	}
	_, pending := errors.AsType[*bridge.PendingError](err)
	switch {
	case pending, errors.Is(err, errRefused):
		e.Status = http.StatusConflict
	case errors.Is(err, bridge.ErrNoEntry):
		e.Status = http.StatusNotFound
	case ok && known.code == exitUsage:
		e.Status = http.StatusBadRequest
	}
	return e
}

// Reports implements ops.Desk.
func (d *desk) Reports(ctx context.Context) ([]ops.Report, error) {
	all, errs := make([]ops.Report, len(d.all.Streams)), make([]error, len(d.all.Streams))
	var asking sync.WaitGroup
	for i := range d.all.Streams {
		asking.Go(func() {
			errs[i] = d.at(d.all.Streams[i].Name, func(p *position) error {
				all[i] = p.status(ctx).Report
				return nil
			})
		})
	}
	asking.Wait()
	return all, errors.Join(errs...)
}

// History implements ops.Desk.
func (d *desk) History(ctx context.Context, stream string, q ops.HistoryQuery) (h ops.History, err error) {
	err = d.at(stream, func(p *position) error {
		found, err := p.history(ctx, bridge.HistoryQuery{Since: q.Since, Limit: q.Limit})
		if err != nil {
			return err
		}
		h.Source, h.Note = ops.SourceRedis, found.note
		if found.inRedis == 0 && len(found.entries) > 0 {
			h.Source = ops.SourceKafka
		}
		for i := range found.entries {
			h.Entries = append(h.Entries, historyOf(&found.entries[i]))
		}
		return nil
	})
	return h, err
}

func historyOf(e *bridge.Entry) ops.HistoryEntry {
	h := ops.HistoryEntry{
		Place: e.Place, At: time.UnixMilli(e.WrittenAt).UTC(), Kind: e.Kind, Events: e.Events, Pages: e.Pages,
		CursorHash: bridge.CursorHash(e.Cursor), Change: e.Change,
	}
	if e.Parent != nil {
		h.Parent = e.Parent.String()
	}
	if e.PositionTime > 0 {
		h.Position = time.UnixMilli(e.PositionTime).UTC()
	}
	return h
}

// Letters implements ops.Desk.
func (d *desk) Letters(ctx context.Context, stream string, limit int) (ops.Letters, error) {
	st, err := streamNamed(d.all, stream)
	if err != nil {
		return ops.Letters{}, answerable(err)
	}
	l, err := lettersOf(ctx, st)
	if err != nil {
		return ops.Letters{}, answerable(err)
	}
	l.again = "exportbridge dlq list, which may take longer than a request"
	found, err := l.overview(ctx, limit)
	return found, answerable(err)
}

// overview returns the newest letters, and how many there are.
func (l *letters) overview(ctx context.Context, limit int) (ops.Letters, error) {
	all, err := l.List(ctx, deadletter.Query{Limit: ops.MaxLetters})
	if err != nil {
		return ops.Letters{}, err
	}
	found := ops.Letters{Total: len(all)}
	for i := range all[:min(limit, len(all))] {
		letter := &all[i]
		found.Letters = append(found.Letters, ops.Letter{
			Partition: letter.Partition, Offset: letter.Offset, Time: letter.Time.UTC(), Reason: letter.Reason, Message: letter.Message,
			CursorHash: letter.CursorHash, Index: letter.Index, Bytes: letter.Size,
		})
	}
	return found, nil
}

// Jobs implements ops.Desk.
func (d *desk) Jobs(ctx context.Context) ([]ops.Job, error) {
	var all []ops.Job
	for i := range d.all.Streams {
		list, err := listJobs(ctx, d.jobs.Jobs(d.all.Streams[i].Kafka), 0)
		if err != nil {
			return nil, answerable(explained(err))
		}
		for j := range list {
			r := &list[j]
			all = append(all, ops.Job{
				ID: r.ID, Kind: string(r.Kind), Stream: r.Stream, State: r.stateText(), Topic: r.Topic,
				From: time.UnixMilli(r.From).UTC(), To: time.UnixMilli(r.To).UTC(),
				Windows: len(r.Windows), Done: r.WindowsDone, Events: r.TotalEvents, Progress: r.Progress(),
			})
		}
	}
	return all, nil
}

// Plan implements ops.Desk.
func (d *desk) Plan(ctx context.Context, stream string, to ops.Destination) (found ops.Plan, err error) {
	err = d.at(stream, func(p *position) error {
		find, err := finderOf(to)
		if err != nil {
			return err
		}
		plan, _, err := p.plan(ctx, find)
		if err != nil {
			return err
		}
		found = plan.Plan
		return nil
	})
	return found, err
}

// finderOf finds a destination as the flags of rewind and reset do.
func finderOf(to ops.Destination) (finder, error) {
	switch {
	case to.Entry != "":
		place, err := bridge.ParsePlace(to.Entry)
		if err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("entry: %w", err), hint: "an entry of the history"}
		}
		return rewindTo(lookupEntry(place)), nil
	case !to.Datetime.IsZero():
		return rewindTo(lookupAt(to.Datetime)), nil
	case to.Earliest:
		return resetToEarliest, nil
	case to.Current:
		return resetToCurrent, nil
	case to.Latest:
		return resetToLatest, nil
	}
	return rewindTo(lookupBack(-to.Shift)), nil
}

// Do implements ops.Desk.
func (d *desk) Do(ctx context.Context, stream string, o ops.Order) (done ops.Done, err error) {
	err = d.at(stream, func(p *position) error {
		r := &request{who: o.Who, reason: o.Reason, timeout: deskTimeout}
		answer, err := r.carryOut(ctx, p, &o)
		if err != nil {
			return err
		}
		done = ops.Done{Applied: answer.Applied, By: answer.By, Place: answer.Place, At: time.UnixMilli(answer.At).UTC()}
		return nil
	})
	return done, err
}

// carryOut does what pause, resume, rewind and reset do.
func (r *request) carryOut(ctx context.Context, p *position, o *ops.Order) (bridge.Answer, error) {
	if o.Kind != bridge.KindReset {
		h, err := r.hold(ctx, p, o.Kind, o.For)
		return h.Answer, err
	}
	find, err := finderOf(o.To)
	if err != nil {
		return bridge.Answer{}, err
	}
	plan, now, err := p.plan(ctx, find)
	if err != nil {
		return bridge.Answer{}, err
	}
	if plan.BaseEpoch != o.BaseEpoch {
		return bridge.Answer{}, &exitError{
			code: exitFailed, err: fmt.Errorf("%w: the stream was moved meanwhile: it is at epoch %d, the move was planned for %d", errRefused, plan.BaseEpoch, o.BaseEpoch),
			hint: "plan it again",
		}
	}
	_, answer, err := r.move(ctx, p, plan, &now)
	return answer, err
}

// sampler shows events of the stream to whoever looks at the page.
func sampler(to *ops.Sampler, stream, topic string) func(*kgo.Record) {
	return func(r *kgo.Record) {
		if r.Topic != topic {
			return // a dead letter
		}
		to.Offer(stream, func(values bool) ops.Sample { return sampleOf(r, values) })
	}
}

func sampleOf(r *kgo.Record, values bool) ops.Sample {
	s := ops.Sample{
		Time: r.Timestamp.UTC(), Type: header(r, headerType), ID: header(r, headerEventID), KeyHash: bridge.CursorHash(string(r.Key)),
		Partition: r.Partition, Offset: r.Offset, Origin: header(r, headerOrigin),
	}
	if values {
		s.Value = string(r.Value)
	}
	return s
}
