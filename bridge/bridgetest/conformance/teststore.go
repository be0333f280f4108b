package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// StoreFixture is an empty server, and opens Stores on it.
type StoreFixture struct {
	// Open returns a Store of the named stream on the fixture's server, like that of a new
	// process. The fixture closes the Store.
	Open func(stream string) bridge.Store
	// Get returns the bytes of the stored checkpoint of the stream "events", or nil.
	Get func() []byte
	// Put replaces the stored checkpoint by any bytes, like a foreign program.
	Put func(raw []byte)
	// Wipe deletes all data of the server.
	Wipe func()
	// History returns the versions in the history of "events", oldest first.
	History func() []bridge.Version
	// Break makes the server unreachable, and heal makes it answer again.
	Break func() (heal func())
	// FailNext makes the next Advance fail in the form Failed or Persisted. It is nil if
	// the server cannot do that; then the suite skips the tests that need it.
	FailNext func(f bridgetest.Failure)
}

// TestStore checks a Store against each sentence of its contract.
func TestStore(t *testing.T, newFixture func(t *testing.T) StoreFixture) {
	for _, c := range []struct {
		sentence string
		test     func(*testing.T, StoreFixture)
	}{
		{"the stream is the store's own", storeStreams},
		{"load returns the stored checkpoint, whole", storeLoads},
		{"load returns ErrForeign where the value is not ours", storeForeign},
		{"any other error of load is transient", storeLoadBroken},
		{"advance succeeds iff nothing is stored or to is later with the same change", storeCompares},
		{"advance replaces and adds to the history", storeHistory},
		{"a repetition succeeds and changes nothing", storeRepeats},
		{"any other error of advance is transient and repeating is safe", storeAdvanceBroken},
		{"an unknown outcome can be repeated", storeUnknownOutcome},
		{"a checkpoint that was lost is written again", storeWiped},
		{"all methods may be called concurrently", storeConcurrent},
	} {
		t.Run(c.sentence, func(t *testing.T) { c.test(t, newFixture(t)) })
	}
}

func storeStreams(t *testing.T, f StoreFixture) {
	ours, other := f.Open(stream), f.Open("other")
	wantAbsent(t, ours)
	c := checkpointAt(0, 1)
	mustAdvance(t, ours, bridge.Checkpoint{}, c)
	wantAbsent(t, other)
	d := checkpointAt(0, 7)
	d.Stream = "other"
	mustAdvance(t, other, bridge.Checkpoint{}, d)
	wantStored(t, ours, c)
	wantStored(t, other, d)
}

func storeLoads(t *testing.T, f StoreFixture) {
	c := fullCheckpoint()
	mustAdvance(t, f.Open(stream), bridge.Checkpoint{}, c)
	wantStored(t, f.Open(stream), c) // as another process would
	got, err := bridge.DecodeCheckpoint(f.Get())
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Errorf("the stored bytes are not the checkpoint's JSON form: %v\n%s", err, diff)
	}
}

func storeForeign(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	for name, raw := range map[string]string{
		"empty":          "",
		"text":           "hello",
		"other JSON":     `{"a":1}`,
		"no object":      `[1]`,
		"not UTF-8":      "\xff\xfe",
		"newer version":  fmt.Sprintf(`{"v":%d,"stream":"events"}`, bridge.ListingFormat+1),
		"cut":            `{"v":1,"stream":"eve`,
		"another stream": `{"v":1,"stream":"other","epoch":0,"seq":1}`,
	} {
		f.Put([]byte(raw))
		if c, err := load(t, s); !errors.Is(err, bridge.ErrForeign) {
			t.Errorf("%s: load returned %v, %v; want ErrForeign", name, c.Version, err)
		}
		if err := advance(t, s, checkpointAt(8, 8), checkpointAt(9, 9)); !errors.Is(err, bridge.ErrForeign) {
			t.Errorf("%s: advance returned %v, want ErrForeign", name, err)
		}
		if got := f.Get(); got == nil || string(got) != raw {
			t.Errorf("%s: the value was replaced by %q", name, got)
		}
	}
}

func storeLoadBroken(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	c := checkpointAt(0, 1)
	mustAdvance(t, s, bridge.Checkpoint{}, c)
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	if _, err := s.Load(ctx); !transient(err) {
		t.Errorf("load without a server returned %v, want a transient error", err)
	}
	heal()
	wantStored(t, s, c)
}

