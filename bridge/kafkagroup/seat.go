package kafkagroup

import (
	"cmp"
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

// Seat is the bridge.Owner of a stream of a Fleet, or of a lane of a job. The process stays
// a member of the group when it loses the stream, and when an Acquire ends with its
// context. A stream that is released without being lost goes to another process, until the
// next Acquire.
type Seat struct {
	fleet *Fleet
	group Group // the group of the single stream
	unit  units.Unit
	wake  chan struct{} // wakes Acquire

	// Guarded by fleet.mu.
	tenure  *tenure // not released yet; nil if there is none
	waiting bool    // a goroutine is in Acquire
	closed  bool
	seen    int // value of fleet.reports at the last report; -1 if problem has changed since
	// looked is set if the stream's own group was checked since the assignment, cleared if
	// that group was empty. guard is a member found in it.
	looked, cleared bool
	guard           string
	problem         error // why that group could not be checked
}

var _ bridge.Owner = (*Seat)(nil)

var errSeatTaken = errors.New("another Owner of the stream in this process is not closed")

// Acquire implements bridge.Owner. It reports the health of the brokers to Config.Report.
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

// sit adds the stream or lane to the list of the process, unless it is there. The caller
// holds fleet.mu.
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

// ask records that this process wants the stream.
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
		go f.run() // leave waits for its end
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

// take returns the ownership of the stream if the stream is assigned. Otherwise it returns
// the last report; fresh is set if that is new.
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
	fresh, s.seen = s.seen != f.reports, f.reports
	return nil, fresh, s.trouble()
}

// trouble returns the last error of the brokers, or nil if they answer. The caller holds
// fleet.mu.
func (s *Seat) trouble() error {
	if s.problem != nil && s.fleet.state.State(s.unit) == units.Held {
		return s.problem
	}
	return s.fleet.health
}

func (s *Seat) whyWaiting() error {
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if owner := cmp.Or(s.guard, f.owners[s.unit]); owner != "" && s.trouble() == nil {
		return fmt.Errorf("owned by %s: %w", owner, bridge.ErrNotOwner)
	}
	if m := f.member; m != nil {
		if cause := m.client.Trouble(); cause != nil {
			return m.client.Explain(cause, f.group.CheckpointTopic)
		}
	}
	return fmt.Errorf("group %s: not assigned yet", f.name)
}

// clear records a member of the stream's own group; empty means that there is none. The
// caller holds fleet.mu.
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

// stop releases a stream that this process no longer owns. The caller holds fleet.mu.
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

// Close revokes the stream, waits for its Release until ctx ends, and removes it from the
// list of the process, so that another process takes over at once. The process stays in the
// group. An Acquire that waits returns an error.
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

// Abandon does nothing: the other streams need the membership, and Release waits only a few
// seconds for brokers.
func (s *Seat) Abandon() {}

// tenure is a period in which this process owns a stream of a Fleet.
type tenure struct {
	seat *Seat
	// lost is closed by the holder of fleet.mu, released by Release, and ended when other
	// processes can own the stream.
	lost, released, ended chan struct{}
	since                 time.Time // when the release began; guarded by fleet.mu
	losing, releasing     sync.Once
}

// Lost implements bridge.Ownership. The group waits at most 20 seconds for a Release. It
// does not wait if another process already owns the stream.
func (t *tenure) Lost() <-chan struct{} { return t.lost }

func (t *tenure) lose() { t.losing.Do(func() { close(t.lost) }) }

// current reports whether the stream is assigned and not lost.
func (t *tenure) current() bool {
	t.seat.fleet.mu.Lock()
	defer t.seat.fleet.mu.Unlock()
	return t.held()
}

// held is current if the caller holds fleet.mu.
func (t *tenure) held() bool {
	select {
	case <-t.lost:
		return false
	default:
		return t.seat.tenure == t
	}
}

// Confirm implements bridge.Ownership. It requires a heartbeat of the process that begins
// after the call, and the last assignment. During a rebalance the stream stays assigned.
// Confirm also checks whether the stream's own group has members, which take precedence.
func (t *tenure) Confirm(ctx context.Context) error {
	err := bridge.ErrNotOwner
	select {
	case err = <-t.ask():
	case <-t.lost: // the membership may have ended, and then no answer comes
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", t.seat.group.Stream, err)
	}
	return nil
}

// ask requests the answer of a Confirm from the goroutine of the Fleet. No answer comes
// once the membership has ended.
func (t *tenure) ask() <-chan error {
	f := t.seat.fleet
	a := &ask{tenure: t, done: make(chan error, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks = append(f.asks, a)
	f.wakeRun()
	return a.done
}

// Shared implements bridge.Ownership. It reports whether another member wants the stream.
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

// Rival implements bridge.Ownership. It returns a group of another BRIDGE_GROUP.
func (t *tenure) Rival(ctx context.Context) (string, error) {
	return kafkaclient.With(ctx, &t.seat.group.Config, "", t.seat.group.rival)
}

// Release implements bridge.Ownership.
func (t *tenure) Release() { t.releasing.Do(t.release) }

func (t *tenure) release() {
	s, f := t.seat, t.seat.fleet
	f.mu.Lock()
	free := t.held() // no rebalance asked for the release
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
	ends := free || f.state.State(s.unit) != units.Held // otherwise this process keeps the stream, and waits
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
