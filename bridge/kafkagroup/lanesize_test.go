package kafkagroup_test

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkagroup/units"
)

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
	k.ControlKey(kmsg.DescribeGroups.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range r.(*kmsg.DescribeGroupsRequest).Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = name, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
	g := p.cfg
	g.Stream, g.OwnedBy = "s0", kafkagroup.OwnedByStream
	hosts, err := g.LaneHosts(t.Context())
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Reason != bridge.ReasonAuth || fault.Hint == "" {
		t.Errorf("the hosts are %v, %v", hosts, err)
	}
}
