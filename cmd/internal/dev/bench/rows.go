package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// unit is the unit of a row's number.
type unit string

const (
	unitRatio   unit = "ratio"
	unitTimes   unit = "times"   // one run takes so many times the other
	unitPercent unit = "percent" // the number itself is a fraction
	unitCount   unit = "count"   // independent of the machine's load
	unitSeconds unit = "seconds"
	unitMillis  unit = "milliseconds"
	unitBytes   unit = "bytes"
	// unitPerMillion counts per million events. It depends on the machine's load,
	// because a batch grows for some time.
	unitPerMillion unit = "per million events"
)

// absolute reports whether values are specific to the machine.
func (u unit) absolute() bool { return u == unitSeconds || u == unitMillis || u == unitBytes }

// direction is the side of its goal on which a row is good.
type direction string

const (
	atLeast direction = "at least"
	atMost  direction = "at most"
)

// row is one line of the table.
type row struct {
	name, about string
	unit        unit
	direction   direction
	goal        float64
	// quick rows are part of the short benchmark.
	quick bool
	cells []cell
	// needs names the requirement of the row, "" for none.
	needs string
	// value returns the row's number for one round, whose measurements are in the order of cells.
	value func(of []measurement) float64
}

// Values that several rows have in common.
func wallShare(of []measurement) float64 { return of[0].Seconds / of[1].Seconds }
func overhead(of []measurement) float64  { return of[0].Seconds/of[1].Seconds - 1 }
func rateShare(of []measurement) float64 { return of[0].rate() / of[1].rate() }
func cpuShare(of []measurement) float64  { return of[0].cpuPerEvent() / of[1].cpuPerEvent() }

// peakRSSOf is NaN if the peak is unknown.
func peakRSSOf(of []measurement) float64 {
	if of[0].PeakRSS == 0 {
		return math.NaN()
	}
	return float64(of[0].PeakRSS)
}

// ideal returns the latency's share of the time.
func ideal(latency time.Duration) func([]measurement) float64 {
	return func(of []measurement) float64 { return float64(of[0].Requests) * latency.Seconds() / of[0].Seconds }
}

// A cell has this many pages for each page of --pages. Without latency, a page takes a
// hundredth of its time at 20 ms.
const (
	flatOut = 3
	longRun = 10
	// A run of a second mostly shows its start and end.
	quickPages = 4 // at 5 ms
	slowPages  = 3 // each end of a run waits for two commits
	// mostWindows is the largest number of windows that a process reads at a time, fleetWindows
	// that of a job of a fleet. With it, each window has --pages pages.
	mostWindows  = 8
	fleetWindows = 24
)

// The export of the freshness rows.
const (
	growthRate   = 200 // events per second
	pollInterval = 100 * time.Millisecond
)

// planner makes the cells of the rows.
type planner struct {
	pages   int
	brokers int
}

func ms(n int) apiKind { return apiKind{Latency: time.Duration(n) * time.Millisecond} }

func (p *planner) fetch(latency int) cell {
	return cell{work: workFetch, api: ms(latency), pages: p.pages}
}

func (p *planner) bridge(latency int) cell {
	return cell{work: workBridge, api: ms(latency), pages: p.pages, mode: bridge.ExactlyOnce}
}

// memory produces the records of the bridge from memory.
func (p *planner) memory(codec string) cell {
	return cell{work: workMemory, pages: flatOut * p.pages, codec: codec}
}

// flat is the bridge with an API without latency.
func (p *planner) flat(mode bridge.Mode, codec string) cell {
	return cell{work: workBridge, pages: flatOut * p.pages, mode: mode, codec: codec}
}

// rows returns the whole table.
func (p *planner) rows() []row {
	return slices.Concat(p.serialRows(), p.rawRows(), p.overheadRows(), p.loopRows(), p.windowRows(), p.costRows(),
		p.catchUpRows(), p.memoryRows(), p.freshnessRows(), []row{p.linkRow()})
}

