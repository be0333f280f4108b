package must

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Be ends the test unless err is target, by errors.Is, and its text has all words. A nil
// target stands for any error. Call it on the goroutine of the test.
func Be(t testing.TB, err, target error, words ...string) {
	t.Helper()
	if err == nil || target != nil && !errors.Is(err, target) {
		t.Fatalf("the error is %v, want %v", err, fmt.Sprint(target, words))
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("the error is %v, want %q in it", err, word)
		}
	}
}

// Fail is Be for a call with a result: must.Fail(f())(t, target).
func Fail[T any](_ T, err error) func(t testing.TB, target error, words ...string) {
	return func(t testing.TB, target error, words ...string) {
		t.Helper()
		Be(t, err, target, words...)
	}
}
