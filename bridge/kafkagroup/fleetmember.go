package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup/units"
)

// unitsProtocol is the name of the balancer. A version that cannot balance with this one
// offers both names, and the members use a name that all of them know.
const unitsProtocol = "exportbridge-units-1"

// fleetMember is one membership of a Fleet: one client, from joining to leaving. It is the
// balancer and a hook of the client, whose goroutine must not wait in these methods.
type fleetMember struct {
	fleet *Fleet
	// ctx is the context of the client. It ends when this process gives up the membership.
	ctx  context.Context
	kill context.CancelFunc

	// Guarded by fleet.mu.
	client     *kafkaclient.Client
	id         string // member id of the last assignment
	generation int32
	applied    chan struct{} // closed and replaced with each assignment
	contact    time.Time     // when the coordinator last answered
	away       bool          // the coordinator does not answer
	fenced     bool          // another member has taken over the instance id
	err        error         // why the membership ends
}

var _ kgo.GroupBalancer = (*fleetMember)(nil)

func (f *Fleet) newFleetMember() (*fleetMember, error) {
	ctx, kill := context.WithCancel(f.ctx)
	m := &fleetMember{fleet: f, ctx: ctx, kill: kill, applied: make(chan struct{})}
	f.mu.Lock() // the client's goroutine can call m before join returns
	defer f.mu.Unlock()
	client, err := f.join(ctx, kgo.WithHooks(m), kgo.Balancers(m)) // the balancer assigns no partition
	if err != nil {
		kill()
		return nil, err
	}
	m.client, f.member, f.last = client, m, m
	return m, nil
}

// ProtocolName implements kgo.GroupBalancer.
func (m *fleetMember) ProtocolName() string { return unitsProtocol }

// IsCooperative implements kgo.GroupBalancer: streams that do not move continue during a
// rebalance.
func (m *fleetMember) IsCooperative() bool { return true }

// JoinGroupMetadata implements kgo.GroupBalancer.
func (m *fleetMember) JoinGroupMetadata(topics []string, _ map[string][]int32, _ int32) []byte {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, _ := m.client.GroupMetadata(); m.id != "" && id != m.id {
		f.lapse() // the coordinator dropped this member: other processes may have owned the streams
	}
	c := kmsg.NewConsumerMemberMetadata()
	c.Topics, c.UserData = topics, f.state.Offer()
	f.force = false
	f.unheard = append(f.unheard, f.unsaid...)
	f.unsaid = nil
	return c.AppendTo(nil)
}

// ParseSyncAssignment implements kgo.GroupBalancer. It applies the assignment.
func (m *fleetMember) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	if len(assignment) == 0 { // the leader does not know this member yet
		m.apply(units.Assignment{})
		return nil, nil //nolint:nilnil // no partitions, as always
	}
	a, err := readAssignment(assignment)
	if err != nil {
		return nil, m.fleet.group.foreign(fmt.Sprintf("the leader's assignment: %v", err))
	}
	m.apply(a)
	return nil, nil //nolint:nilnil // no partitions, as always
}

func (m *fleetMember) apply(a units.Assignment) {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	m.id, m.generation = m.client.GroupMetadata()
	m.contact, m.away = time.Now(), false
	out := f.state.Apply(a, m.generation)
	close(m.applied)
	m.applied = make(chan struct{})
	if out.Stale {
		f.force = true
		f.stales++
		after := rejoinDelay
		if f.stales > 1 {
			after = min(staleDelay<<min(f.stales-2, 8), maxStaleDelay)
		}
		f.soon(after)
		return
	}
	f.stales = 0
	for _, u := range out.Start {
		s := f.seats[u]
		s.cleared, s.looked, s.problem = false, false, nil
	}
	for _, u := range out.Stop {
		f.seats[u].stop()
	}
	for _, t := range f.unheard {
		close(t.ended)
	}
	f.unheard = nil
	if f.force = out.Old; f.force || f.state.Changed() {
		f.changed()
	}
	f.wakeRun()
	f.wakeSeats()
}

