package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// longStep bounds the offsets of one step, since their records are in memory.
const longStep = 16 << 10

// recordDelay bounds the time from a checkpoint's WrittenAt to its record.
const recordDelay = time.Minute

// hiddenPause is between two looks at records that open transactions hide.
const hiddenPause = 200 * time.Millisecond

// CheckpointHistory reads the committed checkpoints of a stream. It starts no session and
// affects none. Checkpoints behind an open transaction are not visible. It may be used
// concurrently. Errors are Faults.
type CheckpointHistory struct{ cfg Config }

// NewHistory returns the reader of a stream's checkpoints.
func NewHistory(cfg Config) *CheckpointHistory { return &CheckpointHistory{cfg} }

// Walk calls visit with the stream's committed checkpoints in the checkpoint topic, each
// once, newest first, until visit returns false. The topic keeps every checkpoint for
// seven days, and the newest one for ever. A missing topic has no checkpoints.
// Unresponsive brokers are retried for some seconds, until ctx ends at most.
func (h *CheckpointHistory) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	return h.WalkBefore(ctx, time.Time{}, visit)
}

// WalkBefore is Walk that begins with the checkpoints of time t; with the zero time it is
// Walk. It may visit a few newer checkpoints first, however long ago t is.
func (h *CheckpointHistory) WalkBefore(ctx context.Context, t time.Time, visit func(bridge.Checkpoint) bool) error {
	client, err := h.cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	err = h.walk(ctx, client, t, visit)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("read the checkpoints of %s: %w", h.cfg.Stream, errors.Join(ctx.Err(), client.Trouble()))
	case err != nil:
		return h.cfg.explain(fmt.Errorf("read the checkpoints of %s: %w", h.cfg.Stream, err), client)
	}
	return nil
}

func (h *CheckpointHistory) walk(
	ctx context.Context, client *kafkaclient.Client, t time.Time, visit func(bridge.Checkpoint) bool,
) error {
	l, all, err := h.cfg.committedLog(ctx, client)
	if err != nil {
		return err
	}
	if l != nil && !t.IsZero() {
		after, err := l.After(ctx, t.Add(recordDelay).UnixMilli())
		if err != nil {
			return err
		}
		all.To = min(all.To, after)
	}
	var last bridge.Checkpoint
	high := all.To
	for step := int64(firstStep); high > all.From; step = min(2*step, longStep) {
		low := max(all.From, high-step)
		found := h.cfg.scan()
		found.data.all, found.copies.all = true, true
		start, err := l.Scan(ctx, kafkaclient.Span{From: low, To: high}, found.add)
		if err != nil {
			return err
		}
		part, err := found.decodeAll(h.cfg.Stream)
		if err != nil {
			return err
		}
		for _, c := range slices.Backward(part) {
			if !last.Zero() && c.Version.Compare(last.Version) >= 0 {
				continue // a copy of it
			}
			if last = c; !visit(c) {
				return nil
			}
		}
		if high = low; start >= low {
			return nil // the log begins there
		}
	}
	return nil
}

// Newest returns the stream's newest readable checkpoint, from the checkpoint topic
// or Config.Known, or bridge.ErrNoCheckpoint. A checkpoint being committed may be
// missing. Errors are Kafka's, or a Fault if Known fails and Kafka has no checkpoint.
func (h *CheckpointHistory) Newest(ctx context.Context, client *kafkaclient.Client) (bridge.Checkpoint, error) {
	var c bridge.Checkpoint
	err := h.walk(ctx, client, time.Time{}, func(found bridge.Checkpoint) bool {
		c = found
		return false
	})
	if err != nil {
		return c, fmt.Errorf("read the checkpoints of %s: %w", h.cfg.Stream, err)
	}
	if h.cfg.Known != nil {
		switch known, err := h.cfg.Known(ctx); {
		case err == nil && (c.Zero() || known.Version.Compare(c.Version) > 0):
			c = known
		case err != nil && c.Zero() && !errors.Is(err, bridge.ErrNoCheckpoint):
			// Without the store it is unknown whether the missing topics were lost.
			return c, bridge.StoreNeeded(err)
		}
	}
	if c.Zero() {
		return c, fmt.Errorf("stream %s: %w", h.cfg.Stream, bridge.ErrNoCheckpoint)
	}
	return c, nil
}

// Since returns the stream's newest checkpoint in Kafka, the zero one if there is none. If it is
// older than v, Since first waits until no open transaction can hide v any more. Errors are Faults.
func (h *CheckpointHistory) Since(ctx context.Context, v bridge.Version) (bridge.Checkpoint, error) {
	return kafkaclient.With(ctx, &h.cfg.Config, h.cfg.CheckpointTopic,
		func(ctx context.Context, client *kafkaclient.Client) (c bridge.Checkpoint, err error) {
			own := *h
			own.cfg.Known = nil
			for end := int64(-1); ; bridge.Sleep(ctx, hiddenPause) {
				l, all, err := h.cfg.committedLog(ctx, client)
				if err != nil {
					return c, err
				}
				if end < 0 && l != nil {
					if end, err = l.End(ctx); err != nil {
						return c, err
					}
				}
				if c, err = own.Newest(ctx, client); err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
					return c, err
				}
				if c.Version.Compare(v) >= 0 || l == nil || all.To >= end {
					return c, nil
				}
			}
		})
}

// committedLog returns the stream's partition of the checkpoint topic and its readable
// span, or nil if the partition does not exist.
func (c *Config) committedLog(
	ctx context.Context, client *kafkaclient.Client,
) (*kafkaclient.PartitionLog, kafkaclient.Span, error) {
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	topics, err := client.Describe(asking, c.CheckpointTopic)
	if err != nil {
		return nil, kafkaclient.Span{}, err
	}
	if !topics[0].Exists || len(topics[0].Partitions) <= int(c.partition()) {
		return nil, kafkaclient.Span{}, nil
	}
	l := client.Partition(&topics[0], c.partition())
	all, err := l.Bounds(asking)
	return l, all, err
}

// decodeAll returns the checkpoints of both keys, ordered by version.
func (s *scanResult) decodeAll(stream string) ([]bridge.Checkpoint, error) {
	data, err := s.data.decode(stream)
	mirror, err2 := s.copies.decode(stream)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	all := slices.Concat(data, mirror)
	slices.SortStableFunc(all, byVersion)
	return all, nil
}
