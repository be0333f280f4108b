package dev

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// unit is what the number of a row counts.
type unit string

const (
	unitRatio   unit = "ratio"
	unitTimes   unit = "times"   // one is so many times the other
	unitPercent unit = "percent" // the number itself is a fraction
	unitCount   unit = "count"
	unitSeconds unit = "seconds"
	unitMillis  unit = "milliseconds"
	unitBytes   unit = "bytes"
)

// direction says on which side of its goal a row is good.
type direction string

const (
	noGoal  direction = ""
	atLeast direction = "at least"
	atMost  direction = "at most"
)

// row is one line of the table: what of which cells is compared, and what it
// should be.
type row struct {
	name      string
	about     string
	unit      unit
	direction direction
	goal      float64
	// absolute is no ratio: it depends on the machine.
	absolute bool
	// steady does not depend on what else the machine does.
	steady bool
	// quick is part of the short bench.
	quick bool
	cells []cell
	// of is what the cells are compared by, shown beside the value.
	of quantity
	// value compares the cells of one round, in the order of cells.
	value func(of []benchRun) float64
}

// quantity is what two cells are compared by.
type quantity string

const (
	ofSeconds quantity = "s"
	ofRate    quantity = "events/s"
	ofCPU     quantity = "s CPU/M"
	ofMemory  quantity = "MB"
	ofObjects quantity = "objects"
)

// of reads the quantity from what was measured.
func (q quantity) of(s benchRun) float64 {
	switch q {
	case ofRate:
		return s.rate()
	case ofCPU:
		return s.cpuPerEvent() * 1e6
	case ofMemory:
		return float64(s.PeakRSS) / 1e6
	case ofObjects:
		return float64(s.Mallocs)
	}
	return s.Seconds
}

// Values that several rows have in common.
func wallShare(of []benchRun) float64 { return of[0].Seconds / of[1].Seconds }
func overhead(of []benchRun) float64  { return of[0].Seconds/of[1].Seconds - 1 }
func rateShare(of []benchRun) float64 { return of[0].rate() / of[1].rate() }

func perMillion(of []benchRun) float64 { return of[0].cpuPerEvent() * 1e6 }

// The scale of a bench: how many pages a cell moves for each that is asked for.
// Flat out, a page takes a hundredth of what it takes at 20 ms.
const (
	flatOut = 3
	longRun = 10
	// A run of a second shows how it begins and ends, not the way.
	quickPages = 4 // at 5 ms
	slowPages  = 3 // each end of a run waits for two commits
	// mostScaled is how many windows a backfill is scaled to at most: then each
	// has as many pages as a cell is asked for.
	mostScaled = 8
)

// The export of the freshness rows.
const (
	growthRate   = 200 // events per second
	pollInterval = 100 * time.Millisecond
)

// planner makes the cells of the rows.
type planner struct {
	pages   int
	mode    bridge.Mode
	brokers int
	against bool
}

func ms(n int) apiKind { return apiKind{latency: time.Duration(n) * time.Millisecond} }

func (p *planner) fetch(api apiKind) cell {
	return cell{work: workFetch, api: api, pages: p.pages}
}

func (p *planner) bridge(api apiKind) cell {
	return cell{work: workBridge, api: api, pages: p.pages, mode: p.mode}
}

func (p *planner) in(mode bridge.Mode, c cell) cell { c.mode = mode; return c }
func (p *planner) via(path kafkaPath, c cell) cell  { c.kafka = path; return c }
func (p *planner) times(n int, c cell) cell         { c.pages *= n; return c }

// rows returns the whole table.
func (p *planner) rows() []row {
	return slices.Concat(p.serialRows(), p.rawRows(), p.onceRows(), p.loopRows(), p.windowRows(), p.costRows(), p.memoryRows(),
		p.freshnessRows(), p.linkRows(), p.againstRows())
}

