package kafkagroup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkagroup/units"
)

const manyStreams = 30

// board shows which process runs which stream, and fails the test where two do.
type board struct {
	t    *testing.T
	mu   sync.Mutex        // guards runs
	runs map[string]string // processes by stream
}

func (b *board) begin(stream, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.runs[stream]; other != "" {
		b.t.Errorf("process %s begins stream %s, which %s runs", process, stream, other)
	}
	b.runs[stream] = process
}

func (b *board) end(stream, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[stream] == process {
		delete(b.runs, stream)
	}
}

// kill takes note of a process that ends without a word.
func (b *board) kill(process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for stream, by := range b.runs {
		if by == process {
			delete(b.runs, stream)
		}
	}
}

// loads returns the number of streams that each process runs, in order.
func (b *board) loads() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	loads := make(map[string]int)
	for _, by := range b.runs {
		loads[by]++
	}
	var all []string
	for by, n := range loads {
		all = append(all, fmt.Sprint(by, "=", n))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (b *board) want(loads string) {
	b.t.Helper()
	kafkatest.Eventually(b.t, "have the loads "+loads, func() (bool, error) { return b.loads() == loads, nil })
}

// follow runs a stream like the engine, until the returned function is called.
func (b *board) follow(o bridge.Owner, stream, process string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			grant, err := o.Acquire(ctx)
			if err != nil {
				if ctx.Err() == nil {
					b.t.Errorf("process %s, stream %s: %v", process, stream, err)
				}
				return
			}
			if err := grant.Confirm(ctx); err == nil {
				b.begin(stream, process)
				select {
				case <-grant.Lost():
				case <-ctx.Done():
				}
				b.end(stream, process)
			}
			grant.Release()
		}
	})
	return func() { cancel(); running.Wait() }
}

// crew is a process of the test that follows many streams.
type crew struct {
	b     *board
	name  string
	seats []*kafkagroup.Seat
	stops []func()
}

func (p *processes) crew(b *board, name string, streams []string) *crew {
	p.t.Helper()
	c := &crew{b: b, name: name, seats: p.fleet("", streams...)}
	for i, s := range c.seats {
		c.stops = append(c.stops, b.follow(s, streams[i], name))
	}
	p.t.Cleanup(c.stop)
	return c
}

func (c *crew) stop() {
	var stopping sync.WaitGroup
	for _, stop := range c.stops {
		stopping.Go(stop)
	}
	stopping.Wait()
}

// leave ends the process in order.
func (c *crew) leave() {
	c.b.t.Helper()
	c.stop()
	for _, s := range c.seats {
		must.Do(c.b.t, s.Close(context.Background()))
	}
	must.Do(c.b.t, c.seats[0].Fleet().Close(context.Background()))
}

// kill ends the process without a word to the coordinator.
func (c *crew) kill() {
	c.b.kill(c.name)
	c.seats[0].Fleet().Kill()
	c.stop()
}

func streamNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	return names
}

// fleetTest returns processes on servers of kfake or, with TEST_REAL, Apache Kafka.
func fleetTest(t *testing.T, session time.Duration) (*processes, *board) {
	t.Helper()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	p.cfg.SessionTimeout = session
	return p, &board{t: t, runs: make(map[string]string)}
}

// TestFleetSharesStreams: who joins gets a share of the streams, and who leaves hands
// its own over at once.
func TestFleetSharesStreams(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute) // which nothing waits for
	streams := streamNames(manyStreams)
	a := p.crew(b, "a", streams)
	b.want("a=30")
	p.crew(b, "b", streams)
	b.want("a=15 b=15")
	p.crew(b, "c", streams)
	b.want("a=10 b=10 c=10")
	began := time.Now()
	a.leave()
	b.want("b=15 c=15")
	t.Logf("handed over after %s", time.Since(began).Round(time.Millisecond))
	p.crew(b, "d", streams[:6]) // knows some only
	b.want("b=12 c=12 d=6")
}

// TestFleetReplacesTheDead: the streams of a killed process move to the others after its
// session.
func TestFleetReplacesTheDead(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	p, b := fleetTest(t, session)
	streams := streamNames(manyStreams)
	p.crew(b, "a", streams)
	b.want("a=30")
	dead := p.crew(b, "b", streams)
	b.want("a=15 b=15")
	p.crew(b, "c", streams)
	b.want("a=10 b=10 c=10")
	dead.kill()
	began := time.Now()
	b.want("a=15 c=15")
	t.Logf("replaced after %s, with a session of %s", time.Since(began).Round(time.Millisecond), session)
}

