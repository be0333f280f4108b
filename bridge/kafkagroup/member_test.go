package kafkagroup_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
)

// long is more than it takes a process to be late.
const long = time.Minute

func TestStreamMovesToANewProcess(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), moving)
	a, b := p.open(""), p.open("")
	first := acquire(t, a)
	standby := begin(t, b)
	kafkatest.Receive(t, first.Lost(), "the owner to be told")
	select {
	case r := <-standby:
		t.Fatalf("the new process has the stream before it was released: %v", r)
	case <-time.After(time.Second):
	}
	first.Release()
	second := kafkatest.Receive(t, standby, "the new process to have the stream")
	must.Do(t, second.Confirm(t.Context()))
	second.Release() // which leaves, so that the older one has it back
	acquire(t, a).Release()
}

// TestOwnerThatDoesNotLetGo has an owner that hangs: the group does not wait
// for it for ever.
func TestOwnerThatDoesNotLetGo(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), moving)
	a, b := p.open(""), p.open("")
	a.Shorten(500 * time.Millisecond)
	first := acquire(t, a)
	second := kafkatest.Receive(t, begin(t, b), "the new process to have the stream")
	must.Be(t, first.Confirm(t.Context()), bridge.ErrNotOwner)
	must.Do(t, second.Confirm(t.Context()))
	first.Release()
	if err := second.Confirm(t.Context()); err != nil {
		t.Errorf("confirm of the new owner after a late release: %v", err)
	}
}

func TestNothingIsFetchedOrCommitted(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	p := newProcesses(t, c.ListenAddrs(), staying)
	beats := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Observe: true, Count: -1})
	reads := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetCommit}, Observe: true, Count: -1})
	acquire(t, p.open(""))
	must.Do(t, beats.Wait(t.Context(), 3))
	if n := reads.Hits(); n != 0 {
		t.Errorf("a member of the group asked %d times for records or offsets", n)
	}
}

// TestFencedProcessBacksOff: it is told at once, asks for nothing while
// the other process is there, and comes back when that is gone.
func TestFencedProcessBacksOff(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	p := newProcesses(t, c.ListenAddrs(), staying)
	p.cfg.SessionTimeout = long
	older, newer := p.open("pod-0"), p.open("pod-0")
	// The embedded server lets go whoever has the id now.
	leaves := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.LeaveGroup}, Observe: true, Count: -1})
	first := acquire(t, older)
	second := acquire(t, newer)
	kafkatest.Receive(t, first.Lost(), "the older process to be told")
	first.Release()
	joins := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup, kmsg.Heartbeat}, Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		_, joins := r.(*kmsg.JoinGroupRequest)
		return joins
	}})
	looked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeGroups}, Observe: true, Count: -1})
	began := time.Now()
	for looked.Hits() < 5 { // it looks each time
		_, err := tryAcquire(t, older)
		f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonOwner)
		if !strings.Contains(f.Error(), "127.0.0.1") || !strings.Contains(f.Error(), "pod-0") || !strings.Contains(f.Hint, "BRIDGE_INSTANCE_ID") || f.RetryAfter <= 0 {
			t.Fatalf("fault %q, hint %q, retry after %s", f, f.Hint, f.RetryAfter)
		}
		if time.Since(began) > kafkatest.Patience {
			t.Fatal("the older process never looks whether the other one is gone")
		}
		<-time.After(20 * time.Millisecond)
	}
	if n := joins.Hits(); n != 0 {
		t.Errorf("the older process asked %d times to join", n)
	}
	if n := leaves.Hits(); n != 0 {
		t.Errorf("the older process asked %d times to leave with the other's id", n)
	}
	must.Do(t, second.Confirm(t.Context()))
	closeGroup(t, newer)
	for {
		back, err := tryAcquire(t, older)
		if err == nil {
			back.Release()
			return
		}
		kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonOwner)
		if time.Since(began) > kafkatest.Patience {
			t.Fatal("the older process did not come back")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestLateJoin: a request of our own that was held up on its way takes our
// instance id over. It is no other process, and forgotten after a session.
func TestLateJoin(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.StartKafkaProxy(t)
	kafkatest.Fake(t, kfake.ListenFn(proxy.Listen), kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "1000"}))
	p := newProcesses(t, proxy.Addrs(), staying)
	p.cfg.SessionTimeout = time.Second
	g := p.open("pod-0")
	g.StaleAfter(2 * time.Second)
	late := proxy.Add(faultproxy.KafkaRule{
		Fault: faultproxy.LateRequest, Keys: []kmsg.Key{kmsg.JoinGroup}, Delay: 500 * time.Millisecond, Times: 1,
	})
	first := acquire(t, g)
	kafkatest.Receive(t, first.Lost(), "the late request to take the stream away")
	first.Release()
	if late.Count() != 1 {
		t.Fatalf("%d requests were late", late.Count())
	}
	again := acquire(t, g)
	must.Do(t, again.Confirm(t.Context()))
	again.Release()
}

