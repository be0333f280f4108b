package cursorstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestThin compares the remaining entries with the rule, for any history.
func TestThin(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		rapid.Check(t, func(rt *rapid.T) {
			sp := s.space(t)
			defer sp.wipe()
			cfg := sp.config()
			cfg.HistoryAge = 72 * time.Hour
			client := open(t, cfg)
			w := newWriter(t, client.Stream(stream))
			w.page(0)
			for _, step := range rapid.SliceOfN(rapid.IntRange(0, 99), 1, 60).Draw(rt, "steps") {
				after := []int64{1000, 15_000, 25_000, 50_000, 900_000, 7_200_000, 40_000_000}[step%7]
				switch {
				case step < 40:
					w.page(after)
				case step < 85:
					w.grow(after)
				case step < 95:
					w.kind(after, bridge.KindPause)
				default:
					w.reset(after, bridge.Target{Cursor: fmt.Sprint("reset", step)})
				}
			}
			now := time.UnixMilli(w.now.WrittenAt + rapid.Int64Range(0, 200_000_000).Draw(rt, "later"))
			want := thinned(t, sp, now, cfg.HistoryAge)
			for range 3 { // again and by others: nothing more
				store := client.Stream(stream)
				for range 2 {
					if _, err := store.Thin(t.Context(), now); err != nil {
						rt.Fatal(err)
					}
				}
			}
			if diff := cmp.Diff(want, members(t, sp)); diff != "" {
				rt.Fatalf("thinned history differs (-want +got):\n%s", diff)
			}
			wantStored(t, w.store, w.now)
		})
	})
}

func members(t *testing.T, sp *space) []string {
	t.Helper()
	sp.versions() // checks that index and history agree
	return must.Get(sp.raw.ZRange(t.Context(), sp.key("history:index"), 0, -1).Result())(t)
}

// thinned is the rule in other words: of the entries of each age, one stays if and only if it is the last of them, or
// no earlier one of its series is in the same interval.
func thinned(t *testing.T, sp *space, now time.Time, keep time.Duration) []string {
	t.Helper()
	const all, none = 0, -1
	stay := must.Get(sp.raw.ZRangeWithScores(t.Context(), sp.key("history:index"), 0, -1).Result())(t)
	for _, tier := range []struct{ age, data, growth time.Duration }{
		{time.Hour, all, time.Minute}, {24 * time.Hour, time.Minute, time.Hour}, {keep, none, none},
	} {
		until := float64(now.Add(-tier.age).UnixMilli())
		taken := map[string]bool{}
		old := slices.IndexFunc(stay, func(z redis.Z) bool { return z.Score > until })
		if old < 0 {
			old = len(stay)
		}
		last := old - 1
		kept := stay[:0:0]
		for i, z := range stay[:old] {
			member := z.Member.(string)
			every := tier.data
			epoch, _, _ := strings.Cut(member, ".")
			if strings.HasSuffix(member, "~") {
				every, epoch = tier.growth, epoch+" growth"
			}
			if strings.HasSuffix(member, "!") || every == all || i == last {
				kept = append(kept, z)
				continue
			}
			if slot := fmt.Sprint(epoch, int64(z.Score)/max(1, every.Milliseconds())); every != none && !taken[slot] {
				taken[slot] = true
				kept = append(kept, z)
			}
		}
		stay = append(kept, stay[old:]...)
	}
	members := make([]string, len(stay))
	for i, z := range stay {
		members[i] = z.Member.(string)
	}
	return members
}

// TestThinByEpoch: entries of two epochs in the same minute are thinned separately.
func TestThinByEpoch(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	w := newWriter(t, sp.open(stream))
	w.kind(0, bridge.KindStart)
	first := w.page(1000)
	left := w.page(1000)
	w.reset(1000, bridge.Target{Cursor: "elsewhere"})
	second := w.page(1000)
	w.page(1000)
	newest := w.page(1000)
	must.Get(w.store.Thin(t.Context(), time.UnixMilli(w.now.WrittenAt).Add(25*time.Hour)))(t)
	want := []string{"0.0!", first.String(), left.String() + "!", "1.0!", second.String(), newest.String()}
	if diff := cmp.Diff(want, members(t, sp)); diff != "" {
		t.Errorf("thinned history differs (-want +got):\n%s", diff)
	}
}

