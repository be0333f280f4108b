//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// crowd is three processes that share streams, each with a file of its own.
type crowd struct {
	s      *stage
	random *rand.Rand
	names  []string // of the streams
	does   []string // the turns that one chooses among
	// older is the program that takes turns with the stage's own; empty for none.
	older string
	// reached is how often a point of the protocol is reached at most before some process
	// dies there; none dies there while it is 0.
	reached int
	slots   [3]place
	ways    map[string]int // how often a turn went which way
	flowing []time.Duration
	longest map[string]time.Duration // of flowing, by the way of the turn
}

// place is a process of a crowd.
type place struct {
	run     *program
	file    string // of BRIDGE_CONFIG
	listed  []string
	kind    string // BRIDGE_OWNERSHIP; empty for the default
	at      string // the point that it is to die at, if any
	isOlder bool
}

func newCrowd(s *stage, names []string, seed uint64, does ...string) *crowd {
	s.t.Helper()
	c := &crowd{s: s, random: rand.New(rand.NewPCG(seed, 6)), names: names, does: does, ways: make(map[string]int),
		longest: make(map[string]time.Duration)}
	for i := range c.slots {
		c.slots[i] = place{file: filepath.Join(s.t.TempDir(), "streams.yaml")}
		c.list(i, names)
		c.start(i)
	}
	return c
}

// list writes the file of a process, each time with smaller pages for some of the streams.
func (c *crowd) list(i int, names []string) {
	c.s.t.Helper()
	size, err := strconv.Atoi(c.s.settings["EXPORT_PAGE_SIZE"])
	text := fmt.Sprintf("settings:\n  EXPORT_PAGE_SIZE: %d\nstreams:\n", size)
	for _, name := range names {
		text += "  " + name + ":"
		if c.random.IntN(4) == 0 {
			text += fmt.Sprintf(" {EXPORT_PAGE_SIZE: %d}", size-1-c.random.IntN(size/2))
		}
		text += "\n"
	}
	must.Do(c.s.t, errors.Join(err, os.WriteFile(c.slots[i].file, []byte(text), 0o600)))
	c.slots[i].listed = names
}

// start starts a process, at times as a static member, at times to die at some point of
// the protocol.
func (c *crowd) start(i int) {
	c.s.t.Helper()
	p, was, binary := &c.slots[i], maps.Clone(c.s.settings), c.s.binary
	defer func() { c.s.settings, c.s.binary = was, binary }()
	if p.isOlder { // it knows no file
		c.s.binary = c.older
		c.s.settings["BRIDGE_STREAMS"] = strings.Join(p.listed, ",")
	} else {
		delete(c.s.settings, "BRIDGE_STREAMS")
		delete(c.s.settings, "EXPORT_PAGE_SIZE")
		c.s.settings["BRIDGE_CONFIG"] = p.file
		if p.kind != "" {
			c.s.settings["BRIDGE_OWNERSHIP"] = p.kind
		}
	}
	p.at = ""
	if c.reached > 0 && c.random.IntN(4) == 0 {
		p.at = nthOf(c.random, pick(c.random, points), c.reached)
		c.s.settings["PROOF_CRASH"] = p.at
	}
	id := ""
	if c.random.IntN(2) == 0 {
		id = strconv.Itoa(i)
	}
	p.run = c.s.bridgeNamed(id)
}