func TestConfirmDuringARebalance(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	p := newProcesses(t, c.ListenAddrs(), staying)
	ownership := acquire(t, p.open(""))
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress, Count: -1})
	for range 5 {
		must.Do(t, ownership.Confirm(t.Context()))
	}
	h.Remove()
	for range 5 {
		must.Do(t, ownership.Confirm(t.Context()))
	}
	select {
	case <-ownership.Lost():
		t.Error("the stream was lost by a change of the group that did not concern it")
	default:
	}
}

// TestConfirmAsksTheCoordinator removes the owner from the group behind its
// back, as the coordinator does with one that was frozen.
func TestConfirmAsksTheCoordinator(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	a := p.open("")
	ownership := acquire(t, a)
	remove(t, p.cfg)
	must.Be(t, ownership.Confirm(t.Context()), bridge.ErrNotOwner)
	kafkatest.Receive(t, ownership.Lost(), "lost to be closed")
	ownership.Release()
	again := acquire(t, a)
	must.Do(t, again.Confirm(t.Context()))
	must.Be(t, ownership.Confirm(t.Context()), bridge.ErrNotOwner)
}

// TestForgottenMember: the owner hears only that the group changes, joins
// again, and is told that it was thrown out long ago. That it is assigned the
// stream once more does not undo what others may have done meanwhile.
func TestForgottenMember(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	p := newProcesses(t, c.ListenAddrs(), staying)
	a := p.open("")
	ownership := acquire(t, a)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress})
	remove(t, p.cfg)
	kafkatest.Receive(t, ownership.Lost(), "lost to be closed")
	ownership.Release()
	again := acquire(t, a)
	must.Do(t, again.Confirm(t.Context()))
	must.Be(t, ownership.Confirm(t.Context()), bridge.ErrNotOwner)
}

// remove takes all members out of the stream's group.
func remove(t *testing.T, cfg kafkagroup.Group) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...)))(t)
	defer client.Close()
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{cfg.Name()}
	found := must.Get(describe.RequestWith(t.Context(), client))(t)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = describe.Groups[0]
	for _, m := range found.Groups[0].Members {
		l := kmsg.NewLeaveGroupRequestMember()
		l.MemberID, l.InstanceID = m.MemberID, m.InstanceID
		leave.Members = append(leave.Members, l)
	}
	must.Get(leave.RequestWith(t.Context(), client))(t)
}

func TestMembers(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), moving)
	look := p.cfg
	wantMembers := func(when string, want ...string) {
		t.Helper()
		members, err := look.Members(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		var have []string
		for _, m := range members {
			who := m.ClientID + "/" + m.InstanceID
			if m.Owner {
				who += " owns"
			}
			if m.Host == "" {
				t.Errorf("%s: member %s has no host", when, who)
			}
			have = append(have, who)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: members %q, want %q", when, have, want)
		}
	}
	wantMembers("before")
	a, b := p.open("a"), p.open("")
	first := acquire(t, a)
	wantMembers("one process", "process1/a owns")
	standby := begin(t, b)
	kafkatest.Receive(t, first.Lost(), "the owner to be told")
	first.Release()
	second := kafkatest.Receive(t, standby, "the new process to have the stream")
	wantMembers("moved", "process1/a", "process2/ owns") // each has half of the partitions
	second.Release()
	closeGroup(t, a)
	wantMembers("after")
}

func TestStandbySaysWhoHasTheStream(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	acquire(t, p.open("pod-7"))
	look := p.cfg
	var seen kafkatest.Reports
	p.cfg.Report = seen.Add
	b := p.open("")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx)
		gaveUp <- err
	}()
	kafkatest.Eventually(t, "have both in the group", func() (bool, error) {
		members, err := look.Members(t.Context())
		return len(members) == 2 && slices.ContainsFunc(members, func(m bridge.Member) bool { return m.Owner }), err
	})
	for range 2 { // the first may have asked before
		seen.Forget()
		seen.Await(t, "brokers that answer", kafkatest.IsNil)
	}
	cancel()
	if err := kafkatest.Receive(t, gaveUp, "acquire to end"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "pod-7") {
		t.Errorf("acquire returned %v, want the context's error and the owner", err)
	}
}

