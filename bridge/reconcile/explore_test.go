package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/reconcile"
)

// happening is what the world does by itself before a call of the first repair, or
// between the repairs if at is 0.
type happening struct {
	what string // "poll", "move", "remake" or "retention"; empty is nothing
	at   int
}

// failing is the number of the call that fails, 0 for none, and how.
type failing struct {
	at  int
	how bridgetest.Failure
}

// repairPlan is a schedule of two repairs, and of a last one that nothing disturbs.
type repairPlan struct {
	stopped bool   // nobody runs the live stream before the last repair
	undated bool   // e4 lacks an ingestion time
	pending string // the events that the live stream has not read yet
	fails   [2]failing
	happens [2]happening
}

// explored is a world whose port calls are counted.
type explored struct {
	*world
	plan     repairPlan
	round    int
	calls    int
	trace    []string
	failed   bool            // a call of this round
	pending  map[string]bool // what the live stream will publish at its next poll
	holds    map[string]bool // what the topic got from the live stream and repairs
	awaiting time.Time       // since when a repair awaits the stream; zero if none does
	broken   []string
}

// newExplored returns a topic with e0, a dead letter e1, e2 that the stream has passed
// by far, e3 close to its position, and e4 after it or undated.
func newExplored(t *testing.T, plan repairPlan) *explored {
	all := items(5)
	all[3].ingested, all[4].ingested = second(900), second(1000)
	if plan.undated {
		all[4].ingested = 0
	}
	x := &explored{world: newWorld(t, all, nil), plan: plan, pending: make(map[string]bool),
		holds: map[string]bool{"e0": true}}
	for id := range strings.FieldsSeq(plan.pending) {
		x.pending[id] = true
	}
	x.topic.Append(1, fakelog.Record(time.UnixMilli(second(-10)), "{}"),
		fakelog.Record(time.UnixMilli(second(-5)), "{}"), all[0].record())
	x.dead.Append(0, all[1].record())
	x.live.trail = []bridge.Checkpoint{atEnd(5, second(1000))}
	x.repair.marks["old"] = []byte(`{"v":1,"at":1,"ids":""}`)
	x.ports.Source = failingSource{source{x.source}, x}
	x.ports.Topic, x.ports.DeadLetters = failingLog{x.topic, x}, failingLog{x.dead, x}
	x.ports.Live, x.ports.AwaitingEnd = failingLive{x.live, x}, func() { x.awaiting = time.Now() }
	open := x.ports.Publisher
	x.ports.Publisher = func(ctx context.Context) (reconcile.Publisher, error) {
		return failingPublisher{x.repair, x}, x.do("open", func() error { _, err := open(ctx); return err })
	}
	return x
}

// do runs a call of a port, which the plan may have fail.
func (x *explored) do(name string, call func() error) error {
	x.calls++
	x.trace = append(x.trace, name)
	if h := x.plan.happens[0]; x.round == 0 && h.at == x.calls {
		x.happen(h.what, name)
	}
	if x.round > 1 || x.plan.fails[x.round].at != x.calls {
		return call()
	}
	x.failed = true
	if x.plan.fails[x.round].how == bridgetest.Persisted && (name == "Publish" || name == "Forget") {
		_ = call() // it is the answer that fails
	}
	return &bridge.Fault{Class: bridge.Permanent, Err: bridgetest.ErrDown}
}

func (x *explored) happen(what, before string) {
	x.trace = append(x.trace, "("+what+")")
	switch newest := x.live.trail[0]; {
	case what == "poll":
		for _, id := range slices.Sorted(maps.Keys(x.pending)) {
			x.publish("the stream", id)
			x.topic.Append(2, item{id: id, at: second(int(id[1] - '0'))}.record())
		}
		clear(x.pending)
		next := atEnd(newest.Seq+1, time.Now().UnixMilli())
		next.Epoch = newest.Epoch
		x.live.commit(next)
	case what == "move" && before != "Publish": // nothing lies between the look at the epoch and the commit
		moved := atEnd(0, 0)
		moved.Epoch, moved.Kind, moved.Drained = newest.Epoch+1, bridge.KindReset, false
		moved.Change = &bridge.Change{Kind: bridge.KindReset, From: newest.Version}
		x.live.commit(moved)
		x.pending = map[string]bool{"e0": true, "e2": true, "e3": true, "e4": true}
		clear(x.holds) // the stream publishes all of it again
	case what == "remake" && (before == "" || !slices.Contains([]string{"Publish", "Walk", "Bounds", "After", "Read"},
		before)): // nor here: a reader fails where its spans are gone
		x.topic.Remake("second")
		x.topic.Append(1, fakelog.Record(time.UnixMilli(second(-10)), "{}"), fakelog.Record(time.UnixMilli(second(-5)), "{}"))
		clear(x.holds)
	case what == "retention":
		ends, _ := x.topic.Ends(x.t.Context())
		x.topic.Expire(10 * 365 * 24 * time.Hour)
		x.topic.Delete(1, 1)
		x.topic.Delete(0, ends[0]) // what repairs published
	}
}

