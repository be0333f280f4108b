package cursorstore_test

import (
	"context"
	"crypto/sha1" // what Lua in Redis offers
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

func TestStoreConformance(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		for name, put := range map[string]func(*space, []byte){
			"plain": func(sp *space, raw []byte) {
				sp.raw.Del(sp.t.Context(), sp.key("checkpoint"))
				sp.raw.Set(sp.t.Context(), sp.key("checkpoint"), raw, 0)
			},
			"field": func(sp *space, raw []byte) {
				if sp.raw.Type(sp.t.Context(), sp.key("checkpoint")).Val() == "none" {
					mustAdvance(sp.t, sp.open(stream), bridge.Checkpoint{}, at(0, 0))
				}
				sp.raw.HSet(sp.t.Context(), sp.key("checkpoint"), "data", raw)
			},
		} {
			t.Run(name, func(t *testing.T) {
				conformance.TestStore(t, func(t *testing.T) conformance.StoreFixture { return storeFixture(s.space(t), put) })
			})
		}
	})
}

func storeFixture(sp *space, put func(*space, []byte)) conformance.StoreFixture {
	return conformance.StoreFixture{
		Open: func(stream string) bridge.Store { return sp.open(stream) },
		Get: func() []byte {
			get := sp.raw.Get(sp.t.Context(), sp.key("checkpoint"))
			if get.Err() != nil {
				get = sp.raw.HGet(sp.t.Context(), sp.key("checkpoint"), "data")
			}
			raw, err := get.Bytes()
			if errors.Is(err, redis.Nil) {
				return nil
			}
			return raw
		},
		Put:      func(raw []byte) { put(sp, raw) },
		Wipe:     sp.wipe,
		History:  sp.versions,
		Break:    sp.cutOff,
		FailNext: func(f bridgetest.Failure) { sp.failScripts(attempts, f) },
	}
}

// at returns a data checkpoint, one page and one second after the one before.
func at(epoch, seq int64) bridge.Checkpoint {
	return bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: stream, Version: bridge.Version{Epoch: epoch, Seq: seq},
		Mode: bridge.AtLeastOnce, Kind: bridge.KindData, Cursor: fmt.Sprintf("c%d.%d", epoch, seq),
		Origin: bridge.Origin{Resource: "events"}, Events: seq * 1000, Pages: seq,
		Owner: "pod-1", Session: "s1", WrittenAt: 1_700_000_000_000 + seq*1000,
	}
}

func mustAdvance(t *testing.T, s bridge.Store, from, to bridge.Checkpoint) {
	t.Helper()
	if err := s.Advance(t.Context(), from, to); err != nil {
		t.Fatalf("advance from %s to %s: %v", from.Version, to.Version, err)
	}
}

func wantStored(t *testing.T, s bridge.Store, want bridge.Checkpoint) {
	t.Helper()
	got := must.Get(s.Load(t.Context()))(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("stored checkpoint differs (-want +got):\n%s", diff)
	}
}

