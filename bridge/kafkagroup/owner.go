package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	group     Group
	name      string
	partition int32
	// releaseWait is the constant, but for tests; staleAfter is how long a
	// membership lives on whose process is gone.
	releaseWait, staleAfter time.Duration
	// patience ends with Abandon.
	patience context.Context
	abandon  context.CancelFunc

	mu     sync.Mutex // guards all below; never held while waiting
	member *member    // nil while this process is not in the group
	// fenced: some member has taken over the instance id, and this process has
	// not rejoined since.
	fenced bool
	// quiet is until when the cause is unknown: a delayed request of this
	// process has the same effect, and expires after a session timeout.
	quiet  time.Time
	closed bool
}

var (
	errGroupClosed        = errors.New("the group was closed")
	errInstanceIDConflict = errors.New("another member joined with the same BRIDGE_INSTANCE_ID, or a delayed request of this process")
)

// Owner returns the Owner of the stream without connecting. A process has one:
// each is a member of its own. The caller closes it.
func (g *Group) Owner() *Owner {
	patience, abandon := context.WithCancel(context.Background())
	return &Owner{
		group: *g, name: g.Name(), partition: kafkaclient.CheckpointPartition(g.Stream), patience: patience, abandon: abandon,
		releaseWait: maxReleaseWait, staleAfter: g.SessionTimeout + staleMemberMargin,
	}
}

// Acquire implements bridge.Owner. It reports the brokers' health to
// Config.Report. Permanent faults: another process uses the instance id, the
// group has foreign members, the checkpoint topic is missing or unusable, a
// grant is missing, or the brokers do not allow the session timeout. After one
// of them this process is not in the group.
func (o *Owner) Acquire(ctx context.Context) (bridge.Ownership, error) {
	for try := 0; ; try++ {
		t, err := o.acquire(ctx)
		if err == nil {
			o.group.Tell(nil)
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for ownership of stream %s: %w: %w", o.group.Stream, ctx.Err(), err)
		}
		if errors.Is(err, errGroupClosed) {
			return nil, fmt.Errorf("wait for ownership of stream %s: %w", o.group.Stream, err)
		}
		if kafkaclient.IsPermanent(err) {
			return nil, err // the brokers do answer
		}
		if !errors.Is(err, errInstanceIDConflict) {
			o.group.Tell(err)
		}
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

func (o *Owner) acquire(ctx context.Context) (*ownership, error) {
	m, err := o.enter(ctx)
	if err != nil {
		return nil, err
	}
	t, err := m.wait(ctx)
	if err != nil && ctx.Err() == nil {
		m.quit() // the group is of no use as it is: begin anew
	}
	return t, err
}

// enter returns this process's member, and joins the group if needed.
func (o *Owner) enter(ctx context.Context) (*member, error) {
	o.mu.Lock()
	m, fenced, quiet, closed := o.member, o.fenced, o.quiet, o.closed
	o.mu.Unlock()
	switch {
	case closed:
		return nil, errGroupClosed
	case m != nil && m.alive():
		return m, nil
	case m != nil:
		m.stop()
	}
	if bridge.Sleep(ctx, time.Until(quiet)); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := o.prepare(ctx, fenced); err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.fenced = false // until the new membership is
	o.mu.Unlock()
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

// prepare checks that the group can be joined. After losing its instance id
// this process does not rejoin while another process uses it.
func (o *Owner) prepare(ctx context.Context, fenced bool) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	client, err := o.group.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := o.findTopic(ctx, client); err != nil {
		return client.Explain(err, o.group.CheckpointTopic)
	}
	members, err := o.group.members(ctx, client)
	if err != nil {
		return o.group.fault(err, client)
	}
	twin := slices.IndexFunc(members, func(m bridge.Member) bool { return m.InstanceID == o.group.InstanceID })
	if fenced && twin >= 0 {
		return o.fencedFault(members[twin].Host)
	}
	return nil
}

// findTopic checks that the checkpoint topic exists: the client would wait for
// it silently.
func (o *Owner) findTopic(ctx context.Context, client *kafkaclient.Client) error {
	find := client.Find
	if o.group.Missing != nil {
		find = client.Describe
	}
	topics, err := find(ctx, o.group.CheckpointTopic)
	if err == nil && !topics[0].Exists && o.group.Missing != nil {
		if err = o.group.Missing(ctx, client); err == nil {
			topics, err = client.Find(ctx, o.group.CheckpointTopic)
		}
	}
	if err != nil {
		return err
	}
	return o.group.CanCheckpoint(&topics[0])
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

// Abandon ends the wait of Release and Close for unreachable brokers, now and later:
// the membership ends by its session timeout. It is for a process that ends.
func (o *Owner) Abandon() { o.abandon() }

// forget makes the next Acquire rejoin.
func (o *Owner) forget(m *member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.member == m {
		o.member = nil
	}
}

// suspectConflict records that some member uses our instance id.
func (o *Owner) suspectConflict() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced, o.quiet = true, time.Now().Add(o.staleAfter)
}

func (o *Owner) fencedFault(host string) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "fenced_instance_id", RetryAfter: twinInterval,
		Hint: "set a unique BRIDGE_INSTANCE_ID per process, such as the pod name, or none; then restart this process",
		Err:  fmt.Errorf("group %s: the process at %s has joined with the same BRIDGE_INSTANCE_ID=%s; not rejoining until it has left", o.name, host, o.group.InstanceID),
	}
}

// sendLeave removes a member from the group. A missing member is no error.
func (o *Owner) sendLeave(ctx context.Context, id string) error {
	client, err := o.group.Open()
	if err != nil {
		return fmt.Errorf("leave group %s: %w", o.name, err)
	}
	defer client.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = o.name, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID, m.Reason = id, o.group.instanceID(), new("stream released")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) > 0 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil && !isNotMember(err) {
		return fmt.Errorf("leave group %s: %w", o.name, err)
	}
	return nil
}

// isNotMember reports whether the coordinator does not know the member or its
// generation.
func isNotMember(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.FencedInstanceID)
}
