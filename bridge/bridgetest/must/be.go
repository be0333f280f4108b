package must

import (
	"errors"
	"testing"
)

// Be ends the test unless err is target, by errors.Is. Call it on the goroutine of the test.
func Be(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("the error is %v, want %v", err, target)
	}
}