func TestAdvanceRefusesForeign(t *testing.T) {
	t.Parallel()
	stored := func(fields ...any) func(*space) *redis.IntCmd {
		return func(sp *space) *redis.IntCmd { return sp.raw.HSet(sp.t.Context(), sp.key("checkpoint"), fields...) }
	}
	// A number that would wrap, by somebody who also knows the sum.
	forged := func(name string) func(*space) *redis.IntCmd {
		const most = "9223372036854775807"
		c := at(0, 5)
		whole := must.Get(c.Encode())(t)
		data := regexp.MustCompile(`"`+name+`":\d+`).ReplaceAll(whole, []byte(`"`+name+`":`+most))
		sum := sha1.Sum(data)
		return stored("data", data, "sum", hex.EncodeToString(sum[:]), name, most)
	}
	cases := map[string]struct {
		alter func(*space) *redis.IntCmd
		want  string
	}{
		"newer version":     {stored("v", 3), "version"},
		"version no number": {stored("v", "two"), ""},
		"epoch no number":   {stored("epoch", "1.0"), ""},
		"seq too long":      {stored("seq", "99999999999999999999"), ""},
		"leading zero":      {stored("seq", "05"), ""},
		"forged epoch":      {forged("epoch"), ""},
		"forged seq":        {forged("seq"), ""},
		"edited":            {stored("data", `{"v":1,"stream":"events","epoch":0,"seq":5}`), "edited"},
		"no session": {func(sp *space) *redis.IntCmd {
			return sp.raw.HDel(sp.t.Context(), sp.key("checkpoint"), "session", "sum")
		}, ""},
		"another hash": {func(sp *space) *redis.IntCmd {
			sp.raw.Del(sp.t.Context(), sp.key("checkpoint"))
			return stored("hello", "world")(sp)
		}, "without the fields"},
		"list": {func(sp *space) *redis.IntCmd {
			sp.raw.Del(sp.t.Context(), sp.key("checkpoint"))
			return sp.raw.RPush(sp.t.Context(), sp.key("checkpoint"), "x")
		}, ""},
	}
	onServers(t, func(t *testing.T, s *server) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				sp := s.space(t)
				store := sp.open(stream)
				mustAdvance(t, store, bridge.Checkpoint{}, at(0, 5))
				must.Do(t, c.alter(sp).Err())
				before := dump(t, sp)
				err := store.Advance(t.Context(), at(0, 5), at(0, 6))
				fault, ok := errors.AsType[*bridge.Fault](err)
				if !errors.Is(err, bridge.ErrForeign) || !ok || !strings.Contains(fault.Hint, "redis-cli DEL") ||
					!strings.Contains(err.Error(), c.want) {
					t.Errorf("advance returned %v, want ErrForeign with a hint about %q", err, c.want)
				}
				if diff := cmp.Diff(before, dump(t, sp)); diff != "" {
					t.Errorf("a refused advance changed the store:\n%s", diff)
				}
				if _, err := store.Load(t.Context()); name != "no session" && !errors.Is(err, bridge.ErrForeign) {
					t.Errorf("load returned %v, want ErrForeign", err)
				}
			})
		}
		t.Run("history of another type", func(t *testing.T) {
			sp := s.space(t)
			store := sp.open(stream)
			mustAdvance(t, store, bridge.Checkpoint{}, at(0, 5))
			sp.raw.Del(t.Context(), sp.key("history"))
			sp.raw.Set(t.Context(), sp.key("history"), "x", 0)
			must.Be(t, store.Advance(t.Context(), at(0, 5), at(0, 6)), bridge.ErrForeign)
			wantStored(t, store, at(0, 5))
		})
	})
}

// dump returns what the server holds of the stream, as far as advance writes it.
func dump(t *testing.T, sp *space) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range sp.keys() {
		fields, err := sp.raw.HGetAll(t.Context(), key).Result()
		if err != nil {
			all[key] = "not a hash"
			continue
		}
		for f, v := range fields {
			all[key+" "+f] = v
		}
	}
	return all
}

func TestAdvanceRefusesWhatWouldNotLoad(t *testing.T) {
	t.Parallel()
	store := embedded(t).space(t).open(stream)
	for name, alter := range map[string]func(*bridge.Checkpoint){
		"another stream":   func(c *bridge.Checkpoint) { c.Stream = "other" },
		"no version":       func(c *bridge.Checkpoint) { c.Format = 0 },
		"negative seq":     func(c *bridge.Checkpoint) { c.Seq = -1 },
		"epoch too great":  func(c *bridge.Checkpoint) { c.Epoch = bridge.MaxNumber + 1 },
		"cursor not UTF-8": func(c *bridge.Checkpoint) { c.Cursor = "\xff" },
	} {
		c := at(0, 1)
		alter(&c)
		if err := store.Advance(t.Context(), bridge.Checkpoint{}, c); err == nil {
			t.Errorf("%s: advance accepted it", name)
		}
	}
	must.Fail(store.Load(t.Context()))(t, bridge.ErrNoCheckpoint)
}

// TestAdvanceNumbers: doubles end at 2^53, where a script that computed with
// them would take these for equal.
func TestAdvanceNumbers(t *testing.T) {
	t.Parallel()
	const big = 1 << 53
	onServers(t, func(t *testing.T, s *server) {
		store := s.space(t).open(stream)
		versions := []bridge.Version{
			{Epoch: 0, Seq: 9}, {Epoch: 0, Seq: 10}, {Epoch: 2, Seq: big}, {Epoch: 2, Seq: big + 1}, {Epoch: 10, Seq: 0},
			{Epoch: big, Seq: 7}, {Epoch: big + 1, Seq: 0}, {Epoch: bridge.MaxNumber, Seq: bridge.MaxNumber},
		}
		var from bridge.Checkpoint
		for _, p := range versions {
			to := at(0, 1)
			to.Version = p
			mustAdvance(t, store, from, to)
			wantStored(t, store, to)
			if !from.Zero() {
				must.Be(t, store.Advance(t.Context(), to, from), bridge.ErrConflict)
			}
			from = to
		}
	})
}

