//go:build unix

package e2e_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
)

// upgradeFrom is the commit whose program is replaced, unless
// E2E_UPGRADE_FROM names another: the last one whose checkpoints say nothing of
// the request that their cursor belongs to.
const upgradeFrom = "3868491"

// upgraded are the streams of the upgrade, by the form of their API: one that
// names its source on each page, one that names nothing, and two whose cursor is
// an address.
var upgraded = map[string]string{"named": "default", "unnamed": "nested", "linked": "link", "next": "next-url"}

// TestE2EProofUpgrade replaces two processes in turn by another version of the
// program, again and again in both directions. Each is killed, or stopped in
// order, while operators with either version move and pause the streams. In the
// end each topic holds what the checkpoints imply, and no stream was blocked.
func TestE2EProofUpgrade(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) || os.Getenv("E2E_UPGRADE") == "" {
		t.Skip("it takes long: run with TEST_REAL=1 E2E_UPGRADE=kills")
	}
	kills, seed := int(size(t, "E2E_UPGRADE", 0, 0)), seedOf(t)
	u := newUpgrade(t, kills, seed)
	began := time.Now()
	var flowing []time.Duration
	for i := range kills {
		ended := u.replace(i % len(u.slots))
		if u.random.IntN(3) == 0 {
			u.move(i)
		}
		if u.random.IntN(4) > 0 { // else the next one dies while this one starts
			u.awaitFlow()
			flowing = append(flowing, time.Since(ended).Round(time.Millisecond))
		}
	}
	u.awaitFlow()
	took := time.Since(began)
	for i := range u.slots {
		u.end(i)
	}
	for _, v := range []int{older, newer, older, newer} { // each goes on from what the other one left
		u.s.binary = u.binaries[v]
		u.s.finish()
	}
	u.judge()
	t.Logf("e2e: proof, upgrade: from %s and back, %d processes replaced in %.0f s (%v), all flow again after "+
		"%s, session time-out %s, %d requests:%s, E2E_SEED=%d", u.from, kills, took.Seconds(), u.ways, quantiles(flowing),
		u.s.settings["BRIDGE_SESSION_TIMEOUT"], len(u.names), u.summary, seed)
}

// The versions of the program.
const (
	older = iota
	newer
)

// upgrade is two processes that share streams, each of either version.
type upgrade struct {
	s        *stage
	streams  map[string]*stage // each with the API and the topic of one
	random   *rand.Rand
	from     string
	binaries [2]string
	slots    [2]slot
	ways     map[string]int // how often which version ended how
	names    []string       // of the operators' requests
	summary  string
}

// slot is the place of a process.
type slot struct {
	run     *program
	version int
	at      string // the point that it is to die at, if any
	ops     string // address of its HTTP server
}

// newUpgrade starts the APIs, and both processes in the older version.
func newUpgrade(t *testing.T, kills int, seed uint64) *upgrade {
	t.Helper()
	v := startServers(t, owned{quick: true})
	u := &upgrade{
		s: proofStage(t, v, exportsim.Config{}), streams: make(map[string]*stage), ways: make(map[string]int),
		random: rand.New(rand.NewPCG(seed, 4)), from: cmp.Or(os.Getenv("E2E_UPGRADE_FROM"), upgradeFrom),
	}
	u.binaries = [2]string{buildOf(t, u.from), u.s.binary}
	u.s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	u.s.settings["BRIDGE_STREAMS"] = strings.Join(slices.Sorted(maps.Keys(upgraded)), ",")
	delete(u.s.settings, "KAFKA_TOPIC")
	for stream, name := range upgraded {
		form, _ := exportsim.FormNamed(name)
		api := newStage(t, v, exportsim.Config{Events: 1500 * (kills + 4), Rate: 50, Latency: 20 * time.Millisecond,
			Form: form})
		clear(api.settings)
		api.settings["EXPORT_API_KEY"] = "any"
		if name == "default" {
			api.simulate()
		} else {
			api.simulateForm(name)
		}
		api.settings["EXPORT_PAGE_SIZE"] = "50"
		api.settings["EXPORT_RESOURCE"], api.settings["KAFKA_TOPIC"] = "events", api.topic
		for variable, value := range api.settings {
			u.s.settings[streamVariable(stream, variable)] = value
		}
		u.streams[stream] = api
	}
	for i := range u.slots {
		u.slots[i].ops = servers.FreeAddress(t)
		u.start(i)
	}
	u.awaitFlow()
	return u
}

