package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/bridge/engine"
)

// redis is the controller's ports to Redis, on the fakes of a store and an inbox.
type redis struct {
	*bridgetest.Store
	inbox *bridgetest.Inbox
	known []string
	lacks func(c *bridge.Checkpoint) bool // which commits are no entries; may be nil
	asked []bridge.HistoryQuery           // what History was asked for

	mu    sync.Mutex // guards all below
	down  bool
	live  *bridge.Status
	last  bridge.Command // that was requested
	since time.Time
}

func newRedis(t *testing.T) *redis {
	return &redis{Store: bridgetest.NewStore(t, "events"), inbox: bridgetest.NewInbox(t)}
}

// away makes Redis unreachable until heal is called.
func (s *redis) away() (heal func()) {
	store, inbox := s.Break(), s.inbox.Break()
	set := func(down bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.down = down
	}
	set(true)
	return func() {
		store()
		inbox()
		set(false)
	}
}

// fault is an error as the real store returns it.
func fault(err error) error {
	switch {
	case errors.Is(err, bridgetest.ErrDown):
		return &bridge.Fault{Code: "network", Hint: "check that Redis runs", Err: err}
	case errors.Is(err, bridge.ErrForeign):
		return &bridge.Fault{Class: bridge.Permanent, Code: "foreign", Err: err}
	}
	return err
}

func (s *redis) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return fault(bridgetest.ErrDown)
	}
	return nil
}

func (s *redis) Load(ctx context.Context) (bridge.Checkpoint, error) {
	c, err := s.Store.Load(ctx)
	return c, fault(err)
}

func (s *redis) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	return fault(s.Store.Advance(ctx, from, to))
}

// branch returns the history newest first, with all branches. Heartbeats are
// no entries unless a change left them. The parent of an epoch's first entry is as
// cursorstore finds it: the commit before or the one it was moved to, or else the newest
// entry, if the epoch continues that.
func (s *redis) branch() []bridge.Entry {
	var all []bridge.Entry
	commits := s.Store.History()
	for i, c := range commits {
		if s.lacks != nil && s.lacks(&c) || c.Kind == bridge.KindHeartbeat &&
			(i == len(commits)-1 || commits[i+1].Epoch == c.Epoch) {
			continue
		}
		e := bridge.Entry{Checkpoint: c}
		if newest := slices.IndexFunc(all, func(p bridge.Entry) bool { return c.Continues(&p.Checkpoint) }); c.Seq == 0 &&
			i > 0 {
			switch to := c.MovedTo(); {
			case c.Continues(&commits[i-1]):
				e.Parent = &commits[i-1].Version
			case to != nil:
				e.Parent = to
			case newest >= 0:
				e.Parent = &all[newest].Version
			}
		}
		all = slices.Insert(all, 0, e)
	}
	return all
}

func (s *redis) History(_ context.Context, q bridge.HistoryQuery) ([]bridge.Entry, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.asked = append(s.asked, q)
	all := slices.DeleteFunc(s.branch(), func(e bridge.Entry) bool {
		return !q.Since.IsZero() && e.WrittenAt < q.Since.UnixMilli() || !q.Before.IsZero() &&
			e.WrittenAt >= q.Before.UnixMilli()
	})
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return all, nil
}

func (s *redis) first(is func(e *bridge.Entry) bool) (bridge.Entry, error) {
	if err := s.check(); err != nil {
		return bridge.Entry{}, err
	}
	for _, e := range s.branch() {
		if is(&e) {
			return e, nil
		}
	}
	return bridge.Entry{}, fmt.Errorf("the fake: %w", bridge.ErrNoEntry)
}

func (s *redis) Entry(_ context.Context, at bridge.Version) (bridge.Entry, error) {
	return s.first(func(e *bridge.Entry) bool { return e.Version == at })
}

func (s *redis) EntryAt(_ context.Context, t time.Time) (e bridge.Entry, next *bridge.Entry, err error) {
	return s.current(func(e *bridge.Entry) bool { return e.WrittenAt <= t.UnixMilli() })
}

func (s *redis) Back(_ context.Context, from, pages int64) (e bridge.Entry, next *bridge.Entry, err error) {
	if s.Get() == nil {
		return bridge.Entry{}, nil, bridge.ErrNoCheckpoint
	}
	return s.current(func(e *bridge.Entry) bool { return e.Pages <= from-pages })
}

