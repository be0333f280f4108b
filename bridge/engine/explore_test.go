package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
)

// The explorer runs two real bridges on one topic and one store. At every call of a port
// it decides which bridge goes on and how the call ends. A plan says where a schedule
// departs from the usual course. It prints as one line, from which the same schedule can
// be run again:
//
//	EXPLORE_SCHEDULES  schedules to run, 4,000 if not set
//	EXPLORE_SECONDS    time to spend instead
//	EXPLORE_START      seed of the first random schedule, 1 if not set; of TestExploreRandom, drawn by lot
//	EXPLORE_SEED       one plan, to be run again with all that happens
//
// Back-offs are drawn by lot, so a plan may come to another schedule when two
// of them run at the same time: a replay is tried a few times.

// explorer hands out plans and collects what became of them.
type explorer struct {
	menu  []at     // by variant, one after the other
	bases []plan   // the variant of each entry of menu
	pairs [][2]int // the range of menu that belongs to a variant

	windows bool   // the plans follow windows
	random  uint64 // seed of the first random plan
	next    atomic.Int64
	enough  func(n int64) bool

	mu     sync.Mutex // guards all below
	seen   map[uint64]struct{}
	found  []result
	total  int64
	marked int64
	counts map[string]int64
}

func newExplorer(t *testing.T, bases []plan) *explorer {
	x := &explorer{seen: make(map[uint64]struct{}), counts: make(map[string]int64), windows: bases[0].windows, random: 1}
	for _, base := range bases {
		r := runPlan(t, base, false)
		x.note(r, "usual")
		first := len(x.menu)
		for _, a := range base.singles(r.ops) {
			x.menu, x.bases = append(x.menu, a), append(x.bases, base)
		}
		x.pairs = append(x.pairs, [2]int{first, len(x.menu)})
	}
	return x
}

// stride visits the numbers below n in an order that is spread over all of them.
func stride(i, n int) int { return int(uint64(i) * 7919 % uint64(n)) }

// plan returns plan number n: in turn a single twist, a pair of them, and two
// by seed, until the singles are used up.
func (x *explorer) plan(n int64) (plan, string) {
	k := int(n / 4)
	switch {
	case n%4 == 0 && k < len(x.menu):
		i := stride(k, len(x.menu))
		p := x.bases[i]
		p.twists = []at{x.menu[i]}
		return p, "single"
	case n%4 == 1:
		of := x.pairs[k%len(x.pairs)]
		size := of[1] - of[0]
		i, j := stride(k, size), stride(k/len(x.pairs)*31+k%7, size)
		p := x.bases[of[0]]
		p.twists = []at{x.menu[of[0]+min(i, j)], x.menu[of[0]+max(i, j)]}
		return p, "pair"
	}
	return randomPlan(x.random+uint64(n), x.windows), "random"
}

func (x *explorer) note(r result, kind string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.total++
	x.marked += int64(r.marked)
	x.counts[kind]++
	x.seen[r.hash] = struct{}{}
	if r.broken != nil {
		x.found = append(x.found, r)
	}
}

// work runs plans until it is enough, or something is found.
func (x *explorer) work(t *testing.T) {
	for {
		n := x.next.Add(1) - 1
		x.mu.Lock()
		stop := len(x.found) > 0
		x.mu.Unlock()
		if stop || x.enough(n) {
			return
		}
		p, kind := x.plan(n)
		x.note(runPlan(t, p, false), kind)
	}
}

// explore runs plans on all processors.
func (x *explorer) explore(t *testing.T) {
	began := time.Now()
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				x.work(t)
			})
		}
	})
	took := time.Since(began)
	t.Logf("explore: %d schedules (%d single faults, %d pairs, %d by seed from %d), %d distinct, %d events marked, "+
		"%.1f s, %.0f distinct a minute",
		x.total, x.counts["single"], x.counts["pair"], x.counts["random"], x.random, len(x.seen), x.marked, took.Seconds(),
		float64(len(x.seen))/took.Minutes())
}

// TestExplore explores both deliveries, the same schedules each time.
func TestExplore(t *testing.T) {
	exploreFrom(t, variants(), must.Number[int64](t, "EXPLORE_START", 1), schedules(t))
}

// TestExploreWindows explores streams that follow windows, a quarter as many, the same
// schedules each time.
func TestExploreWindows(t *testing.T) {
	exploreFrom(t, listVariants(), must.Number[int64](t, "EXPLORE_START", 1), schedules(t)/4)
}

