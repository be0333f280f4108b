package kafkagroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup/units"
)

// listed is a member of a Fleet's group.
type listed struct {
	bridge.Member
	id    string
	offer units.Offer
	given []bool // the assigned claims; nil if they are not known
	// generation and planned are those of units.Assignment.
	generation int32
	planned    int64
	// unknown is set if the member's data cannot be read, as during a rebalance.
	unknown bool
}

// claim returns the number of the claim of a unit, and whether the member lists the unit.
func (l *listed) claim(u units.Unit) (i int, lists bool) {
	byUnit := func(c units.Claim, u units.Unit) int { return cmp.Compare(c.Unit, u) }
	return slices.BinarySearchFunc(l.offer.Claims, u, byUnit)
}

// owns reports whether the member runs the unit of claim number i.
func (l *listed) owns(i int) bool {
	state := l.offer.Claims[i].State
	return state == units.Held || state == units.Releasing || l.given != nil && l.given[i]
}

// wants reports whether the member offers to run a unit.
func (l *listed) wants(u units.Unit) bool {
	i, lists := l.claim(u)
	return lists && l.offer.Claims[i].State != units.Declined
}

// fleetName returns the name of the group of all processes with the same BRIDGE_GROUP.
func (g *Group) fleetName() string { return g.Group + "." + fleetStream }

// fleet returns the members of the group of all processes with this BRIDGE_GROUP.
func (g *Group) fleet(ctx context.Context, client *kafkaclient.Client) ([]listed, error) {
	all, err := membersOf(ctx, client, g.fleetName())
	switch {
	case !errors.Is(err, kerr.GroupAuthorizationFailed):
		return all, err
	case g.OwnedBy != OwnedByGroup:
		return nil, nil // this user may not use a Fleet
	}
	return nil, g.hidden(err, client)
}

// hidden returns the Fault of a user who may not describe the group of the Fleet.
func (g *Group) hidden(err error, client *kafkaclient.Client) *bridge.Fault {
	fault := g.fault(err, client)
	fault.Hint = g.Grant("--operation Describe --group " + g.fleetName())
	return fault
}

// membersOf returns the members of the group of a Fleet.
func membersOf(ctx context.Context, client *kafkaclient.Client, name string) ([]listed, error) {
	found, err := describeGroup(ctx, client, name)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("describe group %s: %w", name, err)
	}
	all := make([]listed, len(found.Members))
	for i := range found.Members {
		m := &found.Members[i]
		offer, _, err := readOffer(m.ProtocolMetadata)
		all[i] = listed{id: m.MemberID, offer: offer, unknown: err != nil}
		all[i].Member = memberOf(m, safeName([]byte(offer.Process)))
		if a, err := readAssignment(m.MemberAssignment); err == nil {
			all[i].generation, all[i].planned = a.Generation, a.Planned
			all[i].given, _ = a.For(&offer)
		}
	}
	return all, nil
}

// among returns the members of a Fleet that list the stream, or that run lanes of the job. It
// includes those whose data cannot be read.
func (g *Group) among(all []listed) (members []bridge.Member) {
	ours := []units.Unit{units.Stream(g.Stream)}
	if g.ofJob() {
		ours = g.lanes(bridge.MaxLanes)
	}
	for i := range all {
		counts := all[i].unknown
		for _, u := range ours {
			at, lists := all[i].claim(u)
			owns := lists && all[i].owns(at)
			all[i].Owner = all[i].Owner || owns
			counts = counts || owns || lists && !g.ofJob()
		}
		if counts {
			members = append(members, all[i].Member)
		}
	}
	return members
}

// single is the state of the group of a single stream.
type single struct {
	member string // one of its members, or empty
	err    error
}

// singleGroups requests which groups of single streams have members. Several of the groups
// may be the same one. A group whose coordinator is away, or that this user may not
// describe, hides no other group.
func singleGroups(ctx context.Context, client *kafkaclient.Client, groups []*Group) []single {
	found := make([]single, len(groups))
	index := make(map[string][]int, len(groups))
	req := kmsg.NewPtrDescribeGroupsRequest()
	for i, g := range groups {
		name := g.Name()
		if index[name] == nil {
			req.Groups = append(req.Groups, name)
		}
		index[name] = append(index[name], i)
		found[i].err = fmt.Errorf("the brokers' answer lacks group %s", name)
	}
	take := func(name string, r *kmsg.DescribeGroupsResponseGroup, err error) {
		for _, at := range index[name] {
			found[at] = singleOf(r, err, groups[at], client)
		}
	}
	for _, part := range client.RequestSharded(ctx, req) {
		if part.Err != nil {
			for _, name := range part.Req.(*kmsg.DescribeGroupsRequest).Groups {
				take(name, nil, part.Err)
			}
			continue
		}
		all := part.Resp.(*kmsg.DescribeGroupsResponse).Groups
		for i := range all {
			take(all[i].Group, &all[i], kerr.ErrorForCode(all[i].ErrorCode))
		}
	}
	return found
}

// singleOf returns the state of a group from the brokers' response, or from its error.
func singleOf(r *kmsg.DescribeGroupsResponseGroup, err error, g *Group, client *kafkaclient.Client) (s single) {
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		s.err = g.fault(err, client)
	case err != nil:
		s.err = fmt.Errorf("describe group %s: %w", g.Name(), err)
	case len(r.Members) > 0:
		if s.err = g.strangers(r); s.err != nil {
			break // nobody runs the stream, or nobody would once the bridges among them have left
		}
		m := memberOf(&r.Members[0], processName(r.Members[0].ProtocolMetadata))
		s.member = fmt.Sprintf("%s in group %s", m, r.Group)
	}
	return s
}
