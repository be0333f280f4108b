package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// records are the dead letters and jobs of a process's streams, for the HTTP
// server.
type records struct {
	all  *config.Settings
	jobs kafkasink.JobLogs
}

// unwatched copies the settings, so that a look at Kafka does not count as what
// the running streams see of it.
func unwatched(s *config.Settings) *config.Settings {
	own := *s
	own.Streams = slices.Clone(s.Streams)
	return &own
}

// controllers are those of all streams, for the HTTP server.
func controllers(client *cursorstore.Client, s *config.Settings) map[string]ops.Controller {
	all := make(map[string]ops.Controller, len(s.Streams))
	for i := range s.Streams {
		c := controllerOf(client, s, &s.Streams[i])
		all[c.Stream()] = c
	}
	return all
}

// answerable gives an error of a command the status of an answer.
func answerable(err error) error {
	if err == nil {
		return nil
	}
	e := &ops.Error{Status: http.StatusServiceUnavailable, Err: err}
	if known, ok := errors.AsType[*exitError](steered(err)); ok {
		e.Hint = known.hint
		if known.code == exitUsage {
			e.Status = http.StatusBadRequest
		}
	}
	return e
}

// Letters implements ops.Records.
func (r *records) Letters(ctx context.Context, stream string, limit int) (ops.Letters, error) {
	st, err := streamNamed(r.all, stream)
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

// Jobs implements ops.Records.
func (r *records) Jobs(ctx context.Context) ([]ops.Job, error) {
	var all []ops.Job
	for i := range r.all.Streams {
		list, err := newStreamJobs(r.jobs.Jobs(r.all.Streams[i].Kafka), r.all.Streams[i].Name).reports(ctx, 0)
		if err != nil {
			return nil, answerable(explained(err))
		}
		for k := range list {
			j := &list[k]
			all = append(all, ops.Job{
				ID: j.ID, Kind: string(j.Kind), Stream: j.Stream, State: j.stateText(), Topic: j.Topic,
				From: time.UnixMilli(j.From).UTC(), To: time.UnixMilli(j.To).UTC(),
				Windows: len(j.Windows), Done: j.WindowsDone, Events: j.TotalEvents, Progress: j.Progress(),
			})
		}
	}
	return all, nil
}