// buildOf builds the program of a commit, with the crash points.
func buildOf(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatalf("find the repository, which holds the older version: %v", err)
	}
	archive := filepath.Join(dir, "source.tar")
	path := filepath.Join(dir, "exportbridge-"+commit)
	for _, args := range [][]string{
		{"git", "-C", strings.TrimSpace(string(root)), "archive", "-o", archive, commit},
		{"tar", "-x", "-f", archive, "-C", dir},
		// The cache knows a second build by -trimpath, which leaves the folder out.
		{"go", "build", "-C", dir, "-trimpath", "-pgo=off", "-tags", "proof", "-ldflags", "-s -w", "-o", path,
			"./cmd/exportbridge"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("build the program of commit %s: %v: %v\n%s", commit, args, err, out)
		}
	}
	return path
}

// start starts the process of a slot. Half of them are to die at some point of
// the protocol.
func (u *upgrade) start(i int) {
	u.s.t.Helper()
	b := &u.slots[i]
	b.at = ""
	if u.random.IntN(2) == 0 {
		b.at = nthOf(u.random, pick(u.random, points), 30)
		u.s.settings["PROOF_CRASH"] = b.at
	}
	u.s.settings["HTTP_ADDR"], u.s.settings["BRIDGE_INSTANCE_ID"] = b.ops, strconv.Itoa(i)
	u.s.binary = u.binaries[b.version]
	b.run = u.s.run()
	delete(u.s.settings, "PROOF_CRASH")
}

// end ends the process of a slot in some way, unless it is dead.
func (u *upgrade) end(i int) {
	u.s.t.Helper()
	b := &u.slots[i]
	way := "killed"
	switch {
	case !b.run.running():
		way = "dead at a point"
	case u.random.IntN(3) == 0:
		way = "stopped"
		b.run.signal(syscall.SIGTERM)
	default:
		b.run.kill()
	}
	code := b.run.wait(stepTimeout)
	if died := code == -1 && (b.at != "" || way == "killed"); !died && (code != 0 || way != "stopped") {
		u.s.t.Fatalf("%s, %s, ended with exit code %d\n%s", b.run.name, way, code, tail(b.run.stderr()))
	}
	u.ways[[]string{"older ", "newer "}[b.version]+way]++
}

// replace ends the process of a slot after a moment, and starts the other
// version there. It returns when the process was to end.
func (u *upgrade) replace(i int) (ended time.Time) {
	u.s.t.Helper()
	passes(time.Duration(u.random.Int64N(int64(1500 * time.Millisecond))))
	ended = time.Now()
	u.end(i)
	u.slots[i].version = 1 - u.slots[i].version
	u.start(i)
	return ended
}

// move has an operator with either version move a stream back, or pause it for
// a moment. A request may be refused, and told so.
func (u *upgrade) move(n int) {
	u.s.t.Helper()
	name := fmt.Sprint("move-", n)
	args := []string{"cursor", "rewind", "--shift-by", strconv.Itoa(-1 - u.random.IntN(10)), "--execute"}
	if u.random.IntN(4) == 0 {
		args = []string{"pause", "--duration", "1s"}
	}
	u.s.binary = u.binaries[u.random.IntN(len(u.binaries))]
	stream := pick(u.random, slices.Sorted(maps.Keys(upgraded)))
	u.s.start(append(args, "--stream", stream, "--reason", name, "--timeout", "10s")...).wait(outageTimeout)
	u.names = append(u.names, name)
}

