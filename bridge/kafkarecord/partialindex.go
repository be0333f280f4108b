package kafkarecord

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// maxPartialIndex is the number of remembered events to mark others: about 30 MB.
const maxPartialIndex = 500_000

// PartialIndex implements bridge.PublishedEvents. It identifies an event by its bytes, and
// by ce_source if the record has that header. If records have no headers, there are no
// marks, and PartialIndex reads nothing.
func (p *Published) PartialIndex(
	ctx context.Context, from time.Time, source bridge.SourceIdentity,
) (bridge.PublishedIndex, error) {
	if p.cfg.Unnamed {
		return nil, nil //nolint:nilnil // nothing to mark, and no error
	}
	client, err := p.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	of := p.cfg.Naming.sourcesOf(source)
	h := newPublishedIndex(false, p.cfg.Redacted)
	for _, topic := range p.cfg.Topics.OfEvents() {
		l := client.Log(topic, [16]byte{})
		var spans map[int32]kafkaclient.Span
		if spans, err = spansAfter(ctx, l, from); err == nil {
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
		if err != nil {
			err = p.cfg.unreadable(err, topic)
			break
		}
	}
	if err == nil || errors.Is(err, errIndexTooLarge) || ctx.Err() != nil && h.len() > 0 {
		return h, nil
	}
	return nil, p.unread(ctx, client, err)
}