func TestStandbyReportsBrokersAway(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	p := newProcesses(t, srv.Addr, staying)
	acquire(t, p.open(""))
	var seen kafkatest.Reports
	p.cfg.Report = seen.Add
	standby := begin(t, p.open(""))
	seen.Await(t, "brokers that answer", kafkatest.IsNil)
	srv.Stop()
	seen.Await(t, "the dead broker", kafkatest.Mentions(srv.Addr[0]))
	select {
	case r := <-standby:
		t.Fatalf("acquire did not wait for the broker: %v", r)
	default:
	}
	srv.Start()
	seen.Await(t, "brokers that answer", kafkatest.IsNil)
}

// TestCloseEndsAcquire: a process that stops while it stands by.
func TestCloseEndsAcquire(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	acquire(t, p.open(""))
	b := p.open("")
	failed := make(chan error, 1)
	go func() {
		_, err := tryAcquire(t, b)
		failed <- err
	}()
	for {
		if members, err := p.cfg.Members(t.Context()); err != nil {
			t.Fatal(err)
		} else if len(members) == 2 {
			break
		}
	}
	closeGroup(t, b)
	if err := kafkatest.Receive(t, failed, "acquire to end"); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("acquire of a closed group returned %v", err)
	}
	if _, err := tryAcquire(t, b); err == nil {
		t.Error("a closed group was joined again")
	}
}

// TestAbandon: a process that ends does not wait until the brokers have heard that it leaves.
func TestAbandon(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.StartKafkaProxy(t)
	kafkatest.Fake(t, kfake.ListenFn(proxy.Listen))
	g := newProcesses(t, proxy.Addrs(), staying).open("")
	ownership := acquire(t, g)
	proxy.Add(faultproxy.KafkaRule{Fault: faultproxy.DelayReply, Keys: []kmsg.Key{kmsg.LeaveGroup}, Delay: time.Minute, Times: -1})
	asked := time.Now()
	g.Abandon()
	ownership.Release()
	if took := time.Since(asked); took > 4*time.Second { // without Abandon, 5 s
		t.Errorf("release took %s", took)
	}
}

func tryAcquire(t *testing.T, g *kafkagroup.Owner) (bridge.Ownership, error) {
	t.Helper()
	ctx := kafkatest.Context(t)
	return g.Acquire(ctx)
}

func acquire(t *testing.T, g *kafkagroup.Owner) bridge.Ownership {
	t.Helper()
	return must.Get(tryAcquire(t, g))(t)
}

// begin calls Acquire on another goroutine, which ends with the test.
func begin(t *testing.T, g bridge.Owner) <-chan bridge.Ownership {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result, done := make(chan bridge.Ownership, 1), make(chan struct{})
	go func() {
		defer close(done)
		if ownership, err := g.Acquire(ctx); err == nil {
			result <- ownership
		} else if ctx.Err() == nil {
			t.Errorf("acquire: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return result
}

// TestStandbyBesideADeadBroker: a broker that is down hides no owner that the others know.
func TestStandbyBesideADeadBroker(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(*processes) bridge.Owner{
		"a group of the stream": func(p *processes) bridge.Owner { return p.open("") },
		"a fleet":               func(p *processes) bridge.Owner { return p.fleet("", p.cfg.Stream)[0] },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newProcesses(t, kafkatest.Fake(t, kfake.NumBrokers(3)).ListenAddrs(), staying)
			kafkatest.Receive(t, begin(t, of(p)), "the stream")
			p.cfg.Brokers = []string{p.cfg.Brokers[0]}
			for range 3 { // a client begins with any of the four
				p.cfg.Brokers = append(p.cfg.Brokers, deadAddr(t))
			}
			standby := of(p)
			kafkatest.Eventually(t, "see the owner", func() (bool, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := standby.Acquire(ctx)
				return errors.Is(err, bridge.ErrNotOwner), nil
			})
		})
	}
}

// deadAddr returns an address that nobody listens at.
func deadAddr(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}
