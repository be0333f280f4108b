package process

import (
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent: a bridge has little garbage beside large buffers that it uses
	// again. Collecting a little more often than by default saves a megabyte or
	// two where the API is the bound, and costs a few percent of CPU flat out.
	gcPercent = 75
	// limitShare is the part of a container's memory, in percent, up to which
	// the heap may grow before the collector works harder; the rest is for what
	// is not on the heap.
	limitShare = 90
	// cgroups is where the limits of control groups are (version 2), and
	// ownCgroup says in which one this process is: in a container in the
	// outermost that it sees, under systemd in its unit's.
	cgroups   = "/sys/fs/cgroup"
	ownCgroup = "/proc/self/cgroup"
)

// TuneMemory sets the collector for a bridge, unless GOGC or GOMEMLIMIT say
// otherwise.
func TuneMemory(environ []string) {
	if variableIn(environ, "GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if variableIn(environ, "GOMEMLIMIT") != "" {
		return
	}
	own, err := os.ReadFile(ownCgroup)
	if err != nil {
		return // no Linux
	}
	if limit, ok := cgroupLimit(cgroups, string(own)); ok {
		debug.SetMemoryLimit(limit)
	}
}

// variableIn returns the last value that an environment has for a variable, ""
// for none.
func variableIn(environ []string, name string) (value string) {
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = text
		}
	}
	return value
}

// cgroupLimit is the heap's share of the tightest limit of the process's
// control group and those around it, false where there is none. Groups that
// are not to be seen from a container set none.
func cgroupLimit(root, own string) (int64, bool) {
	var tightest int64
	for line := range strings.Lines(own) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ; unified; group = path.Dir(group) {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(group), "memory.max"))
			if limit, ok := memoryLimit(string(text)); err == nil && ok && (tightest == 0 || limit < tightest) {
				tightest = limit
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return tightest, tightest > 0
}

// memoryLimit is the heap's share of what a cgroup's file allows, false where
// it sets no limit.
func memoryLimit(file string) (int64, bool) {
	bytes, err := strconv.ParseInt(strings.TrimSpace(file), 10, 64)
	if err != nil || bytes <= 0 { // "max"
		return 0, false
	}
	return bytes / 100 * limitShare, true
}
