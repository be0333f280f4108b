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

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// member is one membership of this process in the stream's group: one client, from joining
// to leaving. The client's goroutine calls the on... methods one after the other.
type member struct {
	owner  *Owner
	client *kafkaclient.Client
	// ctx is the context of the client. It ends when this process gives up the membership.
	ctx  context.Context
	kill context.CancelFunc

	mu sync.Mutex // guards all below; never held while waiting
	// assigned is set while the coordinator assigns the stream to this member.
	assigned  bool
	ownership *ownership // nil while the stream is not owned, or is being released
	// revoked is an ownership that a rebalance has revoked. It ends when this member has
	// rejoined without the stream.
	revoked *ownership
	// fenced is set if another member has taken over the instance id.
	fenced       bool
	err          error         // the error that ended the last session of the group
	currentOwner string        // the owner of the stream as of the last lookup; empty if that failed
	changed      chan struct{} // closed and replaced whenever a field above changes
}

func (o *Owner) newMember() (*member, error) {
	ctx, kill := context.WithCancel(context.Background())
	m := &member{owner: o, ctx: ctx, kill: kill, changed: make(chan struct{})}
	m.mu.Lock() // the client's goroutine can call m before join returns
	client, err := o.join(ctx,
		kgo.WithHooks(m),
		kgo.Balancers(named{kgo.CooperativeStickyBalancer(), o.group.Process}),
		kgo.ConsumeStartOffset(kgo.NewOffset().At(0)), // any offset that needs no lookup
		kgo.OnPartitionsAssigned(m.onAssigned),
		kgo.OnPartitionsRevoked(m.onRevoked),
		kgo.OnPartitionsLost(m.onLost),
	)
	m.client = client
	m.mu.Unlock()
	if err != nil {
		kill()
		return nil, err
	}
	return m, nil
}

func (m *member) alive() bool { return m.ctx.Err() == nil }

