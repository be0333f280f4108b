package kafkagroup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
)

// TestManyStreamsFirst: lanes never make the list of a process so long that its streams cannot
// join the group, whichever are added first.
func TestManyStreamsFirst(t *testing.T) {
	t.Parallel()
	names := streamNames(5900)
	for name, first := range map[string]int{"streams first": len(names), "lanes first": 1} {
		p := &processes{t: t, names: make(map[bridge.Owner]string)}
		p.cfg.Config, p.cfg.Membership = kafkaclient.DefaultConfig(), kafkagroup.DefaultMembership()
		seats := p.fleet("", names[:first]...)
		f, lanes := seats[0].Fleet(), 0
		for i := range 512 {
			_, err := f.Lane(p.jobGroup("s0", fmt.Sprint("job", i/256)), i%256)
			if err == nil {
				lanes++
			} else if !errors.Is(err, kafkagroup.ErrManyLanes) {
				t.Fatal(err)
			}
		}
		for _, stream := range names[first:] {
			g := p.cfg
			g.Stream = stream
			if _, err := f.Owner(&g); err != nil {
				t.Fatal(err)
			}
		}
		if full := lanes < 512; lanes == 0 || full != (first > 1) {
			t.Errorf("%s: %d lanes", name, lanes)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := seats[0].Acquire(ctx)
		cancel()
		if kafkaclient.IsPermanent(err) {
			t.Errorf("%s: stream s0: %v", name, err)
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
