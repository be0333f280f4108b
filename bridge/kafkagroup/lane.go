package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup/units"
)

// listedLanes bounds the number of lanes, of all jobs, that a process lists. They take
// about 3 KB of memberBytes.
const listedLanes = 512

// ErrManyLanes means that this process lists the maximum number of lanes.
var ErrManyLanes = errors.New("the process lists too many lanes of jobs")

// Lane returns the bridge.Owner of lane n of a job. g is the job's own group, which takes
// precedence: while it has members, the lane waits. The caller closes the Seat.
func (f *Fleet) Lane(g *Group, n int) (*Seat, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lanes >= listedLanes {
		return nil, ErrManyLanes
	}
	s := f.seatOf(g, units.Lane(g.Stream, n))
	_ = s.sit() // if this fails, Acquire retries it
	return s, nil
}

// lanes returns the units of a job's lanes.
func (g *Group) lanes(n int) []units.Unit {
	all := make([]units.Unit, n)
	for i := range all {
		all[i] = units.Lane(g.Stream, i)
	}
	return all
}

// Lanes returns the processes of a Fleet that run the first n lanes of a job, a zero Member
// for a lane without a process. g is the job's own group. Errors are those of Members.
func (g *Group) Lanes(ctx context.Context, n int) ([]bridge.Member, error) {
	running := make([]bridge.Member, n)
	err := g.askFleet(ctx, func(all []listed) {
		for lane, u := range g.lanes(n) {
			for i := range all {
				if at, lists := all[i].claim(u); lists && all[i].owns(at) {
					running[lane] = all[i].Member
				}
			}
		}
	})
	return running, err
}

// LaneHosts returns the processes of a Fleet that can run lanes of jobs of g's stream.
// During a rebalance it waits. If there are no processes then, the error is a Transient
// Fault.
func (g *Group) LaneHosts(ctx context.Context) ([]bridge.Member, error) {
	var hosts []bridge.Member
	unknown := false
	err := g.askFleet(ctx, func(all []listed) {
		for i := range all {
			unknown = unknown || all[i].unknown
			if _, lists := all[i].claim(units.Stream(g.Stream)); lists && all[i].offer.Capacity > 0 {
				hosts = append(hosts, all[i].Member)
			}
		}
	})
	if err == nil && unknown && len(hosts) == 0 {
		err = &bridge.Fault{Class: bridge.Transient, Reason: bridge.ReasonOwner, Err: g.rebalancing()}
	}
	return hosts, err
}

// rebalancing says why a member's data cannot be read.
func (g *Group) rebalancing() error {
	return fmt.Errorf("group %s is rebalancing: what its processes can run is unknown", g.fleetName())
}

// askFleet calls read with the members of the Fleet. It waits for the end of a rebalance,
// which hides the lists of the members. A user who may not describe the group of the Fleet
// does not know whether it exists, so askFleet returns an error.
func (g *Group) askFleet(ctx context.Context, read func([]listed)) error {
	client, err := g.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	until := time.Now().Add(probeTimeout)
	for {
		all, err := membersOf(asking, client, g.fleetName())
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kerr.GroupAuthorizationFailed):
			return g.hidden(err, client)
		case err != nil:
			return g.fault(err, client)
		case !slices.ContainsFunc(all, func(l listed) bool { return l.unknown }), time.Now().After(until):
			read(all)
			return nil
		}
		bridge.Sleep(asking, coordinatorRetry)
	}
}
