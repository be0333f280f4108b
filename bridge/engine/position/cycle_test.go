package position

import (
	"fmt"
	"testing"
)

func TestVisited(t *testing.T) {
	t.Parallel()
	v := NewVisited()
	for i := range cycleMemory + 10 {
		v.Add(fmt.Sprint(i))
		if !v.Has(fmt.Sprint(i)) {
			t.Fatalf("cursor %d is forgotten before its commit", i)
		}
		v.Commit()
	}
	if v.Has("9") || !v.Has("10") || !v.Has(fmt.Sprint(cycleMemory+9)) {
		t.Error("does not remember exactly the last cursors")
	}
	v.Add("x")
	v.BackTo(0)
	if v.Has("x") {
		t.Error("remembers a cursor that was not committed")
	}
	v.Clear()
	if v.Has("10") {
		t.Error("remembers after clear")
	}
}