// wait waits for ownership of the stream. After any error other than that of ctx, the
// membership is useless.
func (m *member) wait(ctx context.Context) (*ownership, error) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		t, changed, err := m.state()
		switch {
		case t != nil:
			return t, nil
		case err != nil && (kafkaclient.IsPermanent(err) || errors.Is(err, errInstanceIDConflict)):
			return nil, err
		case !m.alive():
			return nil, fmt.Errorf("group %s: membership ended", m.owner.name)
		case err != nil:
			m.owner.group.Tell(err) // the client itself retries
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
		case <-ctx.Done():
			return nil, m.whyWaiting()
		case <-tick.C:
			if err := m.probe(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// state returns the ownership, if there is one, which the caller then has to release. It
// also returns a channel that the next change closes, and the client's last unreported
// error.
func (m *member) state() (*ownership, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.err
	if !kafkaclient.IsPermanent(err) {
		m.err = nil
	}
	if m.ownership != nil {
		m.ownership.handed = true
	}
	return m.ownership, m.changed, err
}

// probe describes the group, and reports the health of the coordinator. Its error is
// Permanent.
func (m *member) probe(ctx context.Context) error {
	// Only a poll returns the client's errors.
	polled, cancel := context.WithCancel(ctx)
	cancel()
	m.client.PollFetches(polled)

	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	members, err := m.owner.group.members(asking, m.client)
	if ctx.Err() != nil || !m.alive() {
		return nil
	}
	if err != nil {
		fault := m.owner.group.fault(err, m.client)
		if fault.Class == bridge.Permanent {
			return fault
		}
		m.owner.group.Tell(fault)
	} else {
		m.owner.group.Tell(nil)
	}
	holder := ""
	if i := slices.IndexFunc(members, func(m bridge.Member) bool { return m.Owner }); i >= 0 {
		holder = members[i].String()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.currentOwner = holder
	return nil
}

func (m *member) whyWaiting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.currentOwner != "" {
		return fmt.Errorf("owned by %s: %w", m.currentOwner, bridge.ErrNotOwner)
	}
	if cause := m.client.Trouble(); cause != nil {
		return m.client.Explain(cause, m.owner.group.CheckpointTopic)
	}
	return fmt.Errorf("group %s: not assigned yet", m.owner.name)
}

// signal announces a change. The caller holds mu.
func (m *member) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// onAssigned is called at the start of every session of the group, even if nothing changes
// for this member.
func (m *member) onAssigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	client.PauseFetchTopics(m.owner.group.CheckpointTopic) // in time: the client fetches only after this function
	id, generation := client.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revoked != nil && m.revoked.until != generation {
		m.revoked.end() // all members have rejoined, this one without the stream
		m.revoked = nil
	}
	if m.ownership != nil && m.ownership.id != id {
		// The coordinator had dropped this member, and another process may have owned the
		// stream in the meantime.
		m.lose()
	}
	if m.concerns(added) {
		m.assigned = true
	}
	if m.assigned && m.ownership == nil {
		m.ownership = newOwnership(m, id)
	}
	m.err = nil
	m.signal()
}

// onRevoked is called when the stream moves to another process. The group waits until
// onRevoked returns.
func (m *member) onRevoked(_ context.Context, client *kgo.Client, revoked map[string][]int32) {
	if !m.concerns(revoked) {
		return
	}
	_, generation := client.GroupMetadata()
	m.mu.Lock()
	m.assigned = false
	t := m.revoke()
	if t != nil {
		t.until = generation
	}
	m.mu.Unlock()
	if t == nil {
		return
	}
	closedWithin(m.ctx, m.owner.releaseWait, t.released)
}

// onLost is called when the coordinator has dropped this member, or was unreachable for a
// session timeout.
func (m *member) onLost(context.Context, *kgo.Client, map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = false
	m.lose()
	m.signal()
}

// OnGroupManageError is a hook of the client, which retries with its member id unless it is
// stopped.
func (m *member) OnGroupManageError(err error) {
	if !m.alive() {
		return
	}
	m.mu.Lock()
	client := m.client
	m.mu.Unlock()
	fenced := errors.Is(err, kerr.FencedInstanceID)
	if fenced {
		m.owner.suspectConflict()
		err = fmt.Errorf("group %s: %w", m.owner.name, errInstanceIDConflict)
	} else {
		err = m.owner.group.fault(err, client)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.fenced = err, fenced
	if fenced || kafkaclient.IsPermanent(err) {
		m.kill()
	}
	m.signal()
}

// concerns reports whether the partitions include that of the stream.
func (m *member) concerns(partitions map[string][]int32) bool {
	return slices.Contains(partitions[m.owner.group.CheckpointTopic], m.owner.partition)
}

// revoke ends the ownership and returns it, nil if there is none to release. The caller
// holds mu.
func (m *member) revoke() *ownership {
	t := m.ownership
	m.ownership = nil
	if t == nil {
		return nil
	}
	close(t.lost)
	if !t.handed {
		t.end()
		return nil
	}
	m.revoked = t
	return t
}

// lose ends the ownership at once. The caller holds mu.
func (m *member) lose() {
	m.revoke()
	if m.revoked != nil {
		m.revoked.end()
		m.revoked = nil
	}
}

// awaitRelease revokes the stream and waits for its release.
func (m *member) awaitRelease(ctx context.Context) {
	m.mu.Lock()
	t := m.revoke()
	if t == nil {
		t = m.revoked
	}
	m.mu.Unlock()
	if t == nil {
		return
	}
	select {
	case <-t.released:
	case <-ctx.Done():
	}
}

// release is the member's part of ownership.Release.
func (m *member) release(t *ownership) {
	m.mu.Lock()
	free := m.ownership == t
	m.mu.Unlock()
	if free {
		// No rebalance waits for this release, so only leaving the group frees the stream.
		m.quit()
		return
	}
	closedWithin(m.owner.patience, releaseTimeout, t.ended)
	if !m.alive() {
		m.stop()
	}
}

// quit ends the membership. The next Acquire starts a new one.
func (m *member) quit() {
	m.owner.forget(m)
	ctx, cancel := context.WithTimeout(m.owner.patience, releaseTimeout)
	defer cancel()
	if err := m.leave(ctx); err != nil && m.owner.group.Log != nil {
		m.owner.group.Log.Warn("leaving the consumer group failed; the stream moves when the session times out",
			"error", err.Error())
	}
}

// leave removes this member from the group. The client does not do that for a static
// member, nor while it waits for other members to join.
func (m *member) leave(ctx context.Context) error {
	id, _ := m.client.GroupMetadata()
	m.stop()
	m.mu.Lock()
	fenced := m.fenced
	m.mu.Unlock()
	var err error
	if id != "" && !fenced { // another process has the instance id now
		err = m.owner.sendLeave(ctx, id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lose()
	return err
}

// stop closes the client without leaving the group. It may be called more than
// once, but not from the client's own goroutine.
func (m *member) stop() {
	m.kill()
	m.client.Close()
}

// ownership is a period in which this process owns the stream.
type ownership struct {
	member *member
	id     string // member id at the time of the assignment
	handed bool   // Acquire has returned this ownership; guarded by member.mu
	until  int32  // generation of the group that revoked the stream; guarded by member.mu
	// lost is closed by the holder of member.mu, released by Release, and ended when other
	// processes can own the stream.
	lost, released, ended chan struct{}
	releasing, ending     sync.Once
}

func newOwnership(m *member, id string) *ownership {
	return &ownership{
		member: m, id: id,
		lost: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{}),
	}
}

func (o *ownership) end() { o.ending.Do(func() { close(o.ended) }) }

// Lost implements bridge.Ownership. The group waits at most 20 seconds for a Release. It
// does not wait if another process already owns the stream.
func (o *ownership) Lost() <-chan struct{} { return o.lost }

// Shared implements bridge.Ownership. It reports whether the group has other members.
func (o *ownership) Shared(ctx context.Context) bool {
	members, err := o.member.owner.group.members(ctx, o.member.client)
	return err == nil && len(members) > 1
}

// Rival implements bridge.Ownership. It returns a group of another BRIDGE_GROUP.
func (o *ownership) Rival(ctx context.Context) (string, error) {
	return o.member.owner.group.rival(ctx, o.member.client)
}

// Release implements bridge.Ownership.
func (o *ownership) Release() {
	o.releasing.Do(func() {
		close(o.released)
		o.member.release(o)
	})
}

// Confirm implements bridge.Ownership by a heartbeat. During a rebalance the stream stays
// assigned.
func (o *ownership) Confirm(ctx context.Context) error {
	m := o.member
	for {
		id, generation, changed := o.membership()
		if id != o.id {
			return fmt.Errorf("stream %s: %w", m.owner.group.Stream, bridge.ErrNotOwner)
		}
		err := m.owner.beat(ctx, m.client, id, generation)
		switch {
		case err == nil || errors.Is(err, kerr.RebalanceInProgress):
			if id, _, _ = o.membership(); id != o.id {
				continue // the stream was lost during the request
			}
			return nil
		case errors.Is(err, kerr.IllegalGeneration) && o.renewed(ctx, generation, changed):
			continue // the group has just changed, and this process is a member
		case isNotMember(err):
			return fmt.Errorf("stream %s: %w: %w", m.owner.group.Stream, bridge.ErrNotOwner, err)
		default:
			return fmt.Errorf("heartbeat to group %s: %w", m.owner.name, err)
		}
	}
}

// membership returns the client's membership. The id is empty if the stream is no longer
// owned.
func (o *ownership) membership() (id string, generation int32, changed <-chan struct{}) {
	m := o.member
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ownership != o {
		return "", -1, nil
	}
	id, generation = m.client.GroupMetadata()
	return id, generation, m.changed
}

// renewed waits briefly until the client knows another generation, which the coordinator
// knows a little earlier. It reports whether the client does.
func (o *ownership) renewed(ctx context.Context, generation int32, changed <-chan struct{}) bool {
	timer := time.NewTimer(maxHeartbeatInterval)
	defer timer.Stop()
	select {
	case <-changed:
	case <-o.lost:
	case <-timer.C:
	case <-ctx.Done():
	}
	_, now, _ := o.membership()
	return now != generation
}
