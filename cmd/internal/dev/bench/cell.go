package bench

import (
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// work is the task of a process.
type work string

const (
	// workFetch follows the cursor and discards the pages.
	workFetch work = "fetch only"
	// workBridge is exportbridge run, with --once unless the cell is growing or has
	// kills.
	workBridge work = "bridge"
	// workBackfill is exportbridge backfill.
	workBackfill work = "backfill"
	// workMemory produces records that are built before the clock starts.
	workMemory work = "from memory"
	// workUsual is encoding/json, ProduceSync, SET, repeat.
	workUsual work = "usual loop"
	// workSequential is the same loop, as fast as it can be.
	workSequential work = "best sequential loop"
)

// kafkaPath is how a measured process reaches Kafka.
type kafkaPath string

const (
	pathDirect kafkaPath = ""
	// pathFar delays every reply by farRoundTrip.
	pathFar kafkaPath = "Kafka 5ms away"
	// pathSlowCommit delays replies to EndTxn by slowCommit to slowCommit +
	// slowCommitSpread.
	pathSlowCommit kafkaPath = "slow commits"
)

const (
	farRoundTrip     = 5 * time.Millisecond
	slowCommit       = 50 * time.Millisecond
	slowCommitSpread = 50 * time.Millisecond
)

// apiKind is how an export API answers. There is one server for each.
type apiKind struct {
	Latency time.Duration
	Mbit    int // of its link, 0 is no limit
	Gzip    bool
}

func (k apiKind) String() string {
	text := fmt.Sprintf("%dms", k.Latency.Milliseconds())
	if k.Mbit > 0 {
		text += fmt.Sprintf(" %dMbit", k.Mbit)
	}
	if k.Gzip {
		text += " gzip"
	}
	return text
}

// omitted selects the ports that a measured bridge runs without, to show their cost.
type omitted struct{ Store, Observer bool }

// cell is one run of one process on one set of servers. Rows that share a cell
// share its run in each round.
type cell struct {
	work  work
	api   apiKind
	pages int
	kafka kafkaPath
	mode  bridge.Mode // empty is the default mode
	codec string      // empty is the default
	// routed publishes to four topics by type, and private applies three rules for private data.
	routed, private bool
	// windows is how many windows a backfill reads at a time; 0 is no backfill.
	windows int
	// members is how many processes of a fleet share the lanes of a backfill; 0 is a backfill
	// in the command's process.
	members int
	without omitted
	// redisFar puts Redis farRoundTrip away.
	redisFar bool
	// growing follows a growing export and measures the age of its events when
	// a consumer reads them.
	growing bool
	// kills is how often the process is killed and started again, to count the
	// pages that are fetched again.
	kills int
	// warming is a run that does not count.
	warming bool
}

// These return a changed copy: with n times the pages, another mode, another path to Kafka.
func (c cell) times(n int) cell         { c.pages *= n; return c }
func (c cell) in(mode bridge.Mode) cell { c.mode = mode; return c }
func (c cell) via(path kafkaPath) cell  { c.kafka = path; return c }

// String names the cell in reports, and its profiles.
func (c cell) String() string {
	parts := []string{string(c.work), c.api.String(), fmt.Sprintf("%d pages", c.pages)}
	if c.growing {
		parts = []string{string(c.work), "growing export"}
	}
	add := func(when bool, text string) {
		if when {
			parts = append(parts, text)
		}
	}
	add(c.windows > 0, cli.Counted(c.windows, "window"))
	add(c.members > 0, fmt.Sprintf("a fleet of %d", c.members))
	add(c.kafka != pathDirect, string(c.kafka))
	add(c.work == workBridge && c.mode == bridge.AtLeastOnce, string(c.mode))
	add(c.codec != "", c.codec)
	add(c.routed, "four topics")
	add(c.private, "private data")
	add(c.without.Store, "no Redis")
	add(c.without.Observer, "no metrics")
	add(c.redisFar, "Redis 5ms away")
	add(c.kills > 0, cli.Counted(c.kills, "kill"))
	return strings.Join(parts, ", ")
}

// routes are the topics beside the one with the name of a run.
func (c cell) routes(name string) []string {
	if !c.routed {
		return nil
	}
	return []string{name + ".pages", name + ".orders", name + ".changes"}
}

// writes reports whether the cell's process writes to Kafka.
func (c cell) writes() bool { return c.work != workFetch }

// warmUp is the cell at a tenth of its length.
func (c cell) warmUp() cell {
	windows := max(1, c.windows)
	c.pages, c.warming = max(1, c.pages/10/windows)*windows, true
	return c
}

// requests returns how many requests the cell's process sends: one for each page,
// and one for each end, because only an empty page ends an export.
func (c cell) requests() int { return c.pages + max(1, c.windows) }

// measurement is one run of a cell. The run begins with the first request at the
// API, or with the first record if it has no request.
type measurement struct {
	Round    int     `json:"round"`
	Cell     string  `json:"cell"`
	Seconds  float64 `json:"seconds,omitempty"`
	Requests int     `json:"requests,omitempty"`
	Events   int     `json:"events,omitempty"` // within the seconds
	// CPUSeconds is of the whole process; of workMemory, of producing alone.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// PeakRSS is in bytes, 0 where the system does not report it.
	PeakRSS int64 `json:"peak_rss_bytes,omitempty"`
	// Mallocs counts the objects that the process allocated.
	Mallocs uint64 `json:"mallocs,omitempty"`
	// AgeP99 is the age of events when a consumer read them.
	AgeP99 float64 `json:"age_p99_ms,omitempty"`
	// Transactions counts those that the bridge ended.
	Transactions int64 `json:"transactions,omitempty"`
	// BrokerCPUSeconds is of all brokers, from before the process started to its
	// end; 0 if it is unknown.
	BrokerCPUSeconds float64 `json:"broker_cpu_seconds,omitempty"`
	// RefetchedP99 is the latency of all pages that are fetched again after a kill.
	RefetchedP99 float64 `json:"refetched_p99_ms,omitempty"`
}

// rate is in events per second.
func (m measurement) rate() float64 { return float64(m.Events) / m.Seconds }

// cpuPerEvent is in seconds.
func (m measurement) cpuPerEvent() float64 { return m.CPUSeconds / float64(m.Events) }