// serialRows say how close the bridge comes to a loop that only fetches.
func (p *planner) serialRows() []row {
	goals := map[int]float64{5: 0.93, 20: 0.985, 50: 0.995}
	ideals := map[int]float64{20: 0.93, 50: 0.97}
	var rows []row
	for _, latency := range []int{5, 20, 50} {
		fetch, bridge := p.fetch(ms(latency)), p.bridge(ms(latency))
		if latency == 5 {
			fetch, bridge = p.times(quickPages, fetch), p.times(quickPages, bridge)
		}
		rows = append(rows, row{
			name:  fmt.Sprintf("fetch_only_%d", latency),
			about: fmt.Sprintf("pages x %d ms / time of a loop that only fetches: the machine's own bound", latency),
			unit:  unitRatio, cells: []cell{fetch}, value: func(of []benchRun) float64 { return ideal(fetch, of[0]) },
		}, row{
			name:  fmt.Sprintf("serial_fraction_%d", latency),
			about: fmt.Sprintf("time of the loop that only fetches / of the bridge, the API answering after %d ms", latency),
			unit:  unitRatio, direction: atLeast, goal: goals[latency], quick: latency < 50,
			cells: []cell{fetch, bridge}, of: ofSeconds, value: wallShare,
		})
	}
	for _, latency := range []int{20, 50} {
		bridge := p.bridge(ms(latency))
		rows = append(rows, row{
			name:  fmt.Sprintf("ideal_fraction_%d", latency),
			about: fmt.Sprintf("pages x %d ms / time of the bridge", latency),
			unit:  unitRatio, direction: atLeast, goal: ideals[latency], quick: latency == 20,
			cells: []cell{bridge}, value: func(of []benchRun) float64 { return ideal(bridge, of[0]) },
		})
	}
	slow := p.via(pathSlowCommit, p.in(bridge.ExactlyOnce, p.bridge(ms(20))))
	return append(rows, row{
		name:  "serial_fraction_20_slow_commit",
		about: "time of the loop that only fetches / of the bridge, API 20 ms, Kafka taking 50 to 100 ms to end a transaction",
		unit:  unitRatio, direction: atLeast, goal: 0.95,
		cells: []cell{p.times(slowPages, p.fetch(ms(20))), p.times(slowPages, slow)}, of: ofSeconds, value: wallShare,
	})
}

// ideal is the latency's share of the time.
func ideal(c cell, s benchRun) float64 {
	return float64(s.Requests) * c.api.latency.Seconds() / s.Seconds
}

// memory produces what the bridge would, from memory.
func (p *planner) memory(codec string) cell {
	return cell{work: workMemory, pages: flatOut * p.pages, codec: codec}
}

// flat is the bridge with an API that answers at once.
func (p *planner) flat(mode bridge.Mode, codec string) cell {
	return cell{work: workBridge, pages: flatOut * p.pages, mode: mode, codec: codec}
}

// rawRows say how close the bridge comes to what Kafka's client can do.
func (p *planner) rawRows() []row {
	var rows []row
	for _, r := range []struct {
		codec string
		goal  float64
	}{{"none", 0.70}, {"snappy", 0.70}, {"lz4", 0.85}, {"zstd", 0.90}} {
		rows = append(rows, row{
			name:  "raw_fraction_" + r.codec,
			about: "events per second of the bridge, at least once, over the same records produced from memory, idempotent, no API latency, compression " + r.codec,
			unit:  unitRatio, direction: atLeast, goal: r.goal, quick: r.codec == "snappy",
			cells: []cell{p.flat(bridge.AtLeastOnce, r.codec), p.memory(r.codec)}, of: ofRate, value: rateShare,
		})
	}
	return rows
}

// onceRows say what exactly-once costs, the commits to Redis, and the metrics.
func (p *planner) onceRows() []row {
	at20 := p.bridge(ms(20))
	forgetful, far, unobserved := at20, at20, at20
	forgetful.forget, far.redisFar, unobserved.unobserved = true, true, true
	return []row{{
		name: "eos_overhead_20", about: "time of the bridge exactly once / at least once - 1, API 20 ms",
		unit: unitPercent, direction: atMost, goal: 0.02,
		cells: []cell{p.in(bridge.ExactlyOnce, at20), p.in(bridge.AtLeastOnce, at20)}, of: ofSeconds, value: overhead,
	}, {
		name: "eos_overhead_0", about: "time of the bridge exactly once / at least once - 1, no API latency",
		unit: unitPercent, direction: atMost, goal: 0.15, quick: true,
		cells: []cell{p.flat(bridge.ExactlyOnce, "snappy"), p.flat(bridge.AtLeastOnce, "snappy")}, of: ofSeconds, value: overhead,
	}, {
		name: "commit_overhead", about: "time of the bridge with / without commits to Redis - 1, API 20 ms",
		unit: unitPercent, direction: atMost, goal: 0.01,
		cells: []cell{at20, forgetful}, of: ofSeconds, value: overhead,
	}, {
		name: "commit_overhead_far", about: "time of the bridge with commits to a Redis 5 ms away / without commits to Redis - 1, API 20 ms",
		unit: unitPercent, direction: atMost, goal: 0.01,
		cells: []cell{far, forgetful}, of: ofSeconds, value: overhead,
	}, {
		name: "metrics_overhead", about: "time of the bridge with / without metrics - 1, API 20 ms",
		unit: unitPercent, direction: atMost, goal: 0.01,
		cells: []cell{at20, unobserved}, of: ofSeconds, value: overhead,
	}}
}

