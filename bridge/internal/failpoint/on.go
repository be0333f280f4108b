//go:build proof

package failpoint

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	crash   = readCrash(os.Getenv("PROOF_CRASH"))
	reached atomic.Int64
)

// plannedCrash is a PROOF_CRASH, POINT:N or POINT:N:stop.
type plannedCrash struct {
	at    Point
	after int64
	stop  bool // SIGSTOP, so that SIGCONT can resume the process
}

func readCrash(text string) plannedCrash {
	name, rest, _ := strings.Cut(text, ":")
	count, how, _ := strings.Cut(rest, ":")
	if name != "" && !slices.Contains(Points, Point(name)) {
		panic("PROOF_CRASH names no point: " + name)
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		n = 1
	}
	return plannedCrash{Point(name), n, how == "stop"}
}

// Reach marks that the process got to a point, and kills or stops it there if
// PROOF_CRASH says so.
func Reach(p Point) {
	if p != crash.at || reached.Add(1) != crash.after {
		return
	}
	if crash.stop {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing after the point may happen
}
