package backfill

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
)

// DefaultParallel is the default number of windows that run at a time.
const DefaultParallel = 8

const (
	// busyInterval is how often a job's processes are looked up.
	busyInterval = 500 * time.Millisecond
	// busyMargin is how long to wait beyond the session of a dead process.
	busyMargin = 5 * time.Second
)

// Resumption is how a job is resumed.
type Resumption struct {
	// ID is the job's id, Kind the expected kind; an empty Kind is any.
	ID   string
	Kind Kind
	// RateLimit and Parallel are new limits; nil keeps the limit of the job.
	RateLimit *float64
	Parallel  *int
	// Waiting, if not nil, is called once with the process that Resume waits for.
	Waiting func(process string)

	hasty bool // do not wait for the session of a dead process to time out
}

// Resumable returns the job as Resume would, or a *RejectedError. It changes nothing.
func (p *Planner) Resumable(ctx context.Context, r *Resumption) (Job, error) {
	job, err := p.Jobs.find(ctx, r.ID)
	if err == nil {
		err = p.resumable(&job, r)
	}
	if err == nil {
		err = p.checkResumed(ctx, &job)
	}
	if err != nil {
		return Job{}, err
	}
	r.limit(&job)
	return job, nil
}

// Resume has the job run in one process, the caller's: it takes the job from the fleet, waits
// until no process works on it and commits the new limits. After an error the fleet has the job
// as before, unless Kafka was unreachable. Resume returns the job as Jobs.List does.
func (p *Planner) Resume(ctx context.Context, r *Resumption) (Job, error) {
	listed, err := p.Resumable(ctx, r)
	if err != nil {
		return Job{}, err
	}
	alone := func(have *Job) { have.Lanes = 0 }
	if listed.Lanes == 0 {
		return p.goOnFree(ctx, r, &listed, alone)
	}
	// Without this permission the lanes' processes are not seen.
	if _, err := p.Jobs.log.Lanes(ctx, r.ID, listed.Lanes); err != nil {
		return Job{}, err
	}
	taken, err := p.goOn(ctx, r, &listed, alone)
	if err != nil {
		return Job{}, err
	}
	before := listed
	listed.Revision = taken.Revision
	job, err := p.goOnFree(ctx, r, &listed, alone)
	if err != nil {
		p.giveBack(ctx, &before, taken.Revision)
	}
	return job, err
}

// goOnFree is goOn once no process works on the job.
func (p *Planner) goOnFree(ctx context.Context, r *Resumption, listed *Job, how func(have *Job)) (Job, error) {
	if err := p.awaitFree(ctx, listed, r); err != nil {
		return Job{}, err
	}
	return p.goOn(ctx, r, listed, how)
}

// giveBack gives a job that the revision taken has taken from the fleet back to it, unless
// somebody else has resumed the job since. It commits even if ctx has ended.
func (p *Planner) giveBack(ctx context.Context, before *Job, taken int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeGrace)
	defer cancel()
	_, _ = p.Jobs.change(ctx, before.ID, func(have Job) (Job, error) {
		if have.Lanes == 0 && have.State == Running && (have.Revision == taken || have.Paused) {
			have.Lanes, have.Paused = before.Lanes, before.Paused || have.Paused
			have.Revision++
		}
		return have, nil
	})
}

// HandOver has a fleet run the job in lanes, in place of Resume. The new limits hold at once
// if the fleet runs it already.
func (p *Planner) HandOver(ctx context.Context, r *Resumption) (Job, error) {
	listed, err := p.Resumable(ctx, r)
	switch {
	case err != nil:
		return Job{}, err
	case listed.Lanes == 0:
		return p.goOnFree(ctx, r, &listed, (*Job).Divide)
	}
	return p.goOn(ctx, r, &listed, (*Job).Divide)
}

