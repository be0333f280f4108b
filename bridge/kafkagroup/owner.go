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
	// maxHeartbeatInterval is the longest time between two heartbeats: so long does
	// it take until a member hears that the group changes.
	maxHeartbeatInterval = time.Second
	// rebalanceTimeout is how long the brokers wait for a member that is to
	// join again. It is longer than maxReleaseWait, or a member that waits for its
	// stream to be let go would be thrown out.
	rebalanceTimeout = 30 * time.Second
	// maxReleaseWait is how long a member keeps the group waiting for Release.
	maxReleaseWait = 20 * time.Second
	// releaseTimeout is how long Release waits until others can have the stream.
	releaseTimeout = 5 * time.Second
	// fencedBackoff is how long this process leaves its instance id to the other
	// process that uses it. Two that came back at once would take it from each
	// other for ever.
	fencedBackoff = 5 * time.Minute
	// staleMemberMargin is added to the session time-out of a member that may be a
	// late request's.
	staleMemberMargin = 2 * time.Second
	// probeEvery is how often a standby asks the coordinator who is in the group.
	probeEvery = 3 * time.Second
)

// Owner is the bridge.Owner of a stream, by Kafka's group coordinator.
// Each process that can run the stream joins the consumer group <group>.<stream>
// on the checkpoint topic; whoever is assigned the partition with the stream's
// checkpoints owns it, the others stand by. Nothing is fetched, no offsets are
// committed.
//
// The first Acquire joins the group. The process stays a member when it loses
// the stream, and when an Acquire ends with its context, so that it is next in
// line; Acquire soon after a Release, since the stream may come back at any
// time. Releasing a stream that was not lost leaves the group, and the next
// Acquire joins it again. Close leaves it for good.
type Owner struct {
	group     Group
	name      string
	partition int32
	// fencedBackoff and letGo are the constants, but for tests; staleAfter is how
	// long a membership lives on whose process is gone.
	fencedBackoff, releaseWait, staleAfter time.Duration

	mu     sync.Mutex // guards all below; never held while waiting
	member *member    // nil while this process is not in the group
	// fenced is set once another process has taken the instance id; until then
	// this process does not join.
	fenced time.Time
	// quiet is until when it is not known whether that was another process: a
	// request of our own that was held up on its way does the same, and is gone
	// after a session.
	quiet  time.Time
	closed bool
}

var (
	errGroupClosed        = errors.New("the group was closed")
	errInstanceIDConflict = errors.New("another member joined with the same BRIDGE_INSTANCE_ID, or a delayed request of this process")
)

// Owner returns the Owner of the stream. It does not connect. A process has
// one: each would be a member of its own. The caller must Close it.
func (g *Group) Owner() *Owner {
	return &Owner{
		group: *g, name: g.Name(), partition: kafkaclient.CheckpointPartition(g.Stream),
		fencedBackoff: fencedBackoff, releaseWait: maxReleaseWait, staleAfter: g.SessionTimeout + staleMemberMargin,
	}
}

// Acquire implements bridge.Owner. It reports to Config.Report what keeps the
// brokers from answering, and that they answer. Permanent faults: another
// process has the instance id, somebody else's consumers are in the group, the
// checkpoint topic is missing or too small, a right is missing, or the brokers
// do not allow the session time-out. After one of them this process is not in
// the group.
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

// enter returns this process's member, which joins the group if need be.
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
	if left := time.Until(fenced.Add(o.fencedBackoff)); !fenced.IsZero() && quiet.IsZero() && left > 0 {
		return nil, o.fencedFault(left)
	}
	if err := o.prepare(ctx, !fenced.IsZero()); err != nil {
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

// prepare looks whether the group can be joined. After this process lost its
// instance id it does not come back while another process uses it.
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
	ours := func(m Member) bool { return m.InstanceID == o.group.InstanceID }
	if fenced && slices.ContainsFunc(members, ours) {
		o.noteConflict()
		return o.fencedFault(o.fencedBackoff)
	}
	return nil
}

// findTopic makes sure that the checkpoint topic is there: the client would
// wait for it in silence.
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

// Close takes the stream away, waits for its Release as long as ctx allows,
// and leaves the group within a few seconds, so that another process has the
// stream at once. An Acquire that waits ends with an error.
func (o *Owner) Close(ctx context.Context) error {
	o.mu.Lock()
	m := o.member
	o.member, o.closed = nil, true
	o.mu.Unlock()
	if m == nil {
		return nil
	}
	m.awaitRelease(ctx)
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return m.leave(leaving)
}

// forget makes the next Acquire join anew.
func (o *Owner) forget(m *member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.member == m {
		o.member = nil
	}
}

// bar notes that another process has our instance id.
func (o *Owner) noteConflict() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced, o.quiet = time.Now(), time.Time{}
}

// suspect notes that somebody has our instance id.
func (o *Owner) suspectConflict() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced = time.Now()
	o.quiet = o.fenced.Add(o.staleAfter)
}

func (o *Owner) fencedFault(left time.Duration) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "fenced_instance_id", RetryAfter: left,
		Hint: "set a unique BRIDGE_INSTANCE_ID per process, such as the pod name, or none; then restart this process",
		Err:  fmt.Errorf("group %s: another process has joined with the same BRIDGE_INSTANCE_ID=%s; not rejoining", o.name, o.group.InstanceID),
	}
}

// sendLeave takes a member out of the group. It is no error if it is not in
// there any more.
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

// isDeposed reports whether the coordinator says that a member is not in the
// group, or not any more with what it knows of it.
func isNotMember(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.FencedInstanceID)
}
