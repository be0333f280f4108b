package kafkagroup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/conformance"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkagroup/units"
)

func TestFleetConformance(t *testing.T) {
	t.Parallel()
	testConformance(t, fleetFixture)
}

// TestFleetConformanceOnKafka is as TestOwnerConformanceOnKafka.
func TestFleetConformanceOnKafka(t *testing.T) { testConformanceOnKafka(t, fleetFixture) }

func fleetFixture(t *testing.T, brokers []string, session time.Duration) conformance.OwnerFixture {
	t.Helper()
	p := newProcesses(t, brokers, staying)
	p.cfg.SessionTimeout = session
	return conformance.OwnerFixture{
		Open:      func(instance string) bridge.Owner { return p.fleet(instance, p.cfg.Stream)[0] },
		Elsewhere: func() bridge.Owner { return p.elsewhere().fleet("", p.cfg.Stream)[0] },
		Stop: func(o bridge.Owner) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what is not released by now is lost
			s := o.(*kafkagroup.Seat)
			if err := errors.Join(s.Close(ctx), s.Fleet().Close(context.Background())); err != nil {
				t.Errorf("close: %v", err)
			}
		},
		Kill:  func(o bridge.Owner) { o.(*kafkagroup.Seat).Fleet().Kill() },
		Steer: p.steerFleet,
	}
}

// TestFleetConfirmsTheAssignment: a heartbeat that succeeds confirms no stream that the last
// assignment took away, whether or not its loss was noticed.
func TestFleetConfirmsTheAssignment(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	to := p.steerFleet()
	a, b := p.fleet("", p.cfg.Stream)[0], p.fleet("", p.cfg.Stream)[0]
	to(a)
	grant := kafkatest.Receive(t, begin(t, a), "the stream")
	must.Do(t, kafkagroup.Answer(grant))
	begin(t, b)
	to(b)
	kafkatest.Receive(t, grant.Lost(), "the loss")
	must.Be(t, kafkagroup.Answer(grant), bridge.ErrNotOwner)
	must.Be(t, grant.Confirm(t.Context()), bridge.ErrNotOwner)
	grant.Release()
}

// fleet starts a process with these streams. Those that are left at the end of the test
// leave.
func (p *processes) fleet(instance string, streams ...string) []*kafkagroup.Seat {
	p.t.Helper()
	cfg := p.cfg
	cfg.OwnedBy = kafkagroup.OwnedByGroup
	cfg.InstanceID = instance
	cfg.ClientID = fmt.Sprint("process", len(p.names)+1)
	cfg.LaneCapacity = 3
	f := cfg.Fleet()
	f.StaleAfter(500 * time.Millisecond)
	f.LookEvery(300 * time.Millisecond)
	var seats []*kafkagroup.Seat
	for _, stream := range streams {
		cfg.Stream = stream
		s := must.Get(f.Owner(&cfg))(p.t)
		p.names[s] = cfg.ClientID
		seats = append(seats, s)
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // wait for no release
		for _, s := range seats {
			if err := s.Close(ctx); err != nil {
				p.t.Errorf("close: %v", err)
			}
		}
		if err := f.Close(context.Background()); err != nil {
			p.t.Errorf("leave: %v", err)
		}
	})
	return seats
}

// steerFleet has a member of the test, which runs nothing, decide who gets the stream.
func (p *processes) steerFleet() func(to bridge.Owner) {
	p.t.Helper()
	l := new(leader)
	client := p.lead(l)
	return func(to bridge.Owner) {
		l.mu.Lock()
		l.target = p.names[to] + "-"
		l.mu.Unlock()
		client.ForceRebalance()
	}
}

// lead joins the group of the fleet as a client that is not a bridge.
func (p *processes) lead(b kgo.GroupBalancer) *kgo.Client {
	p.t.Helper()
	cfg := p.cfg
	cfg.Stream = "FLEET"
	client := consumer(p.t, cfg, kgo.ConsumeTopics(p.cfg.CheckpointTopic), kgo.Balancers(b))
	kafkatest.Eventually(p.t, "have the test lead the group", func() (bool, error) {
		_, generation := client.GroupMetadata()
		return generation > 0, nil
	})
	return client
}

// leader leaves the stream where it is until told.
type leader struct {
	mu     sync.Mutex // guards target
	target string     // prefix of a member id
	twist  func(*units.Assignment)
	raw    []byte // instead of an assignment
}

func (l *leader) ProtocolName() string { return kafkagroup.UnitsProtocol }
func (l *leader) IsCooperative() bool  { return true }

func (l *leader) JoinGroupMetadata(topics []string, _ map[string][]int32, _ int32) []byte {
	c := kmsg.NewConsumerMemberMetadata()
	c.Topics, c.UserData = topics, new(units.Member).Offer()
	return c.AppendTo(nil)
}

func (l *leader) ParseSyncAssignment([]byte) (map[string][]int32, error) { return nil, nil }

func (l *leader) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	return steered{l, members}, map[string]struct{}{}, nil
}

type steered struct {
	*leader
	members []kmsg.JoinGroupResponseMember
}

func (s steered) Balance(map[string]int32) kgo.IntoSyncAssignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	offers, encoded := make([]units.Offer, len(s.members)), make([][]byte, len(s.members))
	for i := range s.members {
		var c kmsg.ConsumerMemberMetadata
		if c.ReadFrom(s.members[i].ProtocolMetadata) == nil {
			encoded[i] = c.UserData
			offers[i], _ = units.DecodeOffer(c.UserData)
		}
	}
	best, holder := s.choose(offers)
	var all answers
	for i := range s.members {
		given := make([]bool, len(offers[i].Claims))
		for j, c := range offers[i].Claims {
			given[j] = i == best && (holder < 0 || holder == i && c.State == units.Held)
		}
		a := units.Answer(encoded[i], &offers[i], given)
		if s.twist != nil {
			s.twist(&a)
		}
		c := kmsg.NewConsumerMemberAssignment()
		if c.UserData = a.Append(nil); s.raw != nil {
			c.UserData = s.raw
		}
		sync := kmsg.NewSyncGroupRequestGroupAssignment()
		sync.MemberID, sync.MemberAssignment = s.members[i].MemberID, c.AppendTo(nil)
		all = append(all, sync)
	}
	return all
}

// choose returns who is to have the stream, and who has it: the target of the test, else
// who has it, else anybody.
func (s steered) choose(offers []units.Offer) (best, holder int) {
	best, holder = -1, -1
	rank := 0
	for i := range offers {
		for _, claim := range offers[i].Claims {
			now := 1
			switch {
			case claim.State == units.Declined:
				continue
			case claim.State != units.Can:
				holder, now = i, 2
			}
			if s.target != "" && strings.HasPrefix(s.members[i].MemberID, s.target) {
				now = 3
			}
			if now > rank {
				best, rank = i, now
			}
		}
	}
	return best, holder
}

type answers []kmsg.SyncGroupRequestGroupAssignment

func (a answers) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return a }

// TestOverviewOfARebalance: while a member hides its list, nobody knows who runs a stream.
func TestOverviewOfARebalance(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	p.lead(kgo.CooperativeStickyBalancer()) // its list cannot be read
	var o kafkagroup.Overview
	kafkatest.Eventually(t, "see the member", func() (bool, error) {
		o = must.Get(p.cfg.Overview(t.Context(), []*kafkagroup.Group{&p.cfg}))(t)
		return len(o.Processes) == 1, nil
	})
	if !o.Processes[0].Unknown || !strings.Contains(o.Streams[0].Error, "is rebalancing") {
		t.Errorf("%+v", o)
	}
}
