//go:build proof

package bridge

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	crashAt, crashAfter = crashPoint(os.Getenv("PROOF_CRASH"))
	reached             atomic.Int64
	broken              atomic.Value // of type Break
)

func crashPoint(text string) (Point, int64) {
	name, count, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		n = 1
	}
	return Point(name), n
}

func init() { SetBroken(Break(os.Getenv("PROOF_BREAK"))) }

// Reach marks that the process got to a point, and kills it there if
// PROOF_CRASH says so.
func Reach(p Point) {
	if p == crashAt && reached.Add(1) == crashAfter {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing after the point may happen
	}
}

// Broken reports whether a rule is taken away.
func Broken(b Break) bool { return broken.Load() == b }

// SetBroken takes one rule away, or none with "".
func SetBroken(b Break) { broken.Store(b) }
