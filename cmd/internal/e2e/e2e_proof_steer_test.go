//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
)

// operator asks for changes of a stream, one after the other, as a person does
// whose commands are all named.
type operator struct {
	s      *stage // of its own: commands have other settings than the bridge
	random *rand.Rand
	asked  []request
	stock  int // events that the export has for certain
}

// request is a command that was given, and what came of it.
type request struct {
	name   string // the reason that it was given
	args   []string
	target int // event that a reset goes to; -1 where the position says it
	code   int
	said   string
}

func newOperator(s *stage, name int, seed uint64, stock int) *operator {
	own := *s
	own.settings, own.started = maps.Clone(s.settings), 1000*name
	return &operator{s: &own, random: rand.New(rand.NewPCG(seed, uint64(name))), stock: stock}
}

// ask gives one command and waits for its end.
func (o *operator) ask() {
	r := request{name: fmt.Sprintf("%d-%d", o.s.started, len(o.asked)), target: -1}
	switch way := o.random.IntN(10); {
	case way < 4:
		at := o.random.IntN(o.stock)
		r.target = o.s.firstAt(at)
		r.args = []string{"cursor", "reset", "--to-datetime", o.s.timeOf(at), "--execute"}
	case way < 7:
		r.args = []string{"cursor", "rewind", "--shift-by", strconv.Itoa(-1 - o.random.IntN(20)), "--execute"}
	case way < 9:
		r.args = []string{"pause", "--duration", "1s"}
	default:
		r.args = []string{"resume"}
	}
	p := o.s.start(append(r.args, "--reason", r.name, "--timeout", "20s")...)
	r.code = p.wait(outageTimeout)
	r.said = string(p.stdout()) + string(p.stderr())
	o.asked = append(o.asked, r)
}

// applied reports whether a request was to be applied, if that is known from
// what the command said.
func (r *request) applied() (yes, known bool) {
	switch {
	case r.code == 0: // a resume of a stream that is not paused changes nothing
		return !strings.Contains(r.said, "is not paused"), true
	case strings.Contains(r.said, "refused by"), strings.Contains(r.said, "withdrawn"),
		strings.Contains(r.said, "another "),
		strings.Contains(r.said, "no such entry"):
		return false, true
	}
	return false, false
}

// journey is what the checkpoints say that the topic must hold.
type journey struct {
	copies  []int          // of each event
	reached int            // where the stream is at the end
	moves   map[string]int // epochs by the reason of their change
}

// journeyOf follows the checkpoints of a stream in the order of the log. Where
// an epoch begins is known from the request that it came from, or from the
// position, which an earlier checkpoint had.
func journeyOf(entries []ledgerEntry, targets map[string]int, errorf func(format string, args ...any)) journey {
	type position struct {
		cursor string
		tail   int
		start  int64 // where there is no cursor
	}
	positionOf := func(c *bridge.Checkpoint) position {
		if c.Cursor == "" {
			return position{start: c.Origin.Start, tail: len(c.Tail)}
		}
		return position{cursor: c.Cursor, tail: len(c.Tail)}
	}
	j := journey{moves: make(map[string]int)}
	at := make(map[position]int) // event that comes next there
	add := func(from, to int) {
		for len(j.copies) < to {
			j.copies = append(j.copies, 0)
		}
		for i := from; i < to; i++ {
			j.copies[i]++
		}
	}
	base, began := 0, 0
	for i := range entries {
		e := &entries[i]
		if i > 0 && e.Epoch != entries[i-1].Epoch {
			add(began, j.reached)
			reason := e.Change.Reason
			j.moves[reason]++
			target, known := targets[reason]
			if before, ok := at[positionOf(&e.Checkpoint)]; target < 0 || !known {
				if target = before; !ok {
					errorf("epoch %d (%s %s) begins where the stream never was", e.Epoch, e.Change.Kind, reason)
				}
			}
			base, began = target-int(e.Events), target
			if !e.Change.Moves() && target != j.reached {
				errorf("epoch %d, a %s, begins at event %d, the one before ended at %d", e.Epoch, e.Change.Kind, target, j.reached)
			}
		}
		j.reached = base + int(e.Events)
		at[positionOf(&e.Checkpoint)] = j.reached
	}
	add(began, j.reached)
	return j
}

// backfiller publishes parts of the stock once more, beside the stream, with
// processes that are killed as the bridge is.
type backfiller struct {
	s      *stage // of its own
	random *rand.Rand
	stock  int
	kills  int
}

// jobPoints are the points that a job's process reaches.
var jobPoints = []string{pointInit, pointBarrier, pointFetched, pointProduced, pointAcked, pointEnding, pointEnded}

func newBackfiller(s *stage, seed uint64, stock int) *backfiller {
	own := *s
	own.settings, own.started = maps.Clone(s.settings), 9000
	own.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	delete(own.settings, "BRIDGE_INSTANCE_ID")
	return &backfiller{s: &own, random: rand.New(rand.NewPCG(seed, 9)), stock: stock}
}

// one begins a backfill and kills it; its successors are killed too, but for the
// last. One that dies before it has said its id may have left a job all the same.
func (b *backfiller) one() {
	from := b.random.IntN(b.stock / 2)
	to := from + 1 + b.random.IntN(b.stock/2)
	args := []string{"backfill", "--here", "--from", b.s.timeOf(from), "--to", b.s.timeOf(to), "--windows",
		strconv.Itoa(1 + b.random.IntN(4)), "--allow-overlap", "--execute"}
	for range 1 + b.random.IntN(2) {
		id := b.dies(args)
		if id == "" {
			return
		}
		args = []string{"backfill", "--here", "--resume", id, "--execute"}
	}
	b.s.command(0, args...)
}

