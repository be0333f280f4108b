package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// copyInterval is the minimum interval of copies. A stream whose store is lost resumes at
// the last copy. A copy is overdue after overdueCopies intervals.
const (
	copyInterval  = 5 * time.Second
	overdueCopies = 6
)

// copier copies the committed checkpoints of a session in at-least-once mode into the
// checkpoint topic. Each copy is a small transaction of the stream's transactional id:
// it fails once another session has the stream. One goroutine copies, from the start of
// the session until the session closes or a copy fails.
type copier struct {
	txn   *txnProducer // owned by the copier once it has started
	topic *kafkaclient.Topic
	every time.Duration

	cancel  context.CancelFunc
	running sync.WaitGroup
	over    chan struct{} // closed when another session has the stream
	failed  chan struct{} // closed when a copy failed, also because of another session
	err     error         // of the copy; written before over and failed are closed

	turn turn // held while a copy is written
	// kept is the version of the newest copy; written by the holder of turn.
	kept atomic.Pointer[bridge.Version]

	next  atomic.Pointer[bridge.Checkpoint] // what offer was given last; nil before
	began atomic.Pointer[time.Time]         // when the copy in progress began; nil without one
}

// startCopier starts the copier of a session. kept is the newest copy.
func startCopier(s *session, kept bridge.Checkpoint, every time.Duration) *copier {
	version := kept.Version
	if kept.Zero() {
		version = bridge.Version{Epoch: -1} // before every checkpoint
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &copier{
		txn: &s.txn, topic: s.topics.Checkpoints, every: every, cancel: cancel,
		over: make(chan struct{}), failed: make(chan struct{}), turn: make(turn, 1),
	}
	c.keep(version)
	c.running.Go(func() { c.run(ctx) })
	return c
}

func (c *copier) keep(v bridge.Version) { c.kept.Store(&v) }

// offer takes a committed checkpoint to copy at the next turn.
func (c *copier) offer(cp bridge.Checkpoint) {
	if !cp.Zero() {
		c.next.Store(&cp)
	}
}

// failure returns why the session must end, if it must.
func (c *copier) failure() error {
	select {
	case <-c.failed:
		return c.err
	default:
		return nil
	}
}

// overdue returns a Fault if a copy takes long. Events are published meanwhile, but after the
// loss of the store all since the last copy would be published again.
func (c *copier) overdue() error {
	if c == nil {
		return nil
	}
	if began := c.began.Load(); began == nil || time.Since(*began) < overdueCopies*c.every {
		return nil
	}
	return c.stall()
}

// stall returns the Fault of a copy that no broker acknowledges, or of what keeps the copier from
// the brokers.
func (c *copier) stall() *bridge.Fault {
	what := "copy the checkpoint to topic " + c.topic.Name
	if cause := c.txn.client.Trouble(); cause != nil {
		return c.txn.cfg.fault(fmt.Errorf("%s: %w", what, cause), c.topic.Name)
	}
	return stalled(what, errUnacknowledged)
}

// reporting reports a stall now and then, until stop is called.
func (c *copier) reporting() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var reports sync.WaitGroup
	reports.Go(func() {
		for bridge.Sleep(ctx, stallAfter); ctx.Err() == nil; bridge.Sleep(ctx, stallAfter) {
			c.txn.cfg.Tell(c.stall())
		}
	})
	return func() { cancel(); reports.Wait() }
}

// introduce copies the first checkpoint of an epoch, and returns once the copy is
// committed. The store does not fence: a fenced session could begin an epoch there, and
// a later session in exactly-once mode would take that epoch for the newest. Any other
// checkpoint, as of a heartbeat, waits for no copy.
func (c *copier) introduce(ctx context.Context, cp bridge.Checkpoint) error {
	if cp.Zero() || cp.Epoch == c.kept.Load().Epoch {
		return nil
	}
	defer c.reporting()()
	select {
	case c.turn <- struct{}{}:
	case <-c.failed:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("copy the first checkpoint of epoch %d: %w", cp.Epoch, ctx.Err())
	}
	defer c.turn.release()
	copied := make(chan error, 1)
	go func() { copied <- c.copy(ctx, cp) }() // waited for below
	select {
	case err := <-copied:
		if err == nil {
			c.keep(cp.Version)
		}
		return err
	case <-ctx.Done():
		c.txn.client.Close() // the session ends with the error; a copy does not give up by itself
		return fmt.Errorf("copy the first checkpoint of epoch %d: %w", cp.Epoch, errors.Join(ctx.Err(), <-copied))
	}
}

func (c *copier) run(ctx context.Context) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.copyNewest(ctx); err != nil {
			if ctx.Err() == nil {
				c.fail(err)
			}
			return
		}
	}
}

// fail ends the session: at once if another session has the stream, otherwise between two
// batches. The end of a session within a batch makes the events of the batch duplicates,
// which a missing copy does not justify.
func (c *copier) fail(err error) {
	c.err = err
	if errors.Is(err, bridge.ErrFenced) {
		close(c.over)
	}
	close(c.failed)
}

// copyNewest copies what was offered last, if it is newer than the copy.
func (c *copier) copyNewest(ctx context.Context) error {
	if err := c.turn.take(ctx); err != nil {
		return err
	}
	defer c.turn.release()
	cp := c.next.Load()
	if cp == nil || cp.Version.Compare(*c.kept.Load()) <= 0 {
		return nil
	}
	if err := c.copy(ctx, *cp); err != nil {
		return err
	}
	c.keep(cp.Version)
	return nil
}

// copy commits one checkpoint. It leaves out a checkpoint that does not fit the topic:
// the store has it.
func (c *copier) copy(ctx context.Context, cp bridge.Checkpoint) error {
	cfg := c.txn.cfg
	rec, err := cfg.checkpointRecord(cfg.mirrorKey(), &cp, c.topic)
	if err != nil {
		if cfg.Log != nil {
			cfg.Log.Warn("checkpoint not copied to Kafka", "checkpoint", cp.Version.String(), "error", err.Error())
		}
		return nil
	}
	began := time.Now()
	c.began.Store(&began)
	defer c.began.Store(nil)
	if err := c.commit(ctx, rec); err != nil {
		return c.txn.fault(fmt.Errorf("mirror checkpoint %s: %w", cp.Version, err))
	}
	return nil
}

// commit waits for unreachable brokers until the session closes. Publishing continues in
// the meantime.
func (c *copier) commit(ctx context.Context, rec kgo.Record) error {
	p := c.txn
	if err := p.client.BeginTransaction(); err != nil {
		return err
	}
	p.began = time.Now()
	if err := p.client.ProduceSync(context.WithoutCancel(ctx), &rec).FirstErr(); err != nil {
		return err
	}
	if err := p.follows(&rec); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return p.client.EndTransaction(ending, kgo.TryCommit)
}
