package kafkagroup

import (
	"context"
	"errors"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

const (
	// maxHeartbeatInterval bounds the heartbeat interval, which is how long a
	// member takes to notice a rebalance.
	maxHeartbeatInterval = time.Second
	// rebalanceTimeout is how long brokers wait for a member to rejoin. It
	// exceeds maxReleaseWait, or a member waiting for a release would be
	// removed.
	rebalanceTimeout = 30 * time.Second
	// maxReleaseWait bounds how long a member keeps the group waiting for
	// Release.
	maxReleaseWait = 20 * time.Second
	// releaseTimeout bounds how long Release waits until other members can own
	// the stream.
	releaseTimeout = 5 * time.Second
	// twinInterval is how often a process that lost its instance id looks
	// whether the other process that uses it is gone. It does not rejoin
	// before: two that rejoined at once would fence each other for ever.
	twinInterval = 3 * time.Second
	// staleMemberMargin is added to the session timeout of a member that may
	// stem from a delayed request.
	staleMemberMargin = 2 * time.Second
	// probeEvery is how often a standby describes the group.
	probeEvery = 3 * time.Second
)

// Owner is the bridge.Owner of a stream, by Kafka's group coordinator. Each
// process that can run the stream joins the consumer group <group>.<stream> on
// the checkpoint topic; the member assigned the partition of the stream's
// checkpoints owns it, the others stand by. Nothing is fetched, no offsets are
// committed.
//
// The first Acquire joins the group. The process stays a member when it loses
// the stream, and when an Acquire ends with its context; Acquire soon after a
// Release, since the stream may be reassigned at any time. Releasing a stream
// that was not lost leaves the group, and the next Acquire rejoins it. Close
// leaves it for good.
type Owner struct {
	*entry
	partition   int32
	releaseWait time.Duration // the constant, but for tests

	mu     sync.Mutex // guards all below; never held while waiting
	member *member    // nil while this process is not in the group
	closed bool
}

var (
	errGroupClosed        = errors.New("the group was closed")
	errInstanceIDConflict = errors.New("another member joined with the same BRIDGE_INSTANCE_ID, or a delayed request of this process")
)

// Owner returns the Owner of the stream without connecting. A process has one:
// each is a member of its own. The caller closes it.
func (g *Group) Owner() *Owner {
	return &Owner{entry: newEntry(*g), partition: kafkaclient.CheckpointPartition(g.Stream), releaseWait: maxReleaseWait}
}

// Acquire implements bridge.Owner. It reports the brokers' health to
// Config.Report. Permanent faults: another process uses the instance id, the
// group has foreign members, the checkpoint topic is missing or unusable, a
// grant is missing, or the brokers do not allow the session timeout. After one
// of them this process is not in the group.
func (o *Owner) Acquire(ctx context.Context) (bridge.Ownership, error) {
	return o.group.wait(ctx, func(ctx context.Context) (bridge.Ownership, error) { return o.acquire(ctx) })
}

func (o *Owner) acquire(ctx context.Context) (bridge.Ownership, error) {
	m, err := o.enter(ctx)
	if err != nil {
		return nil, err
	}
	t, err := m.wait(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.quit() // the group is of no use as it is: begin anew
		}
		return nil, err
	}
	return t, nil
}

// enter returns this process's member, and joins the group if needed.
func (o *Owner) enter(ctx context.Context) (*member, error) {
	o.mu.Lock()
	m, closed := o.member, o.closed
	o.mu.Unlock()
	switch {
	case closed:
		return nil, errGroupClosed
	case m != nil && m.alive():
		return m, nil
	case m != nil:
		m.stop()
	}
	if err := o.admit(ctx); err != nil {
		return nil, err
	}
	m, err := o.newMember()
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	closed = o.closed
	if !closed {
		o.member = m
	}
	o.mu.Unlock()
	if closed {
		m.stop()
		return nil, errGroupClosed
	}
	return m, nil
}

// Close revokes the stream, waits for its Release until ctx ends, and leaves
// the group within a few seconds, so that another process takes over at once. A
// waiting Acquire returns an error.
func (o *Owner) Close(ctx context.Context) error {
	o.mu.Lock()
	m := o.member
	o.member, o.closed = nil, true
	o.mu.Unlock()
	if m == nil {
		return nil
	}
	m.awaitRelease(ctx)
	leaving, cancel := context.WithTimeout(o.patience, releaseTimeout)
	defer cancel()
	return m.leave(leaving)
}

// forget makes the next Acquire rejoin.
func (o *Owner) forget(m *member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.member == m {
		o.member = nil
	}
}