// current is first on the current branch, with the next newer entry.
func (s *redis) current(is func(e *bridge.Entry) bool) (e bridge.Entry, next *bridge.Entry, err error) {
	if err := s.check(); err != nil {
		return bridge.Entry{}, nil, err
	}
	var at *bridge.Version
	for _, e := range s.branch() {
		if at != nil && (e.Epoch != at.Epoch || e.Version.Compare(*at) > 0) {
			continue
		}
		if is(&e) {
			return e, next, nil
		}
		if at, next = &e.Version, &e; e.Seq == 0 {
			if at = e.Parent; at == nil {
				break
			}
		}
	}
	return bridge.Entry{}, nil, fmt.Errorf("the fake: %w", bridge.ErrNoEntry)
}

func (s *redis) Around(_ context.Context, t, late time.Time) (before, later *bridge.Checkpoint, err error) {
	if err := s.check(); err != nil {
		return nil, nil, err
	}
	all := s.branch()
	if len(all) == 0 {
		return nil, nil, bridge.ErrNoCheckpoint
	}
	for i, at := 0, all[0].Version; i < len(all) && before == nil; i++ {
		e := &all[i]
		if e.Epoch != at.Epoch || e.Version.Compare(at) > 0 {
			continue
		}
		if e.Parent != nil {
			at = *e.Parent
		}
		switch position, known := e.KnownPosition(); {
		case !known:
		case position < t.UnixMilli():
			before = &e.Checkpoint
		case position >= late.UnixMilli():
			later = &e.Checkpoint
		}
	}
	return before, later, nil
}

func (s *redis) Find(_ context.Context, match func(*bridge.Checkpoint) bool) (bridge.Entry, error) {
	return s.first(func(e *bridge.Entry) bool { return match(&e.Checkpoint) })
}

func (s *redis) Next(ctx context.Context) (bridge.Command, error) {
	c, err := s.inbox.Next(ctx)
	if err = fault(err); err != nil && ctx.Err() == nil {
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return c, err
}

func (s *redis) Claim(ctx context.Context, c bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	s.mu.Lock()
	if c.ID == s.last.ID {
		c.Deadline = s.last.Deadline // as the store has it
	}
	s.mu.Unlock()
	got, err := s.inbox.Claim(ctx, c, by)
	return got, fault(err)
}

func (s *redis) Answer(ctx context.Context, c bridge.Command, by bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	first, err := s.inbox.Answer(ctx, c, by, a)
	return first, fault(err)
}

func (s *redis) Request(ctx context.Context, c bridge.Command, ttl time.Duration) error {
	if err := s.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, late := s.outcome(s.last), time.Now().UnixMilli() >= s.last.Deadline
	switch {
	case s.last.ID == "":
	case o.State == bridge.CommandPending && late:
		_, _ = s.inbox.Answer(ctx, s.last, bridge.Claim{}, bridge.ExpiredAnswer("no owner claimed it before its deadline"))
	case o.State == bridge.CommandPending || o.State == bridge.CommandClaimed:
		return fmt.Errorf("the fake: %w", &bridge.PendingError{Command: s.last, Since: s.since, Owner: o.Owner,
			Overdue: late})
	}
	c.Deadline = time.Now().Add(ttl).UnixMilli()
	s.last, s.since = c, time.Now()
	s.inbox.Push(c)
	return nil
}

func (s *redis) outcome(c bridge.Command) bridge.CommandOutcome {
	if a, ok := s.inbox.AnswerTo(c.ID); ok {
		return bridge.CommandOutcome{State: bridge.CommandAnswered, Answer: a}
	}
	if owner, ok := s.inbox.Claimed(c.ID); ok {
		return bridge.CommandOutcome{State: bridge.CommandClaimed, Owner: owner}
	}
	return bridge.CommandOutcome{State: bridge.CommandPending}
}

func (s *redis) Withdraw(_ context.Context, id string) (bridge.CommandOutcome, error) {
	if err := s.check(); err != nil {
		return bridge.CommandOutcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.ID == id && s.inbox.Withdraw(s.last) {
		s.last = bridge.Command{}
		return bridge.CommandOutcome{State: bridge.CommandWithdrawn}, nil
	}
	if s.last.ID != id {
		return bridge.CommandOutcome{State: bridge.CommandUnknown}, nil
	}
	return s.outcome(s.last), nil
}

func (s *redis) Wait(ctx context.Context, id string) (bridge.Answer, error) {
	if err := s.check(); err != nil {
		return bridge.Answer{}, err
	}
	return s.inbox.Await(ctx, id)
}

func (s *redis) Status(context.Context) (bridge.Status, bool, error) {
	err := s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.live == nil {
		return bridge.Status{}, false, err
	}
	return *s.live, true, nil
}

func (s *redis) Now(context.Context) (time.Time, error) { return time.Now().Add(time.Hour), s.check() }

func (s *redis) Streams(context.Context) ([]string, error) { return s.known, s.check() }

// tell sets the status that a running bridge reports; nil is no bridge.
func (s *redis) tell(live *bridge.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = live
}

// kafka is the controller's ports to Kafka, on the fake of a topic.
type kafka struct {
	*bridgetest.Topic
	unreadable error // of the checkpoint topic, after what it shows
	dark       error // of the checkpoint topic, which shows nothing

	mu      sync.Mutex // guards all below
	members []bridge.Member
	unknown error // of the members
}

func (k *kafka) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	return k.WalkBefore(ctx, time.Time{}, visit)
}

func (k *kafka) WalkBefore(_ context.Context, t time.Time, visit func(bridge.Checkpoint) bool) error {
	if k.dark != nil {
		return k.dark
	}
	for _, kept := range slices.Backward(k.Kept()) {
		if (t.IsZero() || kept.Checkpoint.WrittenAt < t.Add(time.Minute).UnixMilli()) && !visit(kept.Checkpoint) {
			break
		}
	}
	return k.unreadable
}

func (k *kafka) Members(context.Context) ([]bridge.Member, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.members, k.unknown
}

func (k *kafka) own(members ...bridge.Member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members = members
}

// harness is a stream with its servers, and a controller of it.
type harness struct {
	*control.Controller
	t      *testing.T
	source *bridgetest.Source
	redis  *redis
	kafka  *kafka
	engine engine.Config
	ports  control.Ports
	open   func() bridge.Sink // of a session
}

const timeout = 30 * time.Second

var why = control.Request{Who: "ann", Reason: "bad deploy", Timeout: timeout}

func newHarness(t *testing.T, mode bridge.Mode) *harness {
	r := &harness{
		t: t, source: bridgetest.NewSource(t, bridgetest.Export{}), redis: newRedis(t),
		kafka: &kafka{Topic: bridgetest.NewTopic(t, mode)}, engine: engine.DefaultConfig(),
	}
	r.open = func() bridge.Sink { return r.kafka.Open("events") }
	e := &r.engine
	e.Stream, e.Mode, e.Origin, e.PageSize, e.Owner = "events", mode, bridge.Origin{Resource: "events"}, 10, "command"
	r.ports = control.Ports{
		Store: r.redis, Entries: r.redis, Inbox: r.redis, Live: r.redis, Directory: r.redis, Log: r.kafka, Group: r.kafka,
		OpenSink: func() (bridge.Sink, error) { return r.open(), nil },
	}
	r.control()
	return r
}

// control replaces the controller.
func (r *harness) control() {
	r.Controller = control.New(r.engine, r.ports)
}

// inBubble runs a test under virtual time, with a stream that no bridge runs. The stream has
// passed 20 pages of 10 events, one page a second.
func inBubble(t *testing.T, mode bridge.Mode, test func(t *testing.T, r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, mode)
		r.runFor(20)
		test(t, r)
	})
}

