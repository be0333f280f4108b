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
	// maxHeartbeatInterval bounds the heartbeat interval, which is the time until a member
	// notices a rebalance.
	maxHeartbeatInterval = time.Second
	// rebalanceTimeout is how long brokers wait for a member to rejoin. It exceeds
	// maxReleaseWait: otherwise the brokers would remove a member that waits for a release.
	rebalanceTimeout = 30 * time.Second
	// maxReleaseWait bounds the time for which a member that waits for Release keeps the
	// group waiting.
	maxReleaseWait = 20 * time.Second
	// releaseTimeout bounds the wait of Release until other members can own the stream.
	releaseTimeout = 5 * time.Second
	// twinInterval is how often a process that lost its instance id checks whether the
	// process that took it has gone. It does not rejoin earlier: two processes that rejoin
	// at once would fence each other for ever.
	twinInterval = 3 * time.Second
	// staleMemberMargin is added to the session timeout of a member that may be due to a
	// late request.
	staleMemberMargin = 2 * time.Second
	// probeEvery is how often a standby describes the group.
	probeEvery = 3 * time.Second
)

// Owner is the bridge.Owner of a stream, through Kafka's group coordinator. Each process
// that can run the stream joins the consumer group <group>.<stream> on the checkpoint
// topic. The member that is assigned the partition of the stream's checkpoints owns the
// stream; the others are standbys. Members fetch nothing, and commit no offsets.
//
// The first Acquire joins the group. The process stays a member when it loses the stream,
// and when an Acquire ends with its context. Acquire soon after a Release, because the
// stream may be reassigned at any time. Releasing a stream that was not lost leaves the
// group, and the next Acquire rejoins it. Close leaves it for good.
type Owner struct {
	*entry
	partition   int32
	releaseWait time.Duration // the constant, except in tests

	mu     sync.Mutex // guards all below; never held while waiting
	member *member    // nil while this process is not in the group
	closed bool
}

var (
	errGroupClosed        = errors.New("the group was closed")
	errInstanceIDConflict = errors.New("another member joined with the same BRIDGE_INSTANCE_ID, " +
		"or a delayed request of this process")
)

// Owner returns the Owner of the stream, without connecting. A process needs only one,
// because each Owner is a member of its own. The caller closes it.
func (g *Group) Owner() *Owner {
	return &Owner{entry: newEntry(*g), partition: kafkaclient.CheckpointPartition(g.Stream), releaseWait: maxReleaseWait}
}

// Acquire implements bridge.Owner. It reports the health of the brokers to Config.Report.
// Permanent faults: another process uses the instance id, the group has foreign members,
// the checkpoint topic is missing or unusable, a grant is missing, or the brokers do not
// allow the session timeout. After such a fault, this process is not in the group.
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
			m.quit() // this membership is useless: begin a new one
		}
		return nil, err
	}
	return t, nil
}

// enter returns the member of this process. It joins the group if needed.
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

// Close revokes the stream, waits for its Release until ctx ends, and leaves the group
// within a few seconds, so that another process takes over at once. An Acquire that waits
// returns an error.
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
