package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkasink"
)

// begin commits the plan, and carries it out.
func (p *jobPlan) begin(ctx context.Context) error {
	if err := p.createTopics(ctx); err != nil {
		return explained(err)
	}
	plan := p.job
	job, err := p.jobs.Change(ctx, plan.ID, func(have kafkasink.Job) (kafkasink.Job, error) {
		if have.Version != 0 && have.Created != plan.Created {
			return have, fmt.Errorf("there is a job %s already", plan.ID)
		}
		return plan, nil
	})
	if err != nil {
		return explained(err)
	}
	p.job = job
	p.tidy(ctx)
	p.announce()
	return p.carryOut(ctx)
}

// tidy takes away what old jobs have left. It is no reason not to go on.
func (p *jobPlan) tidy(ctx context.Context) {
	n, err := p.jobs.Tidy(ctx, time.Now())
	if n > 0 {
		fmt.Fprintf(p.app.stderr, "  removed the records of %s that ended more than %d days ago\n", counted(n, "job"), int(kafkasink.JobsKept.Hours()/24))
	}
	if err != nil {
		fmt.Fprintf(p.app.stderr, "  the records of old jobs stay: %v\n", err)
	}
}

// createTopics creates what a new job needs. A job that goes on creates nothing:
// what it has published would be missing in a topic that is new.
func (p *jobPlan) createTopics(ctx context.Context) error {
	live, err := kafkasink.New(p.st.Kafka)
	if err != nil {
		return err
	}
	defer live.Close()
	if gone, err := live.Vanished(ctx); err != nil {
		return err
	} else if len(gone) > 0 && p.kind == kafkasink.JobBackfill {
		return gone[0]
	}
	if p.kind == kafkasink.JobReplay {
		if _, err := live.CreateLike(ctx, p.job.Topic); err != nil {
			return err
		}
	} else if !p.st.Kafka.CreateTopics {
		if err := p.wantTopic(ctx, &p.st.Kafka); err != nil {
			return err
		}
	}
	sink, err := kafkasink.New(p.st.Kafka.OfWindow(&p.job, 0))
	if err != nil {
		return err
	}
	defer sink.Close()
	if _, err = sink.Create(ctx); err != nil {
		return err
	}
	p.job.TopicID, err = sink.TopicID(ctx)
	return err
}

// goOn takes up a job that was interrupted.
func (p *jobPlan) goOn(ctx context.Context) error {
	all, err := p.jobs.List(ctx)
	if err != nil {
		return explained(err)
	}
	if i := slices.IndexFunc(all, func(j kafkasink.Job) bool { return j.ID == p.resume }); i >= 0 {
		p.job = all[i]
	}
	switch err := p.resumable(&p.job); {
	case errors.Is(err, errJobDone):
		return p.report(0)
	case err != nil:
		return err
	}
	p.limits(&p.job)
	if !p.execute {
		return p.print()
	}
	if err := p.awaitFree(ctx); err != nil {
		return explained(err)
	}
	seen := p.job.Windows
	_, err = p.jobs.Change(ctx, p.resume, func(have kafkasink.Job) (kafkasink.Job, error) {
		p.limits(&have)
		p.job = have
		p.job.Windows = slices.Clone(have.Windows)
		return have, p.resumable(&have)
	})
	switch {
	case errors.Is(err, errJobDone): // by the process that was waited for
		return p.report(0)
	case err != nil:
		return explained(err)
	}
	for n := range min(len(seen), len(p.job.Windows)) { // the list knows their checkpoints
		if p.job.Windows[n].Ended == "" {
			p.job.Windows[n] = seen[n]
		}
	}
	p.announce()
	return p.carryOut(ctx)
}

