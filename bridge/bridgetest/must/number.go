package must

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the number in an environment variable, unset if there is none. It says how
// much a test does.
func Number[N int | int64 | uint64](t testing.TB, name string, unset N) N {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	return N(Get(strconv.ParseInt(text, 10, 64))(t))
}
