//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestE2EProofFleet has three processes share E2E_STREAMS streams of a file while all of this
// happens: E2E_KILLS processes die, others stop, are paused or change their kind of group, the
// files change, and backfills run in lanes. With E2E_UPGRADE_FROM, two of the processes take
// turns with the program of that commit. Each item is published once.
func TestE2EProofFleet(t *testing.T) {
	t.Parallel()
	n, kills, seed := int(size(t, "E2E_STREAMS", 3, 3)), int(size(t, "E2E_KILLS", 2, 4)), seedOf(t)
	s, paths := shareStreams(t, n)
	seam := s.firstAt(s.config.Events / 2)
	s.settings["EXPORT_START"] = s.timeOf(seam)
	does := []string{"killed", "killed", "killed", "stopped", "paused", "reloaded", "reloaded", "kind changed"}
	older := ""
	if from := os.Getenv("E2E_UPGRADE_FROM"); from != "" {
		older, does = buildOf(t, from), append(does, "replaced", "replaced")
	}
	c := newCrowd(s, slices.Sorted(maps.Keys(paths)), seed, does...)
	c.older, c.reached = older, 30*n
	c.awaitFlow()
	j := &jobs{c: c, from: s.timeOf(0), to: s.timeOf(seam), left: slices.Clone(c.names)}
	j.look()
	began := time.Now()
	for c.killed() < kills {
		c.turn()
		j.look()
	}
	took := time.Since(began)
	c.settle()
	c.awaitFlow()
	j.left = nil
	eventually(t, 3*outageTimeout, "the backfill to be done", func() bool { c.restart(); return j.look() })
	c.stop()
	total, lost, twice := s.compareAll(paths, func(stream string) int64 {
		if slices.Contains(j.done, stream) {
			return 0
		}
		return s.truth.EventTime(seam).UnixMilli()
	})
	t.Logf("e2e: proof, fleet: %d streams in three processes, %d kills in %.0f s (%v), %d backfills in lanes, %d not in "+
		"lanes, %d items: %d lost, %d twice; all flow again after %s, longest %v, session time-out %s, "+
		"E2E_SEED=%d",
		n, c.killed(), took.Seconds(), c.ways, len(j.done)-j.here, j.here, total, lost, twice, quantiles(c.flowing),
		c.longest, s.settings["BRIDGE_SESSION_TIMEOUT"], seed)
	if j.here == len(j.done) {
		t.Error("no backfill ran in lanes")
	}
}

// jobs hands over one backfill after the other, each of another stream.
type jobs struct {
	c        *crowd
	from, to string
	left     []string // streams without one
	done     []string
	here     int // jobs that no process could run in lanes, so that their command ran them
	run      *program
}

// handedOver finds the id of a job that a command has handed over.
var handedOver = regexp.MustCompile(`job (\S+); handed over to`)

// look begins the next step of a job if the last one has ended, and reports whether no job is
// left.
func (j *jobs) look() bool {
	s := j.c.s
	s.t.Helper()
	if j.run != nil {
		if j.run.running() {
			return false
		}
		said, code := string(j.run.stdout())+string(j.run.stderr()), j.run.wait(stepTimeout)
		id := handedOver.FindStringSubmatch(said)
		switch {
		case id != nil:
			j.run = s.start("backfill", "watch", "--stream", j.done[len(j.done)-1], id[1])
			return false
		case code != 0:
			s.t.Fatalf("%s ended with exit code %d\n%s", j.run.name, code, said)
		case !strings.Contains(said, ": done: "):
			j.here++
		}
		j.run = nil
	}
	if len(j.left) == 0 {
		return true
	}
	stream := j.left[0]
	j.left, j.done = j.left[1:], append(j.done, stream)
	j.run = s.start("backfill", "--stream", stream, "--from", j.from, "--to", j.to, "--windows", "12", "--parallel", "6",
		"--rate-limit", fmt.Sprintf("%d/s", 1+40/len(j.c.names)), "--execute") // it takes a few turns
	return false
}
