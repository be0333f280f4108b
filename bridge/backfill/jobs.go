// Package backfill publishes past ranges of an export beside the live stream:
// backfills into the stream's topic, replays into one of their own. A job is a
// plan of windows, committed before the first of them begins; each window is a
// stream of its own with its own checkpoints, so that a job that was interrupted
// goes on with nothing lost or published twice.
package backfill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
)

// Log keeps the plans of a stream's jobs, and the checkpoints of their windows.
type Log interface {
	// Records returns the newest records as of so long ago at most: the plans by
	// the jobs' ids, the checkpoints by the windows' names.
	Records(ctx context.Context, age time.Duration) (plans, checkpoints map[string]*kgo.Record, err error)
	// Change commits what change makes of a plan, nil where there is none, and
	// that the checkpoints of the windows that it names are gone: both or
	// neither. Change may be called more than once, each time with what is
	// committed, and its error is returned as it is. A plan of nil takes the job
	// away. After another error the outcome is unknown.
	Change(ctx context.Context, id string, change func(have *kgo.Record) (plan []byte, gone []string, err error)) error
	// Watch calls visit with each committed plan of a job, from an old one to
	// those that come, until ctx ends or something fails that waiting does not
	// cure.
	Watch(ctx context.Context, id string, visit func(plan *kgo.Record)) error
	// Members returns the processes that work on a job. One that was killed counts
	// until its session with Kafka times out.
	Members(ctx context.Context, id string) ([]kafkagroup.Member, error)
}

// Jobs are the jobs of a stream. Its methods may be called concurrently if
// those of its Log may.
type Jobs struct {
	log    Log
	stream string
}

// NewJobs returns the jobs of the stream with this name.
func NewJobs(log Log, stream string) *Jobs { return &Jobs{log, stream} }

// List returns all jobs of the stream, oldest first, each window that has not
// ended with what its newest checkpoint says, as of so long ago at most.
func (j *Jobs) List(ctx context.Context, age time.Duration) ([]Job, error) {
	plans, checkpoints, err := j.log.Records(ctx, age)
	if err != nil {
		return nil, err
	}
	var all []Job
	for _, r := range plans {
		job, err := decodePlan(r)
		if err != nil {
			return nil, err
		}
		for n := range job.Windows {
			r := checkpoints[job.WindowName(n)]
			if r == nil || job.Windows[n].Ended != "" {
				continue
			}
			c, err := bridge.DecodeCheckpoint(r.Value)
			if err != nil {
				return nil, foreign(r, err)
			}
			w := &job.Windows[n]
			w.Events, w.Pages, w.Position = c.Events, c.Pages, c.PositionTime
		}
		all = append(all, job)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// find returns a job as List does, the zero Job where there is none.
func (j *Jobs) find(ctx context.Context, id string) (Job, error) {
	all, err := j.List(ctx, 0)
	if i := slices.IndexFunc(all, func(j Job) bool { return j.ID == id }); i >= 0 {
		return all[i], err
	}
	return Job{}, err
}

// change commits a change of a job, which is given as it is committed. The list
// knows more of windows that have not ended.
func (j *Jobs) change(ctx context.Context, id string, change func(have Job) (Job, error)) (next Job, err error) {
	err = j.log.Change(ctx, id, func(r *kgo.Record) ([]byte, []string, error) {
		have, err := decodePlan(r)
		if err != nil {
			return nil, nil, err
		}
		if next, err = change(have); err != nil {
			return nil, nil, err
		}
		plan, err := json.Marshal(next)
		return plan, nil, err
	})
	if err != nil {
		return Job{}, err
	}
	return next, nil
}

// Watch calls visit with each committed state of a job, from an old one to those
// that come, until ctx ends or something fails that waiting does not cure. What
// an open transaction hides comes when that ends.
func (j *Jobs) Watch(ctx context.Context, id string, visit func(Job)) error {
	return j.log.Watch(ctx, id, func(r *kgo.Record) {
		if job, err := decodePlan(r); err == nil {
			visit(job)
		}
	})
}

// Begin commits the plan of a new job. From then on it can be resumed.
func (j *Jobs) Begin(ctx context.Context, plan Job) error {
	_, err := j.change(ctx, plan.ID, func(have Job) (Job, error) {
		if have.Version != 0 && (have.Created != plan.Created || !have.sameBounds(&plan)) {
			return have, refuse(Exists, &have, "there is a job %s already", plan.ID)
		}
		return plan, nil
	})
	return err
}

// sameBounds reports whether two plans have the same windows.
func (j *Job) sameBounds(other *Job) bool {
	return slices.EqualFunc(j.Windows, other.Windows, func(a, b Window) bool { return a.From == b.From && a.To == b.To })
}

// Cancellation ends a job for good.
type Cancellation struct {
	ID string
	// By is who cancels it, Why what they say.
	By, Why string
}

// Cancel cancels a job; the process that works on it sees that and stops. With
// execute unset it only says whether it could. A job that is cancelled already
// stays as it is. Its errors are RefusedErrors, and those of the Log.
func (j *Jobs) Cancel(ctx context.Context, c Cancellation, execute bool) (Job, error) {
	job, err := j.find(ctx, c.ID)
	if err != nil {
		return Job{}, err
	}
	if err := job.cancellable(c.ID); err != nil || !execute {
		return job, err
	}
	return j.change(ctx, c.ID, func(have Job) (Job, error) {
		if err := have.cancellable(c.ID); err != nil || have.State == Cancelled {
			return have, err
		}
		have.State, have.Changed, have.By, have.Why = Cancelled, time.Now().UnixMilli(), c.By, c.Why
		return have, nil
	})
}

func (j *Job) cancellable(id string) error {
	switch {
	case j.Version == 0:
		return refuse(Unknown, j, "there is no job %s", id)
	case j.State == Done:
		return refuse(IsDone, j, "the job is done: there is nothing to cancel")
	}
	return nil
}

// Reason is why a job cannot be begun, resumed or cancelled.
type Reason string

// The reasons.
const (
	Unknown       Reason = "unknown" // there is no such job
	Exists        Reason = "exists"  // another job has the id
	IsDone        Reason = "done"
	WasCancelled  Reason = "cancelled"
	OtherKind     Reason = "other-kind"     // it is a job of the other kind
	OtherResource Reason = "other-resource" // the stream is of another resource by now
	OtherPlan     Reason = "other-plan"     // the plan is gone, or has other windows
	InUse         Reason = "in-use"         // another process works on it
)

// RefusedError says why a job cannot be begun, resumed or cancelled. Nothing has
// changed.
type RefusedError struct {
	Reason Reason
	// Job is the job as far as it is known.
	Job Job

	text string
}

func (e *RefusedError) Error() string { return e.text }

func refuse(why Reason, j *Job, format string, args ...any) *RefusedError {
	return &RefusedError{Reason: why, Job: *j, text: fmt.Sprintf(format, args...)}
}
