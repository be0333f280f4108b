package kafkagroup_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
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
