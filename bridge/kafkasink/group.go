package kafkasink

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
	// heartbeatMost is the longest time between two heartbeats: so long does
	// it take until a member hears that the group changes.
	heartbeatMost = time.Second
	// rebalanceTimeout is how long the brokers wait for a member that is to
	// join again. It is longer than letGoMost, or a member that waits for its
	// stream to be let go would be thrown out.
	rebalanceTimeout = 30 * time.Second
	// letGoMost is how long a member keeps the group waiting for Release.
	letGoMost = 20 * time.Second
	// releaseTimeout is how long Release waits until others can have the stream.
	releaseTimeout = 5 * time.Second
	// truce is how long this process leaves its instance id to the other
	// process that uses it. Two that came back at once would take it from each
	// other for ever.
	truce = 5 * time.Minute
	// ghostMargin is added to the session time-out of a member that may be a
	// late request's.
	ghostMargin = 2 * time.Second
	// probeEvery is how often a standby asks the coordinator who is in the group.
	probeEvery = 3 * time.Second
)

// Group is the bridge.Owner of a Sink's stream, by Kafka's group coordinator.
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
type Group struct {
	sink      *Sink
	name      string
	partition int32
	// truce and letGo are the constants, but for tests; haunted is how long a
	// membership lives on whose process is gone.
	truce, letGo, haunted time.Duration

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
	errGroupClosed = errors.New("the group was closed")
	errHaunted     = errors.New("somebody else has joined with our BRIDGE_INSTANCE_ID, perhaps a late request of our own")
)

// Owner returns the Owner of the Sink's stream. It does not connect. A Sink
// has one: each would be a member of its own. The caller must Close it.
func (s *Sink) Owner() *Group {
	return &Group{sink: s, name: s.group(), partition: kafkaclient.CheckpointPartition(s.cfg.Stream), truce: truce, letGo: letGoMost, haunted: s.cfg.SessionTimeout + ghostMargin}
}

// group returns the name of the stream's consumer group.
func (s *Sink) group() string { return s.cfg.Group + "." + ownedAs(s.cfg.Stream) }

// Acquire implements bridge.Owner. It reports to Config.Report what keeps the
// brokers from answering, and that they answer. Permanent faults: another
// process has the instance id, somebody else's consumers are in the group, the
// checkpoint topic is missing or too small, a right is missing, or the brokers
// do not allow the session time-out. After one of them this process is not in
// the group.
func (g *Group) Acquire(ctx context.Context) (bridge.Ownership, error) {
	for try := 0; ; try++ {
		t, err := g.acquire(ctx)
		if err == nil {
			g.sink.cfg.Tell(nil)
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for stream %s: %w: %w", g.sink.cfg.Stream, ctx.Err(), err)
		}
		if errors.Is(err, errGroupClosed) {
			return nil, fmt.Errorf("wait for stream %s: %w", g.sink.cfg.Stream, err)
		}
		if kafkaclient.IsPermanent(err) {
			return nil, err // the brokers do answer
		}
		if !errors.Is(err, errHaunted) {
			g.sink.cfg.Tell(err)
		}
		kafkaclient.Pause(ctx, kafkaclient.Backoff(try))
	}
}

func (g *Group) acquire(ctx context.Context) (*tenure, error) {
	m, err := g.enter(ctx)
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
func (g *Group) enter(ctx context.Context) (*member, error) {
	g.mu.Lock()
	m, fenced, quiet, closed := g.member, g.fenced, g.quiet, g.closed
	g.mu.Unlock()
	switch {
	case closed:
		return nil, errGroupClosed
	case m != nil && m.alive():
		return m, nil
	case m != nil:
		m.stop()
	}
	if kafkaclient.Pause(ctx, time.Until(quiet)); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if left := time.Until(fenced.Add(g.truce)); !fenced.IsZero() && quiet.IsZero() && left > 0 {
		return nil, g.fencedFault(left)
	}
	if err := g.prepare(ctx, !fenced.IsZero()); err != nil {
		return nil, err
	}
	m, err := g.newMember()
	if err != nil {
		return nil, g.sink.fault(err, "")
	}
	g.mu.Lock()
	closed = g.closed
	if !closed {
		g.member = m
	}
	g.mu.Unlock()
	if closed {
		m.stop()
		return nil, errGroupClosed
	}
	return m, nil
}

// prepare looks whether the group can be joined. After this process lost its
// instance id it does not come back while another process uses it.
func (g *Group) prepare(ctx context.Context, fenced bool) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	client, err := g.sink.cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := g.findTopic(ctx, client); err != nil {
		return g.sink.explain(err, client)
	}
	members, err := g.sink.members(ctx, client)
	if err != nil {
		return g.sink.groupFault(err, client)
	}
	ours := func(m Member) bool { return m.InstanceID == g.sink.cfg.InstanceID }
	if fenced && slices.ContainsFunc(members, ours) {
		g.bar()
		return g.fencedFault(g.truce)
	}
	return nil
}

