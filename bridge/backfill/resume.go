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

// Resumption resumes a job.
type Resumption struct {
	// ID is the job's id, Kind and Resource are the expected ones; an empty Kind is
	// any.
	ID       string
	Kind     Kind
	Resource string
	// Request is the fingerprint of what the settings request.
	Request bridge.Fingerprint
	// RateLimit and Parallel are new limits; nil keeps the job's.
	RateLimit *float64
	Parallel  *int
	// SessionTimeout is how long the session of a dead process lasts.
	SessionTimeout time.Duration
	// Live is the live stream: the job must be of its source. Nil skips that.
	Live LiveStream
	// Waiting, if not nil, is called once with the process that has the job.
	Waiting func(process string)
}

// Resumable returns the job as Resume would, or a *RefusedError. It changes nothing.
func (j *Jobs) Resumable(ctx context.Context, r *Resumption) (Job, error) {
	job, err := j.find(ctx, r.ID)
	if err != nil {
		return Job{}, err
	}
	if err := j.resumable(&job, r); err != nil {
		return Job{}, err
	}
	if err := r.checkSource(ctx, &job); err != nil {
		return Job{}, err
	}
	r.limit(&job)
	return job, nil
}

// Resume waits until no process works on the job and commits the new limits. It
// returns the job as List does.
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
		have.Source, have.Request, have.MarksEnd = listed.Source, listed.Request, listed.MarksEnd
		return have, j.resumable(&have, r)
	})
	if err != nil {
		return Job{}, err
	}
	job.Windows = slices.Clone(job.Windows)
	job.fillIn(&listed)
	return job, nil
}

// checkSource gives a job of an older version the live stream's source, and refuses one
// of another source.
func (r *Resumption) checkSource(ctx context.Context, job *Job) error {
	if r.Live == nil {
		return nil
	}
	live, err := newest(ctx, r.Live)
	if err != nil {
		return err
	}
	if live.Source.Conflict(job.Source) != nil {
		return refuse(OtherSource, job, "job %s exports %s, but stream %s now exports %s", job.ID, job.Source, job.Stream, live.Source)
	}
	if job.Source == (bridge.SourceIdentity{}) {
		job.Source = live.Source
	}
	job.MarksEnd = job.MarksEnd || live.MarksEnd
	return r.checkRequest(job, &live)
}

// checkRequest gives a job of an older version the live stream's request, and refuses
// one whose request is not that of the settings.
func (r *Resumption) checkRequest(job *Job, live *bridge.Checkpoint) error {
	if !r.Request.Known() {
		return nil
	}
	was := job.Request
	if !was.Known() {
		was = live.Origin.Request
	}
	changed := was.Changed(r.Request, "").Other
	if job.Kind == Backfill && len(changed) == 0 { // a new host is the stream's once a page has proved it
		changed = live.RequestChange(r.Request).Elsewhere()
	}
	switch {
	case len(changed) > 0:
		return refuse(OtherSource, job, "the settings request another list than job %s: %s changed", job.ID, strings.Join(changed, ", "))
	case !was.Known() && job.Kind == Backfill:
		return refuse(OtherSource, job, "job %s is of an older version, and stream %s has yet to show what it requests: run the stream first", job.ID, job.Stream)
	}
	job.Request = r.Request
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
func (j *Jobs) resumable(job *Job, r *Resumption) error {
	switch {
	case job.Version == 0:
		return refuse(Unknown, job, "stream %s has no job %s", j.stream, r.ID)
	case r.Kind != "" && job.Kind != r.Kind:
		return refuse(OtherKind, job, "job %s is a %s", job.ID, job.Kind)
	case job.State == Cancelled:
		return refuse(WasCancelled, job, "job %s was cancelled%s and cannot be resumed", job.ID, job.ByWhom())
	case job.State == Done:
		return refuse(IsDone, job, "the job is done")
	case job.Resource != r.Resource:
		return refuse(OtherResource, job, "job %s exports %s, but stream %s now exports %s", job.ID, job.Resource, job.Stream, r.Resource)
	}
	return nil
}

// awaitFree waits until no process works on the job. Joining earlier could take the
// job from its process.
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
			return refuse(InUse, job, "%[2]s is running job %[1]s", job.ID, process)
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