// TestFleetBesideOwner: an old process's group outranks, whoever is first. The other
// streams go on.
func TestFleetBesideOwner(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute)
	streams := streamNames(3)
	old := func(stream string) (end func()) {
		p.cfg.Stream = stream
		o := p.open("")
		stop := b.follow(o, stream, "old")
		return func() { stop(); closeGroup(t, o) }
	}
	stopOld := old(streams[0])
	b.want("old=1")
	seats := p.fleet("", streams...)
	for i, s := range seats[1:] {
		t.Cleanup(b.follow(s, streams[i+1], "new"))
	}
	b.want("new=2 old=1")
	kafkatest.Eventually(t, "wait for the old process", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := seats[0].Acquire(ctx)
		if err == nil {
			t.Fatal("a stream begins that an old process runs")
		}
		return errors.Is(err, bridge.ErrNotOwner), nil
	})
	waiting := begin(t, seats[0])
	stopOld()
	grant := kafkatest.Receive(t, waiting, "the stream of the old process")
	must.Do(t, grant.Confirm(t.Context()))
	stopOld = old(streams[0])
	b.want("new=2 old=1")
	must.Be(t, grant.Confirm(t.Context()), bridge.ErrNotOwner)
	kafkatest.Receive(t, grant.Lost(), "the loss")
	grant.Release()
	waiting = begin(t, seats[0])
	stopOld()
	kafkatest.Receive(t, waiting, "the stream of the second old process").Release()
	b.want("new=2")
}

// TestFleetBesideOwnerReports: a stream that waits for an old process reports that Kafka answers again.
func TestFleetBesideOwnerReports(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	p := newProcesses(t, cluster.ListenAddrs(), staying)
	kafkatest.Receive(t, begin(t, p.open("")), "the stream")
	var seen kafkatest.Reports
	p.cfg.Report = seen.Add
	begin(t, p.fleet("", p.cfg.Stream)[0])
	kafkatest.Eventually(t, "have both processes", func() (bool, error) {
		members, err := p.cfg.Members(t.Context())
		return len(members) == 2 && members[0].Owner && members[1].Owner, err
	})
	failing := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeGroups}, Err: kerr.UnknownServerError, Count: -1})
	seen.Await(t, "the failure", kafkatest.Mentions("UNKNOWN_SERVER_ERROR"))
	failing.Remove()
	seen.Await(t, "a broker that answers", kafkatest.IsNil)
}

// TestFleetMembers: whoever asks sees the owners of both kinds of groups.
func TestFleetMembers(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute)
	want := func(stream, want string) {
		t.Helper()
		kafkatest.Eventually(t, "see "+want, func() (bool, error) {
			cfg := p.cfg
			cfg.Stream = stream
			members, err := cfg.Members(t.Context())
			var have []string
			for _, m := range members {
				have = append(have, fmt.Sprintf("%s:%t", m.Process, m.Owner))
			}
			slices.Sort(have)
			return strings.Join(have, " ") == want, err
		})
	}
	p.cfg.Process = "pod-1"
	p.crew(b, "a", []string{"s0", "s1"})
	b.want("a=2")
	want("s0", "pod-1:true")
	want("s9", "")
	p.cfg.Process = "pod-2"
	p.crew(b, "b", []string{"s1"})
	b.want("a=1 b=1")
	want("s0", "pod-1:true")
	want("s1", "pod-1:false pod-2:true")
	p.cfg.Process, p.cfg.Stream = "old", "s0"
	begin(t, p.open(""))
	want("s0", "old:true pod-1:true")
}

// TestSeveralSeatsOfOneGroup: each of them learns whether the group has members.
func TestSeveralSeatsOfOneGroup(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	client := must.Get(p.cfg.Open())(t)
	defer client.Close()
	own := p.cfg
	own.Stream = "s0"
	none := p.cfg
	none.Stream = "s1"
	ask := func() []string {
		found, err := kafkagroup.SingleGroups(t.Context(), client, []*kafkagroup.Group{&own, &none, &own})
		if err != nil {
			t.Error(err)
		}
		return found
	}
	if found := ask(); !slices.Equal(found, []string{"", "", ""}) {
		t.Errorf("groups without members have %q", found)
	}
	p.cfg.Stream = "s0"
	kafkatest.Receive(t, begin(t, p.open("")), "the stream")
	if found := ask(); found[0] == "" || found[1] != "" || found[2] != found[0] {
		t.Errorf("the group of the first and the last seat has a member, found %q", found)
	}
}

