// Package must ends a test at an unexpected error.
package must

import "testing"

// Do ends the test if err is not nil. Call it on the goroutine of the test.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call that may fail, and ends the test if it did: must.Get(f())(t).
// Go passes two results on only if they are all the arguments, so the test comes after them.
func Get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}
