package backfill_test

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
)

// how a call fails, or what happens to its process in it.
type how int

const (
	failed      how = iota // it left nothing
	persisted              // it left all; only the answer is lost
	killed                 // the process, before the call
	killedAfter            // the process, after the call
	paused                 // the process, until another one has come to its end
	twin                   // another process begins to work on the job beside it
)

// failing is the call that fails, as "Change 2", empty for none.
type failing struct {
	call string
	how  how
}

// jobPlan is a schedule of a process that begins a job, of one that resumes it, and of a
// last one that nothing disturbs.
type jobPlan struct {
	unknown bool // the live stream's source
	fails   [2]failing
	// what happens before the call at of the first process, or before the second one if at
	// is empty: "cancel", "tenant" (the API lists those of another one), "moved" (the live
	// stream is another one's too) or "remake" (of the topic).
	what, at string
}

// explored is a world with a schedule.
type explored struct {
	*world
	plan   jobPlan
	wanted backfill.Job
	beside sync.WaitGroup // of another process

	mu        sync.Mutex // guards all below
	round     int
	trace     []string
	live      bridge.Checkpoint
	tenant    bridge.SourceIdentity // of the API
	holds     map[string]int        // the events of the topic
	of        bridge.SourceIdentity // what the job has published is
	cancelled bool
	done      bool
	remade    bool // the topic was made again
	broken    []string
}

// happen does what the plan says.
func (x *explored) happen(what string) {
	x.mu.Lock()
	x.trace = append(x.trace, "("+what+")")
	switch what {
	case "moved":
		x.live.Source = tenantB
		fallthrough
	case "tenant":
		x.tenant = tenantB
	case "remake":
		x.topic.Recreate()
		x.remade = true
		clear(x.holds)
	}
	x.mu.Unlock()
	if what == "cancel" {
		_, err := x.jobs.Cancel(x.t.Context(), backfill.Cancellation{ID: "aaaaaa"}, true)
		x.mu.Lock()
		x.cancelled = err == nil // else there is none yet, or it is done
		x.mu.Unlock()
	}
}

func (x *explored) fault(format string, args ...any) {
	x.broken = append(x.broken, fmt.Sprintf(format, args...))
}

// publish notes what was committed.
func (x *explored) publish(batch []sent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range batch {
		if x.holds[e.id]++; x.holds[e.id] > 1 {
			x.fault("%s is published again", e.id)
		}
		if x.of = cmp.Or(x.of, e.of); e.of != x.of || !x.plan.unknown && e.of != tenantA {
			x.fault("%s of %s is published beside events of %s", e.id, e.of, x.of)
		}
	}
}

// look looks at the job after a commit: what is said to be done from then on must be.
func (x *explored) look() {
	all, err := x.jobs.List(x.t.Context(), 0)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil || len(all) == 0 || all[0].State != backfill.Done || x.done {
		return
	}
	x.done = true
	if x.cancelled {
		x.fault("the job is done, and was cancelled before")
	}
	if x.remade && x.round == 0 {
		return // all may have been in it
	}
	for n := range 6 {
		if id := fmt.Sprintf("%s%d", cmp.Or(x.of, tenantA).Organization, n); x.holds[id] == 0 {
			x.fault("the job is done without %s", id)
		}
	}
}

// another resumes the job in another process, which nothing disturbs.
func (x *explored) another() { x.carryOut(&process{x: x, calls: make(map[string]int)}) }

