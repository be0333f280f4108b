package backfill

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// UsualParallel is how many windows run at a time where nobody says.
const UsualParallel = 8

const (
	// busyInterval is how often it is looked whether a job is still worked on.
	busyInterval = 500 * time.Millisecond
	// busyMargin is how long after its session a dead process is waited for.
	busyMargin = 5 * time.Second
)

// Resumption says how a job goes on.
type Resumption struct {
	// ID is the job's, Kind and Resource what it is expected to be.
	ID       string
	Kind     Kind
	Resource string
	// RateLimit and Parallel are new limits; nil keeps what was planned.
	RateLimit *float64
	Parallel  *int
	// SessionTimeout is when the session of a dead process times out.
	SessionTimeout time.Duration
	// Waiting, if not nil, is told once which process is waited for.
	Waiting func(process string)
}

// Resumable returns the job as it would go on, or a RefusedError. It changes
// nothing.
func (j *Jobs) Resumable(ctx context.Context, r *Resumption) (Job, error) {
	job, err := j.find(ctx, r.ID)
	if err != nil {
		return Job{}, err
	}
	if err := j.resumable(&job, r); err != nil {
		return Job{}, err
	}
	r.limit(&job)
	return job, nil
}

// Resume waits until no process works on the job, and commits its new limits. It
// returns the job, each window with what its newest checkpoint says.
func (j *Jobs) Resume(ctx context.Context, r *Resumption) (Job, error) {
	listed, err := j.Resumable(ctx, r)
	if err != nil {
		return Job{}, err
	}
	if err := j.awaitFree(ctx, &listed, r); err != nil {
		return Job{}, err
	}
	job, err := j.change(ctx, r.ID, func(have Job) (Job, error) {
		r.limit(&have)
		return have, j.resumable(&have, r)
	})
	if err != nil {
		return Job{}, err
	}
	job.Windows = slices.Clone(job.Windows)
	job.fillIn(&listed)
	return job, nil
}

// limit has the job go on under the limits that it was planned with, or new
// ones.
func (r *Resumption) limit(j *Job) {
	if r.RateLimit != nil {
		j.RateLimit = *r.RateLimit
	}
	if r.Parallel != nil {
		j.Parallel = *r.Parallel
	}
}

// AtOnce is how many of the job's windows run at a time.
func (j *Job) AtOnce() int { return cmp.Or(j.Parallel, min(len(j.Windows), UsualParallel)) }

// resumable says why the job cannot go on, or nil.
func (j *Jobs) resumable(job *Job, r *Resumption) error {
	switch {
	case job.Version == 0:
		return refuse(Unknown, job, "stream %s has no job %s", j.stream, r.ID)
	case job.Kind != r.Kind:
		return refuse(OtherKind, job, "job %s is a %s", job.ID, job.Kind)
	case job.State == Cancelled:
		return refuse(WasCancelled, job, "job %s was cancelled%s, and cannot go on", job.ID, job.ByWhom())
	case job.State == Done:
		return refuse(IsDone, job, "the job is done")
	case job.Resource != r.Resource:
		return refuse(OtherResource, job, "job %s exports %s, stream %s is of %s by now", job.ID, job.Resource, job.Stream, r.Resource)
	}
	return nil
}

// awaitFree waits until no process works on the job: one that was killed counts
// until its session with Kafka times out. To join while another one works could
// take the job from it.
func (j *Jobs) awaitFree(ctx context.Context, job *Job, r *Resumption) error {
	said := false
	tick := time.NewTicker(busyInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(r.SessionTimeout + busyMargin); ; {
		members, err := j.log.Members(ctx, job.ID)
		if err != nil || len(members) == 0 {
			return err
		}
		process := members[0].String()
		if time.Now().After(deadline) {
			return refuse(InUse, job, "job %s is worked on by %s", job.ID, process)
		}
		if !said && r.Waiting != nil {
			said = true
			r.Waiting(process)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