// OnBrokerE2E is a hook of the client.
func (m *fleetMember) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == kmsg.Heartbeat.Int16() && e2e.Err() == nil {
		m.fleet.mu.Lock()
		defer m.fleet.mu.Unlock()
		m.contact = time.Now()
	}
}

// OnGroupManageError is a hook of the client, which retries with its member id unless it is
// stopped. While the coordinator is unreachable, the streams stay assigned for a session
// timeout.
func (m *fleetMember) OnGroupManageError(err error) {
	if m.ctx.Err() != nil {
		return
	}
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		f.suspectConflict()
		m.fenced, m.err = true, fmt.Errorf("group %s: %w", f.name, errInstanceIDConflict)
		m.kill()
		return
	case isNotMember(err):
		f.lapse()
	default:
		m.away = true
	}
	if m.err = f.group.fault(err, m.client); kafkaclient.IsPermanent(m.err) {
		m.kill()
		return
	}
	f.reported(m.err)
	f.wakeRun()
}

// session returns the remaining time of the session, and whether the coordinator is
// unreachable. The caller holds fleet.mu.
func (m *fleetMember) session() (left time.Duration, away bool) {
	return m.fleet.group.SessionTimeout - time.Since(m.contact), m.away
}

// MemberBalancer implements kgo.GroupBalancer. A member with unreadable data gets no
// streams: other members may run those that it lists.
func (m *fleetMember) MemberBalancer(
	members []kmsg.JoinGroupResponseMember,
) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	p := &fleetPlan{members: members, offers: make([]units.Offer, len(members)), encoded: make([][]byte, len(members))}
	m.fleet.mu.Lock()
	_, p.generation = m.client.GroupMetadata()
	m.fleet.mu.Unlock()
	for i := range members {
		offer, encoded, err := readOffer(members[i].ProtocolMetadata)
		if err != nil {
			offer = units.Offer{Generation: -1}
			if log := m.fleet.group.Log; log != nil {
				log.Warn("a member of the consumer group gets no streams", "group", m.fleet.name,
					"member", members[i].MemberID, "error", err.Error())
			}
		}
		p.offers[i], p.encoded[i] = offer, encoded
	}
	return p, map[string]struct{}{m.fleet.group.CheckpointTopic: {}}, nil
}

// readOffer returns the offer in a member's metadata.
func readOffer(metadata []byte) (o units.Offer, encoded []byte, err error) {
	var c kmsg.ConsumerMemberMetadata
	if err := c.ReadFrom(metadata); err != nil {
		return o, nil, fmt.Errorf("read the metadata: %w", err)
	}
	o, err = units.DecodeOffer(c.UserData)
	return o, c.UserData, err
}

func readAssignment(assignment []byte) (units.Assignment, error) {
	var c kmsg.ConsumerMemberAssignment
	if err := c.ReadFrom(assignment); err != nil {
		return units.Assignment{}, fmt.Errorf("read the assignment: %w", err)
	}
	return units.DecodeAssignment(c.UserData)
}

// fleetPlan is the leader's plan for the offers of all members.
type fleetPlan struct {
	members    []kmsg.JoinGroupResponseMember
	offers     []units.Offer
	encoded    [][]byte
	generation int32
}

// Balance implements kgo.GroupMemberBalancer.
func (p *fleetPlan) Balance(map[string]int32) kgo.IntoSyncAssignment {
	all := make(assignments, len(p.members))
	for i, given := range units.Plan(p.offers) {
		a := units.Answer(p.encoded[i], &p.offers[i], given)
		a.Generation, a.Planned = p.generation, time.Now().Unix()
		c := kmsg.NewConsumerMemberAssignment()
		c.UserData = a.Append(nil)
		all[i] = kmsg.NewSyncGroupRequestGroupAssignment()
		all[i].MemberID, all[i].MemberAssignment = p.members[i].MemberID, c.AppendTo(nil)
	}
	return all
}

type assignments []kmsg.SyncGroupRequestGroupAssignment

// IntoSyncAssignment implements kgo.IntoSyncAssignment.
func (a assignments) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return a }

// ended returns why the membership ended.
func (m *fleetMember) ended() error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	return m.err
}

