package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"exportbridge/cmd/internal/cli"
)

// fleetReport is what bench fleet --json prints.
type fleetReport struct {
	Version string         `json:"version"`
	Cores   int            `json:"cores"`
	Date    time.Time      `json:"date"`
	Kafka   string         `json:"kafka"`
	Redis   string         `json:"redis"`
	Streams int            `json:"streams"`
	Pages   int            `json:"pages"`
	Phases  []fleetFigures `json:"phases"`
}

// fleetFigures are what the streams cost at rest. CPU is in cores.
type fleetFigures struct {
	Phase        string  `json:"phase"`
	StartSeconds float64 `json:"start_seconds"` // to the moment when all have caught up
	Resident     int64   `json:"resident_bytes"`
	Peak         int64   `json:"peak_bytes"`
	Heap         int64   `json:"heap_bytes"` // in use, live or not collected yet
	CPU          float64 `json:"cpu_cores"`
	BrokerCPU    float64 `json:"broker_cpu_cores,omitempty"` // 0 if unknown, as below
	RedisCPU     float64 `json:"redis_cpu_cores,omitempty"`
	Descriptors  int     `json:"descriptors"`
	Goroutines   int     `json:"goroutines"`
	Series       int     `json:"series"`
	ScrapeBytes  int64   `json:"scrape_bytes"`
	ScrapeMillis float64 `json:"scrape_ms"`
}

// measure reads the figures of a process. It reads the memory first, because the scrape needs some.
func (f *fleetFigures) measure(ctx context.Context, s *server) error {
	pid := s.cmd.Process.Pid
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return fmt.Errorf("count descriptors: %w", err)
	}
	f.Descriptors = len(files)
	f.Resident = memoryOf(strconv.Itoa(pid), "VmRSS")
	f.Peak = memoryOf(strconv.Itoa(pid), "VmHWM")
	seen, err := scrape(ctx, s.addr)
	if err != nil {
		return err
	}
	f.Goroutines = int(seen.sums["go_goroutines"])
	f.Heap = int64(seen.sums["go_memstats_heap_inuse_bytes"])
	f.Series = seen.series
	f.ScrapeBytes = seen.bytes
	f.ScrapeMillis = milliseconds(seen.took)
	return nil
}

// print prints the report as a table, a column for each phase.
func (r *fleetReport) print(w io.Writer) error {
	fmt.Fprintf(w, "exportbridge %s, %s, %s\nKafka %s, Redis %s\n%s, %s of %d events each\n\n",
		r.Version, cli.Counted(r.Cores, "core"), r.Date.Format(time.RFC3339), r.Kafka, r.Redis,
		cli.Counted(r.Streams, "stream"), cli.Counted(r.Pages, "page"), pageEvents)
	head := []string{"FIGURE"}
	for i := range r.Phases {
		head = append(head, strings.ToUpper(r.Phases[i].Phase))
	}
	rows := [][]string{head}
	row := func(name string, text func(f *fleetFigures) string) {
		cells := []string{name}
		for i := range r.Phases {
			cells = append(cells, text(&r.Phases[i]))
		}
		rows = append(rows, cells)
	}
	megabytes := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	cores := func(n float64) string {
		if n <= 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.1f %%", 100*n)
	}
	row("start to caught up", func(f *fleetFigures) string { return fmt.Sprintf("%.1f s", f.StartSeconds) })
	row("resident memory", func(f *fleetFigures) string { return megabytes(f.Resident) })
	row("its peak", func(f *fleetFigures) string { return megabytes(f.Peak) })
	row("heap in use", func(f *fleetFigures) string { return megabytes(f.Heap) })
	row("CPU, of a core", func(f *fleetFigures) string { return cores(f.CPU) })
	row("CPU of Kafka", func(f *fleetFigures) string { return cores(f.BrokerCPU) })
	row("CPU of Redis", func(f *fleetFigures) string { return cores(f.RedisCPU) })
	row("descriptors", func(f *fleetFigures) string { return strconv.Itoa(f.Descriptors) })
	row("goroutines", func(f *fleetFigures) string { return strconv.Itoa(f.Goroutines) })
	row("series", func(f *fleetFigures) string { return strconv.Itoa(f.Series) })
	row("scrape", func(f *fleetFigures) string { return megabytes(f.ScrapeBytes) })
	row("time of a scrape", func(f *fleetFigures) string { return fmt.Sprintf("%.0f ms", f.ScrapeMillis) })
	_, err := cli.PrintTable(w, rows, 0)
	return err
}