// awaitFlow waits until each stream goes on in one of the processes. One that
// was to die at a point and did is started again, in its version.
func (u *upgrade) awaitFlow() {
	u.s.t.Helper()
	had := make(map[string]float64)
	count := func(stream string) (sum float64) {
		for i := range u.slots {
			b := &u.slots[i]
			if !b.run.running() {
				u.end(i)
				u.start(i)
				clear(had) // its metrics begin again
			}
			sum += b.run.metric("events_published_total", fmt.Sprintf("stream=%q", stream))
		}
		return sum
	}
	flows := make(map[string]bool)
	eventually(u.s.t, 2*outageTimeout, "all streams to flow", func() bool {
		for stream := range upgraded {
			now := count(stream)
			was, known := had[stream]
			had[stream] = now
			flows[stream] = flows[stream] || known && now > was
		}
		return !slices.Contains(slices.Collect(maps.Values(flows)), false)
	})
}

// blocked is what a process logs of a stream that waits for a person.
var blocked = regexp.MustCompile(`(?m)^.*"msg":"blocked".*$`)

// judge compares each topic with what its checkpoints imply, and wants no
// process to have said that a stream is blocked.
func (u *upgrade) judge() {
	u.s.t.Helper()
	for _, stream := range slices.Sorted(maps.Keys(upgraded)) {
		u.judgeStream(stream, u.streams[stream])
	}
	u.s.eachOutput(func(name string, content []byte) {
		if line := blocked.Find(content); line != nil {
			u.s.t.Errorf("%s was blocked: %s", name, line)
		}
	})
	// A block would have been seen.
	u.s.settings[streamVariable("named", "EXPORT_EVENTS")] = "userSignedUp"
	p := u.s.run("--once")
	p.wantExit(5, outageTimeout)
	if blocked.Find(p.stderr()) == nil {
		u.s.t.Errorf("a stream with other events is blocked and does not say so:\n%s", tail(p.stderr()))
	}
}

func (u *upgrade) judgeStream(stream string, api *stage) {
	u.s.t.Helper()
	errorf := func(format string, args ...any) { u.s.t.Errorf("stream "+stream+": "+format, args...) }
	c, l := newContents(errorf), newLedger(stream, errorf)
	u.s.eachRecord(api.topic, func(r *kgo.Record) {
		c.addOf(api.truth, r)
		l.addEvent(r)
	})
	u.s.eachRecord(u.s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	l.judge()
	j := journeyOf(l.entries, nil, errorf)
	lost, twice := 0, 0
	for i := range max(len(c.copies), len(j.copies)) {
		got, want := at(c.copies, i), at(j.copies, i)
		lost, twice = lost+max(0, want-got), twice+max(0, got-want)
	}
	for _, name := range u.names {
		if j.moves[name] > 1 {
			errorf("request %s was applied %d times", name, j.moves[name])
		}
	}
	if lost > 0 || twice > 0 || l.foreign > 0 || c.wrong > 0 || slices.Contains(j.copies, 0) ||
		j.reached < api.config.Events {
		errorf("reached event %d of %d or more: %d lost, %d twice, %d without a transaction, %d wrong",
			j.reached, api.config.Events, lost, twice, l.foreign, c.wrong)
	}
	u.summary += fmt.Sprintf(" %s %d events, %d lost, %d twice, %d changes of epoch;", stream, j.reached, lost, twice,
		len(j.moves))
}

// at returns an element of a slice that may be longer.
func at(all []int, i int) int {
	if i < len(all) {
		return all[i]
	}
	return 0
}

// addOf counts a record of a form of API: it must be one of the form's items,
// byte for byte.
func (c *contents) addOf(truth *exportsim.Handler, r *kgo.Record) {
	c.records++
	if i, ok := exportsim.Index(deadletter.Header(r, "ce_id")); ok && bytes.Equal(r.Value, truth.Event(i)) {
		c.count(i)
		return
	}
	if c.wrong++; c.wrong <= maxComplaints {
		c.errorf("record %d of partition %d is no item of the export: %s", r.Offset, r.Partition, tail(r.Value))
	}
}
