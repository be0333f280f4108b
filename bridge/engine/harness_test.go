package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// harness is a stream with everything around it in memory. It is used inside a
// synctest bubble, so its time is virtual.
type harness struct {
	t      *testing.T
	cfg    engine.Config
	source *bridgetest.Source
	topic  *bridgetest.Topic
	store  *bridgetest.Store
	inbox  *bridgetest.Inbox
	log    *strings.Builder

	procs []*proc       // with several processes
	turn  chan struct{} // whose turn it is to ask the source, with several processes
	again atomic.Int64  // events published with the mark of a rewind

	mu   sync.Mutex // guards seen
	seen []bridge.Observation

	bridge *engine.Engine
	stop   context.CancelFunc
	ended  chan error
}

func newHarness(t *testing.T, x bridgetest.Export) *harness {
	if x.PageSize == 0 {
		x.PageSize = 10
	}
	r := &harness{
		t: t, source: bridgetest.NewSource(t, x), topic: bridgetest.NewTopic(t, bridge.AtLeastOnce),
		store: bridgetest.NewStore(t, "events"), inbox: bridgetest.NewInbox(t), log: new(strings.Builder),
	}
	r.store.Acknowledged = r.topic.Acknowledged
	r.cfg = engine.Config{
		Stream: "events", Mode: bridge.AtLeastOnce, Origin: bridge.Origin{Resource: "events"}, PageSize: x.PageSize,
		Owner:        "me",
		PollInterval: time.Second, PollIntervalMax: 15 * time.Second, PrefetchPages: 8, PrefetchBytes: 16 << 20,
		RetryMax: 30 * time.Second, EmptyPages: 5, OnInvalidCursor: "stop", OnSharedID: "publish", Overlap: time.Hour,
		OnCheckpointLoss: "kafka", ShutdownTimeout: 25 * time.Second,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	return r
}

// exactly makes the stream of a new harness an exactly-once one.
func (r *harness) exactly() {
	r.topic = bridgetest.NewTopic(r.t, bridge.ExactlyOnce)
	r.store.Acknowledged = r.topic.Committed
	r.cfg.Mode = bridge.ExactlyOnce
}

// switchMode changes the delivery of what is started next, on the same topic.
func (r *harness) switchMode(mode bridge.Mode) {
	r.cfg.Mode = mode
	r.topic.Deliver(mode)
	r.store.Acknowledged = r.topic.Committed
}

// forgetCheckpoints makes the topic lose its checkpoints and keep its events.
func (r *harness) forgetCheckpoints() { r.topic.ForgetCheckpoints("events") }

// exactlyInBubble is inBubble with an exactly-once stream.
func exactlyInBubble(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	inBubble(t, x, func(r *harness) {
		r.exactly()
		test(r)
	})
}

// deliver makes the stream of a new harness one of a delivery.
func (r *harness) deliver(mode bridge.Mode) {
	if mode == bridge.ExactlyOnce {
		r.exactly()
	}
}

// inModes runs a test with both deliveries.
func inModes(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) {
			bubble(t, x, func(r *harness) {
				r.deliver(mode)
				test(r)
			})
		})
	}
}

// row is a subtest in a bubble, beside others.
func row(t *testing.T, name string, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, x, test) })
}

// exactRow is row with an exactly-once stream.
func exactRow(t *testing.T, name string, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { exactBubble(t, x, test) })
}

// rowInModes is row with both deliveries.
func rowInModes(t *testing.T, name string, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		inModes(t, x, test)
	})
}

// bubble is inBubble beside other tests.
func bubble(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	t.Parallel()
	inBubble(t, x, test)
}

// exactBubble is exactlyInBubble beside other tests.
func exactBubble(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	t.Parallel()
	exactlyInBubble(t, x, test)
}

// inBubble runs a test under virtual time and shows the engine's log if it fails.
func inBubble(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, x)
		test(r)
		if r.stop != nil {
			r.end()
		}
		for _, p := range r.procs {
			p.end()
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
}