// inBothModes is inBubble in each delivery mode.
func inBothModes(t *testing.T, test func(t *testing.T, r *harness)) {
	t.Helper()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) { inBubble(t, mode, test) })
	}
}

// run starts a bridge for the stream, which reports its status.
func (r *harness) run() (stop func()) {
	r.t.Helper()
	cfg := r.engine
	cfg.Owner = "pod-1"
	b := must.Get(engine.New(cfg, engine.Ports{Source: r.source, Sink: r.kafka.Open("events"), Store: r.redis, Inbox: r.redis}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			r.t.Errorf("the bridge ended: %v", err)
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			live := b.Status()
			r.redis.tell(&live)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		r.redis.tell(nil)
	})
	r.kafka.own(bridge.Member{ClientID: "exportbridge", Host: "/10.0.0.1", InstanceID: "pod-1", Owner: true})
	return func() {
		cancel()
		running.Wait()
		r.kafka.own()
	}
}

// claim has a session claim the last request and end.
func (r *harness) claim(session string) {
	r.t.Helper()
	must.Get(r.redis.Claim(r.t.Context(), r.redis.last, bridge.Claim{Owner: "pod-1", Session: session}))(r.t)
}

// now is the newest committed checkpoint.
func (r *harness) now() bridge.Checkpoint {
	r.t.Helper()
	p := must.Get(r.Position(r.t.Context()))(r.t)
	return p.Checkpoint
}

// plan plans a move, which must succeed.
func (r *harness) plan(to control.Target) *control.Move {
	r.t.Helper()
	m, err := r.Plan(r.t.Context(), to)
	if err != nil {
		r.t.Fatalf("plan %T%+v: %v", to, to, err)
	}
	return m
}

// want returns the error as the wanted type, or fails the test.
func want[E error](t *testing.T, err error) (e E) {
	t.Helper()
	if !errors.As(err, &e) {
		t.Fatalf("the error is %T %v, want %T", err, err, e)
	}
	return e
}
