package command

import (
	"context"
	"errors"
	"slices"

	"exportbridge/bridge/backfill"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// records reads the dead letters and jobs of all streams, for the HTTP server.
type records struct {
	all  *config.Settings
	jobs kafkasink.JobLogs
}

// unwatched copies the settings, so that reads for the HTTP server do not count as the
// running streams' view of Kafka.
func unwatched(s *config.Settings) *config.Settings {
	own := *s
	own.Streams = slices.Clone(s.Streams)
	return &own
}

// controllers are the controllers of all streams, for the HTTP server. They share a Kafka
// client for what the web UI asks again and again.
func controllers(client *cursorstore.Client, s *config.Settings) map[string]ops.Controller {
	all, shared := make(map[string]ops.Controller, len(s.Streams)), new(kafkaclient.Shared)
	for i := range s.Streams {
		c := controllerOf(client, s, &s.Streams[i], shared)
		all[c.Stream()] = c
	}
	return all
}

func (r *records) DeadLetters(ctx context.Context, stream string, limit int) ([]deadletter.DeadLetter, error) {
	st, err := cli.StreamNamed(r.all, stream)
	if err != nil {
		return nil, err
	}
	l, err := lettersOf(ctx, st)
	if err != nil {
		return nil, err
	}
	l.Small = true // the pages of the bridge need the memory
	all, err := l.List(ctx, deadletter.Query{Limit: limit})
	if _, incomplete := errors.AsType[*kafkaclient.IncompleteError](err); err != nil && !incomplete {
		return nil, st.Kafka.ReadFault(err, l.Name)
	}
	return all, err
}

func (r *records) Jobs(ctx context.Context) ([]backfill.Listed, error) {
	var all []backfill.Listed
	for i := range r.all.Streams {
		st := &r.all.Streams[i]
		jobs, err := backfill.NewJobs(st.Kafka.Jobs(&r.jobs), st.Name).Overview(ctx, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	return all, nil
}
