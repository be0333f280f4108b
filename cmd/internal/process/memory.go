package process

import (
	"context"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/budget"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
)

const (
	// gcPercent is below Go's default, because a bridge reuses large buffers and has little
	// garbage. It saves a megabyte or two if the API is the bottleneck, and costs a few
	// percent of CPU at full load.
	gcPercent = 75
	// limitShare is the percentage of a container's memory that Go's memory limit gets. The
	// rest is for memory outside the heap.
	limitShare = 90
	// cgroups has the limits of control groups (version 2). ownCgroup names the group of
	// this process: the root in a container, the group of the unit under systemd.
	cgroups   = "/sys/fs/cgroup"
	ownCgroup = "/proc/self/cgroup"
)

// TuneMemory configures the garbage collector for a bridge, unless GOGC or GOMEMLIMIT
// are set.
func TuneMemory(environ []string) {
	if variableIn(environ, "GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := MemoryLimit(environ); limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit)
	}
}

const (
	// trimInterval is how long unused memory for pages is kept.
	trimInterval = 5 * time.Second
	// returnInterval is the shortest time between two returns of memory to the system.
	returnInterval = time.Minute
)

// returnMemory frees memory that pages do not need, and returns it to the system once the
// streams have caught up. Go alone would keep it for long.
func returnMemory(ctx context.Context, shared *budget.Budget) {
	var returned time.Time
	for bridge.Sleep(ctx, trimInterval); ctx.Err() == nil; bridge.Sleep(ctx, trimInterval) {
		exportapi.TrimMemory()
		kafkasink.TrimMemory()
		busy := shared.Busy()
		if busy.Before(returned) || time.Since(busy) < 2*trimInterval || time.Since(returned) < returnInterval {
			continue
		}
		returned = time.Now()
		runtime.GC() // emptying the clients' pools takes two collections
		debug.FreeOSMemory()
	}
}

// MemoryLimit returns the limit of the heap in bytes: GOMEMLIMIT, or the heap's share of
// the control group's limit; math.MaxInt64 without one.
func MemoryLimit(environ []string) int64 {
	if variableIn(environ, "GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1)
	}
	own, err := os.ReadFile(ownCgroup)
	if err != nil {
		return math.MaxInt64 // not Linux
	}
	if limit, ok := cgroupLimit(cgroups, string(own)); ok {
		return limit
	}
	return math.MaxInt64
}

// variableIn returns the last value of a variable in an environment, "" if unset.
func variableIn(environ []string, name string) (value string) {
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = text
		}
	}
	return value
}

// cgroupLimit returns the heap's share of the lowest limit of the process's control group
// and its visible parents, false if there is no limit.
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

// memoryLimit returns the heap's share of the limit in a cgroup's file, false if there is
// no limit.
func memoryLimit(file string) (int64, bool) {
	bytes, err := strconv.ParseInt(strings.TrimSpace(file), 10, 64)
	if err != nil || bytes <= 0 { // the content is "max"
		return 0, false
	}
	return bytes / 100 * limitShare, true
}