// findTopic makes sure that the checkpoint topic is there: the client would
// wait for it in silence.
func (g *Group) findTopic(ctx context.Context, client *kafkaclient.Client) error {
	find := client.Find
	if g.sink.cfg.CreateTopics {
		find = client.Describe
	}
	topics, err := find(ctx, g.sink.cfg.CheckpointTopic)
	if err == nil && !topics[0].Exists && g.sink.cfg.CreateTopics {
		if err = g.sink.ensureCheckpointTopic(ctx, client); err == nil {
			topics, err = client.Find(ctx, g.sink.cfg.CheckpointTopic)
		}
	}
	if err != nil {
		return err
	}
	return g.sink.cfg.CanCheckpoint(&topics[0])
}

// Close takes the stream away, waits for its Release as long as ctx allows,
// and leaves the group within a few seconds, so that another process has the
// stream at once. An Acquire that waits ends with an error.
func (g *Group) Close(ctx context.Context) error {
	g.mu.Lock()
	m := g.member
	g.member, g.closed = nil, true
	g.mu.Unlock()
	if m == nil {
		return nil
	}
	m.letGo(ctx)
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return m.leave(leaving)
}

// forget makes the next Acquire join anew.
func (g *Group) forget(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.member == m {
		g.member = nil
	}
}

// bar notes that another process has our instance id.
func (g *Group) bar() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced, g.quiet = time.Now(), time.Time{}
}

// suspect notes that somebody has our instance id.
func (g *Group) suspect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = time.Now()
	g.quiet = g.fenced.Add(g.haunted)
}

func (g *Group) fencedFault(left time.Duration) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "fenced_instance_id", RetryAfter: left,
		Hint: "give each process a BRIDGE_INSTANCE_ID of its own, such as the pod's name, or leave it empty; then restart this one",
		Err:  fmt.Errorf("group %s: another process has joined with our BRIDGE_INSTANCE_ID=%s; it is left alone", g.name, g.sink.cfg.InstanceID),
	}
}

// groupFault says how the engine is to treat an error of the stream's group.
func (s *Sink) groupFault(err error, client *kafkaclient.Client) *bridge.Fault {
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		return f
	}
	f := s.explain(err, client)
	block := func(reason bridge.Reason, hint string) {
		f.Class, f.Reason, f.Hint = bridge.Permanent, reason, hint
		f.Err = fmt.Errorf("group %s: %w", s.group(), err)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		block(bridge.ReasonAuth, s.groupACL())
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		block(bridge.ReasonOwner, foreignHint)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		block(bridge.ReasonConfig, fmt.Sprintf(
			"BRIDGE_SESSION_TIMEOUT=%s is outside what the brokers allow: group.min.session.timeout.ms (6s by default) to group.max.session.timeout.ms (30m)", s.cfg.SessionTimeout))
	case errors.Is(err, kerr.InvalidGroupID):
		block(bridge.ReasonConfig, "check BRIDGE_GROUP")
	case errors.Is(err, kerr.GroupMaxSizeReached):
		block(bridge.ReasonOwner, "more processes run the stream than the brokers' group.max.size allows")
	}
	return f
}

// groupACL lets us join the stream's group and look into it.
func (s *Sink) groupACL() string {
	if p := s.cfg.Part; p != nil { // each job has a group of its own
		return s.cfg.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group " + s.cfg.Group + "." + p.Stream + ".")
	}
	return s.cfg.Grant("--operation Read --operation Describe --group " + s.group())
}

// sendLeave takes a member out of the group. It is no error if it is not in
// there any more.
func (g *Group) sendLeave(ctx context.Context, id string) error {
	client, err := g.sink.cfg.Open()
	if err != nil {
		return fmt.Errorf("leave group %s: %w", g.name, err)
	}
	defer client.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = g.name, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID, m.Reason = id, g.sink.instanceID(), new("the process lets the stream go")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) > 0 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil && !isDeposed(err) {
		return fmt.Errorf("leave group %s: %w", g.name, err)
	}
	return nil
}

// instanceID returns the instance id, nil where there is none.
func (s *Sink) instanceID() *string {
	if s.cfg.InstanceID == "" {
		return nil
	}
	return new(s.cfg.InstanceID)
}

// isDeposed reports whether the coordinator says that a member is not in the
// group, or not any more with what it knows of it.
func isDeposed(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.FencedInstanceID)
}
