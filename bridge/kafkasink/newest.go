package kafkasink

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

const (
	// firstStep is the number of offsets read first before the barrier. Each
	// further step is twice as long.
	firstStep = 64
	// keptRecords bounds the records of a key kept in one step.
	keptRecords = 64
)

// checkpointReader reads the stream's newest checkpoint. It lives as long as the Sink.
type checkpointReader struct {
	scanned scannedRange
	refused atomic.Int64 // how many checkpoints were ignored
	// refusedBelow is the offset below which ignored checkpoints are counted already.
	refusedBelow int64
}

// newest waits until the barrier is readable and returns the stream's newest
// checkpoint before it, or bridge.ErrNoCheckpoint. It reads backwards: other
// streams of the partition may have written millions of records.
func (r *checkpointReader) newest(ctx context.Context, s *session, b *barrier) (bridge.Checkpoint, error) {
	l := s.topics.checkpointLog(s.cfg)
	found := s.cfg.scan()
	low, err := b.await(ctx, &s.txn, l, &found)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	if r.scanned.topic != l.ID() {
		r.scanned = scannedRange{topic: l.ID()}
	}
	for step := int64(firstStep); found.none() && low > 0; step *= 2 {
		high := r.scanned.skip(low)
		next := r.scanned.stop(max(0, high-step), high)
		start, err := l.Scan(ctx, kafkaclient.Span{From: next, To: high}, found.add)
		if err != nil {
			r.scanned.join(low, b.offset+1)
			return bridge.Checkpoint{}, err
		}
		if low = next; start >= next {
			low = 0 // the log begins there
		}
	}
	if found.none() {
		r.scanned.join(low, b.offset+1)
	}
	r.refuse(s.cfg, found.forged)
	return found.choose(s.cfg)
}

// refuse logs and counts an ignored checkpoint, once.
func (r *checkpointReader) refuse(c *Config, forged *kgo.Record) {
	if forged == nil || forged.Offset < r.refusedBelow {
		return
	}
	r.refusedBelow = forged.Offset + 1
	r.refused.Add(1)
	if c.Log != nil {
		c.Log.Error("checkpoint ignored: produced outside a transaction, so by another program",
			"topic", forged.Topic, "partition", forged.Partition, "offset", forged.Offset, "key", string(forged.Key),
			"hint", "check which principals may write to the checkpoint topic: kafka-acls.sh --list --topic "+forged.Topic+
				"; the stream continues from its own last checkpoint")
	}
}

// scannedRange is a part of one topic's log without a checkpoint of the stream. The next
// search for the checkpoint skips it.
type scannedRange struct {
	topic    [16]byte
	from, to int64 // from inclusive, to exclusive
}

// skip returns the offset from which a search that has come down to high continues.
func (s *scannedRange) skip(high int64) int64 {
	if s.from < high && high <= s.to {
		return s.from
	}
	return high
}

// stop returns low, or the end of the range if that comes first.
func (s *scannedRange) stop(low, high int64) int64 {
	if low < s.to && s.to < high {
		return s.to
	}
	return low
}

// join adds a read range. Of two disjoint ranges the longer is kept.
func (s *scannedRange) join(from, to int64) {
	switch {
	case from <= s.to && to >= s.from:
		s.from, s.to = min(s.from, from), max(s.to, to)
	case to-from > s.to-s.from:
		s.from, s.to = from, to
	}
}

// scanResult is the stream's records in the part of the log read last.
type scanResult struct {
	data, copies keyRecords
	// forged is the last record of either key produced outside a transaction:
	// it bypassed fencing, so no bridge wrote it.
	forged *kgo.Record
}

// keyRecords are the newest records of one key, in log order.
type keyRecords struct {
	key     string
	records []*kgo.Record
	all     bool // not only the newest
}

// scan returns the empty result of a search for the stream's checkpoints.
func (c *Config) scan() scanResult {
	return scanResult{data: keyRecords{key: c.dataKey()}, copies: keyRecords{key: c.mirrorKey()}}
}

func (s *scanResult) none() bool { return len(s.data.records)+len(s.copies.records) == 0 }