func storeCompares(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	changed := func(epoch, seq int64, id string) bridge.Checkpoint {
		c := checkpointAt(epoch, seq)
		c.Change = &bridge.Change{ID: id, Kind: bridge.KindReset}
		return c
	}
	for name, c := range map[string]struct {
		stored, from, to bridge.Checkpoint
		want             error
	}{
		"next":                         {checkpointAt(1, 5), checkpointAt(1, 5), checkpointAt(1, 6), nil},
		"later, some lost between":     {checkpointAt(1, 5), checkpointAt(1, 7), checkpointAt(1, 8), nil},
		"next epoch":                   {checkpointAt(1, 5), checkpointAt(1, 5), checkpointAt(2, 0), nil},
		"same change":                  {changed(1, 5, "r1"), changed(1, 5, "r1"), changed(1, 6, "r1"), nil},
		"a change is applied":          {checkpointAt(1, 5), checkpointAt(1, 5), changed(2, 0, "r1"), nil},
		"a second change is applied":   {changed(1, 5, "r1"), changed(1, 5, "r1"), changed(2, 0, "r2"), nil},
		"earlier seq":                  {checkpointAt(1, 5), checkpointAt(1, 3), checkpointAt(1, 4), bridge.ErrConflict},
		"earlier epoch":                {checkpointAt(2, 0), checkpointAt(1, 8), checkpointAt(1, 9), bridge.ErrConflict},
		"changed by somebody else":     {changed(1, 5, "r1"), checkpointAt(1, 5), checkpointAt(1, 6), bridge.ErrConflict},
		"changed, and a later epoch":   {changed(2, 5, "r1"), checkpointAt(1, 5), checkpointAt(3, 0), bridge.ErrConflict},
		"changed otherwise":            {changed(1, 5, "r2"), changed(1, 5, "r1"), changed(1, 6, "r1"), bridge.ErrConflict},
		"a change that was never seen": {checkpointAt(1, 5), changed(1, 5, "r1"), changed(1, 6, "r1"), bridge.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			f.Wipe()
			mustAdvance(t, s, bridge.Checkpoint{}, c.stored)
			before := f.Get()
			err := advance(t, s, c.from, c.to)
			if !errors.Is(err, c.want) {
				t.Fatalf("advance returned %v, want %v", err, c.want)
			}
			if c.want == nil {
				wantStored(t, s, c.to)
			} else if !bytes.Equal(before, f.Get()) {
				t.Errorf("a refused advance changed the stored value to %s", f.Get())
			}
		})
	}
}

func storeHistory(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	first, second := checkpointAt(0, 1), checkpointAt(1, 0)
	mustAdvance(t, s, bridge.Checkpoint{}, first)
	wantHistory(t, f, first.Version)
	second.Change = &bridge.Change{ID: "r1", Kind: bridge.KindReset}
	second.Kind = bridge.KindReset
	mustAdvance(t, s, first, second)
	wantStored(t, s, second)
	if err := advance(t, s, first, checkpointAt(0, 2)); !errors.Is(err, bridge.ErrConflict) {
		t.Errorf("advance behind a reset returned %v, want ErrConflict", err)
	}
	if h := f.History(); slices.Contains(h, bridge.Version{Seq: 2}) {
		t.Errorf("history %v has a refused checkpoint", h)
	}
}

func storeRepeats(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	from, to := checkpointAt(0, 1), checkpointAt(1, 0)
	to.Change = &bridge.Change{ID: "r1", Kind: bridge.KindReset} // not that of from: a repetition even so
	mustAdvance(t, s, bridge.Checkpoint{}, from)
	mustAdvance(t, s, from, to)
	before, history := f.Get(), f.History()
	mustAdvance(t, s, from, to)
	mustAdvance(t, f.Open(stream), from, to)
	if !bytes.Equal(before, f.Get()) || !slices.Equal(history, f.History()) {
		t.Errorf("a repetition changed the stored value to %s, the history from %v to %v", f.Get(), history, f.History())
	}
	last := checkpointAt(1, 1)
	last.Change = to.Change
	mustAdvance(t, s, to, last)
	for name, alter := range map[string]func(*bridge.Checkpoint){
		"another cursor":  func(c *bridge.Checkpoint) { c.Cursor = "elsewhere" },
		"another session": func(c *bridge.Checkpoint) { c.Session = "stranger" },
	} {
		other := last
		alter(&other)
		if err := advance(t, s, to, other); !errors.Is(err, bridge.ErrConflict) {
			t.Errorf("the same version with %s: advance returned %v, want ErrConflict", name, err)
		}
	}
	wantStored(t, s, last)
}

func storeAdvanceBroken(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	first, second := checkpointAt(0, 1), checkpointAt(0, 2)
	mustAdvance(t, s, bridge.Checkpoint{}, first)
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	if err := s.Advance(ctx, first, second); !transient(err) {
		t.Errorf("advance without a server returned %v, want a transient error", err)
	}
	heal()
	mustAdvance(t, s, first, second)
	wantStored(t, s, second)
}

func storeUnknownOutcome(t *testing.T, f StoreFixture) {
	if f.FailNext == nil {
		t.Skip("this fixture cannot make Advance fail (FailNext is nil)")
	}
	s := f.Open(stream)
	from := bridge.Checkpoint{}
	for seq, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		to := checkpointAt(0, int64(seq+1))
		f.FailNext(form)
		if err := advance(t, s, from, to); !transient(err) {
			t.Errorf("advance told to have %s returned %v, want a transient error", form, err)
		}
		mustAdvance(t, s, from, to)
		wantStored(t, s, to)
		from = to
	}
}