// TestOverview: Kafka alone knows the processes, their streams, and who waits for what.
func TestOverview(t *testing.T) {
	t.Parallel()
	p, b := fleetTest(t, 2*time.Minute)
	p.cfg.Program = "1.2.3"
	groups := func() (all []*kafkagroup.Group) {
		for _, name := range []string{"s0", "s1", "s2", "s3"} {
			g := p.cfg
			g.Stream = name
			all = append(all, &g)
		}
		return all
	}
	look := func() kafkagroup.Overview {
		t.Helper()
		return must.Get(p.cfg.Overview(t.Context(), groups()))(t)
	}
	want := func(o kafkagroup.Overview, processes, streams string) bool {
		var have []string
		for _, each := range o.Processes {
			have = append(have, fmt.Sprintf("%s %s %d/%d", each.Name, each.Version, each.Owned, each.Listed))
		}
		if got := strings.Join(have, ", "); got != processes {
			return false
		}
		have = nil
		for _, s := range o.Streams {
			have = append(have, fmt.Sprintf("%s:%s+%s-%s", s.Stream, s.Owner, strings.Join(s.Standby, ","), strings.Join(s.Declined, ",")))
		}
		return strings.Join(have, " ") == streams
	}
	await := func(processes, streams string) (o kafkagroup.Overview) {
		t.Helper()
		kafkatest.Eventually(t, "see "+processes+"; "+streams, func() (bool, error) {
			o = look()
			return want(o, processes, streams), nil
		})
		return o
	}
	await("", "s0:+- s1:+- s2:+- s3:+-")
	p.cfg.Process = "pod-1"
	p.crew(b, "a", []string{"s0", "s1", "s9"})
	b.want("a=3")
	first := await("pod-1 1.2.3 3/3", "s0:pod-1+- s1:pod-1+- s2:+- s3:+-")
	if first.Generation <= 0 || time.Since(first.Planned) > kafkatest.Patience || time.Until(first.Planned) > time.Second {
		t.Errorf("generation %d, planned %s", first.Generation, first.Planned)
	}
	p.cfg.Process = "pod-2"
	second := p.crew(b, "b", []string{"s1", "s2"})
	b.want("a=2 b=2")
	o := await("pod-1 1.2.3 2/3, pod-2 1.2.3 2/2", "s0:pod-1+- s1:pod-2+pod-1- s2:pod-2+- s3:+-")
	if o.Generation <= first.Generation {
		t.Errorf("generation %d after %d", o.Generation, first.Generation)
	}
	// A stream that its process cannot run.
	second.stops[1]()
	await("pod-1 1.2.3 2/3, pod-2 1.2.3 1/2", "s0:pod-1+- s1:pod-2+pod-1- s2:+-pod-2 s3:+-")
	// A process with a group for each stream.
	p.cfg.Process, p.cfg.Stream = "old", "s3"
	begin(t, p.open(""))
	kafkatest.Eventually(t, "see the group of the stream", func() (bool, error) {
		return strings.HasPrefix(look().Streams[3].OwnGroup, "old at "), nil
	})
}

// TestFleetForeignLeader: what another program writes is no assignment.
func TestFleetForeignLeader(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	p.lead(&leader{raw: []byte("something else")})
	_, err := p.fleet("", p.cfg.Stream)[0].Acquire(t.Context())
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Code != "foreign_group" || fault.Class != bridge.Permanent || !strings.Contains(fault.Hint, "BRIDGE_GROUP") {
		t.Errorf("acquire in a group of another program: %v", err)
	}
}

// TestFleetStaleAssignment: an answer to another list is not applied, and the next join
// brings the right one.
func TestFleetStaleAssignment(t *testing.T) {
	t.Parallel()
	p, _ := fleetTest(t, 2*time.Minute)
	stale := 2
	p.lead(&leader{twist: func(a *units.Assignment) {
		if len(a.Given) > 0 && stale > 0 {
			a.List++
			stale--
		}
	}})
	waiting := begin(t, p.fleet("", p.cfg.Stream)[0])
	kafkatest.Receive(t, waiting, "the stream").Release()
	if stale > 0 {
		t.Error("no assignment was stale")
	}
}

// TestFleetCoordinatorAway: the streams are this process's for a session, whatever
// happens to the coordinator, and come back with it.
func TestFleetCoordinatorAway(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	p := newProcesses(t, srv.Addr, staying)
	p.cfg.SessionTimeout = 6 * time.Second
	seats := p.fleet("", "s0", "s1")
	grant := kafkatest.Receive(t, begin(t, seats[0]), "the stream")
	srv.Stop()
	began := time.Now()
	kafkatest.Receive(t, grant.Lost(), "the loss")
	if away := time.Since(began); away < p.cfg.SessionTimeout/2 {
		t.Errorf("lost after %s, with a session of %s", away, p.cfg.SessionTimeout)
	}
	grant.Release()
	waiting := begin(t, seats[0])
	srv.Start()
	kafkatest.Receive(t, waiting, "the stream again").Release()
}

// TestFleetSize: more streams than Kafka carries are refused, with what to do, until there is room.
// Lanes take none.
func TestFleetSize(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	p.cfg.FleetMembers = 200
	most := p.cfg.MaxStreams()
	seats := p.fleet("", streamNames(most+1)...)
	for n := range bridge.MaxLanes {
		must.Get(seats[0].Fleet().Lane(p.jobGroup("s0", "job"), n))(t)
	}
	_, err := seats[most].Acquire(t.Context())
	fault := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig)
	if fault.Code != "fleet_size" || !strings.Contains(err.Error(), "BRIDGE_FLEET_MEMBERS is 200") {
		t.Errorf("acquire: %v", err)
	}
	must.Do(t, seats[0].Close(t.Context()))
	kafkatest.Receive(t, begin(t, seats[most]), "the stream that there is room for").Release()
	f := p.cfg.Fleet()
	p.cfg.Stream = "events"
	first := must.Get(f.Owner(&p.cfg))(t)
	first.Rename("others") // as if it had the hash of events
	if _, err := f.Owner(&p.cfg); err == nil {
		t.Error("two streams of one hash are accepted")
	}
}
