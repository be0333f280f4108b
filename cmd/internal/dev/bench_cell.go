package dev

import (
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// work is what the measured process of a cell does.
type work string

const (
	// workFetch follows the cursor and does nothing with the pages.
	workFetch work = "fetch only"
	// workBridge is exportbridge run --once, or run where the cell is followed.
	workBridge work = "bridge"
	// workBackfill is exportbridge backfill.
	workBackfill work = "backfill"
	// workMemory produces records that are all built before the clock starts.
	workMemory work = "from memory"
	// workUsual is encoding/json, ProduceSync, SET, repeat.
	workUsual work = "usual loop"
	// workSequential is the same in the best way that one thing after the
	// other can be done.
	workSequential work = "best sequential loop"
	// workSplit takes pages apart and counts allocations.
	workSplit work = "split"
	// workAgainst is the program that the user named.
	workAgainst work = "against"
)

// kafkaPath is how a measured process reaches Kafka.
type kafkaPath string

const (
	pathDirect kafkaPath = ""
	// pathFar adds a round trip of farRoundTrip to every reply.
	pathFar kafkaPath = "Kafka 5ms away"
	// pathSlowCommit delays what answers the end of a transaction by slowCommit
	// to slowCommit + slowCommitSpread.
	pathSlowCommit kafkaPath = "slow commits"
)

const (
	farRoundTrip     = 5 * time.Millisecond
	slowCommit       = 50 * time.Millisecond
	slowCommitSpread = 50 * time.Millisecond
)

// apiKind is how an export API answers. There is one server for each.
type apiKind struct {
	latency     time.Duration
	mbit        int // speed of its link, 0 is no limit
	gzip        bool
	cursorFirst bool
}

func (k apiKind) String() string {
	parts := []string{k.latency.String()}
	if k.latency == 0 {
		parts[0] = "0ms"
	}
	if k.mbit > 0 {
		parts = append(parts, fmt.Sprintf("%dMbit", k.mbit))
	}
	if k.gzip {
		parts = append(parts, "gzip")
	}
	if k.cursorFirst {
		parts = append(parts, "cursor first")
	}
	return strings.Join(parts, " ")
}

// cell is one run of one process on one set of servers. Rows that have a cell
// in common share its run of each round.
type cell struct {
	work  work
	api   apiKind
	pages int
	kafka kafkaPath
	mode  bridge.Mode
	codec string // empty is the default
	// windows is how many parts of the export a backfill reads at a time, each
	// of so many whole pages; 0 where it is none.
	windows int
	// forget keeps no checkpoint outside Kafka, redisFar keeps it in a Redis
	// farRoundTrip away.
	forget, redisFar bool
	// unobserved keeps no metrics.
	unobserved bool
	// followed is measured up to the last record that a consumer sees, and the
	// process is stopped then. The others end by themselves.
	followed bool
	// growing is an export that grows while the bridge, caught up, follows it:
	// what is measured is how old its events are when they are read.
	growing bool
	// warming is a run that does not count.
	warming bool
}

// String names the cell in reports, and its profiles.
func (c cell) String() string {
	parts := []string{string(c.work), c.api.String(), fmt.Sprintf("%d pages", c.pages)}
	if c.growing {
		parts = []string{string(c.work), "growing export"}
	}
	if c.windows > 0 {
		parts = append(parts, cli.Counted(c.windows, "window"))
	}
	if c.kafka != pathDirect {
		parts = append(parts, string(c.kafka))
	}
	if c.work == workBridge && c.mode == bridge.AtLeastOnce {
		parts = append(parts, string(c.mode))
	}
	if c.codec != "" {
		parts = append(parts, c.codec)
	}
	if c.forget {
		parts = append(parts, "no Redis")
	}
	if c.unobserved {
		parts = append(parts, "no metrics")
	}
	if c.redisFar {
		parts = append(parts, "Redis 5ms away")
	}
	if c.followed && c.work != workAgainst {
		parts = append(parts, "read")
	}
	return strings.Join(parts, ", ")
}

// writes reports whether the cell's process writes to Kafka.
func (c cell) writes() bool { return c.work != workFetch && c.work != workSplit }

// warmUp is the cell at a tenth of its length: enough to warm servers up.
func (c cell) warmUp() cell {
	windows := max(1, c.windows)
	c.pages, c.warming = max(1, c.pages/10/windows)*windows, true
	return c
}

// requests is how often the cell's process asks the API: for each page, and
// once more for each end, since only an empty page says that there are no more.
func (c cell) requests() int { return c.pages + max(1, c.windows) }

// benchRun is one measured run of a cell, from the first request that reached
// the API, or the first record where nothing is asked for, to its end.
type benchRun struct {
	Round    int     `json:"round"`
	Cell     string  `json:"cell"`
	Seconds  float64 `json:"seconds,omitempty"`
	Requests int     `json:"requests,omitempty"`
	Events   int     `json:"events,omitempty"` // within the seconds
	// CPUSeconds is of the whole process; of what is produced from memory the
	// producing alone.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// PeakRSS is in bytes, 0 where the system does not tell.
	PeakRSS int64 `json:"peak_rss_bytes,omitempty"`
	// Mallocs is how many objects the process allocated.
	Mallocs uint64 `json:"mallocs,omitempty"`
	// PageAllocs is how many objects the splitter allocated per page.
	PageAllocs float64 `json:"allocs_per_page"`
	// AgeP50 and AgeP99 are how old events were when they were read.
	AgeP50 float64 `json:"age_p50_ms,omitempty"`
	AgeP99 float64 `json:"age_p99_ms,omitempty"`
}

// rate is in events per second.
func (s benchRun) rate() float64 { return float64(s.Events) / s.Seconds }

// cpuPerEvent is in seconds.
func (s benchRun) cpuPerEvent() float64 { return s.CPUSeconds / float64(s.Events) }
