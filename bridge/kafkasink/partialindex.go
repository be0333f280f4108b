package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// maxPartialIndex is how many events are remembered to mark others: about 30 MB.
const maxPartialIndex = 500_000

// PartialIndex implements bridge.PublishedEvents. An event is known by
// its bytes, and by ce_source where its record has one. Without headers there are
// no marks, and nothing is read.
func (p *Published) PartialIndex(ctx context.Context, from time.Time, source bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	if p.cfg.Headers == headersNone {
		return nil, nil //nolint:nilnil // nothing to mark, and no error
	}
	client, err := p.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	of := sourcesOf(p.cfg, source)
	h := newPublishedIndex(false)
	l := client.Log(p.cfg.Topic, [16]byte{})
	// A record may have been given the time of its publishing.
	spans, err := spansAfter(ctx, l, from.Add(-futureLimit))
	if err == nil {
		err = l.Read(ctx, spans, func(r *kgo.Record) error {
			if p.isOurs(r) && of.mayHave(r) {
				h.add(r)
			}
			if h.len() >= maxPartialIndex {
				return errIndexTooLarge
			}
			return nil
		})
	}
	switch {
	case err == nil, errors.Is(err, errIndexTooLarge), ctx.Err() != nil && h.len() > 0:
		return h, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("read the events of %s: %w", p.cfg.Stream, errors.Join(ctx.Err(), client.Trouble()))
	}
	return nil, p.cfg.explain(fmt.Errorf("read the events of %s: %w", p.cfg.Stream, p.cfg.unreadable(err, p.cfg.Topic)), client)
}

// sources are the values of ce_source in the records of one source: with the
// settings of now, without KAFKA_CE_SOURCE, and without metadata.
type sources struct{ current, described, unnamed string }

func sourcesOf(cfg Config, id bridge.SourceIdentity) sources {
	b := newBuilder(cfg)
	return sources{b.sourceOf(id), b.describedSource(id), b.unnamedSource()}
}

// mayHave reports whether a record may be of the source.
func (s *sources) mayHave(r *kgo.Record) bool {
	of, named := sourceOfRecord(r)
	return !named || of == s.current || of == s.described
}

// isOthers reports whether a record says that it is of another source. Where
// one of both is unnamed that is unknown; KAFKA_CE_SOURCE names the stream's.
func (s *sources) isOthers(r *kgo.Record) bool {
	of, _ := sourceOfRecord(r)
	return (s.described != s.unnamed || s.current != s.unnamed) && of != s.unnamed && !s.mayHave(r)
}

func sourceOfRecord(r *kgo.Record) (source string, named bool) {
	for _, h := range r.Headers {
		if h.Key == HeaderSource {
			return string(h.Value), true
		}
	}
	return "", false
}
