package records

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// Reader reads the dead letters and jobs of all streams, for the HTTP server.
type Reader struct {
	all  *config.Settings
	jobs kafkasink.JobLogs
}

// NewReader returns a reader for the streams of these settings.
func NewReader(s *config.Settings) *Reader { return &Reader{all: s} }

// DeadLetters returns the newest dead letters of a stream, at most limit.
func (r *Reader) DeadLetters(ctx context.Context, stream string, limit int) ([]deadletter.DeadLetter, error) {
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

// Jobs implements ops.Records. Streams on the same topic share one read of it. Unreadable records,
// and groups that may not be described, are those of one stream; other errors are those of all.
func (r *Reader) Jobs(ctx context.Context) (all []backfill.Listed, err error) {
	began := time.Now()
	for i := range r.all.Streams {
		st := &r.all.Streams[i]
		jobs, unread := backfill.NewJobs(st.Kafka.Jobs(&r.jobs), st.Name).Overview(ctx, time.Since(began))
		own := errors.Is(unread, bridge.ErrForeign) || errors.Is(unread, kerr.GroupAuthorizationFailed)
		if unread != nil && !own {
			return nil, unread
		}
		all, err = append(all, jobs...), errors.Join(err, unread)
	}
	return all, err
}
