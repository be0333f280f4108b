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

// Seat is the bridge.Owner of one stream of a Fleet, or of one lane of a job. The process stays a member of the
// group when it loses the stream, and when an Acquire ends with its context. A stream
// that is released without being lost goes to another process, until the next Acquire.
type Seat struct {
	fleet *Fleet
	group Group // of the single stream
	unit  units.Unit
	wake  chan struct{} // wakes Acquire

	// Guarded by fleet.mu.
	tenure  *tenure // not released yet, nil if there is none
	waiting bool    // in Acquire
	closed  bool
	seen    int // of fleet.reports
	// looked: the stream's own group was checked since the assignment. cleared: it was
	// empty. guard is a member found in it.
	looked, cleared bool
	guard           string
	problem         error // why that group could not be checked; told once
}

var _ bridge.Owner = (*Seat)(nil)

var errSeatTaken = errors.New("another Owner of the stream in this process is not closed")

// Acquire implements bridge.Owner. It reports the brokers' health to Config.Report.
// Permanent faults are those of Owner.Acquire, for the group of the Fleet.
func (s *Seat) Acquire(ctx context.Context) (bridge.Ownership, error) {
	return s.group.wait(ctx, s.acquire)
}

func (s *Seat) acquire(ctx context.Context) (bridge.Ownership, error) {
	if err := s.ask(); err != nil {
		return nil, err
	}
	defer s.unask()
	for {
		t, fresh, err := s.take()
		switch {
		case t != nil:
			return t, nil
		case fresh && kafkaclient.IsPermanent(err):
			return nil, err
		case fresh:
			s.group.Tell(err)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, s.whyWaiting()
		}
	}
}

// sit puts the stream, or lane, on the list of the process unless it is there. The caller holds
// fleet.mu.
func (s *Seat) sit() error {
	f := s.fleet
	switch first := f.seats[s.unit]; {
	case first == s:
		return nil
	case first != nil:
		return errSeatTaken
	case s.unit.IsLane():
		f.lanes++
	default:
		if err := f.group.CheckStreams(len(f.seats) - f.lanes + 1); err != nil {
			return &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonConfig, Code: "fleet_size", Err: err}
		}
	}
	f.state.Add(s.unit)
	f.seats[s.unit] = s
	return nil
}

// ask says that this process wants the stream.
func (s *Seat) ask() error {
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.closed {
		return errGroupClosed
	}
	if err := s.sit(); err != nil {
		return err
	}
	s.waiting, s.seen, f.asked = true, f.reports, true
	if f.state.Want(s.unit, true); !f.started {
		f.started = true
		go f.run() // leave waits for it
	} else if f.member != nil && f.state.Changed() {
		f.changed()
	}
	f.wakeRun()
	return nil
}

func (s *Seat) unask() {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.waiting = false
}

// take returns the ownership of the stream if it is assigned, or what was last
// reported, if that is fresh.
func (s *Seat) take() (t *tenure, fresh bool, err error) {
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.closed {
		return nil, false, errGroupClosed
	}
	if s.tenure == nil && s.cleared && f.state.State(s.unit) == units.Held {
		s.tenure = &tenure{seat: s, lost: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{})}
		return s.tenure, false, nil
	}
	if err := s.problem; err != nil {
		s.problem = nil
		return nil, true, err
	}
	fresh, s.seen = s.seen != f.reports, f.reports
	return nil, fresh, f.health
}

func (s *Seat) whyWaiting() error {
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.member; m != nil {
		if cause := m.client.Trouble(); cause != nil {
			return m.client.Explain(cause, f.group.CheckpointTopic)
		}
	}
	switch owner := f.owners[s.unit]; {
	case s.guard != "":
		return fmt.Errorf("owned by %s: %w", s.guard, bridge.ErrNotOwner)
	case owner != "":
		return fmt.Errorf("owned by %s: %w", owner, bridge.ErrNotOwner)
	}
	return fmt.Errorf("group %s: not assigned yet", f.name)
}

// clear takes note of a member of the stream's own group; empty is none. The caller
// holds fleet.mu.
func (s *Seat) clear(member string) {
	if s.guard != member && member != "" && s.group.Log != nil && !s.unit.IsLane() {
		s.group.Log.Info("the stream waits until its own consumer group has no members",
			"group", s.group.Name(), "member", member, "hint", "end or upgrade the processes with BRIDGE_OWNERSHIP=stream")
	}
	if s.guard = member; member != "" && s.tenure != nil {
		s.tenure.lose()
	}
	s.cleared = member == ""
}

