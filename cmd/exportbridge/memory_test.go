package main

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]int64{"268435456\n": 241591860, "max\n": 0, "": 0, "0": 0, "-1": 0, "64M": 0} {
		if got, ok := memoryLimit(file); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", file, got, ok, want)
		}
	}
}

// TestTuneMemory: what the environment says stays.
func TestTuneMemory(t *testing.T) { //nolint:paralleltest // the settings are the process's
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) }()
	for _, c := range []struct {
		environ []string
		want    int
	}{{nil, gcPercent}, {[]string{"GOGC="}, gcPercent}, {[]string{"GOGC=70", "GOMEMLIMIT=1GiB"}, 100}} {
		debug.SetGCPercent(100)
		tuneMemory(c.environ)
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("with %v the collector is set to %d, want %d", c.environ, got, c.want)
		}
	}
}
