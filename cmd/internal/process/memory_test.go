package process

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]int64{"268435456\n": 241591860, "max\n": 0, "": 0, "0": 0, "-1": 0, "64M": 0} {
		if got, ok := memoryLimit(file); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", file, got, ok, want)
		}
	}
}

// TestCgroupLimit: the tightest limit on the way out counts.
func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for group, limit := range map[string]string{"a.slice": "1000\n", "a.slice/wide": "2000\n",
		"a.slice/narrow": "500\n", "b.slice/none": "max\n"} {
		dir := filepath.Join(root, group)
		must.Do(t, os.MkdirAll(dir, 0o700))
		must.Do(t, os.WriteFile(filepath.Join(dir, "memory.max"), []byte(limit), 0o600))
	}
	for own, want := range map[string]int64{
		"0::/a.slice/narrow\n": 450, "0::/a.slice/wide\n": 900, "0::/a.slice/wide/inner\n": 900, "0::/b.slice/none\n": 0,
		"0::/": 0, "12:memory:/a.slice\n": 0, "1:name=systemd:/\n0::/a.slice\n": 900, "": 0, "0::": 0,
	} {
		if got, ok := cgroupLimit(root, own); got != want || ok != (want > 0) {
			t.Errorf("in %q: %d, %v; want %d", own, got, ok, want)
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
		TuneMemory(c.environ)
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("with %v the collector is set to %d, want %d", c.environ, got, c.want)
		}
	}
}
