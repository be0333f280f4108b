package kafkasink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// maxPartialIndex is how many events are remembered to mark others: about 30 MB.
const maxPartialIndex = 500_000

// PartialIndex implements bridge.PublishedEvents. With the headers cloudevents an event is
// known by ce_id together with ce_source, with minimal by ce_id. Without
// headers there are no marks, and nothing is read.
func (p *Published) PartialIndex(ctx context.Context, from time.Time, source bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	if p.cfg.Headers == headersNone {
		return nil, nil //nolint:nilnil // nothing to mark, and no error
	}
	client, err := p.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	of := newBuilder(p.cfg)
	of.setSource(source)
	h := newPublishedIndex(false)
	h.exact = true
	l := client.Log(p.cfg.Topic, [16]byte{})
	// A record may have been given the time of its publishing.
	spans, err := spansAfter(ctx, l, from.Add(-futureLimit))
	if err == nil {
		err = l.Read(ctx, spans, func(r *kgo.Record) error {
			if p.isOurs(r) && isOf(r, of.sourceText) {
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

// isOf reports whether a record may be of a source.
func isOf(r *kgo.Record, source []byte) bool {
	for _, h := range r.Headers {
		if h.Key == HeaderSource {
			return bytes.Equal(h.Value, source)
		}
	}
	return true
}

// isOthers reports whether a record says that it is of another source. Where
// one of both is unnamed that is unknown.
func (b *builder) isOthers(r *kgo.Record) bool {
	unnamed := b.unnamedSource()
	if string(b.sourceText) == unnamed {
		return false
	}
	for _, h := range r.Headers {
		if h.Key == HeaderSource {
			return string(h.Value) != unnamed && !bytes.Equal(h.Value, b.sourceText)
		}
	}
	return false
}