// serialRows compare the bridge with a loop that only fetches.
func (p *planner) serialRows() []row {
	var rows []row
	for _, r := range []struct {
		latency, times int
		serial, ideal  float64
	}{{5, quickPages, 0.95, 0}, {20, 1, 0.99, 0.93}, {50, 1, 0.998, 0.97}} {
		fetch, bridge := p.fetch(r.latency).times(r.times), p.bridge(r.latency).times(r.times)
		rows = append(rows, row{
			name:  fmt.Sprintf("serial_fraction_%d", r.latency),
			about: fmt.Sprintf("time of a loop that only fetches / of the bridge, API latency %d ms", r.latency),
			unit:  unitRatio, direction: atLeast, goal: r.serial, quick: r.latency < 50,
			cells: []cell{fetch, bridge}, value: wallShare,
		})
		if r.ideal > 0 {
			rows = append(rows, row{
				name:  fmt.Sprintf("ideal_fraction_%d", r.latency),
				about: fmt.Sprintf("pages x %d ms / time of the bridge", r.latency),
				unit:  unitRatio, direction: atLeast, goal: r.ideal, quick: r.latency == 20,
				cells: []cell{bridge}, value: ideal(bridge.api.Latency),
			})
		}
	}
	return append(rows, row{
		name:  "serial_fraction_20_slow_commit",
		about: "serial_fraction_20 while Kafka takes 50 to 100 ms to end a transaction",
		unit:  unitRatio, direction: atLeast, goal: 0.95, value: wallShare,
		cells: []cell{p.fetch(20).times(slowPages), p.bridge(20).times(slowPages).via(pathSlowCommit)},
	})
}

// rawRows compare the bridge with Kafka's client, which produces from memory.
func (p *planner) rawRows() []row {
	var rows []row
	for _, r := range []struct {
		codec string
		goal  float64
	}{{"none", 0.70}, {"snappy", 0.70}, {"lz4", 0.85}, {"zstd", 0.90}} {
		rows = append(rows, row{
			name:  "raw_fraction_" + r.codec,
			about: "events/s, at-least-once / of the client from memory, no latency, " + r.codec,
			unit:  unitRatio, direction: atLeast, goal: r.goal, quick: r.codec == "snappy",
			cells: []cell{p.flat(bridge.AtLeastOnce, r.codec), p.memory(r.codec)}, value: rateShare,
		})
	}
	return append(rows, row{
		name:  "raw_fraction_exactly_once",
		about: "events/s, exactly-once / of the client from memory, no latency, snappy",
		unit:  unitRatio, direction: atLeast, goal: 0.7,
		cells: []cell{p.flat(bridge.ExactlyOnce, "snappy"), p.memory("snappy")}, value: rateShare,
	})
}

// overheadRows measure the time that exactly-once mode, commits to Redis and metrics take.
func (p *planner) overheadRows() []row {
	at20 := p.bridge(20)
	noStore, far, noMetrics := at20, at20, at20
	noStore.without.Store, far.redisFar, noMetrics.without.Observer = true, true, true
	flat := p.flat(bridge.ExactlyOnce, "snappy")
	eos := 0.02
	if p.brokers > 1 {
		eos = 0.03 // brokers replicate the state of a transaction too
	}
	var rows []row
	for _, r := range []struct {
		name, about string
		goal        float64
		on, off     cell
	}{
		{"eos_overhead_20", "extra time of exactly-once over at-least-once mode, 20 ms", eos, at20,
			at20.in(bridge.AtLeastOnce)},
		{"eos_overhead_0", "the same without API latency", 0.15, flat,
			p.flat(bridge.AtLeastOnce, "snappy")},
		{"commit_overhead", "extra time with Redis commits, 20 ms", 0.01, at20, noStore},
		{"commit_overhead_far", "the same with a Redis 5 ms away", 0.01, far, noStore},
		{"metrics_overhead", "extra time with metrics, 20 ms", 0.01, at20, noMetrics},
	} {
		rows = append(rows, row{
			name: r.name, about: r.about, unit: unitPercent, direction: atMost, goal: r.goal, quick: r.name == "eos_overhead_0",
			cells: []cell{r.on, r.off}, value: overhead,
		})
	}
	return rows
}

// loopRows compare the bridge with sequential loops.
func (p *planner) loopRows() []row {
	var rows []row
	for _, r := range []struct {
		name    string
		work    work
		latency int
		goal    float64
	}{
		{"naive_speedup", workUsual, 5, 4.5}, {"naive_speedup", workUsual, 20, 2.3},
		{"seq_speedup", workSequential, 5, 2.4}, {"seq_speedup", workSequential, 20, 1.5},
	} {
		loop := cell{work: r.work, api: ms(r.latency), pages: p.pages}
		rows = append(rows, row{
			name:  fmt.Sprintf("%s_%d", r.name, r.latency),
			about: fmt.Sprintf("time of the %s / of the bridge, %d ms, Kafka 5 ms away", r.work, r.latency),
			unit:  unitTimes, direction: atLeast, goal: r.goal, quick: r.name == "naive_speedup" && r.latency == 5,
			cells: []cell{loop.via(pathFar), p.bridge(r.latency).via(pathFar)}, value: wallShare,
		})
	}
	return rows
}