// loopRows compare the bridge with loops that do one thing after the other.
func (p *planner) loopRows() []row {
	var rows []row
	for _, r := range []struct {
		name, about string
		work        work
		goals       map[int]float64
	}{
		{"naive_speedup", "usual loop (encoding/json, ProduceSync, SET)", workUsual, map[int]float64{5: 4.5, 20: 2.3}},
		{"seq_speedup", "best sequential loop", workSequential, map[int]float64{5: 2.4, 20: 1.5}},
	} {
		for _, latency := range []int{5, 20} {
			loop := p.via(pathFar, cell{work: r.work, api: ms(latency), pages: p.pages})
			rows = append(rows, row{
				name:  fmt.Sprintf("%s_%d", r.name, latency),
				about: fmt.Sprintf("time of the %s / of the bridge, API %d ms, Kafka %d ms away", r.about, latency, farRoundTrip.Milliseconds()),
				unit:  unitTimes, direction: atLeast, goal: r.goals[latency], quick: r.work == workUsual && latency == 5,
				cells: []cell{loop, p.via(pathFar, p.bridge(ms(latency)))}, of: ofSeconds, value: wallShare,
			})
		}
	}
	return rows
}

// windowRows say what a backfill gains by reading several windows at a time.
func (p *planner) windowRows() []row {
	backfill := func(windows int) cell {
		return cell{work: workBackfill, api: ms(20), pages: mostScaled * p.pages, mode: bridge.ExactlyOnce, windows: windows}
	}
	var rows []row
	for _, r := range []struct {
		windows int
		goal    float64
	}{{2, 1.95}, {4, 3.8}, {mostScaled, 7}} {
		rows = append(rows, row{
			name:  fmt.Sprintf("window_scaling_%d", r.windows),
			about: fmt.Sprintf("time of a backfill in one window / in %d at a time, API 20 ms", r.windows),
			unit:  unitTimes, direction: atLeast, goal: r.goal,
			cells: []cell{backfill(1), backfill(r.windows)}, of: ofSeconds, value: wallShare,
		})
	}
	return rows
}

// costRows say what an event costs the client.
func (p *planner) costRows() []row {
	short, long := p.lengths()
	// A second of work would show what it costs to start a process.
	plain, memory := p.flat(bridge.AtLeastOnce, "none"), p.memory("none")
	plain.pages, memory.pages = long.pages, long.pages
	return []row{{
		name: "allocs_per_event", about: "objects that the bridge allocates for each event more, flat out",
		unit: unitCount, direction: atMost, goal: 0.1, steady: true, quick: true,
		cells: []cell{long, short}, of: ofObjects,
		value: func(of []benchRun) float64 {
			return (float64(of[0].Mallocs) - float64(of[1].Mallocs)) / float64(of[0].Events-of[1].Events)
		},
	}, {
		name: "split_allocs_per_page", about: "objects that taking a page apart allocates, after warm-up",
		unit: unitCount, direction: atMost, goal: 0, steady: true, quick: true,
		cells: []cell{{work: workSplit, pages: p.pages}}, value: func(of []benchRun) float64 { return of[0].PageAllocs },
	}, {
		name: "cpu_ratio", about: "CPU of the bridge's whole process, at least once / of producing the same from memory, no compression",
		unit: unitRatio, direction: atMost, goal: 1.6,
		cells: []cell{plain, memory}, of: ofCPU,
		value: func(of []benchRun) float64 { return of[0].cpuPerEvent() / of[1].cpuPerEvent() },
	}, {
		name: "cpu_per_million", about: "CPU seconds of the bridge's process per million events, the same run",
		unit: unitSeconds, direction: atMost, goal: 3, absolute: true,
		cells: []cell{plain}, value: perMillion,
	}, {
		name: "cpu_per_million_default", about: "the same with default settings: exactly once, snappy",
		unit: unitSeconds, absolute: true, quick: true,
		cells: []cell{long}, value: perMillion,
	}}
}

// lengths are the bridge flat out with default settings, for a short and for a
// long time.
func (p *planner) lengths() (short, long cell) {
	return p.bridge(apiKind{}), p.times(longRun, p.bridge(apiKind{}))
}

// memoryRows say how much memory the bridge takes at most.
func (p *planner) memoryRows() []row {
	short, long := p.lengths()
	peak := func(of []benchRun) float64 { return float64(of[0].PeakRSS) }
	return []row{{
		name: "rss_latency_bound", about: "most memory (VmHWM) of the bridge, API 20 ms",
		unit: unitBytes, direction: atMost, goal: 40e6, absolute: true, quick: true,
		cells: []cell{p.bridge(ms(20))}, value: peak,
	}, {
		name: "rss_flat_out", about: "most memory (VmHWM) of the bridge, no API latency",
		unit: unitBytes, direction: atMost, goal: 80e6, absolute: true, quick: true,
		cells: []cell{long}, value: peak,
	}, {
		name: "rss_flat", about: "most memory (VmHWM) of the bridge after ten times as many pages / after as many, no API latency",
		unit: unitRatio, direction: atMost, goal: 1.1, quick: true,
		cells: []cell{long, short}, of: ofMemory,
		value: func(of []benchRun) float64 { return float64(of[0].PeakRSS) / float64(of[1].PeakRSS) },
	}}
}

