package kafkagroup_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
)

// TestGroupOfSomebodyElse has consumers in the group that are not bridges.
func TestGroupOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ours     bool // they read our topic
		balancer kgo.Opt
		text     string
	}{
		"another topic":                 {false, kgo.Balancers(kgo.CooperativeStickyBalancer()), "client stranger"},
		"another topic and protocol":    {false, kgo.Balancers(kgo.RangeBalancer()), "client stranger"},
		"another protocol on our topic": {true, kgo.Balancers(kgo.RangeBalancer()), "INCONSISTENT_GROUP_PROTOCOL"},
		"the newer protocol":            {true, kgo.ServerSideBalancer(), "client stranger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcesses(t, kafkatest.Brokers(t), staying)
			topic := p.cfg.CheckpointTopic
			if !c.ours {
				topic = p.topic + ".theirs"
				kafkatest.CreateCheckpointTopic(t, p.cfg.Brokers, topic, nil)
			}
			joined := make(chan struct{}, 100)
			consumer(t, p.cfg, kgo.ConsumeTopics(topic), c.balancer, kgo.OnPartitionsAssigned(
				func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
					if len(added) > 0 {
						joined <- struct{}{}
					}
				}))
			kafkatest.Receive(t, joined, "the stranger to join")
			wantRefused(t, p, bridge.ReasonOwner, c.text, "BRIDGE_GROUP")
			if c.text == "client stranger" {
				_, err := p.cfg.Members(t.Context())
				kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonOwner)
			}
		})
	}
}

// describeNone makes Kafka describe each group by an error.
func describeNone(k *kfake.Cluster, of *kerr.Error) {
	k.ControlKey(kmsg.DescribeGroups.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range r.(*kmsg.DescribeGroupsRequest).Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = name, of.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
}

// TestOverviewOfTheNewerProtocol: consumers of KIP-848 in the stream's own group, which Kafka hides from classic
// members, block a stream that joins this group, and no other.
func TestOverviewOfTheNewerProtocol(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	p := newProcesses(t, k.ListenAddrs(), staying)
	joined := make(chan struct{}, 100)
	consumer(t, p.cfg, kgo.ConsumeTopics(p.cfg.CheckpointTopic), kgo.ServerSideBalancer(), kgo.OnPartitionsAssigned(
		func(context.Context, *kgo.Client, map[string][]int32) { joined <- struct{}{} }))
	kafkatest.Receive(t, joined, "the stranger to join")
	describeNone(k, kerr.GroupIDNotFound)
	var asked atomic.Int32
	k.ControlKey(kmsg.ConsumerGroupDescribe.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	other := p.cfg
	other.Stream = "other"
	for ownership, want := range map[string]struct {
		blocked  string
		requests int32
	}{kafkagroup.OwnedByStream: {"client stranger", 1}, kafkagroup.OwnedByGroup: {}} {
		p.cfg.OwnedBy, other.OwnedBy = ownership, ownership
		asked.Store(0)
		o := must.Get(p.cfg.Overview(t.Context(), []*kafkagroup.Group{&p.cfg, &other}))(t)
		s := &o.Streams[0]
		if s.Error != "" || (s.Blocked != "") != (want.blocked != "") || !strings.Contains(s.Blocked, want.blocked) {
			t.Errorf("%s: %+v, want blocked by %q", ownership, s, want.blocked)
		}
		if s := &o.Streams[1]; s.Error != "" || s.Blocked != "" {
			t.Errorf("%s: %+v, want a stream that nobody blocks", ownership, s)
		}
		if n := asked.Load(); n != want.requests {
			t.Errorf("%s: %d requests for two streams, want %d", ownership, n, want.requests)
		}
	}
}

func TestGroupRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key        kmsg.Key
		err        *kerr.Error
		change     func(*kafkagroup.Group)
		reason     bridge.Reason
		text, hint string
	}{
		"no right to look": {key: kmsg.DescribeGroups, err: kerr.GroupAuthorizationFailed, reason: bridge.ReasonAuth,
			text: "GROUP_AUTHORIZATION_FAILED", hint: "--operation Read --operation Describe --group"},
		"no right to join": {key: kmsg.JoinGroup, err: kerr.GroupAuthorizationFailed, reason: bridge.ReasonAuth,
			text: "GROUP_AUTHORIZATION_FAILED", hint: "--operation Read --operation Describe --group"},
		"too many members": {key: kmsg.JoinGroup, err: kerr.GroupMaxSizeReached, reason: bridge.ReasonOwner,
			text: "GROUP_MAX_SIZE_REACHED", hint: "group.max.size"},
		"session too short": {change: func(c *kafkagroup.Group) { c.SessionTimeout = 2 * time.Second }, reason: bridge.ReasonConfig,
			text: "INVALID_SESSION_TIMEOUT", hint: "BRIDGE_SESSION_TIMEOUT=2s"},
		"no checkpoint topic": {change: func(c *kafkagroup.Group) { c.CheckpointTopic = "missing" }, reason: bridge.ReasonTopic,
			text: "missing", hint: string(bridge.HintCheckpointTopicMissing)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := kafkatest.Brokers(t)
			if c.err != nil {
				cluster := kafkatest.Fake(t)
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: -1})
				addrs = cluster.ListenAddrs()
			}
			p := newProcesses(t, addrs, staying)
			if c.change != nil {
				c.change(&p.cfg)
			}
			wantRefused(t, p, c.reason, c.text, c.hint)
		})
	}
}