// windowRows measure the gain of a backfill that reads several windows at a time.
func (p *planner) windowRows() []row {
	backfill := func(windows int) cell {
		return cell{work: workBackfill, api: ms(20), pages: mostWindows * p.pages, mode: bridge.ExactlyOnce, windows: windows}
	}
	var rows []row
	for _, r := range []struct {
		windows int
		goal    float64
	}{{2, 1.95}, {4, 3.8}, {mostWindows, 7}} {
		rows = append(rows, row{
			name:  fmt.Sprintf("window_scaling_%d", r.windows),
			about: fmt.Sprintf("time of a backfill with one window / with %d, 20 ms", r.windows),
			unit:  unitTimes, direction: atLeast, goal: r.goal,
			cells: []cell{backfill(1), backfill(r.windows)}, value: wallShare,
		})
	}
	alone := cell{
		work: workBackfill, api: ms(200), pages: fleetWindows * p.pages, mode: bridge.ExactlyOnce,
		windows: fleetWindows, members: 1,
	}
	three := alone
	three.members = 3
	return append(rows, row{
		name:  "fleet_scaling_3",
		about: "time of a backfill in lanes of one process / of three, 200 ms",
		unit:  unitTimes, direction: atLeast, goal: 2.8,
		cells: []cell{alone, three}, value: wallShare,
	})
}

// memoryRows measure the peak memory of the bridge.
func (p *planner) memoryRows() []row {
	short, long := p.lengths()
	return []row{{
		name: "rss_latency_bound", about: "peak memory (VmHWM) of the bridge, 20 ms",
		unit: unitBytes, direction: atMost, goal: 40e6, quick: true,
		cells: []cell{p.bridge(20)}, value: peakRSSOf,
	}, {
		name: "rss_flat_out", about: "peak memory (VmHWM) of the bridge, no latency",
		unit: unitBytes, direction: atMost, goal: 80e6, quick: true,
		cells: []cell{long}, value: peakRSSOf,
	}, {
		name: "rss_flat", about: "peak memory after ten times the pages / after the usual number",
		unit: unitRatio, direction: atMost, goal: 1.1, quick: true,
		cells: []cell{long, short},
		value: func(of []measurement) float64 { return float64(of[0].PeakRSS) / float64(of[1].PeakRSS) },
	}}
}

// freshnessRows measure the age of events when a consumer reads them.
func (p *planner) freshnessRows() []row {
	growing := cell{work: workBridge, mode: bridge.ExactlyOnce, growing: true}
	extra := 12 * time.Millisecond
	if p.brokers > 1 {
		extra = 50 * time.Millisecond // of a transaction where brokers replicate
	}
	return []row{{
		name:  "tail_freshness_p99",
		about: "from visible at the API to read, polling every 100 ms, 99th percentile",
		unit:  unitMillis, direction: atMost, goal: milliseconds(pollInterval + extra),
		cells: []cell{growing}, value: func(of []measurement) float64 { return of[0].AgeP99 },
	}}
}

// linkRow measures the gain of compression on a slow link.
func (p *planner) linkRow() row {
	// A page takes 90 ms on this link.
	plain := cell{work: workBridge, pages: max(1, 3*p.pages/10), mode: bridge.ExactlyOnce, api: ms(20)}
	plain.api.Mbit = 100
	zipped := plain
	zipped.api.Gzip = true
	return row{
		name: "gzip_gain_100mbit_20", about: "time of the bridge without gzip / with, 100 Mbit/s, 20 ms",
		unit: unitTimes, direction: atLeast, goal: 3,
		cells: []cell{plain, zipped}, value: wallShare,
	}
}

// choose returns the rows of these names, in the order of the table. A name that
// no row has selects all rows with that prefix. Without names, it returns all rows, or
// those of the short benchmark.
func choose(all []row, names []string, quick bool) ([]row, error) {
	chosen := make(map[string]bool)
	for _, name := range names {
		exact := slices.ContainsFunc(all, func(r row) bool { return r.name == name })
		found := false
		for _, r := range all {
			if r.name == name || !exact && strings.HasPrefix(r.name, name) {
				found, chosen[r.name] = true, true
			}
		}
		if !found {
			return nil, cli.WrongUsage("exportbridge-dev bench --list", "no row is named %q or begins with it", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r row) bool {
		if len(names) == 0 {
			return quick && !r.quick
		}
		return !chosen[r.name]
	}), nil
}

// cellsOf returns the cells of the rows, each once. Cells with the same API are
// adjacent, so that cells that are compared run close in time.
func cellsOf(rows []row) []cell {
	var cells []cell
	for _, r := range rows {
		for _, c := range r.cells {
			if !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	slices.SortStableFunc(cells, func(a, b cell) int {
		return int(a.api.Latency-b.api.Latency) + a.api.Mbit - b.api.Mbit
	})
	return cells
}