// stop releases a stream that is not this process's any more. The caller holds
// fleet.mu.
func (s *Seat) stop() {
	s.cleared, s.guard = false, ""
	if s.tenure == nil {
		s.fleet.state.Ended(s.unit)
		return
	}
	s.tenure.since = time.Now()
	s.tenure.lose()
	s.fleet.moving++
}

// Close revokes the stream, waits for its Release until ctx ends, and takes it off the
// process's list, so that another process takes over at once. The process stays in the
// group. A waiting Acquire returns an error.
func (s *Seat) Close(ctx context.Context) error {
	f := s.fleet
	f.mu.Lock()
	if s.closed {
		f.mu.Unlock()
		return nil
	}
	s.closed = true
	poke(s.wake)
	if f.seats[s.unit] != s {
		f.mu.Unlock()
		return nil
	}
	t := s.tenure
	if f.state.Stop(s.unit) {
		s.stop()
	}
	f.mu.Unlock()
	if t != nil {
		select {
		case <-t.released:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Remove(s.unit)
	delete(f.seats, s.unit)
	if s.unit.IsLane() {
		f.lanes--
	}
	f.changed()
	return nil
}

// Abandon does nothing: the other streams need the membership, and Release waits for
// brokers a few seconds at most.
func (s *Seat) Abandon() {}

// tenure is a period in which this process owns a stream of a Fleet.
type tenure struct {
	seat *Seat
	// lost is closed by the holder of fleet.mu, released by Release, ended when others
	// can have the stream.
	lost, released, ended chan struct{}
	since                 time.Time // when the release began; guarded by fleet.mu
	losing, releasing     sync.Once
}

// Lost implements bridge.Ownership. The group waits at most 20 seconds for a Release,
// and not at all if another process already owns the stream.
func (t *tenure) Lost() <-chan struct{} { return t.lost }

func (t *tenure) lose() { t.losing.Do(func() { close(t.lost) }) }

// current reports whether the stream is assigned and not lost.
func (t *tenure) current() bool {
	t.seat.fleet.mu.Lock()
	defer t.seat.fleet.mu.Unlock()
	return t.held()
}

// held is current for the holder of fleet.mu.
func (t *tenure) held() bool {
	select {
	case <-t.lost:
		return false
	default:
		return t.seat.tenure == t
	}
}

// Confirm implements bridge.Ownership by a heartbeat of the process that begins after
// the call, and by the last assignment. During a rebalance the stream is still
// assigned. It also looks whether the stream's own group has members, which outrank.
func (t *tenure) Confirm(ctx context.Context) error {
	err := bridge.ErrNotOwner
	select {
	case err = <-t.ask():
	case <-t.lost: // the membership may have ended, with nobody to answer
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.seat.group.Stream, err)
	}
	return nil
}

// ask asks the goroutine of the Fleet for the answer of a Confirm. None comes once the
// membership has ended.
func (t *tenure) ask() <-chan error {
	f := t.seat.fleet
	a := &ask{tenure: t, done: make(chan error, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks = append(f.asks, a)
	f.wakeRun()
	return a.done
}

// Shared implements bridge.Ownership: another member of the group wants the stream.
func (t *tenure) Shared(ctx context.Context) bool {
	f := t.seat.fleet
	f.mu.Lock()
	m, own := f.member, ""
	if m != nil {
		own = m.id
	}
	f.mu.Unlock()
	if m == nil {
		return false
	}
	members, err := f.group.fleet(ctx, m.client)
	return err == nil && slices.ContainsFunc(members, func(l listed) bool { return l.id != own && l.wants(t.seat.unit) })
}

// Rival implements bridge.Ownership: a group of another BRIDGE_GROUP.
func (t *tenure) Rival(ctx context.Context) (string, error) {
	return kafkaclient.With(ctx, &t.seat.group.Config, "", t.seat.group.rival)
}

// Release implements bridge.Ownership.
func (t *tenure) Release() { t.releasing.Do(t.release) }

func (t *tenure) release() {
	s, f := t.seat, t.seat.fleet
	f.mu.Lock()
	free := t.held() // nobody asked for it
	s.tenure = nil
	close(t.released)
	t.lose()
	if !t.since.IsZero() {
		f.moving--
	}
	if free {
		f.state.Want(s.unit, false)
		s.cleared = false
	}
	ends := free || f.state.State(s.unit) != units.Held // else this process keeps it, and waits
	if ends {
		f.state.Ended(s.unit)
	}
	ends = ends && f.member != nil
	if ends {
		f.unsaid = append(f.unsaid, t)
		f.changed()
	}
	f.mu.Unlock()
	if ends {
		closedWithin(f.patience, releaseTimeout, t.ended)
	}
}
