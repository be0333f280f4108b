package bridge_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
)

func TestWatermark(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bridge.Watermark{
		"w1:1970-01-01T00:00:00Z":    {},
		"w1:2026-11-26T10:00:01Z":    {At: 1795687201000},
		"w1:2026-11-26T10:00:01Z+12": {At: 1795687201000, Part: 12},
	} {
		if got, ok := bridge.ParseWatermark(text); !ok || got != want || got.Cursor() != text {
			t.Errorf("%s is %+v %t, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "w1:", "2026-11-26T10:00:01Z", "w1:2026-11-26T10:00:01.5Z", "w1:2026-11-26T10:00:01+01:00",
		"w1:2026-11-26T10:00:01Z+0",
		"w1:2026-11-26T10:00:01Z+-1", "w1:2026-11-26T10:00:01Z+01", "w2:2026-11-26T10:00:01Z", "w1:2026-11-26T10:00:01Z ",
	} {
		if w, ok := bridge.ParseWatermark(text); ok {
			t.Errorf("%q is the watermark %+v", text, w)
		}
	}
}

// TestListing moves a Listing at random, and compares it with a list of all windows. All
// records of the windows of the look-back are after the ends that Since returns, few marks
// are kept, and records of long ago are not read.
func TestListing(t *testing.T) {
	t.Parallel()
	const lookBack, longest = time.Minute, 29 * 9 * 1000
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		type window struct{ from, to, end int64 } // end of the topic before it
		var done []window
		at := bridge.Watermark{At: 1_000_000_000}
		end := int64(rng.IntN(100))
		l := bridge.BeginListing(at.At, topicsTo(end))
		for range 300 {
			next := bridge.Watermark{At: at.At + 1000*max(1, rng.Int64N(30)*rng.Int64N(10))}
			done = append(done, window{at.At, next.At, end})
			l = l.Moved(at, next, 0, topicsTo(end), lookBack)
			end += rng.Int64N(50)
			at = next
			since := l.Since(at.At, lookBack)
			got := since.Topics[0].Ends.Offsets()[0]
			i := slices.IndexFunc(done, func(w window) bool { return w.to >= at.At-lookBack.Milliseconds() })
			if got > done[i].end {
				t.Fatalf("seed %d: read from offset %d, the window from %d to %d was published from %d on", seed, got,
					done[i].from, done[i].to, done[i].end)
			}
			early := slices.IndexFunc(done,
				func(w window) bool { return w.from >= at.At-lookBack.Milliseconds()*5/4-bridge.ListingMargin-longest })
			if got < done[early].end && early > 0 {
				t.Fatalf("seed %d: read from offset %d, what was published before %d is long past", seed, got, done[early].end)
			}
			if len(l.Marks) > 8 {
				t.Fatalf("seed %d: %d marks", seed, len(l.Marks))
			}
		}
	}
}

func topicsTo(end int64) []bridge.TopicState {
	return []bridge.TopicState{{Name: "events", Partitions: 1, End: end, Ends: bridge.EncodeEnds([]int64{end})}}
}

// TestListingResetToStart: a new Listing begins if the old one is no older than the target of
// a reset: items that it does not know are listed then, and all that it knows again.
func TestListingResetToStart(t *testing.T) {
	t.Parallel()
	const lookBack = time.Minute
	at := func(second int64) bridge.Watermark { return bridge.Watermark{At: 1000 * second} }
	began := bridge.BeginListing(100_000, topicsTo(0)).Moved(at(100), at(110), 0, topicsTo(10), lookBack)
	raised := began.Moved(at(110), at(300), 0, topicsTo(20), lookBack).Moved(at(300), at(310), 0, topicsTo(30), lookBack)
	for name, tc := range map[string]struct {
		l        *bridge.Listing
		from, to bridge.Watermark
		lookBack time.Duration
		goesOn   bool
	}{
		"before the start":                       {began, at(110), at(90), lookBack, false},
		"to the start":                           {began, at(110), at(100), lookBack, false},
		"behind the start":                       {began, at(110), at(101), lookBack, true},
		"before what a raised look-back knows":   {raised, at(310), at(90), 10 * time.Minute, false},
		"within it, but nothing before is known": {raised, at(310), at(100), 10 * time.Minute, false},
	} {
		if got := tc.l.Reset(tc.from, tc.to, 0, tc.lookBack); (got != nil) != tc.goesOn {
			t.Errorf("%s: %+v, want a Listing: %t", name, got, tc.goesOn)
		}
	}
}

// TestListingShorter: there is no mark between what was published of a window and its
// beginning, where a new session lists shorter windows.
func TestListingShorter(t *testing.T) {
	t.Parallel()
	const lookBack = time.Minute
	at := func(second int64, part int) bridge.Watermark { return bridge.Watermark{At: 1000 * second, Part: part} }
	l := bridge.BeginListing(0, topicsTo(0)).Moved(at(0, 0), at(0, 1), 5_000_000, topicsTo(0), lookBack)
	for s := int64(0); s < 6000; s += 1000 {
		part := 0
		if s == 0 {
			part = 1
		}
		l = l.Moved(at(s, part), at(s+1000, 0), 1000*(s+1000), topicsTo(10+s), lookBack)
		first := l.Marks[0].At
		if want := s < 5000; want != (first == 0) {
			t.Errorf("at %d the first mark is at %d", s+1000, first)
		}
	}
}

// TestListingReset: within the look-back the Listing continues, with the time from which
// items count only if published after the reset, until all records that are read back are
// after the reset. Elsewhere a new Listing begins.
func TestListingReset(t *testing.T) {
	t.Parallel()
	const lookBack = time.Minute
	at := func(second int64) bridge.Watermark { return bridge.Watermark{At: 1000 * second} }
	l := bridge.BeginListing(0, topicsTo(0))
	for s := int64(0); s < 1000; s += 10 {
		l = l.Moved(at(s), at(s+10), 0, topicsTo(s), lookBack)
	}
	for name, tc := range map[string]struct {
		to       bridge.Watermark
		position int64
		goesOn   bool
	}{
		"far back": {at(500), 0, false}, "within the look-back": {at(960), 0, true}, "where it is": {at(1000), 0, true},
		"to the position": {at(1020), 1_020_000, true}, "ahead": {at(1021), 1_020_000, false},
	} {
		got := l.Reset(at(1000), tc.to, tc.position, lookBack)
		if (got != nil) != tc.goesOn {
			t.Errorf("%s: %+v, want a Listing: %t", name, got, tc.goesOn)
		}
		if got == nil {
			continue
		}
		if first := got.Marks[0].At; len(got.Marks) != 1 || first > 935_000 || got.Again != tc.to.At || got.Floor != 940_000 {
			t.Errorf("%s: %+v", name, got)
		}
		for s := tc.to.At / 1000; s < 1200; s += 10 {
			got = got.Moved(at(s), at(s+10), 0, topicsTo(5000+s), lookBack)
			behind := got.Marks[0].Topics[0].End >= 5000
			if behind == (got.Again != 0) {
				t.Fatalf("%s: at %d Again is %d, and the first mark %+v", name, s, got.Again, got.Marks[0])
			}
		}
	}
}

// TestListingAsFound: after a loss that was accepted the whole topic is read back in place of
// what lies behind ends that the log no longer has.
func TestListingAsFound(t *testing.T) {
	t.Parallel()
	l := &bridge.Listing{
		Marks:  []bridge.ListingMark{{At: 0}, {At: 1000, Topics: topicsTo(40)}, {At: 2000, Topics: topicsTo(90)}},
		Behind: topicsTo(95),
	}
	got := l.AsFound(topicsTo(50))
	for name, tc := range map[string]struct {
		topics []bridge.TopicState
		known  bool
	}{"within": {got.Marks[1].Topics, true}, "beyond": {got.Marks[2].Topics, false}, "reset": {got.Behind, false}} {
		if known := tc.topics[0].Ends != ""; known != tc.known || tc.topics[0].End > 50 {
			t.Errorf("%s: %+v, want known ends: %t", name, tc.topics[0], tc.known)
		}
	}
	if l.Marks[2].Topics[0].End != 90 || got.Marks[0].Topics != nil {
		t.Errorf("the Listing before has %+v, the mark of a time %+v", l.Marks[2], got.Marks[0])
	}
	if none := (*bridge.Listing)(nil).AsFound(topicsTo(1)); none != nil {
		t.Errorf("no Listing becomes %+v", none)
	}
}

// TestListingResetBelow: a reset to before the listed range begins a new Listing: the old
// one would silently list nothing between there and its lowest time.
func TestListingResetBelow(t *testing.T) {
	t.Parallel()
	const lookBack = time.Minute
	at := func(second int64) bridge.Watermark { return bridge.Watermark{At: 1000 * second} }
	young := bridge.BeginListing(900_000, topicsTo(0)).Moved(at(900), at(930), 0, topicsTo(0), lookBack)
	grown := bridge.BeginListing(0, topicsTo(0))
	for s := int64(0); s < 900; s += 10 {
		grown = grown.Moved(at(s), at(s+10), 0, topicsTo(s), lookBack)
	}
	moved := grown.Reset(at(900), at(850), 0, lookBack)
	for name, tc := range map[string]struct {
		listing  *bridge.Listing
		from, to int64
		lookBack time.Duration
		goesOn   bool
	}{
		"to the start":                   {young, 930, 900, lookBack, false},
		"before the start":               {young, 930, 899, lookBack, false},
		"a second one":                   {moved, 851, 845, lookBack, true},
		"a second one, below the first":  {moved, 851, 800, lookBack, false},
		"within a look-back that grows":  {grown, 900, 860, time.Hour, true},
		"into a look-back that is wider": {grown, 900, 600, time.Hour, false},
	} {
		got := tc.listing.Reset(at(tc.from), at(tc.to), 0, tc.lookBack)
		if (got != nil) != tc.goesOn {
			t.Errorf("%s: %+v, want a Listing: %t", name, got, tc.goesOn)
		}
		if got != nil && got.Lowest() > 1000*tc.to {
			t.Errorf("%s: lists from %d on, the reset was to %d", name, got.Lowest(), 1000*tc.to)
		}
	}
}

// TestListingPart: a mark is of the topics before a window, not of those in its middle, also
// if the look-back is lowered there.
func TestListingPart(t *testing.T) {
	t.Parallel()
	at := func(second int64, part int) bridge.Watermark { return bridge.Watermark{At: 1000 * second, Part: part} }
	l := bridge.BeginListing(0, topicsTo(0))
	l = l.Moved(at(0, 0), at(600, 0), 0, topicsTo(0), time.Hour)
	l = l.Moved(at(600, 0), at(600, 1), 0, topicsTo(10), time.Hour)
	l = l.Moved(at(600, 1), at(700, 0), 0, topicsTo(20), time.Minute)
	if got := l.Since(700_000, time.Minute).Topics[0].End; got > 10 {
		t.Errorf("read from offset %d, the window from 600 on was published from 10 on", got)
	}
	l = l.Moved(at(700, 0), at(800, 0), 0, topicsTo(30), time.Minute)
	if got := l.Since(800_000, time.Minute).Topics[0].End; got != 30 {
		t.Errorf("read from offset %d, want 30", got)
	}
}

// TestGap: the earliest gap is kept until it is removed.
func TestGap(t *testing.T) {
	t.Parallel()
	l := bridge.BeginListing(1000, nil)
	if got := l.WithGap(2000).WithGap(3000); got.Gap != 2000 || got.WithGap(0).Gap != 0 || l.Gap != 0 {
		t.Errorf("gap at %d", got.Gap)
	}
}