// carryOut begins or resumes the job and runs it.
func (x *explored) carryOut(p *process) {
	x.mu.Lock()
	p.late = x.cancelled
	x.mu.Unlock()
	jobs := backfill.NewJobs(p, stream)
	planner := backfill.Planner{
		Jobs: jobs, Resource: "events", SessionTimeout: 10 * time.Second, Live: p,
		Open: p.open, Owner: func(string) backfill.Owner { return p },
	}
	job, err := planner.Resume(x.t.Context(), &backfill.Resumption{ID: "aaaaaa", Kind: backfill.Backfill})
	if reasonOf(err) == backfill.Unknown {
		job = x.wanted
		err = jobs.Begin(x.t.Context(), job, false)
	}
	if err == nil {
		p.owner = x.group.Open("")
		job, err = planner.Run(job, "").Do(x.t.Context())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trace = append(x.trace, fmt.Sprintf("| %v |", err))
	switch blocked, _ := errors.AsType[*bridge.BlockedError](err); {
	case err == nil && (job.State != backfill.Done || job.Ended() != 2):
		x.fault("a process has ended with %+v", job)
	case err == nil, p.fail.call != "", x.plan.fails[0].how >= paused:
	case reasonOf(err) == backfill.IsDone:
	case (reasonOf(err) == backfill.WasCancelled || errors.Is(err, backfill.ErrCancelled)) && x.cancelled:
	case reasonOf(err) == backfill.OtherSource && x.live.Source == tenantB:
	case blocked != nil && blocked.Reason == bridge.ReasonSource && x.tenant == tenantB:
	case blocked != nil && blocked.Reason == bridge.ReasonTopic && x.remade:
	default:
		x.fault("a process ends with %v", err)
	}
}

// run runs the plan and returns the calls of the first process and, if rules are broken,
// which.
func (p jobPlan) run(t *testing.T) (first []string, broken string) {
	x := &explored{world: newWorld(t, 0), plan: p, live: bridge.Checkpoint{Source: tenantA,
		Origin: bridge.Origin{Start: second(100)}}, tenant: tenantA, holds: make(map[string]int)}
	x.wanted = x.world.plan(6, 2)
	x.wanted.Topic, x.wanted.TopicID, x.wanted.Parallel, x.wanted.PageSize, x.wanted.Source = "events", "topic-0", 1, 2, tenantA
	if p.unknown {
		x.live.Source, x.wanted.Source = bridge.SourceIdentity{}, bridge.SourceIdentity{}
	}
	for n := range 3 {
		x.mu.Lock()
		x.round = n
		x.mu.Unlock()
		if n == 1 {
			first = slices.DeleteFunc(slices.Clone(x.trace), func(name string) bool { return strings.ContainsAny(name, "|(") })
			if p.at == "" {
				x.happen(p.what)
			}
		}
		one := &process{x: x, calls: make(map[string]int)}
		if n < 2 {
			one.fail = p.fails[n]
		}
		x.carryOut(one)
		x.beside.Wait()
	}
	if got := x.job(); got.State != backfill.Done && p.what == "" {
		x.fault("at last %+v", got)
	}
	for _, r := range x.topic.Records() {
		if x.holds[r.ID] != 1 {
			x.fault("%s was committed %d times", r.ID, x.holds[r.ID])
		}
	}
	if len(x.broken) == 0 {
		return first, ""
	}
	return first, fmt.Sprintf("%+v:\n%s\n%s", p, strings.Join(x.broken, "\n"), strings.Join(x.trace, " "))
}

// plans returns the plans with each failure, with or without something that happens or a
// second failure, and with each thing that happens at each call.
func (p jobPlan) plans(calls []string) []jobPlan {
	all := []jobPlan{p}
	whats, step := []string{"cancel", "tenant", "moved", "remake"}, 12
	if p.unknown {
		whats, step = whats[1:3], len(calls) // as above otherwise
	}
	for i, at := range calls {
		for _, what := range whats {
			p.what, p.at = what, at
			all = append(all, p)
		}
		p.at = ""
		for how := range twin + 1 {
			if commits := regexp.MustCompile("Publish|Change|Begin").MatchString(at); !commits && (how == persisted || how == killedAfter) {
				continue
			}
			p.fails = [2]failing{{at, how}}
			for _, what := range append(whats, "") {
				p.what = what
				all = append(all, p)
			}
			for second := i % step; second < len(calls); second += step {
				p.fails[1] = failing{calls[second], killedAfter}
				all = append(all, p)
			}
			p.fails = [2]failing{}
		}
	}
	return all
}

// TestExploreJob: whatever fails and whatever happens meanwhile, each event is once in the
// topic, and a job is done only if all of its range is there, of one source.
func TestExploreJob(t *testing.T) {
	t.Parallel()
	for _, base := range []jobPlan{{}, {unknown: true}} {
		t.Run(fmt.Sprintf("%+v", base), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, broken := base.run(t)
				if broken != "" {
					t.Fatal(broken)
				}
				for _, p := range base.plans(calls) {
					if _, broken := p.run(t); broken != "" {
						t.Fatal(broken)
					}
				}
			})
		})
	}
}
