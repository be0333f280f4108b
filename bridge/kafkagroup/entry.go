package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// entry is how this process joins a group, leaves it, and rejoins it after another process
// has taken its instance id.
type entry struct {
	group Group
	name  string
	// staleAfter is how long a dead process stays a member.
	staleAfter time.Duration
	// patience ends with Abandon.
	patience context.Context
	abandon  context.CancelFunc

	gate sync.Mutex // guards all below; never held while waiting
	// fenced is set if another member has taken over the instance id, and this process has
	// not rejoined since.
	fenced bool
	// quiet is the time until which a late request of this process may be the cause of the
	// fencing. Such a request expires after a session timeout.
	quiet time.Time
}

func newEntry(g Group) *entry {
	patience, abandon := context.WithCancel(context.Background())
	return &entry{
		group: g, name: g.Name(), staleAfter: g.SessionTimeout + staleMemberMargin, patience: patience, abandon: abandon,
	}
}

// wait calls acquire until it succeeds, ctx ends, or waiting does not help. It reports the
// health of the brokers to Config.Report.
func (g *Group) wait(
	ctx context.Context, acquire func(context.Context) (bridge.Ownership, error),
) (bridge.Ownership, error) {
	for try := 0; ; try++ {
		t, err := acquire(ctx)
		if err == nil {
			g.Tell(nil)
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for ownership of stream %s: %w: %w", g.Stream, ctx.Err(), err)
		}
		if errors.Is(err, errGroupClosed) {
			return nil, fmt.Errorf("wait for ownership of stream %s: %w", g.Stream, err)
		}
		if kafkaclient.IsPermanent(err) {
			return nil, err // the brokers answer
		}
		if !errors.Is(err, errInstanceIDConflict) {
			g.Tell(err)
		}
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

// admit waits until this process may join the group. After this process has lost its
// instance id, it does not rejoin while another process uses the id.
func (e *entry) admit(ctx context.Context) error {
	e.gate.Lock()
	fenced, quiet := e.fenced, e.quiet
	e.gate.Unlock()
	if bridge.Sleep(ctx, time.Until(quiet)); ctx.Err() != nil {
		return ctx.Err()
	}
	if err := e.prepare(ctx, fenced); err != nil {
		return err
	}
	e.gate.Lock()
	defer e.gate.Unlock()
	e.fenced = false // until another member takes over the new membership
	return nil
}

// join returns a client that is a member of the group until ctx ends.
func (e *entry) join(ctx context.Context, opts ...kgo.Opt) (*kafkaclient.Client, error) {
	session := e.group.SessionTimeout
	opts = append(opts,
		kgo.WithContext(ctx),
		kgo.ConsumerGroup(e.name),
		kgo.ConsumeTopics(e.group.CheckpointTopic),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(min(maxHeartbeatInterval, session/3)),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RetryTimeout(session), // this process owns its streams for that long, whatever happens to the brokers
		kgo.DisableAutoCommit(),
	)
	if id := e.group.instanceID(); id != nil {
		opts = append(opts, kgo.InstanceID(*id))
	}
	client, err := e.group.Open(opts...)
	if err != nil {
		return nil, fmt.Errorf("join group %s: %w", e.name, err)
	}
	return client, nil
}

// prepare checks that the process can join the group.
func (e *entry) prepare(ctx context.Context, fenced bool) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	client, err := e.group.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := e.findTopic(ctx, client); err != nil {
		return client.Explain(err, e.group.CheckpointTopic)
	}
	members, err := e.group.members(ctx, client)
	if err != nil {
		return e.group.fault(err, client)
	}
	twin := slices.IndexFunc(members, func(m bridge.Member) bool { return m.InstanceID == e.group.InstanceID })
	if fenced && twin >= 0 {
		return e.fencedFault(members[twin].Host)
	}
	return nil
}

// findTopic checks that the checkpoint topic exists. Without it, the client would wait and
// report nothing.
func (e *entry) findTopic(ctx context.Context, client *kafkaclient.Client) error {
	find := client.Find
	if e.group.Missing != nil {
		find = client.Describe
	}
	topics, err := find(ctx, e.group.CheckpointTopic)
	if err == nil && !topics[0].Exists && e.group.Missing != nil {
		if err = e.group.Missing(ctx, client); err == nil {
			topics, err = client.Find(ctx, e.group.CheckpointTopic)
		}
	}
	if err != nil {
		return err
	}
	if e.group.Missing != nil && !topics[0].Exists {
		return topics[0].Unknown()
	}
	return e.group.CanCheckpoint(&topics[0])
}

// Abandon ends the wait of Release and Close for unreachable brokers, now and later. It is
// for a process that ends: the membership ends at its session timeout.
func (e *entry) Abandon() { e.abandon() }

// suspectConflict records that another member uses the instance id of this process.
func (e *entry) suspectConflict() {
	e.gate.Lock()
	defer e.gate.Unlock()
	e.fenced, e.quiet = true, time.Now().Add(e.staleAfter)
}

func (e *entry) fencedFault(host string) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "fenced_instance_id", RetryAfter: twinInterval,
		Hint: "set a unique BRIDGE_INSTANCE_ID per process, such as the pod name, or none; then restart this process",
		Err: fmt.Errorf("group %s: the process at %s has joined with the same BRIDGE_INSTANCE_ID=%s; "+
			"not rejoining until it has left", e.name, host, e.group.InstanceID),
	}
}

// sendLeave removes a member from the group. A missing member is no error.
func (e *entry) sendLeave(ctx context.Context, id string) error {
	client, err := e.group.Open()
	if err != nil {
		return fmt.Errorf("leave group %s: %w", e.name, err)
	}
	defer client.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = e.name, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID, m.Reason = id, e.group.instanceID(), new("stream released")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) > 0 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil && !isNotMember(err) {
		return fmt.Errorf("leave group %s: %w", e.name, err)
	}
	return nil
}

// isNotMember reports whether the coordinator does not know the member or the generation.
func isNotMember(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.FencedInstanceID)
}

// beat sends a heartbeat of a member.
func (e *entry) beat(ctx context.Context, client *kafkaclient.Client, id string, generation int32) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = e.name, generation, id, e.group.instanceID()
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
