package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup/units"
)

const (
	// fleetStream is the name of the stream in the name of a Fleet's group. Streams have
	// lower-case names, so no stream's group has this name.
	fleetStream = "FLEET"
	// lookEvery is how often a Fleet checks whether groups of single streams still have
	// members. Every probeLooks times, it looks up which processes own the streams that it
	// waits for.
	lookEvery  = time.Second
	probeLooks = 3
	// rejoinDelay collects the changes of several streams in one rejoin.
	rejoinDelay = 50 * time.Millisecond
	// slowDelay is how long a rejoin waits until the other streams that move are released.
	// A slow release does not delay the other moves.
	slowDelay = 500 * time.Millisecond
	// After the second consecutive outdated assignment, rejoins are delayed: from
	// staleDelay up to maxStaleDelay.
	staleDelay, maxStaleDelay = 5 * time.Second, time.Minute
)

// Fleet is the membership of this process in the group of all processes with the same
// BRIDGE_GROUP. It serves all streams and lanes of jobs of the process: one client, one
// heartbeat. The metadata of a member lists the streams that it can run, the leader's
// assignment lists those that it owns (package units). The client is assigned no
// partitions, fetches nothing and commits no offsets.
//
// A group of a single stream (Owner) that has members takes precedence over the Fleet. So
// processes of both kinds can run together while one kind replaces the other.
type Fleet struct {
	*entry
	releaseWait, lookEvery time.Duration // the constants, except in tests

	ctx  context.Context // ends with the membership
	kill context.CancelFunc
	done chan struct{} // closed when run has returned
	kick chan struct{} // wakes run

	mu      sync.Mutex // guards all below; never held while waiting
	state   units.Member
	seats   map[units.Unit]*Seat
	lanes   int          // number of seats for lanes
	member  *fleetMember // nil while this process is not in the group
	last    *fleetMember // the last member, even after it has ended
	started bool         // run was started
	asked   bool         // a seat has waited since the last permanent failure to join
	// reports counts the calls of reported, and health is the last argument.
	reports int
	health  error
	// rejoin is the time of the next rejoin; zero if none is planned. force is set to
	// rejoin even if nothing has changed.
	rejoin time.Time
	force  bool
	moving int    // number of streams that are not released yet
	stales int    // consecutive outdated assignments, which answer an earlier list
	asks   []*ask // pending calls of Confirm
	// unsaid were released since the last join. unheard were released before the last join,
	// and no assignment has confirmed that yet.
	unsaid, unheard []*tenure
	owners          map[units.Unit]string // owners of the streams, as of the last lookup
}

// Fleet returns the membership for all streams of this process, which share the settings of
// g. It does not connect.
func (g *Group) Fleet() *Fleet {
	own := *g
	own.Stream, own.GrantPrefix, own.Report = fleetStream, "", nil // each Seat reports for itself
	ctx, kill := context.WithCancel(context.Background())
	f := &Fleet{
		entry: newEntry(own), releaseWait: maxReleaseWait, lookEvery: lookEvery,
		ctx: ctx, kill: kill, done: make(chan struct{}), kick: make(chan struct{}, 1), seats: make(map[units.Unit]*Seat),
	}
	f.state.Process, f.state.Program, f.state.Capacity = g.Process, g.Program, g.LaneCapacity
	return f
}

// Owner returns the bridge.Owner of a stream, which the caller closes. A second Owner of a
// stream can Acquire once the first one is closed. An Owner beyond MaxStreams can Acquire
// once another one is closed.
func (f *Fleet) Owner(g *Group) (*Seat, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seatOf(g, units.Stream(g.Stream))
	if first := f.seats[s.unit]; first != nil && first.group.Stream != g.Stream {
		return nil, fmt.Errorf("streams %s and %s have the same hash: rename one", first.group.Stream, g.Stream)
	}
	_ = s.sit() // if this fails, Acquire retries it
	return s, nil
}

func (f *Fleet) seatOf(g *Group, u units.Unit) *Seat {
	return &Seat{fleet: f, group: *g, unit: u, wake: make(chan struct{}, 1)}
}

// run keeps this process in the group until the Fleet ends.
func (f *Fleet) run() {
	defer close(f.done)
	for try := 0; f.ctx.Err() == nil; try++ {
		m, err := f.enter()
		if err == nil {
			try = 0
			err = f.work(m)
		}
		switch {
		case f.ctx.Err() != nil:
		case kafkaclient.IsPermanent(err):
			f.awaitAsked(err)
		default:
			f.report(err)
			bridge.Sleep(f.ctx, kafkaclient.Backoff(try))
		}
	}
	f.drop(nil)
}

func (f *Fleet) enter() (*fleetMember, error) {
	if err := f.admit(f.ctx); err != nil {
		return nil, err
	}
	return f.newFleetMember()
}

// work serves the streams for one membership, and returns why the membership ended.
func (f *Fleet) work(m *fleetMember) error {
	tick := time.NewTicker(f.lookEvery)
	defer tick.Stop()
	timer := time.NewTimer(f.lookEvery)
	defer timer.Stop()
	looks := 0
	for due := false; ; {
		f.serve(m, due, due && looks%probeLooks == 0)
		timer.Reset(f.untilNext(m))
		select {
		case <-m.ctx.Done():
			err := m.ended()
			f.drop(m)
			return err
		case <-f.kick:
			due = false
		case <-timer.C:
			due = false
		case <-tick.C:
			due = true
			looks++
		}
	}
}

