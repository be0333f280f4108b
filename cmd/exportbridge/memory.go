package main

import (
	"os"
	"runtime/debug"
	"slices"
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
	// cgroupLimit is where a container finds its limit (cgroup v2).
	cgroupLimit = "/sys/fs/cgroup/memory.max"
)

// tuneMemory sets the collector for a bridge, unless GOGC or GOMEMLIMIT say
// otherwise.
func tuneMemory(environ []string) {
	set := func(name string) bool {
		return slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") && len(v) > len(name)+1 })
	}
	if !set("GOGC") {
		debug.SetGCPercent(gcPercent)
	}
	if set("GOMEMLIMIT") {
		return
	}
	text, err := os.ReadFile(cgroupLimit)
	if limit, ok := memoryLimit(string(text)); err == nil && ok {
		debug.SetMemoryLimit(limit)
	}
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