// stop closes the client without leaving the group. It may be called more than once,
// but not from the client's own goroutine.
func (m *fleetMember) stop() {
	m.kill()
	m.client.Close()
}

// leave ends the membership at the coordinator.
func (m *fleetMember) leave(ctx context.Context) error {
	m.stop()
	id, _ := m.client.GroupMetadata()
	if m.fleet.mu.Lock(); m.fenced {
		id = "" // another process has the instance id now
	}
	m.fleet.mu.Unlock()
	if id == "" {
		return nil
	}
	return m.fleet.sendLeave(ctx, id)
}

// ask is a call of Confirm.
type ask struct {
	tenure *tenure
	done   chan error // has room for the answer
}

// answer answers calls of Confirm with one heartbeat and one look at the groups of the
// single streams.
func (m *fleetMember) answer(asks []*ask) {
	seats, unknown := make([]*Seat, len(asks)), make([]error, len(asks))
	for i, a := range asks {
		seats[i] = a.tenure.seat
	}
	err := m.heartbeat()
	if err == nil {
		unknown = m.look(seats)
	}
	for i, a := range asks {
		switch {
		case err != nil:
			a.done <- err
		case unknown[i] != nil:
			a.done <- unknown[i]
		case a.tenure.current():
			a.done <- nil
		default:
			a.done <- bridge.ErrNotOwner
		}
	}
}

// heartbeat checks that this process is a member of the assignment's generation. During a
// rebalance the streams stay assigned.
func (m *fleetMember) heartbeat() error {
	ctx, cancel := context.WithTimeout(m.ctx, probeTimeout)
	defer cancel()
	for {
		m.fleet.mu.Lock()
		id, generation, applied := m.id, m.generation, m.applied
		m.fleet.mu.Unlock()
		err := m.fleet.beat(ctx, m.client, id, generation)
		switch {
		case err == nil || errors.Is(err, kerr.RebalanceInProgress):
			return nil
		case errors.Is(err, kerr.IllegalGeneration) && closedWithin(ctx, maxHeartbeatInterval, applied):
			// The coordinator knows a new generation a little earlier than the member.
		case isNotMember(err):
			return fmt.Errorf("%w: %w", bridge.ErrNotOwner, err)
		default:
			return fmt.Errorf("heartbeat to group %s: %w", m.fleet.name, err)
		}
	}
}

// closedWithin waits until a channel is closed, for at most a duration and until ctx ends.
// It reports whether the channel is closed.
func closedWithin(ctx context.Context, most time.Duration, c <-chan struct{}) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// look checks whether the groups of single streams have members. A stream whose group has
// none is cleared. If the group has members, the stream is lost. It stays assigned to this
// process, because any other process would find the same. look returns a Fault for each
// group that it could not read.
func (m *fleetMember) look(seats []*Seat) []error {
	ctx, cancel := context.WithTimeout(m.ctx, probeTimeout)
	defer cancel()
	groups := make([]*Group, len(seats))
	for i, s := range seats {
		groups[i] = &s.group
	}
	found := singleGroups(ctx, m.client, groups)
	unknown := make([]error, len(seats))
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	for i, s := range seats {
		if err := found[i].err; err != nil {
			unknown[i] = s.group.fault(err, m.client)
			continue
		}
		s.clear(found[i].member)
		poke(s.wake)
	}
	return unknown
}

// probe looks up the owners of the streams that this process waits for.
func (m *fleetMember) probe() error {
	ctx, cancel := context.WithTimeout(m.ctx, probeTimeout)
	defer cancel()
	// Only a poll returns the client's errors.
	polled, done := context.WithCancel(ctx)
	done()
	m.client.PollFetches(polled)

	f := m.fleet
	listed, err := f.group.fleet(ctx, m.client)
	if m.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return f.group.fault(err, m.client)
	}
	owners := make(map[units.Unit]string)
	for i := range listed {
		for n, c := range listed[i].offer.Claims {
			if listed[i].owns(n) {
				owners[c.Unit] = listed[i].String()
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners = owners
	return nil
}