// Observe implements bridge.Observer.
func (r *harness) Observe(o bridge.Observation) {
	o.Times = slices.Clone(o.Times)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

// observed returns what was told of a kind, with the code where it is not empty.
func (r *harness) observed(what bridge.What, code string) (all []bridge.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.seen {
		if o.What == what && (code == "" || o.Code == code) {
			all = append(all, o)
		}
	}
	return all
}

// start begins a new process on the same topic and store.
func (r *harness) start() {
	r.t.Helper()
	r.startWith(engine.Ports{Inbox: r.inbox})
}

// grow lists n more events and lets time pass.
func (r *harness) grow(n int, d time.Duration) {
	r.t.Helper()
	r.source.Grow(n)
	r.after(d)
}

// startFor begins a new process and lets time pass.
func (r *harness) startFor(d time.Duration) {
	r.t.Helper()
	r.start()
	r.after(d)
}

// follow lists n more events, begins a new process and lets time pass.
func (r *harness) follow(n int, d time.Duration) {
	r.t.Helper()
	r.source.Grow(n)
	r.startFor(d)
}

// ran is follow that ends the process.
func (r *harness) ran(n int, d time.Duration) {
	r.t.Helper()
	r.follow(n, d)
	r.mustEnd()
}

// restart ends the process, begins another one and lets time pass.
func (r *harness) restart(d time.Duration) {
	r.t.Helper()
	_ = r.end()
	r.startFor(d)
}

// startWith is start with other ports; those that are nil are the harness's, but for the
// inbox.
func (r *harness) startWith(p engine.Ports) {
	r.t.Helper()
	if p.Source == nil {
		p.Source = r.source
	}
	if p.Sink == nil {
		p.Sink = r.topic.Open("events")
	}
	if p.Published == nil {
		p.Published = publishedIn{r.topic, new([]time.Time)}
	}
	if p.History == nil {
		p.History = storeHistory{r.store}
	}
	if p.Store == nil {
		p.Store = r.store
	}
	if p.Observer == nil {
		p.Observer = r
	}
	p.Sink = markCounter{p.Sink, r.t, r.topic, &r.again}
	e := must.Get(engine.New(r.cfg, p))(r.t)
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	r.bridge, r.stop, r.ended = e, stop, ended
	go func() { ended <- e.Run(ctx) }()
}

// markCounter counts the events that are marked as coming again. It fails the
// test where one was never in the topic before.
type markCounter struct {
	bridge.Sink
	t     *testing.T
	topic *bridgetest.Topic
	again *atomic.Int64
}

func (m markCounter) Send(ctx context.Context, p *bridge.Page) error {
	held := make(topicIndex)
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Republished {
			continue
		}
		m.again.Add(1)
		if _, known := held[string(e.Raw)]; !known {
			held[string(e.Raw)] = m.topic.Count(e.Raw)
		}
		if !held.Match(e) {
			m.t.Errorf("%s is marked as published again, and was never published", e.Raw)
		}
	}
	return m.Sink.Send(ctx, p)
}

// turns lets two processes ask one source, which takes one caller at a time.
// A channel, not a mutex: virtual time stands still while one waits for a mutex.
type turns struct {
	turn   chan struct{}
	source bridge.Source
}

func (s turns) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.source.Fetch(ctx, at)
}

func (s turns) Decode(p *bridge.Page) error {
	return s.source.Decode(p)
}

// end stops the process in order and returns what Run said.
func (r *harness) end() error {
	r.stop()
	err := <-r.ended
	r.stop = nil
	return err
}

// run starts a bounded run and waits for it.
func (r *harness) run() error {
	r.t.Helper()
	return r.runWith(engine.Ports{Inbox: r.inbox})
}

// endsWithin waits so long for the end of a bounded run, and returns what it returned.
func (r *harness) endsWithin(d time.Duration) (err error) {
	r.t.Helper()
	r.after(d)
	select {
	case err = <-r.ended:
		r.stop()
		r.stop = nil
	default:
		s := r.bridge.Status()
		r.t.Errorf("a bounded run has not ended after %s, it is %s %s %q", d, s.State, s.Reason, s.Error)
	}
	return err
}

// mustRun is run that must succeed, as mustEnd is end.
func (r *harness) mustRun() {
	r.t.Helper()
	must.Do(r.t, r.run())
}

func (r *harness) mustEnd() {
	r.t.Helper()
	must.Do(r.t, r.end())
}

func (r *harness) runWith(p engine.Ports) error {
	r.t.Helper()
	r.startWith(p)
	err := <-r.ended
	r.stop()
	r.stop = nil
	return err
}

