package kafkagroup_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkagroup/units"
)

// jobGroup is the own group of a job of a stream.
func (p *processes) jobGroup(stream, id string) *kafkagroup.Group {
	g := p.cfg
	g.Stream, g.GrantPrefix = stream+"."+id, p.cfg.Membership.Group+"."+stream+"."
	return &g
}

// lanes has a process run so many lanes of a job.
func (c *crew) lanes(g *kafkagroup.Group, n int) {
	c.b.t.Helper()
	for lane := range n {
		s := must.Get(c.seats[0].Fleet().Lane(g, lane))(c.b.t)
		c.seats = append(c.seats, s)
		c.stops = append(c.stops, c.b.follow(s, fmt.Sprint(g.Stream, "/", lane), c.name))
	}
}

// TestFleetSharesLanes: lanes run beside the streams, in each process as many as it has room
// for; others follow when some end. The job's own group outranks.
func TestFleetSharesLanes(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute) // which nothing waits for
	g := p.jobGroup("s0", "aaaaaa")
	p.cfg.Process = "pod-1"
	a := p.crew(b, "a", []string{"s0"})
	a.lanes(g, 8)
	b.want("a=4") // a stream and three lanes
	p.cfg.Process = "pod-2"
	second := p.crew(b, "b", []string{"s0", "s1"})
	second.lanes(g, 8)
	b.want("a=4 b=4")
	want := func(hosts, running int) {
		t.Helper()
		kafkatest.Eventually(t, "see the lanes", func() (bool, error) {
			cfg := p.cfg
			cfg.Stream = "s0"
			can, err := cfg.LaneHosts(t.Context())
			if err != nil {
				return false, err
			}
			run, err := g.Lanes(t.Context(), 8)
			run = slices.DeleteFunc(run, func(m bridge.Member) bool { return m == bridge.Member{} })
			return len(can) == hosts && len(run) == running, err
		})
	}
	want(2, 6)
	members, err := g.Members(t.Context())
	if err != nil || len(members) != 2 || !members[0].Owner || !members[1].Owner {
		t.Errorf("the job's processes are %+v, %v", members, err)
	}
	a.leave()
	b.want("b=5") // two streams and three lanes
	want(1, 3)

	o := g.Owner() // a terminal
	t.Cleanup(func() { closeGroup(t, o) })
	kafkatest.Receive(t, begin(t, o), "the job")
	b.want("b=2")
	closeGroup(t, o)
	b.want("b=5")
	other := p.jobGroup("s1", "bbbbbb")
	if run, err := other.Members(t.Context()); err != nil || len(run) > 0 {
		t.Errorf("another job has %v, %v", run, err)
	}
}

// TestLanesElsewhere: lanes that a fleet of another BRIDGE_GROUP runs are a rival of the job.
func TestLanesElsewhere(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute)
	p.crew(b, "a", []string{"s0"}).lanes(p.jobGroup("s0", "aaaaaa"), 2)
	b.want("a=3")
	p.cfg.Membership.Group += "-other"
	for job, want := range map[string]bool{"aaaaaa": true, "bbbbbb": false} {
		kafkatest.Eventually(t, fmt.Sprintf("see that job %s runs elsewhere: %t", job, want), func() (bool, error) {
			return p.jobGroup("s0", job).RunElsewhere(t.Context()) == want, nil
		})
	}
}

// TestManyLanes: the lanes leave room for the streams in what Kafka carries.
func TestManyLanes(t *testing.T) {
	t.Parallel()
	p := &processes{t: t, names: make(map[bridge.Owner]string)}
	p.cfg.Membership = kafkagroup.DefaultMembership()
	f, listed := p.cfg.Fleet(), 0
	for job := range 3 {
		for n := range bridge.MaxLanes {
			if _, err := f.Lane(p.jobGroup("events", fmt.Sprint("job", job)), n); err == nil {
				listed++
			} else if !errors.Is(err, kafkagroup.ErrManyLanes) {
				t.Fatal(err)
			}
		}
	}
	if listed != 512 {
		t.Errorf("%d lanes are listed", listed)
	}
}

// TestRecordFits: the lists and assignments of FleetMembers processes, each with as many
// streams and lanes as it may have, fit into the group's record.
func TestRecordFits(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 2, 32, 200} {
		cfg := kafkagroup.Membership{FleetMembers: members}
		o := units.Offer{Process: strings.Repeat("p", 128), Program: strings.Repeat("v", 128)}
		for _, name := range streamNames(cfg.MaxStreams()) {
			o.Claims = append(o.Claims, units.Claim{Unit: units.Stream(name)})
		}
		for n := range 512 {
			o.Claims = append(o.Claims, units.Claim{Unit: units.Lane("job", n)})
		}
		slices.SortFunc(o.Claims, func(a, b units.Claim) int { return cmp.Compare(a.Unit, b.Unit) })
		list := o.Append(nil)
		answer := units.Answer(list, &o, make([]bool, len(o.Claims)))
		answer.Generation, answer.Planned = math.MaxInt32, math.MaxInt32
		const addresses = 700 // member id, client id, host, topic and protocol
		if size := len(list) + len(answer.Append(nil)) + addresses; size*members > 1<<20 {
			t.Errorf("%d processes of %d streams need %d bytes each", members, cfg.MaxStreams(), size)
		}
	}
}

// TestLaneHostsDenied: a user who may not describe the group of the Fleet is told so, not that
// it has no processes.
func TestLaneHostsDenied(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	p := newProcesses(t, k.ListenAddrs(), staying)
	describeNone(k, kerr.GroupAuthorizationFailed)
	g := p.cfg
	g.Stream, g.OwnedBy = "s0", kafkagroup.OwnedByStream
	hosts, err := g.LaneHosts(t.Context())
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Reason != bridge.ReasonAuth || fault.Hint == "" {
		t.Errorf("the hosts are %v, %v", hosts, err)
	}
}
