package share

import "testing"

// The users of a key share one value until the last one leaves.
func TestValues(t *testing.T) {
	t.Parallel()
	var values Values[string, int]
	built := 0
	use := func(key string, want int) *Value[string, int] {
		t.Helper()
		v := values.Use(key, func() int { built++; return built })
		if v.V != want {
			t.Errorf("got %d for %s, want %d", v.V, key, want)
		}
		return v
	}
	a, again, b := use("a", 1), use("a", 1), use("b", 2)
	if a.Leave() {
		t.Error("the first user was the last")
	}
	use("a", 1)
	if again.Leave() || !a.Leave() || !b.Leave() {
		t.Error("the last user was not the last")
	}
	use("a", 3)
	if len(values.used) != 1 {
		t.Errorf("keeps %d values", len(values.used))
	}
}
