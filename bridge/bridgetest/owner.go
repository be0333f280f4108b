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

const (
	// groupSession and groupPatience are what a Group has unless told otherwise.
	groupSession  = 10 * time.Second
	groupPatience = 20 * time.Second
	// groupTwin is when a process is to ask again whose instance id another one
	// has taken.
	groupTwin = 3 * time.Second
)

// Group decides in memory which of several processes runs a stream. Open
// gives Owners for it. The stream goes to whoever waits longest in Acquire.
// All methods may be called concurrently.
//
// Its Owners fail the test where two goroutines are in Acquire at once, where
// a process asks for a stream that it has not released, and where it never
// releases it.
type Group struct {
	t testing.TB
	// SessionTimeout is how long a process that is away keeps the stream, and
	// Patience how long one keeps it that was told to let it go. Set before use.
	SessionTimeout, Patience time.Duration
	// AllowMisuse turns the checks off. The conformance suite ends processes
	// in the midst of things. Set before use.
	AllowMisuse bool
	// Mute makes Shared and Rival wait until their context ends, as a server that
	// does not answer does. Set before use.
	Mute bool

	confirms calls[error]

	mu      sync.Mutex // guards all below and the Owners; never held while waiting
	members []*Owner
	waiting []*Owner // in the order in which they came
	tenure  *tenure  // nil while nobody has the stream
	only    *Owner   // who may have it; nil is anybody
	rival   *Group   // which runs the stream too
	down    bool
	changed chan struct{} // closed and replaced whenever the above change
}

// NewGroup returns a Group without processes.
func NewGroup(t testing.TB) *Group {
	g := &Group{
		t: t, SessionTimeout: groupSession, Patience: groupPatience,
		changed: make(chan struct{}),
	}
	t.Cleanup(g.check)
	return g
}

// check complains about a stream that was never released.
func (g *Group) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.AllowMisuse && g.tenure != nil && !g.tenure.owner.away {
		g.t.Errorf("group: process %s never released the stream", g.tenure.owner.name)
	}
}

// Open returns the Owner of a process that has just started. instance is its
// static id, under which it has the stream back at once after a crash; empty
// is none.
func (g *Group) Open(instance string) *Owner {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := &Owner{group: g, instance: instance, name: fmt.Sprint(len(g.members) + 1)}
	g.members = append(g.members, o)
	return o
}

// Rivals makes each of two groups see the other as one that can run the same
// stream.
func (g *Group) Rivals(other *Group) {
	for _, each := range [][2]*Group{{g, other}, {other, g}} {
		each[0].mu.Lock()
		each[0].rival = each[1]
		each[0].mu.Unlock()
	}
}

// Give makes o the only process that may have the stream, and tells another
// one that has it to let it go. Nil allows all of them again.
func (g *Group) Give(o *Owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.only = o
	if o != nil && g.tenure != nil && g.tenure.owner != o {
		g.revoke()
	}
	g.signal()
}

// Revoke tells the process that has the stream to let it go. It goes to
// another one that waits for it or, if none does, to whoever asks first.
func (g *Group) Revoke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tenure != nil {
		g.revoke()
	}
	g.signal()
}

// Expire takes the stream away at once, without waiting for its release.
func (g *Group) Expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(g.tenure)
}

// Isolate cuts a process off from the coordinator until heal is called. Its
// Acquire waits, its Confirm fails. After SessionTimeout it has lost the
// stream. A process that is never healed is dead.
func (g *Group) Isolate(o *Owner) (heal func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o.away = true
	if t := g.tenure; t != nil && t.owner == o {
		g.after(g.SessionTimeout, func() {
			if o.away {
				g.expire(t)
			}
		})
	}
	g.signal()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		o.away = false
		g.signal()
	}
}

// Break takes the coordinator away until heal is called: Acquire waits,
// Confirm fails. Nobody loses the stream.
func (g *Group) Break() (heal func()) {
	return breakDown(&g.mu, func(down bool) { g.down = down; g.signal() })
}

// FailConfirm makes Confirm number n, counted from 1 over all Owners, return err.
func (g *Group) FailConfirm(n int, err error) { g.confirms.fail(n, err) }

// revoke, expire, lose, free and signal are called by the holder of mu.
func (g *Group) revoke() {
	t := g.tenure
	t.lose()
	g.after(g.Patience, func() { g.free(t) })
}

func (g *Group) expire(t *tenure) {
	if t == nil || t.over {
		return
	}
	t.lose()
	g.free(t)
}

func (g *Group) free(t *tenure) {
	if g.tenure == t {
		g.tenure = nil
	}
	t.over = true
	g.signal()
}

func (g *Group) signal() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// after runs do with mu held, unless the test ends first.
func (g *Group) after(d time.Duration, do func()) {
	timer := time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		do()
	})
	g.t.Cleanup(func() { timer.Stop() })
}

// Owner is a bridge.Owner in memory, see Group.
type Owner struct {
	group    *Group
	name     string
	instance string

	// Guarded by group.mu.
	away   bool
	joined bool
	inCall bool
	fenced bool // another process took the instance id
}

