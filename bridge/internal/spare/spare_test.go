package spare

import "testing"

func TestList(t *testing.T) {
	t.Parallel()
	var l List[int]
	want := func(v int, fits func(int) bool) {
		t.Helper()
		if got, ok := l.Take(fits); got != v || ok != (v != 0) {
			t.Errorf("got %d, %t, want %d", got, ok, v)
		}
	}
	want(0, Any)
	for i := range 2 * most {
		l.Give(i + 1)
	}
	want(most, Any)
	want(3, func(v int) bool { return v < 4 })
	want(0, func(int) bool { return false })
	if len(l.free) != most-2 {
		t.Errorf("keeps %d", len(l.free))
	}
}

// Of values that differ, those that are not needed go, wherever they were.
func TestTrimOthers(t *testing.T) {
	t.Parallel()
	var l List[int]
	for _, v := range []int{1, 2, 30, 40} {
		l.Give(v)
	}
	for range 3 {
		for range 2 {
			v, ok := l.Take(func(v int) bool { return v < 10 })
			if !ok {
				t.Fatal("what is needed is gone")
			}
			l.Give(v)
		}
		l.Trim()
	}
	if len(l.free) != 1 || l.free[0] > 2 {
		t.Errorf("keeps %d, want the one that is used", l.free)
	}
}

// What is needed at times stays, what is not needed goes.
func TestTrim(t *testing.T) {
	t.Parallel()
	var l List[int]
	for i := range 5 {
		l.Give(i + 1)
	}
	for range 3 {
		l.Trim()
		a, _ := l.Take(Any)
		b, _ := l.Take(Any)
		l.Give(b)
		l.Give(a)
	}
	if len(l.free) != 2 || l.free[1] != 5 {
		t.Errorf("keeps %d, want the two that are used", l.free)
	}
	l.Trim()
	if l.Trim(); len(l.free) != 0 {
		t.Errorf("keeps %d, want none", l.free)
	}
}