func TestAdvanceKeepsCursors(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		store := s.space(t).open(stream)
		var from bridge.Checkpoint
		for i, cursor := range []string{
			"", "a+b/c=%2B&#?", "\x00\x01\r\n\t\x1f\x7f", "ключ 🙂 \u2028\ufffd", `"\<>'`, "12345678901234567890",
			strings.Repeat("x", bridge.MaxCursor), " ",
		} {
			to := at(0, int64(i))
			to.Cursor = cursor
			mustAdvance(t, store, from, to)
			wantStored(t, store, to)
			entry, err := store.Entry(t.Context(), to.Version)
			if err != nil || entry.Cursor != cursor {
				t.Errorf("the history has cursor %q, want %q: %v", entry.Cursor, cursor, err)
			}
			from = to
		}
	})
}

// TestAdvanceRepeatedByClient: the reply of a script is lost, and the client library sends the
// script again.
func TestAdvanceRepeatedByClient(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		mustAdvance(t, store, bridge.Checkpoint{}, at(0, 1))
		for seq, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
			from, to := at(0, int64(seq+1)), at(0, int64(seq+2))
			sp.failScripts(1, form)
			mustAdvance(t, store, from, to)
			wantStored(t, store, to)
		}
		want := []bridge.Version{{Seq: 1}, {Seq: 2}, {Seq: 3}}
		if diff := cmp.Diff(want, sp.versions()); diff != "" {
			t.Errorf("history differs (-want +got):\n%s", diff)
		}
	})
}

// TestAdvancePersistedUnheard: every try is executed, and every reply is lost.
func TestAdvancePersistedUnheard(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		var reports []error
		cfg := sp.config()
		cfg.Report = func(_ string, err error) { reports = append(reports, err) }
		store := open(t, cfg).Stream(stream)
		mustAdvance(t, store, bridge.Checkpoint{}, at(0, 1))
		sp.failScripts(attempts, bridgetest.Persisted)
		err := store.Advance(t.Context(), at(0, 1), at(0, 2))
		if fault, ok := errors.AsType[*bridge.Fault](err); !ok || fault.Class != bridge.Transient || fault.Hint == "" {
			t.Fatalf("advance returned %v, want a transient fault with a hint", err)
		}
		wantStored(t, store, at(0, 2))
		mustAdvance(t, store, at(0, 1), at(0, 2))
		if len(reports) != 4 || reports[0] != nil || reports[1] == nil || reports[2] != nil || reports[3] != nil {
			t.Errorf("reports are %v, want answers but for the second", reports)
		}
	})
}

// TestAdvanceRaces: with concurrent sessions, the stored version never falls, and each
// acknowledged version is stored or older than the stored one.
func TestAdvanceRaces(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		store := s.space(t).client()
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			name := fmt.Sprint("stream", round)
			plans := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 12), 1, 6), 2, 4).Draw(rt, "seqs by session")
			var mu sync.Mutex // guards highest
			var highest bridge.Version
			var group sync.WaitGroup
			for n, plan := range plans {
				group.Go(func() {
					reached, err := race(t.Context(), store.Stream(name), fmt.Sprint("session ", n), plan)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if reached.Compare(highest) > 0 {
						highest = reached
					}
				})
			}
			group.Wait()
			got, err := store.Stream(name).Load(t.Context())
			if err != nil || got.Version != highest {
				rt.Fatalf("stored is %s, the highest acknowledged %s: %v", got.Version, highest, err)
			}
		})
	})
}

// race advances as one session to each version of the plan and returns the
// highest that was acknowledged.
func race(ctx context.Context, s *cursorstore.Store, session string, plan []int) (highest bridge.Version, err error) {
	var seen bridge.Version
	for _, step := range plan {
		c := at(int64(step/5), int64(step%5))
		c.Stream, c.Session = s.Name(), session
		acknowledged := s.Advance(ctx, bridge.Checkpoint{}, c)
		if acknowledged != nil && !errors.Is(acknowledged, bridge.ErrConflict) {
			return highest, acknowledged
		}
		got, err := s.Load(ctx)
		switch {
		case err != nil:
			return highest, err
		case got.Compare(seen) < 0:
			return highest, fmt.Errorf("stored went from %s to %s", seen, got.Version)
		case acknowledged == nil && got.Compare(c.Version) < 0:
			return highest, fmt.Errorf("%s was acknowledged, stored is %s", c.Version, got.Version)
		}
		seen = got.Version
		if acknowledged == nil && c.Compare(highest) > 0 {
			highest = c.Version
		}
	}
	return highest, nil
}
