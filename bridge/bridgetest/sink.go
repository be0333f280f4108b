package bridgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
)

// Topic is a topic in memory, with its dead letters and, in exactly-once mode, its
// checkpoints. Open returns Sinks for it. All methods may be called concurrently.
//
// A Sink fails the test if Send or Publish is called without a session, if two goroutines
// call Publish at once, if a page was released or its events are out of order, or if the
// checkpoint is not after the last one of the session.
type Topic struct {
	t    testing.TB
	mode bridge.Mode
	// Latency is how long each Publish takes. Set before use.
	Latency time.Duration
	// Finite is set if the retention of the topic is limited. Set before use.
	Finite bool
	// Name is "events" if empty. Set before use, or after Recreate.
	Name string
	// NoEnds hides the ends of the partitions. Set before use.
	NoEnds bool
	// Copies makes the Sinks of an at-least-once topic keep a copy of the checkpoint before
	// each batch. Recover returns that copy. Set before use.
	Copies bool
	// AllowMisuse makes a call without a session return an error instead of failing the
	// test. The conformance suite makes such calls. Set before use.
	AllowMisuse bool

	publishes calls[Failure]
	recovers  calls[error]

	mu      sync.Mutex // guards all below
	records []Record
	values  map[string]int // number of events among the first counted records, by value
	counted int
	kept    []Kept
	copied  map[string]bridge.Checkpoint // by stream
	acked   map[ackKey]bool
	session map[string]*Sink // the newest of each stream
	up      chan struct{}    // closed while the server is up
	vast    bool
	made    int // how often the topic was created
	// ended is the number of records ever added, trimmed the number of those deleted,
	// partitions the number of partitions.
	ended, trimmed, partitions int
}

// Kept is what one Publish kept in a Topic.
type Kept struct {
	Checkpoint bridge.Checkpoint
	// Records are the records that were kept, dead letters included.
	Records []Record
	exactly bool // the checkpoint was committed with the records
}

// ackKey names a checkpoint whose batch was acknowledged.
type ackKey struct {
	stream  string
	version bridge.Version
	cursor  string
	session string
}

func ackOf(c bridge.Checkpoint) ackKey { return ackKey{c.Stream, c.Version, c.Cursor, c.Session} }

// NewTopic returns an empty topic for Sinks of one delivery mode.
func NewTopic(t testing.TB, mode bridge.Mode) *Topic {
	up := make(chan struct{})
	close(up)
	return &Topic{
		t: t, mode: mode, acked: make(map[ackKey]bool), copied: make(map[string]bridge.Checkpoint),
		session: make(map[string]*Sink),
		up:      up, partitions: 1,
	}
}

// Open returns a Sink of a stream, like that of a new process.
func (p *Topic) Open(stream string) *Sink { return &Sink{topic: p, stream: stream} }

// SetLatency changes Latency while Sinks are in use.
func (p *Topic) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Latency = d
}

func (p *Topic) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Latency
}

// FailPublish makes Publish number n, counted from 1 over all Sinks, fail.
func (p *Topic) FailPublish(n int, f Failure) {
	if f == Partly && p.mode != bridge.AtLeastOnce {
		p.t.Fatalf("topic: a transaction is never partly persisted")
	}
	p.publishes.fail(n, f)
}

// FailNext makes the next Publish fail.
func (p *Topic) FailNext(f Failure) { p.FailPublish(p.Publishes()+1, f) }

// FailRecover makes Recover number n, counted from 1 over all Sinks, return err.
func (p *Topic) FailRecover(n int, err error) { p.recovers.fail(n, err) }

// Break makes the server unreachable until heal is called: Recover and Holds wait, and
// Publish fails.
func (p *Topic) Break() (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	up := make(chan struct{})
	p.up = up
	return sync.OnceFunc(func() { close(up) })
}

// Publishes returns the number of calls of Publish so far.
func (p *Topic) Publishes() int { return p.publishes.count() }

// Recovers returns the number of calls of Recover so far.
func (p *Topic) Recovers() int { return p.recovers.count() }

// Acknowledged reports whether a Publish with this checkpoint returned nil.
func (p *Topic) Acknowledged(c bridge.Checkpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked[ackOf(c)]
}

// Committed reports whether a batch with this checkpoint was committed, even if its caller
// got an error.
func (p *Topic) Committed(c bridge.Checkpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.kept) - 1; i >= 0; i-- { // the newest first: most callers ask about new ones
		k := &p.kept[i].Checkpoint
		if k.Version == c.Version && k.Session == c.Session && k.Cursor == c.Cursor && k.Stream == c.Stream {
			return true
		}
	}
	return false
}