// publish notes that the topic gets an event.
func (x *explored) publish(who, id string) {
	if x.holds[id] {
		x.broken = append(x.broken, who+" publishes "+id+" again")
	}
	x.holds[id] = true
}

// run runs the plan and returns the calls of the first repair and, if rules are broken,
// which.
func (p repairPlan) run(t *testing.T) (first []string, broken string) {
	x := newExplored(t, p)
	var report *reconcile.Report
	var errs [3]error
	for x.round = range errs {
		if x.round == 1 {
			first = slices.DeleteFunc(slices.Clone(x.trace), func(name string) bool { return strings.ContainsAny(name, "|(") })
		}
		for _, h := range p.happens {
			if h.at == 0 && x.round == 1 || x.round == 2 && h == p.happens[0] {
				x.happen(map[bool]string{true: h.what, false: "poll"}[x.round == 1], "")
			}
		}
		x.live.running = !p.stopped || x.round == 2
		x.trace, x.calls, x.failed, x.awaiting = append(x.trace, "|"), 0, false, time.Time{}
		report, errs[x.round] = x.run(reconcile.Repair)
		err := errs[x.round]
		if _, refused := errors.AsType[*reconcile.RejectedError](err); x.failed != errors.Is(err, bridgetest.ErrDown) ||
			err != nil && !x.failed && !refused {
			x.broken = append(x.broken, fmt.Sprintf("round %d ends with %v", x.round, err))
		}
	}
	for _, id := range []string{"e0", "e2", "e3", "e4"} {
		if !x.holds[id] {
			x.broken = append(x.broken, "nobody has published "+id)
		}
	}
	if refused, ok := errors.AsType[*reconcile.RejectedError](errs[2]); ok {
		if refused.Reason != reconcile.NotKept || !strings.Contains(fmt.Sprint(p.happens), "retention") {
			x.broken = append(x.broken, "at last "+refused.Error())
		}
	} else if report.DeadLettered != 1 || report.Held+report.Repair.Events+report.Repair.Before != 4 {
		x.broken = append(x.broken, fmt.Sprintf("at last %+v %+v", report, report.Repair))
	}
	if len(x.broken) == 0 {
		return first, ""
	}
	return first, fmt.Sprintf("%+v:\n%s\n%s", p, strings.Join(x.broken, "\n"), strings.Join(x.trace, " "))
}

// TestExploreRepair: after any failures and events, each event is once in the topic in the
// end, and a repair leaves to the stream the events that the stream may publish.
func TestExploreRepair(t *testing.T) {
	t.Parallel()
	for _, base := range []repairPlan{
		{undated: true}, {undated: true, pending: "e3 e4"}, {pending: "e3 e4"}, {pending: "e3 e4", stopped: true},
	} {
		t.Run(fmt.Sprintf("%+v", base), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, _ := base.run(t)
				for _, p := range base.plans(calls) {
					if _, broken := p.run(t); broken != "" {
						t.Fatal(broken)
					}
				}
			})
		})
	}
}

// plans returns the plans with each failure, with or without something that happens or
// a second failure, and with each thing that happens at each call.
func (p repairPlan) plans(calls []string) []repairPlan {
	all := []repairPlan{p}
	whats := []string{"poll", "move", "remake", "retention"}
	for at := range len(calls) + 1 {
		if at > 1 && calls[at-1] == calls[at-2] {
			continue // it waits
		}
		for _, what := range whats {
			p.happens = [2]happening{{what, at}, {}}
			all = append(all, p)
			p.happens[1].what = "retention"
			all = append(all, p)
		}
		for how := range bridgetest.Persisted + 1 {
			if at == 0 || how == bridgetest.Persisted && calls[at-1] != "Publish" && calls[at-1] != "Forget" {
				continue
			}
			p.fails, p.happens = [2]failing{{at, how}, {}}, [2]happening{}
			all = append(all, p)
			for _, what := range whats {
				p.happens[0] = happening{what, 0}
				all = append(all, p)
			}
			p.happens[0] = happening{}
			for second := range len(calls) {
				if (second+at)%16 > 0 && calls[second] != "Publish" && calls[at-1] != "Publish" {
					continue
				}
				p.fails[1].at = second + 1
				all = append(all, p)
				if calls[second] == "Publish" {
					p.fails[1].how = bridgetest.Persisted
					all = append(all, p)
					p.fails[1].how = bridgetest.Failed
				}
			}
			p.fails = [2]failing{}
		}
	}
	return all
}