func storeWiped(t *testing.T, f StoreFixture) {
	s := f.Open(stream)
	first, second, third := checkpointAt(1, 1), checkpointAt(1, 2), checkpointAt(1, 3)
	second.Change = &bridge.Change{ID: "r1", Kind: bridge.KindPause}
	third.Change = second.Change
	mustAdvance(t, s, bridge.Checkpoint{}, first)
	mustAdvance(t, s, first, second)
	f.Wipe()
	wantAbsent(t, s)
	mustAdvance(t, s, second, third)
	wantStored(t, s, third)
	f.Wipe()
	mustAdvance(t, s, second, third) // a repetition, although nothing is stored
	wantStored(t, s, third)
}

// storeConcurrent lets sessions race for each version: one of them wins.
func storeConcurrent(t *testing.T, f StoreFixture) {
	const sessions, versions = 8, 10
	var wins [versions + 1]int
	var mu sync.Mutex // guards wins
	var group sync.WaitGroup
	for n := range sessions {
		s := f.Open(stream)
		group.Go(func() {
			for seq := int64(1); seq <= versions; seq++ {
				to := checkpointAt(0, seq)
				to.Session = fmt.Sprint("session ", n)
				err := advance(t, s, checkpointAt(0, seq-1), to)
				switch {
				case err == nil:
					mu.Lock()
					wins[seq]++
					mu.Unlock()
				case !errors.Is(err, bridge.ErrConflict):
					t.Errorf("advance: %v", err)
				}
				if c, err := load(t, s); err != nil || c.Seq < seq {
					t.Errorf("load after advancing to %d returned %v, %v", seq, c.Version, err)
				}
			}
		})
	}
	group.Wait()
	for seq, n := range wins {
		if n > 1 {
			t.Errorf("%d sessions won version %d, want one at most", n, seq)
		}
	}
	if wins[versions] != 1 {
		t.Errorf("%d sessions won the last version, want one", wins[versions])
	}
}

// checkpointAt returns a data checkpoint whose cursor no other version has.
func checkpointAt(epoch, seq int64) bridge.Checkpoint {
	return bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: stream, Version: bridge.Version{Epoch: epoch, Seq: seq},
		Mode: bridge.AtLeastOnce, Kind: bridge.KindData, Cursor: fmt.Sprintf("c+%d/%d=%%", epoch, seq),
		Origin: bridge.Origin{Resource: "events"}, Events: seq * 10, Pages: seq,
		Owner: "owner", Session: "session", WrittenAt: itemTime + seq,
	}
}

// fullCheckpoint sets every field. Some values are altered by a careless encoding.
func fullCheckpoint() bridge.Checkpoint {
	c := checkpointAt(3, 1<<40)
	c.Cursor = "a+b/c=d%2B&#?;<>\"\\ ключ 🙂\u2028"
	for n := range 1000 {
		e := bridge.Event{Raw: fmt.Append(nil, n)}
		c.Tail = append(c.Tail, e.Identity())
	}
	c.Carried = 7
	c.Origin = bridge.Origin{Resource: "events", Events: []string{"a", "b"}, Start: 1, End: 1 << 50}
	c.Source = bridge.SourceIdentity{Organization: "o", Workspace: "w", Application: "a"}
	c.Events, c.Pages = 1<<53+1, 1<<53+3
	c.LastEventTime, c.PositionTime, c.AdvanceTime = itemTime, itemTime+1, itemTime+2
	c.Drained, c.MarksEnd, c.PausedUntil = true, true, bridge.Forever
	c.RecentCursors = bridge.RecentCursors{1, 1<<64 - 1}
	c.Change = &bridge.Change{ID: "r", Kind: bridge.KindPause, Who: "me", Reason: "why",
		From: bridge.Version{Epoch: 2, Seq: 9}, At: itemTime}
	c.RewindEnd, c.KnownFrom = &bridge.RewindEnd{CursorHash: "abc", EventTime: itemTime}, itemTime-1
	return c
}

// transient reports whether the engine retries after err.
func transient(err error) bool {
	return err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) &&
		!errors.Is(err, bridge.ErrConflict) && !errors.Is(err, bridge.ErrForeign)
}

func load(t *testing.T, s bridge.Store) (bridge.Checkpoint, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Load(ctx)
}

func advance(t *testing.T, s bridge.Store, from, to bridge.Checkpoint) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Advance(ctx, from, to)
}

func mustAdvance(t *testing.T, s bridge.Store, from, to bridge.Checkpoint) {
	t.Helper()
	if err := advance(t, s, from, to); err != nil {
		t.Fatalf("advance from %s to %s: %v", from.Version, to.Version, err)
	}
}

func wantStored(t *testing.T, s bridge.Store, want bridge.Checkpoint) {
	t.Helper()
	got, err := load(t, s)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("stored checkpoint differs (-want +got):\n%s", diff)
	}
}

func wantAbsent(t *testing.T, s bridge.Store) {
	t.Helper()
	if c, err := load(t, s); !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Fatalf("load returned %v, %v; want ErrNoCheckpoint", c.Version, err)
	}
}

func wantHistory(t *testing.T, f StoreFixture, want ...bridge.Version) {
	t.Helper()
	if got := f.History(); !slices.Equal(got, want) {
		t.Fatalf("history is %v, want %v", got, want)
	}
}
