package bench

import (
	"fmt"
	"math"

	"exportbridge/bridge"
)

// lengths returns a short and a long run of the bridge, without latency and with
// default settings.
func (p *planner) lengths() (short, long cell) { return p.bridge(0), p.bridge(0).times(longRun) }

// costRows measure the cost of an event for the client.
func (p *planner) costRows() []row {
	short, long := p.lengths()
	// A run of a second would mostly show the start of a process.
	plain, memory := p.flat(bridge.AtLeastOnce, "none"), p.memory("none")
	plain.pages, memory.pages = long.pages, long.pages
	routed, private := long, long
	routed.routed, private.private = true, true
	moreCPU := func(of []measurement) float64 { return cpuShare(of) - 1 }
	return []row{{
		name: "allocs_per_event", about: "objects that the bridge allocates per event, no latency",
		unit: unitCount, direction: atMost, goal: 0.09, quick: true,
		cells: []cell{long, short},
		value: func(of []measurement) float64 {
			return (float64(of[0].Mallocs) - float64(of[1].Mallocs)) / float64(of[0].Events-of[1].Events)
		},
	}, {
		name: "cpu_ratio", about: "CPU of the bridge, at-least-once / of producing from memory",
		unit: unitRatio, direction: atMost, goal: 1.6,
		cells: []cell{plain, memory}, value: cpuShare,
	}, {
		name: "cpu_per_million", about: "CPU seconds of the bridge per million events in that run",
		unit: unitSeconds, direction: atMost, goal: 3,
		cells: []cell{plain}, value: func(of []measurement) float64 { return of[0].cpuPerEvent() * 1e6 },
	}, {
		name: "routes_overhead", about: "extra CPU of the bridge for four topics by type over one, no latency",
		unit: unitPercent, direction: atMost, goal: 0.03,
		cells: []cell{routed, long}, value: moreCPU,
	}, {
		name: "private_overhead", about: "extra CPU of the bridge for three rules for private data, no latency",
		unit: unitPercent, direction: atMost, goal: 0.2,
		cells: []cell{private, long}, value: moreCPU,
	}}
}

// catchUp returns a bridge that catches up, with default settings.
func (p *planner) catchUp(latency int) cell {
	if latency == 0 {
		_, long := p.lengths()
		return long
	}
	return p.bridge(latency).times(quickPages)
}

// catchUpRows measure what the bridge and the brokers need to catch up. The keys of
// goals are latencies.
func (p *planner) catchUpRows() []row {
	var rows []row
	for _, r := range []struct {
		name, about, needs string
		unit               unit
		goals              map[int]float64
		of                 func(measurement) float64
	}{
		{
			"transactions_per_million", "requests of the bridge that end a transaction, per million events", "", unitPerMillion,
			map[int]float64{20: 120}, func(m measurement) float64 { return float64(m.Transactions) },
		}, {
			"bridge_cpu_per_million", "CPU seconds of the bridge per million events", "", unitSeconds,
			map[int]float64{0: 2.6, 5: 2.8, 20: 3.2}, func(m measurement) float64 { return m.CPUSeconds },
		}, {
			"broker_cpu_per_million", "CPU seconds of the brokers per million events", brokersHere, unitSeconds,
			map[int]float64{0: 2, 5: 2.2, 20: 2.5}, func(m measurement) float64 { return m.BrokerCPUSeconds },
		},
	} {
		for _, latency := range []int{0, 5, 20} {
			goal, ok := r.goals[latency]
			if !ok {
				continue
			}
			c := p.catchUp(latency)
			rows = append(rows, row{
				name: fmt.Sprintf("%s_%d", r.name, latency), about: fmt.Sprintf("%s, %d ms", r.about, latency),
				unit: r.unit, direction: atMost, goal: goal, needs: r.needs,
				quick: latency == 0, cells: []cell{c}, value: perMillion(c, r.of),
			})
		}
	}
	return append(rows, p.refetchRow())
}

// refetchRow measures how many pages are fetched again after a kill. There are as many
// kills as --pages. Of fewer than 100 kills, the 99th percentile is the maximum.
func (p *planner) refetchRow() row {
	c := p.bridge(20)
	c.pages, c.kills = killPages*p.pages, p.pages
	return row{
		name: "refetch_after_kill_p99", about: "20 ms x pages fetched again after a kill -9 at a random moment",
		unit: unitMillis, direction: atMost, goal: 250, cells: []cell{c},
		value: func(of []measurement) float64 { return of[0].RefetchedP99 },
	}
}

const brokersHere = "Linux, and brokers run by this user on this machine"

// perMillion returns the value of a cell for a million events. A value of 0 is unknown.
func perMillion(c cell, of func(measurement) float64) func([]measurement) float64 {
	return func(all []measurement) float64 {
		value := of(all[0])
		if value == 0 {
			return math.NaN()
		}
		return value / float64(c.pages*pageEvents) * 1e6
	}
}