// wantRefused checks that a process says why it cannot join the group. It is
// not remembered: the next try may succeed.
func wantRefused(t *testing.T, p *processes, reason bridge.Reason, text, hint string) {
	t.Helper()
	p.cfg.Report = func(err error) {
		if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Permanent {
			t.Errorf("reported as Kafka being away: %v", err)
		}
	}
	g := p.open("")
	for range 2 {
		_, err := tryAcquire(t, g)
		f := kafkatest.AsFault(t, err, bridge.Permanent, reason)
		if !strings.Contains(f.Error(), text) || !strings.Contains(f.Hint+string(f.HintCode), hint) {
			t.Errorf("fault %q with hint %q, want %q and %q", f, f.Hint, text, hint)
		}
		if reason != bridge.ReasonTopic && !strings.Contains(f.Error()+f.Hint, p.cfg.Name()) {
			t.Errorf("fault %q with hint %q does not name the group", f, f.Hint)
		}
	}
}

// TestStrangersJoinLater: a standby notices.
func TestStrangersJoinLater(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	acquire(t, p.open(""))
	b := p.open("")
	failed := make(chan error, 1)
	go func() {
		_, err := tryAcquire(t, b)
		failed <- err
	}()
	theirs := p.topic + ".theirs"
	kafkatest.CreateCheckpointTopic(t, p.cfg.Brokers, theirs, nil)
	consumer(t, p.cfg, kgo.ConsumeTopics(theirs), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	kafkatest.AsFault(t, kafkatest.Receive(t, failed, "the standby to notice"), bridge.Permanent, bridge.ReasonOwner)
}

// TestFleetBesideStrangers: a stream does not stand by for consumers of its own group that are no bridges,
// since nobody would run it.
func TestFleetBesideStrangers(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	theirs := p.topic + ".theirs"
	kafkatest.CreateCheckpointTopic(t, p.cfg.Brokers, theirs, nil)
	cfg := p.cfg
	cfg.Stream = "s0"
	stranger := consumer(t, cfg, kgo.ConsumeTopics(theirs), kgo.Balancers(kgo.RangeBalancer()))
	kafkatest.Eventually(t, "have the stranger in the group", func() (bool, error) {
		_, generation := stranger.GroupMetadata()
		return generation > 0, nil
	})
	seat := p.fleet("", "s0")[0]
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
	defer cancel()
	_, err := seat.Acquire(ctx)
	fault := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonOwner)
	if fault.Code != "foreign_group" || !strings.Contains(fault.Error(), cfg.Name()) {
		t.Errorf("acquire: %v", fault)
	}
	stranger.Close()
	kafkatest.Receive(t, begin(t, seat), "the stream").Release()
}