// freshnessRows say how old events are when a consumer has them.
func (p *planner) freshnessRows() []row {
	growing := p.bridge(apiKind{})
	growing.pages, growing.growing, growing.followed = 0, true, true
	// Where brokers copy what they get, a transaction takes so much longer.
	extra := 15 * time.Millisecond
	if p.brokers > 1 {
		extra = 100 * time.Millisecond
	}
	return []row{{
		name: "tail_freshness_p50", about: "age of an event, visible at the API to read by a read_committed consumer, asked every 100 ms: median",
		unit: unitMillis, absolute: true,
		cells: []cell{growing}, value: func(of []benchRun) float64 { return of[0].AgeP50 },
	}, {
		name: "tail_freshness_p99", about: "the same age: 99th percentile",
		unit: unitMillis, direction: atMost, goal: milliseconds(pollInterval + extra), absolute: true,
		cells: []cell{growing}, value: func(of []benchRun) float64 { return of[0].AgeP99 },
	}}
}

// linkRows say what compression and an early cursor gain on a slow link.
func (p *planner) linkRows() []row {
	over := func(api apiKind) cell {
		api.latency, api.mbit = 20*time.Millisecond, 100
		c := p.bridge(api)
		c.pages = max(1, 3*p.pages/10) // a page takes 90 ms on this link
		return c
	}
	plain := over(apiKind{})
	return []row{{
		name: "gzip_gain_100mbit_20", about: "time of the bridge without / with gzip, link of 100 Mbit/s, API 20 ms",
		unit: unitTimes, direction: atLeast, goal: 3,
		cells: []cell{plain, over(apiKind{gzip: true})}, of: ofSeconds, value: wallShare,
	}, {
		name: "early_gain_100mbit_20", about: "time of the bridge with nextCursor last / first in the page, link of 100 Mbit/s, API 20 ms",
		unit: unitTimes, direction: atLeast, goal: 1.15,
		cells: []cell{plain, over(apiKind{cursorFirst: true})}, of: ofSeconds, value: wallShare,
	}}
}

// againstRows compare with the program that the user named.
func (p *planner) againstRows() []row {
	if !p.against {
		return nil
	}
	var rows []row
	for _, latency := range []int{0, 5, 20} {
		ours := p.bridge(ms(latency))
		if latency == 0 {
			ours.pages *= flatOut
		}
		ours.followed = true
		theirs := cell{work: workAgainst, api: ours.api, pages: ours.pages, followed: true}
		rows = append(rows, row{
			name:  fmt.Sprintf("against_%d", latency),
			about: fmt.Sprintf("time of the other program / of the bridge, API %d ms, first request to last record read", latency),
			unit:  unitTimes, cells: []cell{theirs, ours}, of: ofSeconds, value: wallShare,
		}, row{
			name:  fmt.Sprintf("against_cpu_%d", latency),
			about: fmt.Sprintf("CPU of the other program / of the bridge, API %d ms", latency),
			unit:  unitTimes, cells: []cell{theirs, ours}, of: ofCPU,
			value: func(of []benchRun) float64 { return of[0].cpuPerEvent() / of[1].cpuPerEvent() },
		})
	}
	return rows
}

// choose returns the rows that the names ask for, in the order of the table. A
// name that no row has stands for all rows whose names begin so. No names are
// all rows, or the short bench's.
func choose(all []row, names []string, quick bool) ([]row, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(r row) bool {
			return quick && !r.quick && !strings.HasPrefix(r.name, "against")
		}), nil
	}
	chosen := make(map[string]bool)
	for _, name := range names {
		matches := strings.HasPrefix
		if slices.ContainsFunc(all, func(r row) bool { return r.name == name }) {
			matches = func(whole, name string) bool { return whole == name }
		}
		found := false
		for _, r := range all {
			if matches(r.name, name) {
				found, chosen[r.name] = true, true
			}
		}
		if !found {
			return nil, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("no row is called %q or begins so", name), Hint: "exportbridge-dev bench --list"}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r row) bool { return !chosen[r.name] }), nil
}

// cellsOf returns the cells of the rows, each once. Those with the same API are
// next to each other, so that what is compared runs close in time.
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
		return int(a.api.latency-b.api.latency) + a.api.mbit - b.api.mbit
	})
	return cells
}