// dies starts a process and kills it, unless it ends before. It returns the id
// of its job, if it has one that is not done.
func (b *backfiller) dies(args []string) (id string) {
	var p *program
	if b.random.IntN(2) == 0 {
		b.s.settings["PROOF_CRASH"] = nthOf(b.random, pick(b.random, jobPoints), 4)
		p = b.s.start(args...)
		delete(b.s.settings, "PROOF_CRASH")
		p.wait(outageTimeout)
	} else {
		p = b.s.start(args...)
		passes(time.Duration(b.random.Int64N(int64(time.Second))))
		p.kill()
	}
	if p.wait(outageTimeout) == 0 {
		return ""
	}
	b.kills++
	if m := jobSaid.FindSubmatch(p.stderr()); m != nil {
		return string(m[1])
	}
	return ""
}

// finish carries out what is left, and returns how many copies of each event
// the jobs have published, and how many jobs there are.
func (b *backfiller) finish() (copies []int, jobs int) {
	b.s.t.Helper()
	all := b.s.jobs()
	for _, j := range all {
		if j.State != "done" {
			b.s.command(0, "backfill", "--here", "--resume", j.ID, "--execute")
		}
		for i := 0; b.s.truth.EventTime(i).UnixMilli() < j.To; i++ {
			if len(copies) <= i {
				copies = append(copies, 0)
			}
			if b.s.truth.EventTime(i).UnixMilli() >= j.From {
				copies[i]++
			}
		}
	}
	return copies, len(all)
}

// TestE2EProofSteered kills the bridge again and again while two operators move
// and pause the stream, and backfills that are killed too publish beside it. In
// the end the topic holds what the requests that were accepted imply, and no
// request was applied twice, or lost without being told.
func TestE2EProofSteered(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 16, 16)), seedOf(t)
	const burst = 1000
	stock := kills * burst / 3
	s := proofStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: stock, Rate: 200,
		Latency: 2 * time.Millisecond})
	s.simulate()
	s.run("--max-events", "500").wantExit(0, stepTimeout)

	d := newDeaths(s, seed, burst)
	d.points = []string{pointInit, pointBarrier, pointAcked, pointEnding, pointEnded}
	operators := []*operator{newOperator(s, 1, seed, stock/2), newOperator(s, 2, seed, stock/2)}
	over := make(chan struct{})
	var asking sync.WaitGroup
	for _, o := range operators {
		asking.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					o.ask()
				}
			}
		})
	}
	b := newBackfiller(s, seed, stock)
	asking.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				b.one()
			}
		}
	})
	for range kills {
		d.one()
	}
	close(over)
	asking.Wait()
	s.start("resume").wait(outageTimeout) // it may not be paused
	s.finish()
	again, jobs := b.finish()

	c, l := newContents(t.Errorf), newLedger("events", t.Errorf)
	c.jumps, c.origins = true, map[string]int{"live": 0, "backfill": 0}
	s.eachRecord(s.topic, func(r *kgo.Record) {
		c.add(s.truth, s.config.Seed, r)
		if !isBackfill(r) {
			l.addEvent(r)
		}
	})
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	l.judge()
	requests := slices.Concat(operators[0].asked, operators[1].asked)
	targets := make(map[string]int)
	for i := range requests {
		targets[requests[i].name] = requests[i].target
	}
	j := journeyOf(l.entries, targets, t.Errorf)
	for i, n := range again {
		if len(j.copies) <= i {
			j.copies = append(j.copies, 0)
		}
		j.copies[i] += n
	}
	if !slices.Equal(c.copies, j.copies) { // a reset ahead of the stream skips what is between, as it was asked to
		first := 0
		for first < min(len(c.copies), len(j.copies)) && c.copies[first] == j.copies[first] {
			first++
		}
		t.Errorf("the topic holds %d events, the checkpoints and jobs say %d; the first difference is event %d",
			len(c.copies), len(j.copies), first)
	}
	if c.wrong > 0 {
		t.Errorf("%d records are wrong", c.wrong)
	}
	applied, refused, unknown := 0, 0, 0
	for i := range requests {
		r := &requests[i]
		yes, known := r.applied()
		switch times := j.moves[r.name]; {
		case times > 1:
			t.Errorf("%v was applied %d times", r.args, times)
		case known && yes && times == 0:
			t.Errorf("%v was acknowledged and never applied", r.args)
		case known && !yes && times > 0:
			t.Errorf("%v was applied, and the command said\n%s", r.args, r.said)
		case !known && times == 0:
			unknown++
		case times > 0:
			applied++
		default:
			refused++
		}
	}
	if applied == 0 {
		t.Error("no request was applied")
	}
	t.Logf("e2e: proof, steered: %d kills (%s), %d requests: %d applied, %d refused or withdrawn, %d told nothing "+
		"and were not applied; %d backfills with %d kills: %d records; %d records of %d events as implied, E2E_SEED=%d",
		kills, ways(d.ways), len(requests), applied, refused, unknown, jobs, b.kills, c.origins["backfill"], c.records,
		len(c.copies), seed)
}

func isBackfill(r *kgo.Record) bool { return deadletter.Header(r, "eb-origin") == "backfill" }