// serve does the work that is due now. With due it also looks at the groups of single
// streams, and with probe for the owners of streams.
func (f *Fleet) serve(m *fleetMember, due, probe bool) {
	f.mu.Lock()
	asks := f.asks
	f.asks = nil
	if f.overdue() {
		f.soon(0)
	}
	if left, away := m.session(); away && left <= 0 {
		f.lapse() // other processes may own the streams by now
	}
	rejoin := !f.rejoin.IsZero() && time.Until(f.rejoin) <= 0
	if rejoin {
		f.rejoin = time.Time{}
		rejoin = f.force || f.state.Changed()
	}
	var look []*Seat
	waits := false
	for _, s := range f.seats {
		held := f.state.State(s.unit) == units.Held
		// A command with --here can take a job at any time, so the group of its lanes is
		// checked each time. For a stream one check is enough: a process of the stream's
		// own group fences our session.
		if held && (!s.cleared || s.unit.IsLane()) && (due || !s.looked) {
			look, s.looked = append(look, s), true
		}
		waits = waits || s.waiting
	}
	f.mu.Unlock()
	if rejoin {
		m.client.ForceRebalance()
	}
	if len(asks) > 0 {
		m.answer(asks)
	}
	if len(look) > 0 {
		f.tell(look, m.look(look))
	}
	if probe && waits {
		f.report(m.probe())
	}
}

// overdue stops waiting for streams that are not released in time. It reports whether there
// are any. The caller holds mu.
func (f *Fleet) overdue() (any bool) {
	for u, s := range f.seats {
		if s.tenure != nil && f.state.State(u) == units.Releasing && time.Since(s.tenure.since) >= f.releaseWait {
			f.state.Overdue(u)
			any = true
		}
	}
	return any
}

// soon plans a rejoin after a while. An earlier plan stays. The caller holds mu.
func (f *Fleet) soon(after time.Duration) {
	if at := time.Now().Add(after); f.rejoin.IsZero() || at.Before(f.rejoin) {
		f.rejoin = at
		f.wakeRun()
	}
}

// changed plans a rejoin for a change of a stream. The caller holds mu.
func (f *Fleet) changed() {
	if f.moving > 0 {
		f.soon(slowDelay)
		return
	}
	f.soon(rejoinDelay)
}

// untilNext returns the time until the next work is due.
func (f *Fleet) untilNext(m *fleetMember) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.lookEvery
	if !f.rejoin.IsZero() {
		next = min(next, time.Until(f.rejoin))
	}
	if left, away := m.session(); away && left > 0 {
		next = min(next, left)
	}
	return next
}

func (f *Fleet) wakeRun() { poke(f.kick) }

// poke wakes the goroutine that waits for a channel of capacity 1.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// report passes the health of the brokers to the seats.
func (f *Fleet) report(err error) {
	if errors.Is(err, errInstanceIDConflict) || f.ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported(err)
}

// tell passes its own error to each of these seats, and then that there is none any more.
func (f *Fleet) tell(seats []*Seat, errs []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range seats {
		if errs[i] != nil || s.problem != nil {
			s.problem, s.seen = errs[i], -1
			poke(s.wake)
		}
	}
}

// reported is report if the caller holds mu.
func (f *Fleet) reported(err error) {
	f.reports++
	f.health = err
	f.wakeSeats()
}

// wakeSeats wakes the calls of Acquire. The caller holds mu.
func (f *Fleet) wakeSeats() {
	for _, s := range f.seats {
		poke(s.wake)
	}
}

// awaitAsked reports an error that waiting does not resolve, and waits for the next
// Acquire.
func (f *Fleet) awaitAsked(err error) {
	f.mu.Lock()
	f.asked = false
	f.mu.Unlock()
	f.report(err)
	bridge.Sleep(f.ctx, kafkaclient.Backoff(0))
	for {
		f.mu.Lock()
		asked := f.asked
		f.mu.Unlock()
		if asked {
			return
		}
		select {
		case <-f.kick:
		case <-f.ctx.Done():
			return
		}
	}
}

// drop ends a membership without telling the coordinator: all streams are lost. m may be
// nil.
func (f *Fleet) drop(m *fleetMember) {
	if m != nil {
		m.stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.member, f.rejoin, f.force = nil, time.Time{}, false
	f.lapse()
	for _, t := range slices.Concat(f.unsaid, f.unheard) {
		close(t.ended)
	}
	f.unsaid, f.unheard, f.asks = nil, nil, nil
}

// lapse marks all streams as lost. The caller holds mu.
func (f *Fleet) lapse() {
	for _, u := range f.state.Lapse() {
		f.seats[u].stop()
	}
}

// Close leaves the group, so that other processes take over at once. It takes a few seconds
// at most, and ends when ctx ends. The caller has closed all Owners.
func (f *Fleet) Close(ctx context.Context) error {
	f.kill()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	f.mu.Lock()
	started := f.started
	f.mu.Unlock()
	if !started {
		return nil
	}
	<-f.done
	if f.last == nil {
		return nil
	}
	return f.last.leave(ctx)
}