// limits has the job go on under the limits that it was planned with, and gives
// it those that are new. What it has none of the settings say.
func (p *jobPlan) limits(j *kafkasink.Job) {
	if p.limitGiven {
		j.RateLimit = p.limit
	}
	if j.RateLimit > 0 {
		p.perSecond = j.RateLimit
	}
	if p.parallelGiven {
		j.Parallel = p.parallel
	}
	p.parallel = cmp.Or(j.Parallel, min(len(j.Windows), usualParallel))
	p.st.Export.PageSize = cmp.Or(j.PageSize, p.st.Export.PageSize)
	p.st.Engine.PageSize = p.st.Export.PageSize
}

var errJobDone = errors.New("the job is done")

// jobAnew says how what is left of a job that was cancelled can be published.
func jobAnew(j *kafkasink.Job) string {
	again := ""
	if j.Kind == kafkasink.JobBackfill {
		again = " --again" // what it has published stays
	}
	return fmt.Sprintf("a new job for what is left, whose bounds exportbridge backfill list --json shows: exportbridge %s --from ... --to ...%s", j.Kind, again)
}

// resumable says why the job cannot go on, or nil.
func (p *jobPlan) resumable(j *kafkasink.Job) error {
	switch {
	case j.Version == 0:
		return &exitError{code: exitFailed, err: fmt.Errorf("stream %s has no job %s", p.st.Name, p.resume), hint: "exportbridge backfill list"}
	case j.Kind != p.kind:
		return &exitError{code: exitUsage, err: fmt.Errorf("job %s is a %s", j.ID, j.Kind), hint: fmt.Sprintf("exportbridge %s --resume %s", j.Kind, j.ID)}
	case j.State == kafkasink.JobCancelled:
		return &exitError{code: exitFailed, err: fmt.Errorf("job %s was cancelled%s, and cannot go on", j.ID, byWhom(j)), hint: jobAnew(j)}
	case j.State == kafkasink.JobDone:
		return errJobDone
	case j.Resource != p.st.Export.Resource:
		return &exitError{code: exitUsage, err: fmt.Errorf("job %s exports %s, stream %s is of %s by now", j.ID, j.Resource, j.Stream, p.st.Export.Resource), hint: "EXPORT_RESOURCE=" + j.Resource}
	}
	return nil
}

func byWhom(j *kafkasink.Job) string {
	text := ""
	if j.By != "" {
		text += " by " + j.By
	}
	if j.Why != "" {
		text += " (" + j.Why + ")"
	}
	return text
}

const (
	// memberInterval is how often it is looked whether a job is still worked on.
	memberInterval = 500 * time.Millisecond
	// memberMargin is how long after its session a dead process is waited for.
	memberMargin = 5 * time.Second
)

// awaitFree waits until no process works on the job: one that was killed counts
// until its session with Kafka times out. To join while another one works could
// take the job from it.
func (p *jobPlan) awaitFree(ctx context.Context) error {
	said := false
	tick := time.NewTicker(memberInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(p.st.Kafka.SessionTimeout + memberMargin); ; {
		members, err := p.jobs.Members(ctx, p.resume)
		if err != nil || len(members) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return &exitError{code: exitNotOwner, err: fmt.Errorf("job %s is worked on by %s", p.resume, members[0]), hint: "wait for it, or stop that process"}
		}
		if !said {
			said = true
			fmt.Fprintf(p.app.stderr, "  waits for %s, which has the job; if it was killed, for %s at most\n", members[0], p.st.Kafka.SessionTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ownTimeout bounds the wait for the job to be this process's.
const ownTimeout = 30 * time.Second

// own makes the job this process's, unless another one has it. Brokers that are
// away are waited for.
func (p *jobPlan) own(ctx context.Context, group *kafkagroup.Owner) (bridge.Ownership, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, p.st.Kafka.SessionTimeout+ownTimeout)
		tenure, err := group.Acquire(limited)
		cancel()
		switch {
		case err == nil:
			return tenure, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, bridge.ErrNotOwner):
			return nil, &exitError{code: exitNotOwner, err: err, hint: "wait for the other process, or stop it"}
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, explained(err)
		}
	}
}
