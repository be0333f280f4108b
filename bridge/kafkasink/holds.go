package kafkasink

import (
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
	// holdsStep is how many of a partition's newest offsets are looked at first.
	// Each further step back is twice as long.
	holdsStep = 200
	// holdsTime is how long one look may take: some gigabytes of other streams'
	// records. It is shorter than the engine waits.
	holdsTime = 30 * time.Second
)

// Holds looks for the stream's header in the topic, dead letters included, from
// the newest record of each partition backwards to the first; without headers
// any event record counts. A dead-letter topic that does not exist holds
// nothing. A part of a stream is told apart by its checkpoints alone: it holds
// nothing without them.
//
// Only reading all of a shared topic proves that it holds nothing. Where that
// takes too long nobody knows, which is a Permanent fault; the next call goes on
// from there.
func (p *Published) Holds(ctx context.Context) (bool, error) {
	if p.cfg.Part != nil {
		return false, nil
	}
	client, err := p.cfg.Open()
	if err != nil {
		return false, err
	}
	defer client.Close()
	found, limit := false, time.Now().Add(p.holdsTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-time.Second).Before(limit) {
		limit = deadline.Add(-time.Second) // to say what it is that takes so long
	}
	for _, topic := range p.cfg.Topics().Published() {
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
		return false, p.cfg.Advise(&bridge.Fault{
			Class: bridge.Permanent, Code: "checkpoint-lost", Reason: bridge.ReasonCheckpointLost,
			Err: fmt.Errorf("no checkpoint found, and the search for records of stream %s is not finished: %w", p.cfg.Stream, err),
		}, bridge.HintCheckpointUnknown)
	}
	return false, p.cfg.explain(fmt.Errorf("look for records of %s: %w", p.cfg.Stream, err), client)
}

// errOurs ends a search.
var errOurs = errors.New("a record of the stream")

// searched is the part of a topic that holds no record of the stream.
type searched struct {
	topic [16]byte
	spans map[int32]kafkaclient.Span
}

// holds looks for a record of the stream in a topic, and remembers where there
// is none, until it has read for too long. An open transaction hides nothing that
// matters here.
func (p *Published) holds(ctx context.Context, client *kafkaclient.Client, topic string, limit time.Time) (bool, error) {
	l := client.Log(topic, [16]byte{})
	l.Uncommitted = true
	bounds, err := l.Bounds(ctx)
	switch {
	case kafkaclient.IsMissing(err) && topic != p.cfg.Topic:
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

// next returns what to look at next: what is new behind the part that is known,
// else the step before it.
func (k *searched) next(bounds map[int32]kafkaclient.Span, step int64) map[int32]kafkaclient.Span {
	windows := make(map[int32]kafkaclient.Span)
	for id, all := range bounds {
		have, ok := k.spans[id]
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

// add adds what was looked at, which touches what is known.
func (k *searched) add(windows map[int32]kafkaclient.Span) {
	for id, w := range windows {
		if have, ok := k.spans[id]; ok {
			w = kafkaclient.Span{From: min(have.From, w.From), To: max(have.To, w.To)}
		}
		k.spans[id] = w
	}
}

// unreadable says why a topic cannot be read.
func (c *Config) unreadable(err error, topic string) error {
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return err
	}
	f := c.fault(err, topic)
	f.Hint = c.GrantRead(topic)
	return f
}

// isOurs reports whether a record of the stream was found.
func (p *Published) isOurs(r *kgo.Record) bool {
	if r.Attrs.IsControl() {
		return false
	}
	if r.Topic == p.cfg.Topic && p.cfg.Headers == headersNone {
		return true
	}
	for _, h := range r.Headers {
		if h.Key == HeaderStream && string(h.Value) == p.cfg.Stream {
			return true
		}
	}
	return false
}