// Forget drops the newest n checkpoints of a stream with their records, like a server that
// lost data.
func (p *Topic) Forget(stream string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counted = 0
	for ; n > 0; n-- {
		i := len(p.kept) - 1
		for i >= 0 && p.kept[i].Checkpoint.Stream != stream {
			i--
		}
		if i < 0 {
			return
		}
		for range p.kept[i].Records {
			j := len(p.records) - 1
			for p.records[j].Stream != stream {
				j--
			}
			p.records, p.ended = slices.Delete(p.records, j, j+1), p.ended-1
		}
		p.kept = slices.Delete(p.kept, i, i+1)
	}
}

// ForgetCheckpoints drops all checkpoints of a stream and keeps its records, like a server
// whose checkpoint topic was deleted.
func (p *Topic) ForgetCheckpoints(stream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = slices.DeleteFunc(p.kept, func(k Kept) bool { return k.Checkpoint.Stream == stream })
	delete(p.copied, stream)
}

// Vast makes the topic too large for Holds to give an answer. Vast(false) ends that.
func (p *Topic) Vast(vast bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vast = vast
}

// Deliver changes the delivery mode of the topic's Sinks. Each mode finds the checkpoints
// of the other. No Sink may have a session.
func (p *Topic) Deliver(mode bridge.Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
}

// reachable waits until the server is up.
func (p *Topic) reachable(ctx context.Context) error {
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	select {
	case <-up:
		return ctx.Err()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrDown, ctx.Err())
	}
}

// copy keeps the checkpoint before an at-least-once batch, or the first one of an epoch.
// The caller holds mu.
func (p *Topic) copy(b bridge.Batch, empty bool) {
	c, known := p.copied[b.Checkpoint.Stream]
	switch {
	case empty && (!known || b.Checkpoint.Epoch != c.Epoch):
		p.copied[b.Checkpoint.Stream] = b.Checkpoint
	case !b.From.Zero():
		p.copied[b.Checkpoint.Stream] = b.From
	}
}

// newest returns the newest committed checkpoint. The caller holds mu.
func (p *Topic) newest(stream string) (bridge.Checkpoint, bool) {
	for i := len(p.kept) - 1; i >= 0; i-- {
		if b := &p.kept[i]; b.exactly && b.Checkpoint.Stream == stream {
			return b.Checkpoint, true
		}
	}
	return bridge.Checkpoint{}, false
}

// found returns what Recover finds. The caller holds mu.
func (p *Topic) found(stream string) (bridge.Checkpoint, bool) {
	c, ok := p.newest(stream)
	if copied, some := p.copied[stream]; some && p.Copies && (!ok || copied.Version.Compare(c.Version) > 0) {
		return copied, true
	}
	return c, ok
}

// Sink is a bridge.Sink on a Topic.
type Sink struct {
	topic  *Topic
	stream string

	// guarded by topic.mu
	open  bool
	busy  bool
	made  int            // Topic.made when the session began
	known int            // the highest known end of the topic
	last  bridge.Version // the last checkpoint of this session
	any   bool           // last is set
	sent  batch
}

// batch is what a Sink has got since the last Publish.
type batch struct {
	pages   int
	records []Record
}

// Load is a batch with its pages.
type Load struct {
	Pages []*bridge.Page
	bridge.Batch
}

// Publish sends the load's pages, which releases them, and publishes the batch.
func (l Load) Publish(ctx context.Context, s bridge.Sink) (bridge.Receipt, error) {
	for i, p := range l.Pages {
		if err := s.Send(ctx, p); err != nil {
			for _, p := range l.Pages[i+1:] {
				p.Release()
			}
			return bridge.Receipt{}, err
		}
	}
	return s.Publish(ctx, l.Batch)
}

