package position

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestVisited(t *testing.T) {
	t.Parallel()
	var v Visited
	for i := range 5 * cycleMemory {
		if v = v.Add(fmt.Sprint(i)); !v.Has(fmt.Sprint(i)) {
			t.Fatalf("cursor %d is forgotten at once", i)
		}
		first := max(0, i+1-cycleMemory)
		if !v.Has(fmt.Sprint(first)) || v.Has(fmt.Sprint(first-1)) {
			t.Fatalf("after %d cursors it does not remember exactly the last ones", i+1)
		}
	}
	if again := v.Add(fmt.Sprint(5*cycleMemory - 3)); again != v {
		t.Error("a known cursor changes what is remembered")
	}
	before := v
	if v = v.Add("x"); before.Has("x") || !v.Has("x") {
		t.Error("a value changed after one was made of it")
	}
	if v = before.Add("y"); v.Has("x") || !v.Has("y") {
		t.Error("remembers a cursor that was taken back")
	}
	if new(Visited).Has("x") || new(Visited).Last() != nil {
		t.Error("the zero value remembers something")
	}
	if len(v.memory.known) > 2*cycleMemory || len(v.memory.ring) > 2*cycleMemory {
		t.Errorf("the memory grows: %d cursors, %d slots", len(v.memory.known), len(v.memory.ring))
	}
}

// TestVisitedIsAValue adds cursors and goes back to earlier values, as after pages that
// are not committed. Each value knows what was added on its way, and nothing else.
func TestVisitedIsAValue(t *testing.T) {
	t.Parallel()
	type known struct {
		v   Visited
		way []string
	}
	rapid.Check(t, func(t *rapid.T) {
		way := []known{{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at := way[len(way)-1]
			if rapid.IntRange(0, 4).Draw(t, "back") == 0 {
				way = way[:rapid.IntRange(1, len(way)).Draw(t, "to")]
				continue
			}
			c := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "cursor"))
			next := slices.Clone(at.way)
			if !slices.Contains(next, c) {
				next = append(next, c)
			}
			way = append(way, known{at.v.Add(c), next})
		}
		for _, k := range way {
			for i := range 21 {
				if c := fmt.Sprint(i); k.v.Has(c) != slices.Contains(k.way, c) {
					t.Fatalf("after %q: has %s: %t", k.way, c, k.v.Has(c))
				}
			}
			last := k.v.Last()
			for i, c := range k.way[max(0, len(k.way)-maxRecentCursors):] {
				if last[i] != cursorDigest(c) {
					t.Fatalf("after %q the last cursors are others", k.way)
				}
			}
		}
	})
}