// TestFleetGrants: a missing right is an error that names both groups.
func TestFleetGrants(t *testing.T) {
	t.Parallel()
	cfg := kafkagroup.Group{Config: kafkaclient.DefaultConfig(), Membership: kafkagroup.DefaultMembership(), Stream: "events"}
	cfg.OwnedBy = kafkagroup.OwnedByGroup
	if grant := cfg.Grants(); !strings.Contains(grant, "--group exportbridge.events --group exportbridge.FLEET") {
		t.Errorf("grant: %s", grant)
	}
	cfg.SASLMechanism = "AWS_MSK_IAM"
	if grant := cfg.Grants(); !strings.Contains(grant, `/exportbridge.events"`) || !strings.Contains(grant, `/exportbridge.FLEET"`) {
		t.Errorf("grant: %s", grant)
	}
	cfg.OwnedBy = kafkagroup.OwnedByStream
	if grant := cfg.Grants(); strings.Contains(grant, "FLEET") {
		t.Errorf("grant: %s", grant)
	}
}

// TestFleetGroupDenied: a stream whose own group this user may not describe waits for the grant. The
// other streams of the process run: brokers refuse already to name the coordinator of that group.
func TestFleetGroupDenied(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	p := newProcesses(t, k.ListenAddrs(), staying)
	denied := p.cfg
	denied.Stream = "s1"
	k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Group: denied.Name(), Err: kerr.GroupAuthorizationFailed, Count: -1})
	seats := p.fleet("", "s0", "s1")
	_, err := seats[1].Acquire(t.Context())
	fault := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonAuth)
	if !strings.Contains(fault.Hint, "--group "+denied.Name()) {
		t.Errorf("the hint does not name the group: %s", fault.Hint)
	}
	grant := must.Get(seats[0].Acquire(t.Context()))(t)
	must.Do(t, grant.Confirm(t.Context()))
	grant.Release()
	o := must.Get(p.cfg.Overview(t.Context(), []*kafkagroup.Group{&p.cfg, &denied}))(t)
	if o.Streams[0].Error != "" || !strings.Contains(o.Streams[1].Error, denied.Name()) {
		t.Errorf("the overview has %+v", o.Streams)
	}
}

// TestGroupMakesTheCheckpointTopic: a broker that does not know the new topic for seconds does
// not block the stream.
func TestGroupMakesTheCheckpointTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	p := newProcesses(t, c.ListenAddrs(), moving)
	p.cfg.CheckpointTopic = p.topic + ".new"
	var unknown atomic.Int32
	c.ControlKey(kmsg.DescribeConfigs.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if unknown.Add(1) > 8 {
			return nil, nil, false
		}
		return kafkatest.WithoutConfigs(req, kerr.UnknownTopicOrPartition), nil, true
	})
	create := sync.OnceFunc(func() { kafkatest.CreateCheckpointTopic(t, p.cfg.Brokers, p.cfg.CheckpointTopic, nil) })
	p.cfg.Missing = func(context.Context, *kafkaclient.Client) error {
		create()
		return nil
	}
	ownership := acquire(t, p.open(""))
	must.Do(t, ownership.Confirm(t.Context()))
	if n := unknown.Load(); n <= 8 {
		t.Errorf("%d requests for the topic, want more", n)
	}
}

// TestRivalRebalances: a group that rebalances is not named as the rival, since nobody knows whether
// its members use the checkpoint topic; nor is it taken for gone.
func TestRivalRebalances(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	p := newProcesses(t, k.ListenAddrs(), staying)
	elsewhere := *p
	elsewhere.cfg.Group += "-other"
	tenure := must.Get(p.open("").Acquire(t.Context()))(t)
	must.Get(elsewhere.open("").Acquire(t.Context()))(t)
	if who, err := tenure.Rival(t.Context()); err != nil || who != "group "+elsewhere.cfg.Name() {
		t.Errorf("the rival is %q, %v", who, err)
	}
	k.ControlKey(kmsg.DescribeGroups.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		name := r.(*kmsg.DescribeGroupsRequest).Groups[0]
		if name != elsewhere.cfg.Name() {
			return nil, nil, false
		}
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State, g.ProtocolType = name, "PreparingRebalance", "consumer"
		g.Members = []kmsg.DescribeGroupsResponseGroupMember{{MemberID: "m"}}
		resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	if who, err := tenure.Rival(t.Context()); err == nil || who != "" {
		t.Errorf("during a rebalance the rival is %q, %v", who, err)
	}
}