// Acquire implements bridge.Owner.
func (o *Owner) Acquire(ctx context.Context) (bridge.Ownership, error) {
	g := o.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if o.inCall && !g.AllowMisuse {
		g.t.Errorf("group: two calls of Acquire at once in process %s", o.name)
	}
	if g.tenure != nil && g.tenure.owner == o && !g.AllowMisuse {
		g.t.Errorf("group: process %s acquires a stream that it has not released", o.name)
	}
	o.inCall = true
	g.waiting = append(g.waiting, o)
	defer func() {
		o.inCall = false
		g.waiting = slices.DeleteFunc(g.waiting, func(w *Owner) bool { return w == o })
		g.signal()
	}()
	for {
		if err := ctx.Err(); err != nil {
			if g.tenure != nil && !g.down && !o.away {
				err = fmt.Errorf("%w: %w", err, bridge.ErrNotOwner)
			}
			return nil, fmt.Errorf("wait for the stream: %w", err)
		}
		if err := o.refused(); err != nil {
			return nil, err
		}
		if t := o.take(); t != nil {
			return t, nil
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
	}
}

// refused, take, join and mayHave are called by the holder of group.mu.
func (o *Owner) refused() error {
	if !o.fenced || o.rival() == nil {
		return nil
	}
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "fenced_instance_id", RetryAfter: groupTwin,
		Hint: "give each process an instance id of its own",
		Err:  fmt.Errorf("another process has joined with our instance id %s", o.instance),
	}
}

// take returns the stream if this process may have it.
func (o *Owner) take() *tenure {
	g := o.group
	if g.down || o.away {
		return nil
	}
	o.join()
	if g.tenure != nil || !o.mayHave() {
		return nil
	}
	first := slices.IndexFunc(g.waiting, (*Owner).mayHave)
	if g.waiting[first] != o {
		return nil
	}
	g.tenure = &tenure{owner: o, lost: make(chan struct{})}
	return g.tenure
}

func (o *Owner) mayHave() bool {
	return o.joined && !o.away && (o.group.only == nil || o.group.only == o)
}

// join makes the process a member. One with the same instance id is a member
// no more, and its stream goes on here.
func (o *Owner) join() {
	if o.joined {
		return
	}
	o.joined, o.fenced = true, false
	r := o.rival()
	if r == nil {
		return
	}
	r.joined, r.fenced = false, true
	g := o.group
	if g.tenure != nil && g.tenure.owner == r {
		g.expire(g.tenure)
		g.waiting = slices.DeleteFunc(g.waiting, func(w *Owner) bool { return w == o })
		g.waiting = append([]*Owner{o}, g.waiting...)
	}
	g.signal()
}

// rival returns another member with the same instance id.
func (o *Owner) rival() *Owner {
	if o.instance == "" {
		return nil
	}
	for _, m := range o.group.members {
		if m != o && m.joined && m.instance == o.instance {
			return m
		}
	}
	return nil
}

// Close ends the process in order: it lets the stream go and leaves.
func (o *Owner) Close() {
	g := o.group
	g.mu.Lock()
	defer g.mu.Unlock()
	o.away, o.joined = true, false
	if g.tenure != nil && g.tenure.owner == o {
		g.expire(g.tenure)
	}
	g.signal()
}

// tenure is a bridge.Ownership in memory, see Group.
type tenure struct {
	owner *Owner
	lost  chan struct{}
	// Guarded by owner.group.mu.
	told, over bool
}

// Lost implements bridge.Ownership.
func (t *tenure) Lost() <-chan struct{} { return t.lost }

// lose is called by the holder of group.mu.
func (t *tenure) lose() {
	if !t.told {
		t.told = true
		close(t.lost)
	}
}

// Confirm implements bridge.Ownership.
func (t *tenure) Confirm(ctx context.Context) error {
	g := t.owner.group
	g.mu.Lock()
	defer g.mu.Unlock()
	switch err, _ := g.confirms.next(); {
	case ctx.Err() != nil:
		return fmt.Errorf("confirm the stream: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("confirm the stream: %w", err)
	case t.over || t.told:
		return fmt.Errorf("confirm the stream: %w", bridge.ErrNotOwner)
	case g.down || t.owner.away:
		return fmt.Errorf("confirm the stream: %w", ErrDown)
	}
	return nil
}

// Shared implements bridge.Ownership.
func (t *tenure) Shared(ctx context.Context) bool {
	g := t.owner.group
	if g.Mute {
		<-ctx.Done()
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.members, func(o *Owner) bool { return o != t.owner && o.joined && !o.away })
}

// Rival implements bridge.Ownership.
func (t *tenure) Rival(ctx context.Context) (string, error) {
	g := t.owner.group
	if g.Mute {
		<-ctx.Done()
	}
	g.mu.Lock()
	down, other := g.down || t.owner.away, g.rival
	g.mu.Unlock()
	if down || ctx.Err() != nil {
		return "", fmt.Errorf("look for another group: %w", ErrDown)
	}
	if other == nil {
		return "", nil
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if slices.ContainsFunc(other.members, func(o *Owner) bool { return o.joined && !o.away }) {
		return "group other", nil
	}
	return "", nil
}

// Release implements bridge.Ownership.
func (t *tenure) Release() {
	g := t.owner.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !t.over {
		g.free(t)
	}
}