// one has one of the processes end and start, or pause for longer than a session, or
// list other streams. It returns which of these.
func (c *crowd) one() string {
	c.s.t.Helper()
	passes(time.Duration(c.random.Int64N(int64(time.Second))))
	i := c.random.IntN(len(c.slots))
	way := pick(c.random, c.does)
	p := &c.slots[i]
	switch {
	case !p.run.running():
		way = "dead at a point"
	case way == "paused" && !servers.Real(c.s.t): // whom embedded Kafka lets all others wait for
		way = "killed"
	case way == "replaced" && i == 0: // one process can run lanes and read a file
		way = "stopped"
	}
	c.ways[way]++
	by := syscall.SIGTERM
	switch way {
	case "paused":
		p.run.signal(syscall.SIGSTOP)
		passes(2 * manySession)
		p.run.signal(syscall.SIGCONT)
		return way
	case "reloaded":
		names := slices.Clone(c.names)
		if len(p.listed) == len(names) {
			c.random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
			names = names[len(names)/3:]
		}
		c.list(i, names)
		if !p.isOlder {
			p.run.signal(syscall.SIGHUP)
			return way
		}
	case "kind changed":
		p.kind = map[string]string{"": "stream", "stream": ""}[p.kind]
	case "replaced":
		p.isOlder = !p.isOlder
		by = pick(c.random, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL})
	case "stopped":
	default:
		by = syscall.SIGKILL
	}
	c.end(i, by)
	c.start(i)
	return way
}

// turn is one, and waits until all streams flow, unless the next turn follows at once. The time
// until then includes up to a second before, the pause itself, and deaths at a point meanwhile.
func (c *crowd) turn() {
	c.s.t.Helper()
	began := time.Now()
	way := c.one()
	if c.random.IntN(3) == 0 {
		return
	}
	dead := c.ways["dead at a point"]
	c.awaitFlow()
	took := time.Since(began).Round(time.Millisecond)
	if c.ways["dead at a point"] > dead {
		way += ", then dead at a point"
	}
	c.flowing, c.longest[way] = append(c.flowing, took), max(c.longest[way], took)
}

// end ends a process.
func (c *crowd) end(i int, by syscall.Signal) {
	c.s.t.Helper()
	c.slots[i].run.end(by, c.slots[i].at != "")
}

// restart starts processes again that have died at a point.
func (c *crowd) restart() {
	c.s.t.Helper()
	for i := range c.slots {
		if !c.slots[i].run.running() {
			c.ways["dead at a point"]++
			c.end(i, syscall.SIGKILL)
			c.start(i)
		}
	}
}

// killed is how many processes have ended without being asked to.
func (c *crowd) killed() int { return c.ways["killed"] + c.ways["dead at a point"] }

// settle has all processes list all streams, in the stage's program.
func (c *crowd) settle() {
	c.s.t.Helper()
	for i := range c.slots {
		c.end(i, syscall.SIGTERM)
		c.slots[i].isOlder, c.slots[i].kind = false, ""
		c.list(i, c.names)
		c.start(i)
	}
}

// stop ends all processes in order.
func (c *crowd) stop() {
	c.s.t.Helper()
	for i := range c.slots {
		c.end(i, syscall.SIGTERM)
	}
}

// newestOf finds the time of the newest event that a process knows of a stream. (A counter
// of a stream that a reload has added says 0 for a minute.)
var newestOf = regexp.MustCompile(`(?m)^exportbridge_last_event_timestamp_seconds\{.*stream="([^"]+)".*\} (\S+)$`)

// awaitFlow waits until each stream that some process lists has published more. A process
// that was to die at a point and did is started again.
func (c *crowd) awaitFlow() {
	c.s.t.Helper()
	had, flows := make(map[string]float64), make(map[string]bool)
	eventually(c.s.t, 2*outageTimeout, "all streams to flow", func() bool {
		c.restart()
		now := make(map[string]float64)
		for i := range c.slots {
			p := &c.slots[i]
			_, scraped := get(p.run.ops, "/metrics")
			for _, name := range p.listed {
				now[name] += 0
			}
			for _, found := range newestOf.FindAllSubmatch(scraped, -1) {
				name := string(found[1])
				if at, err := strconv.ParseFloat(string(found[2]), 64); err == nil && slices.Contains(p.listed, name) {
					now[name] = max(now[name], at)
				}
			}
		}
		all := true
		for name, at := range now {
			was := had[name]
			had[name] = max(was, at)
			flows[name] = flows[name] || was > 0 && at > was
			all = all && flows[name]
		}
		return all
	})
}