// goOn commits the resumption of a job. listed is the job as List returned it: goOn rejects a
// job that was paused since.
func (p *Planner) goOn(ctx context.Context, r *Resumption, listed *Job, how func(have *Job)) (Job, error) {
	job, err := p.Jobs.change(ctx, r.ID, func(have Job) (Job, error) {
		if have.State == Running && have.Paused && have.Revision > listed.Revision {
			return have, reject(WasPaused, &have, "job %s was paused%s meanwhile", have.ID, have.ByWhom())
		}
		r.limit(&have)
		how(&have)
		have.Paused = false
		have.Revision++
		have.Source, have.Request, have.Habits = listed.Source, listed.Request, listed.Habits
		return have, p.resumable(&have, r)
	})
	if err != nil {
		return Job{}, err
	}
	job.Windows = slices.Clone(job.Windows)
	job.fillIn(listed)
	return job, nil
}

// checkResumed gives a job of an older version the live stream's source and request. It
// rejects a job of another source, settings that request another list than the job, and other
// events or ids than the stream's.
func (p *Planner) checkResumed(ctx context.Context, job *Job) error {
	live, err := newest(ctx, p.Live)
	if err != nil {
		return err
	}
	if live.Source.Conflict(job.Source) != nil {
		return reject(OtherSource, job,
			"job %s exports %s, but stream %s now exports %s", job.ID, job.Source, job.Stream, live.Source)
	}
	if err := p.checkOrigin(&live, job); err != nil {
		return err
	}
	job.Source = cmp.Or(job.Source, live.Source)
	job.learn(&live)
	if !p.Request.Known() {
		return nil
	}
	was := job.Request
	if !was.Known() {
		was = live.Origin.Request
	}
	change := was.Changed(p.Request, "")
	changed := bridge.RequestChange{Other: change.Other, Rules: change.Rules && job.Kind == Replay}.Elsewhere()
	if job.Kind == Backfill && len(changed) == 0 { // a new host is the stream's once a page has proved it
		changed = live.RequestChange(p.Request).Elsewhere()
	}
	switch {
	case len(changed) > 0:
		return reject(OtherSource, job,
			"the settings are not those of job %s: %s changed", job.ID, strings.Join(changed, ", "))
	case !was.Known() && job.Kind == Backfill:
		return reject(OtherSource, job,
			"job %s is of an older version, and stream %s has not shown its request yet: run the stream first",
			job.ID, job.Stream)
	}
	job.Request = p.Request
	return nil
}

// limit sets the new limits of the job.
func (r *Resumption) limit(j *Job) {
	if r.RateLimit != nil {
		j.RateLimit = *r.RateLimit
	}
	if r.Parallel != nil {
		j.Parallel = *r.Parallel
	}
}

// AtOnce is the number of windows that run at a time.
func (j *Job) AtOnce() int { return cmp.Or(j.Parallel, min(len(j.Windows), DefaultParallel)) }

// resumable returns why the job cannot be resumed, or nil.
func (p *Planner) resumable(job *Job, r *Resumption) error {
	switch {
	case job.Version == 0:
		return p.Jobs.Unknown(r.ID)
	case r.Kind != "" && job.Kind != r.Kind:
		return reject(OtherKind, job, "job %s is a %s", job.ID, job.Kind)
	case job.State == Cancelled:
		return reject(WasCancelled, job, "job %s was cancelled%s and cannot be resumed", job.ID, job.ByWhom())
	case job.State == Done:
		return reject(IsDone, job, "the job is done")
	case job.lists() != p.Windows:
		return reject(OtherSource, job, "job %s was begun with another EXPORT_FOLLOW than stream %s has", job.ID, p.Name())
	case job.Resource != p.Resource:
		return reject(OtherResource, job,
			"job %s exports %s, but stream %s now exports %s", job.ID, job.Resource, job.Stream, p.Resource)
	}
	return nil
}

// awaitFree waits until no process works on the job: joining the group earlier could take
// the job from the process that runs it.
func (p *Planner) awaitFree(ctx context.Context, job *Job, r *Resumption) error {
	said := false
	patience := busyMargin
	if !r.hasty {
		patience += p.SessionTimeout
	}
	for deadline := time.Now().Add(patience); ; {
		members, err := p.Jobs.log.Members(ctx, job.ID)
		if err != nil || len(members) == 0 {
			return err
		}
		process := members[0].String()
		if time.Now().After(deadline) {
			return reject(InUse, job, "%[2]s is running job %[1]s", job.ID, process)
		}
		if !said && r.Waiting != nil {
			said = true
			r.Waiting(process)
		}
		bridge.Sleep(ctx, busyInterval)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
