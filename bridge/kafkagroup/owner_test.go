package kafkagroup_test

import (
	"context"
	"fmt"
	"os"
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
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

func TestOwnerConformance(t *testing.T) {
	t.Parallel()
	testConformance(t, ownerFixture)
}

// TestOwnerConformanceOnKafka runs the suite on Apache Kafka.
func TestOwnerConformanceOnKafka(t *testing.T) { testConformanceOnKafka(t, ownerFixture) }

type fixture func(t *testing.T, brokers []string, session time.Duration) conformance.OwnerFixture

func testConformance(t *testing.T, of fixture) {
	conformance.TestOwner(t, func(t *testing.T, session time.Duration) conformance.OwnerFixture {
		srv := kafkatest.NewServer(t)
		f := of(t, srv.Addr, session)
		f.Break = func() func() {
			srv.Stop()
			return srv.Start
		}
		return f
	})
}

// testConformanceOnKafka: Kafka is unreachable while its process is stopped, for all
// cases at once, so that those which need it have a server of their own.
func testConformanceOnKafka(t *testing.T, of fixture) {
	servers.NeedReal(t)
	conformance.TestOwner(t, func(t *testing.T, session time.Duration) conformance.OwnerFixture {
		if !strings.Contains(t.Name(), "server") && !strings.Contains(t.Name(), "answer") {
			return of(t, kafkatest.Brokers(t), session)
		}
		kafka := servers.StartKafka(t, servers.KafkaOptions{Own: true})
		f := of(t, kafka.Addrs(), session)
		f.Break = func() func() {
			must.Do(t, kafka.Pause(0))
			return func() {
				if err := kafka.Continue(0); err != nil {
					t.Error(err)
				}
			}
		}
		return f
	})
}

func ownerFixture(t *testing.T, brokers []string, session time.Duration) conformance.OwnerFixture {
	t.Helper()
	p := newProcesses(t, brokers, staying)
	p.cfg.SessionTimeout = session
	return conformance.OwnerFixture{
		Open:      func(instance string) bridge.Owner { return p.open(instance) },
		Elsewhere: func() bridge.Owner { return p.elsewhere().open("") },
		Stop: func(o bridge.Owner) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what is not released by now is lost
			if err := o.(*kafkagroup.Owner).Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		},
		Kill:  func(o bridge.Owner) { o.(*kafkagroup.Owner).Kill() },
		Steer: p.steer,
	}
}

// The cooperative balancer gives the upper partitions to a member that joins.
const (
	staying = 0
	moving  = 15
)

// processes are the processes that can run one stream.
type processes struct {
	t     *testing.T
	cfg   kafkagroup.Group
	topic string                  // of the test's own
	names map[bridge.Owner]string // client ids
}

// newProcesses makes the checkpoint topic, and finds a stream in a partition.
func newProcesses(t *testing.T, brokers []string, partition int32) *processes {
	t.Helper()
	p := &processes{t: t, topic: fmt.Sprintf("t%d", time.Now().UnixNano()), names: make(map[bridge.Owner]string)}
	p.cfg = kafkagroup.Group{Config: kafkaclient.DefaultConfig(), Membership: kafkagroup.DefaultMembership(), Stream: "events"}
	p.cfg.Brokers, p.cfg.CheckpointTopic, p.cfg.Membership.Group = brokers, p.topic+".checkpoints", p.topic
	for i := 0; kafkagroup.GroupPartition(p.cfg.Stream) != partition; i++ {
		p.cfg.Stream = fmt.Sprint("events", i)
	}
	kafkatest.CreateCheckpointTopic(t, brokers, p.cfg.CheckpointTopic, nil)
	return p
}

// elsewhere returns the processes of another group.
func (p *processes) elsewhere() *processes {
	other := *p
	other.cfg.Group += "-other"
	return &other
}

// open starts a process. Those that are left at the end of the test leave.
func (p *processes) open(instance string) *kafkagroup.Owner {
	p.t.Helper()
	cfg := p.cfg
	cfg.InstanceID = instance
	cfg.ClientID = fmt.Sprint("process", len(p.names)+1)
	g := cfg.Owner()
	g.StaleAfter(500 * time.Millisecond)
	p.names[g] = cfg.ClientID
	p.t.Cleanup(func() { closeGroup(p.t, g) })
	return g
}

func closeGroup(t *testing.T, g *kafkagroup.Owner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // wait for no release
	must.Do(t, g.Close(ctx))
}

// steer has a member of the test decide who gets the stream.
func (p *processes) steer() func(to bridge.Owner) {
	p.t.Helper()
	c := &conductor{GroupBalancer: kgo.CooperativeStickyBalancer(), topic: p.cfg.CheckpointTopic, partition: kafkagroup.GroupPartition(p.cfg.Stream)}
	ready := make(chan struct{})
	var once sync.Once
	client := consumer(p.t, p.cfg, kgo.ConsumeTopics(p.cfg.CheckpointTopic), kgo.Balancers(c),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { once.Do(func() { close(ready) }) }))
	kafkatest.Receive(p.t, ready, "the conductor to join")
	return func(to bridge.Owner) {
		c.mu.Lock()
		c.target = p.names[to] + "-"
		c.mu.Unlock()
		client.ForceRebalance()
	}
}

// consumer joins the stream's group as a client that is not a bridge.
func consumer(t *testing.T, cfg kafkagroup.Group, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client := must.Get(kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumerGroup(cfg.Name()), kgo.ClientID("stranger"),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)...))(t)
	t.Cleanup(client.Close)
	return client
}

// conductor is a balancer that leaves the stream where it is until told.
type conductor struct {
	kgo.GroupBalancer
	topic     string
	partition int32

	mu     sync.Mutex // guards target
	target string     // prefix of a member id
}

func (c *conductor) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(c, members)
	return b, b.MemberTopics(), err
}

func (c *conductor) Balance(b *kgo.ConsumerBalancer, _ map[string]int32) kgo.IntoSyncAssignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	best, rank := &b.Members()[0], 0
	b.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		has := 0
		for _, o := range meta.OwnedPartitions {
			for _, p := range o.Partitions {
				if o.Topic == c.topic && p == c.partition {
					has = 1
				}
			}
		}
		switch {
		case c.target != "" && strings.HasPrefix(m.MemberID, c.target):
			has = 3
		case strings.HasPrefix(m.MemberID, "stranger"):
			has = -1
		case has == 1 && c.target == "":
			has = 2
		}
		if has >= rank {
			best, rank = m, has
		}
	})
	plan := b.NewPlan()
	plan.AddPartition(best, c.topic, c.partition)
	plan.AdjustCooperative(b)
	return plan
}
