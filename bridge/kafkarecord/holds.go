package kafkarecord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

const (
	// holdsStep is the number of the newest offsets of a partition that are searched first.
	// Each further step back is twice as long.
	holdsStep = 200
	// lookTime bounds one search. It is enough for some gigabytes of other streams'
	// records, and shorter than the engine's timeout.
	lookTime = 30 * time.Second
)

// Holds searches the topics, dead letters included, for the stream's header, from the
// newest record of each partition back to the first. A JSON object without the header
// counts too, because BRIDGE_HEADERS may have been none. A missing dead-letter topic holds
// nothing. For a part of a stream the answer is false: only checkpoints distinguish its
// records from those of the stream.
//
// Only a full read of a shared topic proves that it holds nothing. If that takes too long
// the answer is unknown, which is a Permanent fault. The next call continues the search.
func (p *Published) Holds(ctx context.Context) (bool, error) {
	if p.cfg.Part {
		return false, nil
	}
	client, err := p.cfg.Open()
	if err != nil {
		return false, err
	}
	defer client.Close()
	found, limit := false, time.Now().Add(p.LookTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-time.Second).Before(limit) {
		limit = deadline.Add(-time.Second) // so that the error can name the slow search
	}
	for _, topic := range p.cfg.Topics.Published() {
		if found, err = p.holds(ctx, client, topic, limit); found || err != nil {
			break
		}
	}
	incomplete, ok := errors.AsType[*kafkaclient.IncompleteError](err)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return false, fmt.Errorf("look for records of %s: %w", p.cfg.Stream, ctx.Err())
	case ok && !slices.ContainsFunc(incomplete.Partitions, func(p kafkaclient.Unread) bool { return p.Cause != nil }):
		return false, p.cfg.Advise(bridge.Blockf("checkpoint-lost", bridge.ReasonCheckpointLost, "",
			"no checkpoint found, and the search for records of stream %s is not finished: %w", p.cfg.Stream, err),
			bridge.HintCheckpointUnknown)
	}
	return false, client.Explain(fmt.Errorf("look for records of %s: %w", p.cfg.Stream, err), p.cfg.Topics.Events)
}

// errOurs ends a search that has found a record of the stream.
var errOurs = errors.New("a record of the stream")

// searched is the part of a topic that was searched and has no record of the stream.
type searched struct {
	topic [16]byte
	spans map[int32]kafkaclient.Span
}

// holds searches a topic until its deadline and remembers the searched part.
// Records of open transactions are visible to it.
func (p *Published) holds(
	ctx context.Context, client *kafkaclient.Client, topic string, limit time.Time,
) (bool, error) {
	if err := client.AgreeOnLeaders(ctx, topic); err != nil { // a former leader may lack records
		return false, err
	}
	l := client.Log(topic, [16]byte{})
	l.Uncommitted = true
	bounds, err := l.Bounds(ctx)
	switch {
	case kafkaclient.IsMissing(err) && !p.cfg.Topics.HasEvents(topic):
		return false, nil
	case err != nil:
		return false, p.cfg.unreadable(err, topic)
	}
	states, err := client.Describe(ctx, topic)
	if err != nil {
		return false, err
	}
	known := p.searched[topic]
	if known.topic != states[0].ID {
		known = searched{topic: states[0].ID, spans: make(map[int32]kafkaclient.Span)}
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	for step := int64(holdsStep); ; step *= 2 {
		windows := known.next(bounds, step)
		if len(windows) == 0 {
			p.searched[topic] = known
			return false, nil
		}
		err := l.Read(ctx, windows, func(r *kgo.Record) error {
			if p.isOurs(r) {
				return errOurs
			}
			return nil
		})
		switch {
		case errors.Is(err, errOurs):
			return true, nil
		case err != nil:
			p.searched[topic] = known
			return false, p.cfg.unreadable(err, topic)
		}
		known.add(windows)
	}
}

// next returns the next spans to search: those after the searched part, or else those
// before it.
func (s *searched) next(bounds map[int32]kafkaclient.Span, step int64) map[int32]kafkaclient.Span {
	windows := make(map[int32]kafkaclient.Span)
	for id, all := range bounds {
		have, ok := s.spans[id]
		w := kafkaclient.Span{From: max(all.From, all.To-step), To: all.To}
		switch {
		case ok && have.To < all.To:
			w.From = max(all.From, have.To)
		case ok:
			w = kafkaclient.Span{From: max(all.From, have.From-step), To: have.From}
		}
		if w.From < w.To {
			windows[id] = w
		}
	}
	return windows
}

// add adds searched spans that are adjacent to the searched part.
func (s *searched) add(windows map[int32]kafkaclient.Span) {
	for id, w := range windows {
		if have, ok := s.spans[id]; ok {
			w = kafkaclient.Span{From: min(have.From, w.From), To: max(have.To, w.To)}
		}
		s.spans[id] = w
	}
}

// unreadable adds the missing grant to an error of reading a topic.
func (c *Config) unreadable(err error, topic string) error {
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return err
	}
	return c.ReadFault(err, topic)
}

// isOurs reports whether a record is of the stream, or may be: a JSON object without the
// header of a stream may have been published with BRIDGE_HEADERS=none.
func (p *Published) isOurs(r *kgo.Record) bool {
	if r.Attrs.IsControl() {
		return false
	}
	if stream, ok := headerOf(r, HeaderStream); ok {
		return string(stream) == p.cfg.Stream
	}
	return r.Topic != p.cfg.Topics.DeadLetters && bytes.HasPrefix(bytes.TrimLeft(r.Value, " \t\r\n"), []byte("{"))
}
