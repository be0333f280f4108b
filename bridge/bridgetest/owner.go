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
	// groupSession and groupPatience are the defaults of a Group.
	groupSession  = 10 * time.Second
	groupPatience = 20 * time.Second
	// groupTwin is the delay after which a process may ask again when another one has taken
	// its instance id.
	groupTwin = 3 * time.Second
)

// Group decides in memory which of several processes runs a stream. Open returns their
// Owners. The process that has waited longest in Acquire gets the stream. All methods may
// be called concurrently.
//
// An Owner fails the test if two goroutines call its Acquire at once, if the process
// acquires a stream that it has not released, or if the process never releases the stream.
type Group struct {
	t testing.TB
	// SessionTimeout is how long an unreachable process keeps the stream. Patience is how
	// long a process keeps the stream after it was told to release it. Set before use.
	SessionTimeout, Patience time.Duration
	// AllowMisuse turns the checks off: the conformance suite ends processes at any moment.
	// Set before use.
	AllowMisuse bool
	// Mute makes Shared and Rival wait until their context ends, like a server that does
	// not answer. Set before use.
	Mute bool

	confirms calls[error]

	mu      sync.Mutex // guards all below and the Owners; never held while waiting
	members []*Owner
	waiting []*Owner // in the order of their calls
	tenure  *tenure  // nil while no process owns the stream
	only    *Owner   // the only process that may own the stream; nil allows all
	rival   *Group   // another group that can run the stream
	down    bool
	changed chan struct{} // closed and replaced whenever a field above changes
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

// check fails the test if the stream was never released.
func (g *Group) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.AllowMisuse && g.tenure != nil && !g.tenure.owner.away {
		g.t.Errorf("group: process %s never released the stream", g.tenure.owner.name)
	}
}

// Open returns the Owner of a new process. instance is its static id, with which it owns
// the stream again at once after a crash; empty is none.
func (g *Group) Open(instance string) *Owner {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := &Owner{group: g, instance: instance, name: fmt.Sprint(len(g.members) + 1)}
	g.members = append(g.members, o)
	return o
}

// Rivals makes each of two groups see the other as a group that can run the same stream.
func (g *Group) Rivals(other *Group) {
	for _, each := range [][2]*Group{{g, other}, {other, g}} {
		each[0].mu.Lock()
		each[0].rival = each[1]
		each[0].mu.Unlock()
	}
}

// Give makes o the only process that may own the stream, and tells any other owner to
// release the stream. Nil allows all processes again.
func (g *Group) Give(o *Owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.only = o
	if o != nil && g.tenure != nil && g.tenure.owner != o {
		g.revoke()
	}
	g.signal()
}

// Revoke tells the owner to release the stream. The next owner is a process that waits or,
// if none does, the first that calls Acquire.
func (g *Group) Revoke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tenure != nil {
		g.revoke()
	}
	g.signal()
}

// Expire ends the ownership at once, without waiting for a release.
func (g *Group) Expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(g.tenure)
}

// Isolate cuts a process off from the coordinator until heal is called: its Acquire waits,
// and its Confirm fails. After SessionTimeout the process has lost the stream.
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

// Break makes the coordinator unreachable until heal is called: Acquire waits, and Confirm
// fails. No process loses the stream.
func (g *Group) Break() (heal func()) {
	return breakDown(&g.mu, func(down bool) { g.down = down; g.signal() })
}

// FailConfirm makes Confirm number n, counted from 1 over all Owners, return err.
func (g *Group) FailConfirm(n int, err error) { g.confirms.fail(n, err) }

// The caller of revoke, expire, lose, free and signal holds mu.
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

// The caller of refused, take, join and mayHave holds group.mu.
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

// take acquires the stream if this process may own it, and returns nil otherwise.
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

// join makes the process a member. It replaces a member with the same instance id, and
// takes over the stream of that member.
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

// Close ends the process in order: it releases the stream and leaves the group.
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

// lose ends the ownership. The caller holds group.mu.
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