// add keeps a record if it is a checkpoint of the stream.
func (s *scanResult) add(r *kgo.Record) {
	switch {
	case r.Attrs.IsControl():
		return
	case !r.Attrs.IsTransactional():
		if key := string(r.Key); (key == s.data.key || key == s.copies.key) &&
			(s.forged == nil || r.Offset > s.forged.Offset) {
			s.forged = r
		}
		return
	}
	s.data.add(r)
	s.copies.add(r)
}

func (k *keyRecords) add(r *kgo.Record) {
	if string(r.Key) != k.key {
		return
	}
	k.records = append(k.records, r)
	if !k.all && len(k.records) > 2*keptRecords {
		k.records = slices.Delete(k.records, 0, len(k.records)-keptRecords)
	}
}

// choose returns the newest checkpoint. Each writer fences all others and continues from
// the newest checkpoint, so that versions rise in the log. If they do not, it logs an
// error.
func (s *scanResult) choose(cfg *Config) (bridge.Checkpoint, error) {
	data, err := s.data.decode(cfg.Stream)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	for i := 1; i < len(data); i++ {
		if data[i].Version.Compare(data[i-1].Version) <= 0 && cfg.Log != nil {
			cfg.Log.Error("non-monotonic checkpoints: concurrent writers or a broker fault; events may be duplicated",
				"topic", cfg.CheckpointTopic, "partition", cfg.partition(),
				"earlier", data[i-1].Version.String(), "later", data[i].Version.String())
		}
	}
	mirror, err := s.copies.decode(cfg.Stream)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	all := slices.Concat(data, mirror)
	if len(all) == 0 {
		return bridge.Checkpoint{}, fmt.Errorf("partition %d of %s, stream %s: %w",
			cfg.partition(), cfg.CheckpointTopic, cfg.Stream, bridge.ErrNoCheckpoint)
	}
	return slices.MaxFunc(all, byVersion), nil
}

func byVersion(a, b bridge.Checkpoint) int { return a.Version.Compare(b.Version) }

// decode returns the checkpoints of a key. It returns a fault if the newest one is
// unreadable, but not if a readable one follows an unreadable one.
func (k *keyRecords) decode(stream string) ([]bridge.Checkpoint, error) {
	var all []bridge.Checkpoint
	var foreign error
	for _, r := range k.records {
		c, err := bridge.DecodeCheckpoint(r.Value)
		if err == nil && c.Stream != stream {
			err = fmt.Errorf("%w: it belongs to stream %s", bridge.ErrForeign, c.Stream)
		}
		if foreign = err; err != nil {
			foreign = fmt.Errorf("offset %d in partition %d of %s, key %s: %w", r.Offset, r.Partition, r.Topic, r.Key, err)
			continue
		}
		all = append(all, c)
	}
	if foreign != nil {
		return nil, bridge.Blockf("foreign", bridge.ReasonCheckpoint,
			"another program writes to the checkpoint topic under this stream's name: set another "+
				"KAFKA_CHECKPOINT_TOPIC or stream name; if a newer exportbridge wrote it, upgrade", "%w", foreign)
	}
	return all, nil
}

// await reads up to the barrier and waits until it is readable: open
// transactions on the partition hide it until they end. It returns the first
// offset read.
func (b *barrier) await(
	ctx context.Context, p *txnProducer, l *kafkaclient.PartitionLog, found *scanResult,
) (int64, error) {
	low := max(0, b.offset-firstStep)
	began, looked := time.Now(), time.Now()
	var stall *bridge.Fault
	for at := low; ; {
		c, err := l.Fetch(ctx, at)
		if err != nil {
			if stall != nil && ctx.Err() != nil {
				return 0, stall
			}
			return 0, err
		}
		for _, r := range c.Records {
			switch {
			case r.Offset < b.offset:
				found.add(r)
			case r.Offset == b.offset && string(r.Value) == b.value:
				return max(low, min(c.Start, b.offset)), nil
			default:
				return 0, fmt.Errorf("partition %d of %s: no barrier at offset %d", l.Partition, l.Topic(), b.offset)
			}
		}
		if at = c.Next; time.Since(looked) < stallAfter {
			continue
		}
		stall, looked = p.explainBlocked(ctx, l, c.Stable, time.Since(began)), time.Now()
		p.cfg.Tell(stall)
	}
}