// TestThinIsBounded: a history that was not thinned for long is thinned in several calls, and
// stays readable meanwhile.
func TestThinIsBounded(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	w := newWriter(t, sp.open(stream))
	w.kind(0, bridge.KindStart)
	const sparse, entries = 1500, 12_000
	pipe := sp.raw.Pipeline()
	for seq := int64(1); seq <= entries; seq++ { // as advance writes them, in less time
		c := at(0, seq)
		if c.WrittenAt += sparse * 59_000; seq < sparse { // one a minute already
			c.WrittenAt -= (sparse - seq) * 59_000
		}
		data := must.Get(c.Encode())(t)
		pipe.HSet(t.Context(), sp.key("history"), c.String(), fmt.Sprintf("%s %s", at(0, seq-1).Version, data))
		pipe.ZAdd(t.Context(), sp.key("history:index"), redis.Z{Score: float64(c.WrittenAt), Member: c.String()})
		if seq%1000 != 0 {
			continue
		}
		if _, err := pipe.Exec(t.Context()); err != nil { // all at once would take longer than the client waits
			t.Fatal(err)
		}
	}
	last := at(0, entries+1)
	last.WrittenAt += sparse * 59_000
	mustAdvance(t, w.store, w.now, last)
	now := time.UnixMilli(last.WrittenAt).Add(25 * time.Hour)
	calls, total := 0, 0
	for {
		removed := must.Get(w.store.Thin(t.Context(), now))(t)
		if calls++; removed == 0 {
			break
		}
		if removed > 5000 {
			t.Errorf("one call removed %d entries", removed)
		}
		total += removed
		if e, _, err := w.store.Back(t.Context(), entries, entries/2); err != nil || e.Pages > entries/2+1 {
			t.Errorf("back: page %d, %v", e.Pages, err)
		}
	}
	if left := len(sp.versions()); calls < 3 || left < sparse || left > sparse+(entries-sparse)/60+3 ||
		left+total != entries+2 {
		t.Errorf("%d calls removed %d entries and left %d", calls, total, left)
	}
}

func TestThinWithoutServer(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	w := newWriter(t, sp.open(stream))
	w.page(0)
	w.page(1000)
	now := time.UnixMilli(w.now.WrittenAt).Add(25 * time.Hour)
	heal := sp.cutOff()
	if _, err := w.store.Thin(t.Context(), now); err == nil {
		t.Error("thinned without a server")
	}
	heal()
	eventually(t, func() error {
		_, err := w.store.Thin(t.Context(), now)
		return err
	})
}

// TestThinKeepsPosition: of a stream that has published nothing for long, the entry of its position is kept until the
// next one has the same age, so that a rewind to a time between goes there.
func TestThinKeepsPosition(t *testing.T) {
	t.Parallel()
	for _, quiet := range []time.Duration{25 * time.Hour, 365 * 24 * time.Hour} {
		sp := embedded(t).space(t)
		w := newWriter(t, sp.open(stream))
		w.kind(0, bridge.KindStart)
		w.page(1000)
		last := w.page(1000)
		wantLast := func(now time.Time) {
			t.Helper()
			must.Get(w.store.Thin(t.Context(), now))(t)
			if e, _, err := w.store.EntryAt(t.Context(), now.Add(-time.Hour)); err != nil || e.Version != last {
				t.Errorf("quiet for %s: the newest entry is %s, %v, want %s", quiet, e.Version, err, last)
			}
		}
		wantLast(time.UnixMilli(w.now.WrittenAt).Add(quiet))
		w.page(quiet.Milliseconds())
		wantLast(time.UnixMilli(w.now.WrittenAt))
	}
}
