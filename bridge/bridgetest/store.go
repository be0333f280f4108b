package bridgetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// Store is a bridge.Store of one stream, in memory. It fails the test if a checkpoint is of
// another stream, is not after the one that it replaces, or changes when it is encoded and
// decoded.
type Store struct {
	t      testing.TB
	stream string
	// Latency is how long each call takes. Set before use.
	Latency time.Duration
	// Acknowledged, if set, is called with each data checkpoint. If it returns false, the
	// test fails: the cursor would pass events that are not in the topic. Use
	// Topic.Acknowledged. Set before use.
	Acknowledged func(bridge.Checkpoint) bool

	advances calls[Failure]
	loads    calls[error]

	mu      sync.Mutex // guards all below
	value   []byte     // nil without a checkpoint
	history []bridge.Checkpoint
	foreign bool // the value is from Put
	down    bool
}

// NewStore returns an empty Store.
func NewStore(t testing.TB, stream string) *Store {
	return &Store{t: t, stream: stream}
}

// FailAdvance makes Advance number n, counted from 1, fail in the form Failed
// or Persisted.
func (s *Store) FailAdvance(n int, f Failure) {
	if f == Partly {
		s.t.Fatalf("store: an advance is never partly persisted")
	}
	s.advances.fail(n, f)
}

// FailNext makes the next Advance fail.
func (s *Store) FailNext(f Failure) { s.FailAdvance(s.Advances()+1, f) }

// FailLoad makes Load number n, counted from 1, return err.
func (s *Store) FailLoad(n int, err error) { s.loads.fail(n, err) }

// Loads returns the number of calls of Load so far.
func (s *Store) Loads() int { return s.loads.count() }

// Break makes every call fail until heal is called.
func (s *Store) Break() (heal func()) {
	return breakDown(&s.mu, func(down bool) { s.down = down })
}

// Wipe deletes everything, like FLUSHALL.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.history = nil, nil
}

// RollBack undoes the last n changes, like a fail-over to a replica that lagged. It undoes
// all if there were fewer.
func (s *Store) RollBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = s.history[:max(0, len(s.history)-n)]
	s.value, s.foreign = nil, false
	if len(s.history) > 0 {
		s.value = s.encode(s.history[len(s.history)-1])
	}
}

// Get returns the stored bytes, nil if there are none.
func (s *Store) Get() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.value)
}

// Put replaces the stored bytes, like a foreign program.
func (s *Store) Put(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.foreign = append([]byte{}, raw...), true
}

// Checkpoint returns the stored checkpoint. It fails the test if there is none.
func (s *Store) Checkpoint() bridge.Checkpoint {
	s.t.Helper()
	c, err := bridge.DecodeCheckpoint(s.Get())
	if err != nil {
		s.t.Errorf("store: %v", err)
	}
	return c
}

// History returns every stored checkpoint, oldest first, without those that RollBack or
// Wipe removed.
func (s *Store) History() []bridge.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Advances returns the number of calls of Advance so far.
func (s *Store) Advances() int { return s.advances.count() }

// Load implements bridge.Store.
func (s *Store) Load(ctx context.Context) (bridge.Checkpoint, error) {
	if err := wait(ctx, s.Latency); err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("load checkpoint of %s: %w", s.stream, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err, _ := s.loads.next()
	switch {
	case s.down:
		return bridge.Checkpoint{}, fmt.Errorf("load checkpoint of %s: %w", s.stream, ErrDown)
	case err != nil:
		return bridge.Checkpoint{}, err
	}
	return s.stored()
}

// Advance implements bridge.Store.
func (s *Store) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	if err := wait(ctx, s.Latency); err != nil {
		return fmt.Errorf("advance %s to %s: %w", s.stream, to.Version, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	form, fails := s.advances.next()
	raw := s.check(from, to)
	if s.down || fails && form == Failed {
		return fmt.Errorf("advance %s to %s: %w", s.stream, to.Version, cause(s.down))
	}
	err := s.replace(from, to, raw)
	if fails {
		return fmt.Errorf("advance %s to %s: %w", s.stream, to.Version, ErrInjected)
	}
	return err
}

func cause(down bool) error {
	if down {
		return ErrDown
	}
	return ErrInjected
}

// stored decodes the value. The caller holds mu.
func (s *Store) stored() (bridge.Checkpoint, error) {
	if s.value == nil {
		return bridge.Checkpoint{}, fmt.Errorf("checkpoint of %s: %w", s.stream, bridge.ErrNoCheckpoint)
	}
	c, err := bridge.DecodeCheckpoint(s.value)
	if err == nil && c.Stream != s.stream {
		err = fmt.Errorf("%w: it is of stream %q", bridge.ErrForeign, c.Stream)
	}
	if err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("checkpoint of %s: %w", s.stream, err)
	}
	return c, nil
}

// replace is the compare-and-set to the checkpoint that raw encodes. The caller holds mu.
func (s *Store) replace(from, to bridge.Checkpoint, raw []byte) error {
	if s.value != nil {
		var old bridge.Checkpoint
		if s.foreign {
			var err error
			if old, err = s.stored(); err != nil {
				return err
			}
		} else {
			old = s.history[len(s.history)-1]
		}
		switch {
		case old.Version == to.Version && old.Cursor == to.Cursor && old.Session == to.Session:
			return nil
		case to.Version.Compare(old.Version) <= 0, old.ChangeID() != from.ChangeID():
			return fmt.Errorf("advance %s from %s to %s, stored is %s: %w", s.stream, from.Version, to.Version, old.Version,
				bridge.ErrConflict)
		}
	}
	s.value, s.foreign = raw, false
	s.history = append(s.history, to)
	return nil
}

// check fails the test if the call breaks the contract. It returns to, encoded. The caller
// holds mu.
func (s *Store) check(from, to bridge.Checkpoint) []byte {
	if to.Stream != s.stream {
		s.t.Errorf("store: checkpoint %s is of stream %q, not %q", to.Version, to.Stream, s.stream)
	}
	if !from.Zero() && to.Version.Compare(from.Version) <= 0 {
		s.t.Errorf("store: advance from %s to %s, which is not after it", from.Version, to.Version)
	}
	raw := s.encode(to)
	if back, err := bridge.DecodeCheckpoint(raw); err != nil || !reflect.DeepEqual(to, back) {
		s.t.Errorf("store: checkpoint %s is another one when read back: %v\n%s", to.Version, err, cmp.Diff(to, back))
	}
	if to.Kind == bridge.KindData && s.Acknowledged != nil && !s.Acknowledged(to) {
		s.t.Errorf("store: checkpoint %s comes before its events are acknowledged", to.Version)
	}
	return raw
}

func (s *Store) encode(c bridge.Checkpoint) []byte {
	raw, err := c.Encode()
	if err != nil {
		s.t.Errorf("store: %v", err)
	}
	return raw
}