// TestExploreRandom explores other schedules each time, a tenth as many, and of windows
// half of that. It runs in make explore only: what it finds in some ten thousand schedules is no
// fault of the change that is tested.
func TestExploreRandom(t *testing.T) {
	if os.Getenv("EXPLORE_SECONDS")+os.Getenv("EXPLORE_START") == "" {
		t.Skip("schedules are drawn by lot in make explore")
	}
	start := must.Number(t, "EXPLORE_START", rand.Int64N(1<<40))
	t.Logf("explore: the same again with EXPLORE_START=%d", start)
	exploreFrom(t, variants(), start, schedules(t)/10)
	exploreFrom(t, listVariants(), start, schedules(t)/20)
}

func schedules(t *testing.T) int64 { return must.Number[int64](t, "EXPLORE_SCHEDULES", 4000) }

func exploreFrom(t *testing.T, bases []plan, start, schedules int64) {
	x := newExplorer(t, bases)
	x.random = uint64(start)
	x.enough = func(n int64) bool { return n >= schedules }
	if s := must.Number(t, "EXPLORE_SECONDS", 0); s > 0 {
		end := time.Now().Add(time.Duration(s) * time.Second)
		x.enough = func(int64) bool { return time.Now().After(end) }
	}
	x.explore(t)
	for _, r := range x.found {
		p := shrink(t, r)
		r, tries := replay(t, p, r.broken.rule)
		t.Errorf("%s\n%s\nEXPLORE_SEED='%s' (seen in one of %d tries)\n%s", r.broken.rule, r.broken.detail, p, tries,
			strings.Join(brieflyTold(r.trace), "\n"))
	}
}

// TestExploreMarks: each variant marks the events that are published again after a reset to
// the beginning: the explorer does test the rule of marks. A few random schedules may have
// no reset after a published event, and cannot show that.
func TestExploreMarks(t *testing.T) {
	t.Parallel()
	for _, base := range slices.Concat(variants(), listVariants()) {
		usual := runPlan(t, base, false)
		base.twists = []at{{len(usual.ops) - 1, twistReset}}
		if r := runPlan(t, base, false); r.marked == 0 || r.broken != nil {
			t.Errorf("%s: %d events are marked as published again, broken: %v", base, r.marked, r.broken)
		}
	}
}

// brieflyTold leaves out the middle of a long trace.
func brieflyTold(trace []string) []string {
	const edge = 70
	if len(trace) <= 2*edge {
		return trace
	}
	return slices.Concat(trace[:edge], []string{"..."}, trace[len(trace)-edge:])
}

// shrink drops the twists that are not needed to break the rule.
func shrink(t *testing.T, r result) plan {
	p := r.plan
	for i := 0; i < len(p.twists); {
		less := p
		less.twists = slices.Delete(slices.Clone(p.twists), i, i+1)
		if again, _ := replay(t, less, r.broken.rule); again.broken != nil {
			p = less
			continue
		}
		i++
	}
	return p
}

// replay runs a plan until it breaks the rule (any, if rule is empty), and
// returns the number of tries.
func replay(t *testing.T, p plan, rule string) (r result, tries int) {
	const most = 20
	for tries = 1; ; tries++ {
		r = runPlan(t, p, true)
		if tries == most || r.broken != nil && (rule == "" || r.broken.rule == rule) {
			return r, tries
		}
	}
}

// TestExploreReplay runs the plan in EXPLORE_SEED and shows all that happens.
func TestExploreReplay(t *testing.T) {
	text := os.Getenv("EXPLORE_SEED")
	if text == "" {
		t.Skip("EXPLORE_SEED is not set")
	}
	p := must.Get(parsePlan(text))(t)
	r, tries := replay(t, p, "")
	fmt.Println(strings.Join(r.trace, "\n"))
	if r.broken != nil {
		t.Errorf("%s: %s (in try %d)", r.broken.rule, r.broken.detail, tries)
	}
}

// TestExploreAgain: a plan comes to the same schedule when it is run again,
// and is the same when it was printed and read.
func TestExploreAgain(t *testing.T) {
	t.Parallel()
	same, all := 0, 300
	for seed := range uint64(all) {
		p := randomPlan(seed, seed%4 == 0)
		back, err := parsePlan(p.String())
		if err != nil || back.String() != p.String() {
			t.Fatalf("plan %q is read as %q, %v", p, back, err)
		}
		if runPlan(t, p, false).hash == runPlan(t, back, false).hash {
			same++
		}
	}
	t.Logf("explore: %d of %d plans come to the same schedule when they are run again", same, all)
	if same < all*3/4 {
		t.Errorf("only %d of %d plans come to the same schedule again", same, all)
	}
}