// after lets virtual time pass and everything settle. A script of the source sees
// what the test wrote before: both take the source's mutex.
func (r *harness) after(d time.Duration) {
	r.source.Requests()
	time.Sleep(d) //nolint:forbidigo // virtual time: nothing is waited for
	synctest.Wait()
}

// values returns what a consumer finds, in topic order.
func (r *harness) values() []string {
	var all []string
	for _, rec := range r.topic.Records() {
		if rec.Defect == bridge.DefectNone {
			all = append(all, string(rec.Value))
		}
	}
	return all
}

// wantOnce checks that the topic holds every item once, in order.
func (r *harness) wantOnce() {
	r.t.Helper()
	var want []string
	for _, item := range r.source.Items() {
		want = append(want, string(item.Raw))
	}
	if got := r.values(); !slices.Equal(got, want) {
		r.t.Errorf("topic holds %s\nexport holds %s", brief(got), brief(want))
	}
}

// wantAll checks that the topic holds every item at least once, that copies
// come from batches that were not acknowledged, and that first copies are in order.
func (r *harness) wantAll() {
	r.t.Helper()
	var first []string
	copies := make(map[string]int)
	for _, v := range r.values() {
		if copies[v]++; copies[v] == 1 {
			first = append(first, v)
		}
	}
	unsure := make(map[string]int)
	for _, k := range r.topic.Kept() {
		if r.store.Acknowledged(k.Checkpoint) && r.committed(k.Checkpoint) {
			continue
		}
		for _, rec := range k.Records {
			unsure[string(rec.Value)]++
		}
	}
	for v, n := range copies {
		if n-unsure[v] > 1 {
			r.t.Errorf("%s is %d times in the topic, and only %d times in batches that were in flight", v, n, unsure[v])
		}
	}
	var want []string
	for _, item := range r.source.Items() {
		want = append(want, string(item.Raw))
	}
	if !slices.Equal(first, want) {
		r.t.Errorf("topic holds, first copies only, %s\nexport holds %s", brief(first), brief(want))
	}
}

// committed reports whether a batch's checkpoint reached the store.
func (r *harness) committed(c bridge.Checkpoint) bool {
	return slices.ContainsFunc(r.store.History(), func(h bridge.Checkpoint) bool {
		return h.Version == c.Version && h.Session == c.Session && h.Cursor == c.Cursor
	})
}

func brief(items []string) string {
	if len(items) > 12 {
		return fmt.Sprintf("%d items %q ... %q", len(items), items[:3], items[len(items)-3:])
	}
	return fmt.Sprintf("%d items %q", len(items), items)
}

// wantEvents checks how many events the topic holds.
func (r *harness) wantEvents(n int) {
	r.t.Helper()
	if got := len(r.values()); got != n {
		r.t.Errorf("%d events are published, want %d", got, n)
	}
}

// wantLogged checks how often the log says something.
func (r *harness) wantLogged(text string, n int) {
	r.t.Helper()
	if got := strings.Count(r.log.String(), text); got != n {
		r.t.Errorf("the log says %d times %q, want %d", got, text, n)
	}
}

// wantIdleAfter checks, after a time, that the stream has all events, each once.
func (r *harness) wantIdleAfter(d time.Duration) {
	r.t.Helper()
	r.after(d)
	r.wantState(bridge.StateIdle, "")
	r.wantOnce()
}

// wantState checks the state and, if it is blocked, why.
func (r *harness) wantState(state bridge.State, reason bridge.Reason) {
	r.t.Helper()
	if s := r.bridge.Status(); s.State != state || s.Reason != reason {
		r.t.Errorf("state is %s %s %q, want %s %s", s.State, s.Reason, s.Error, state, reason)
	}
}

// wantBlocked checks what a bounded run returned.
func wantBlocked(t *testing.T, err error, reason bridge.Reason) {
	t.Helper()
	blocked, ok := errors.AsType[*bridge.BlockedError](err)
	if !ok || blocked.Reason != reason {
		t.Errorf("run ended with %v, want blocked (%s)", err, reason)
	}
}

// always returns a function for Source.Refuse that refuses each request with a fault.
func always(f bridge.Fault) func(bridge.Position) error {
	f.Err = cmp.Or(f.Err, errors.New("refused"))
	return func(bridge.Position) error { return &f }
}