// Recover implements bridge.Sink.
func (s *Sink) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	p := s.topic
	p.mu.Lock()
	refusal, _ := p.recovers.next()
	s.open = false
	p.mu.Unlock()
	if refusal != nil {
		return bridge.Checkpoint{}, refusal
	}
	if err := p.reachable(ctx); err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("recover %s: %w", s.stream, err)
	}
	p.mu.Lock()
	s.any, s.sent, s.known = false, batch{}, 0
	p.session[s.stream] = s
	p.mu.Unlock()
	if owned != nil {
		if err := owned(ctx); err != nil {
			return bridge.Checkpoint{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session[s.stream] != s && p.mode == bridge.ExactlyOnce {
		return bridge.Checkpoint{}, fmt.Errorf("recover %s: %w", s.stream, bridge.ErrFenced)
	}
	s.open, s.made = true, p.made
	if c, ok := p.found(s.stream); ok {
		return c, nil
	}
	return bridge.Checkpoint{}, fmt.Errorf("recover %s: %w", s.stream, bridge.ErrNoCheckpoint)
}

// Close implements bridge.Sink.
func (s *Sink) Close() {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.open, s.any, s.sent, s.known = false, false, batch{}, 0
}

// Send implements bridge.Sink. It releases the page at once. In both modes, only Publish
// adds events to the topic.
func (s *Sink) Send(_ context.Context, page *bridge.Page) error {
	defer page.Release()
	p := s.topic
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.open {
		if !p.AllowMisuse {
			p.t.Errorf("sink: the page at %q is sent without a session", page.At.Cursor)
		}
		return fmt.Errorf("send the page at %q: no session", page.At.Cursor)
	}
	s.checkPage(page)
	s.sent.pages++
	s.sent.records = append(s.sent.records, s.recordsOf(page)...)
	return nil
}

// Publish implements bridge.Sink.
func (s *Sink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	p := s.topic
	form, fails, err := s.begin(b)
	defer s.end()
	if err != nil {
		return bridge.Receipt{}, err
	}
	if err := p.isUp(); err != nil {
		return bridge.Receipt{}, s.broken(fmt.Errorf("publish %s: %w", b.Checkpoint.Version, err))
	}
	if err := wait(ctx, p.latency()); err != nil {
		return bridge.Receipt{}, s.broken(fmt.Errorf("publish %s: %w", b.Checkpoint.Version, err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.fenced(b); err != nil {
		return bridge.Receipt{}, err
	}
	sent := s.sent
	s.sent = batch{}
	if s.made != p.made && sent.pages > 0 {
		s.open = false
		return bridge.Receipt{}, fmt.Errorf("publish %s: %w", b.Checkpoint.Version, errReplaced)
	}
	records := sent.records
	if lost := s.known - p.ended; lost > 0 && len(records) > 0 {
		return bridge.Receipt{}, s.cutOff(records, lost)
	}
	if kind := b.Checkpoint.Kind; sent.pages > 0 && kind != bridge.KindData {
		p.t.Errorf("sink: %d pages are published with the %s of checkpoint %s", sent.pages, kind, b.Checkpoint.Version)
	}
	switch {
	case fails && form == Failed:
		records = nil
	case fails && form == Partly:
		records = records[:len(records)/2]
	}
	if !fails || form == Persisted || len(records) > 0 {
		p.records, p.ended = append(p.records, records...), p.ended+len(records)
		p.kept = append(p.kept, Kept{Checkpoint: b.Checkpoint, Records: records, exactly: p.mode == bridge.ExactlyOnce})
	}
	if p.mode == bridge.AtLeastOnce {
		p.copy(b, sent.pages == 0)
	}
	if fails {
		s.open = false
		return bridge.Receipt{}, fmt.Errorf("publish %s: %w", b.Checkpoint.Version, ErrInjected)
	}
	p.acked[ackOf(b.Checkpoint)], s.known = true, max(s.known, p.ended)
	receipt := receiptOf(records)
	receipt.Topics = p.states()
	return receipt, nil
}

// Holds implements bridge.Sink.
func (s *Sink) Holds(ctx context.Context) (bool, error) {
	p := s.topic
	if err := p.reachable(ctx); err != nil {
		return false, fmt.Errorf("look for records of %s: %w", s.stream, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.vast {
		return false, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonCheckpointLost, Err: ErrInjected}
	}
	return slices.ContainsFunc(p.records, func(r Record) bool {
		return r.Stream == s.stream && r.Defect == bridge.DefectNone
	}), nil
}

// isUp returns an error where reachable would wait.
func (p *Topic) isUp() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.up:
		return nil
	default:
		return ErrDown
	}
}

// begin counts the call, checks it, and returns the form in which it fails.
func (s *Sink) begin(b bridge.Batch) (form Failure, fails bool, err error) {
	p := s.topic
	p.mu.Lock()
	defer p.mu.Unlock()
	form, fails = p.publishes.next()
	if s.busy {
		p.t.Errorf("sink: two calls of Publish at once")
	}
	s.busy = true
	if !s.open {
		if !p.AllowMisuse {
			p.t.Errorf("sink: publish %s without a session: Recover was not called, or an error ended it", b.Checkpoint.Version)
		}
		return 0, false, fmt.Errorf("publish %s: no session", b.Checkpoint.Version)
	}
	if err := s.fenced(b); err != nil {
		return 0, false, err
	}
	s.check(b)
	s.last, s.any = b.Checkpoint.Version, true
	return form, fails, nil
}

// fenced ends the session if a newer one has begun. The caller holds the topic's mu.
func (s *Sink) fenced(b bridge.Batch) error {
	if s.topic.mode != bridge.ExactlyOnce || s.topic.session[s.stream] == s {
		return nil
	}
	s.open = false
	return fmt.Errorf("publish %s: %w", b.Checkpoint.Version, bridge.ErrFenced)
}

func (s *Sink) end() {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.busy = false
}

// broken ends the session and returns err.
func (s *Sink) broken(err error) error {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.open = false
	return err
}
