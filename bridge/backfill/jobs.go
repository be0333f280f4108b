// Package backfill publishes past ranges of an export beside the live stream: backfills
// into the stream's topic, replays into a topic of their own. A job is a plan of windows
// that is committed before the first window begins. Each window is a stream with its own
// checkpoints: an interrupted job publishes no event twice when it is resumed.
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
)

// Log stores the plans of a stream's jobs and the checkpoints of their windows.
type Log interface {
	// Records returns the newest records, at most age old: the plans by job id, the
	// checkpoints by window name.
	Records(ctx context.Context, age time.Duration) (plans, checkpoints map[string]*kgo.Record, err error)
	// Change replaces a plan by the result of change and deletes the checkpoints of the
	// windows in gone, in one transaction. It may call change several times, each time
	// with the committed plan, nil if there is none. A nil result deletes the job.
	// Change returns the error of change unchanged. After any other error the outcome
	// is unknown.
	Change(ctx context.Context, id string, change func(have *kgo.Record) (plan []byte, gone []string, err error)) error
	// Begin commits the plan of a new job that check returns, nothing if check returns nil.
	// check receives the stream's committed plans by job id; no other Begin of the stream
	// commits after check has received them. Begin is as Change otherwise.
	Begin(ctx context.Context, id string, check func(plans map[string]*kgo.Record) (plan []byte, err error)) error
	// Watch calls visit with the committed plan of a job and with each later one, until
	// ctx ends or a permanent error occurs.
	Watch(ctx context.Context, id string, visit func(plan *kgo.Record)) error
	// Members returns the processes that work on a job. It includes a killed process
	// until the session of that process times out.
	Members(ctx context.Context, id string) ([]bridge.Member, error)
	// Lanes returns the processes of a fleet that run the first n lanes of a job: a zero
	// Member for a lane that no process runs. Hosts returns those that can run lanes of
	// the stream's jobs.
	Lanes(ctx context.Context, id string, n int) ([]bridge.Member, error)
	Hosts(ctx context.Context) ([]bridge.Member, error)
}

// Jobs are the jobs of a stream. Its methods may be called concurrently if the methods of
// its Log may.
type Jobs struct {
	log    Log
	stream string
}

// NewJobs returns the jobs of the stream with this name.
func NewJobs(log Log, stream string) *Jobs { return &Jobs{log, stream} }

// List returns all jobs of the stream, oldest first, at most age old. Unfinished windows
// have the counts of their newest checkpoints. A job of unknown source has the source of
// its checkpoints.
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
			w := &job.Windows[n]
			if r == nil || w.Ended != "" && job.Source != (bridge.SourceIdentity{}) {
				continue
			}
			c, err := bridge.DecodeCheckpoint(r.Value)
			if err != nil {
				return nil, foreign(r, err)
			}
			if job.Source = cmp.Or(job.Source, c.Source); w.Ended != "" {
				continue
			}
			w.Events, w.Pages, w.Outside, w.Dropped, w.Position = c.Events, c.Pages, c.Outside, c.Dropped, c.PositionTime
		}
		all = append(all, job)
	}
	slices.SortFunc(all, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// find returns a job as List does, the zero Job if there is none.
func (j *Jobs) find(ctx context.Context, id string) (Job, error) {
	all, err := j.List(ctx, 0)
	if i := slices.IndexFunc(all, func(j Job) bool { return j.ID == id }); i >= 0 {
		return all[i], err
	}
	return Job{}, err
}

// change commits a change of a job. In the committed job, unfinished windows have no
// counts.
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

// Watch calls visit with a committed state of a job and with each later one, until
// ctx ends or a permanent error occurs.
func (j *Jobs) Watch(ctx context.Context, id string, visit func(Job)) error {
	return j.log.Watch(ctx, id, func(r *kgo.Record) {
		if job, err := decodePlan(r); err == nil {
			visit(job)
		}
	})
}

// Begin commits the plan of a new job. Unless overlap is allowed, it rejects a backfill whose
// range an earlier one covers, also one that another process has begun since Planner.Plan.
func (j *Jobs) Begin(ctx context.Context, plan Job, allowOverlap bool) error {
	return j.log.Begin(ctx, plan.ID, func(plans map[string]*kgo.Record) ([]byte, error) {
		have, err := decodePlan(plans[plan.ID])
		switch {
		case err != nil:
			return nil, err
		case have.Version == 0:
		case have.Created != plan.Created || !have.sameBounds(&plan):
			return nil, reject(Exists, &have, "job %s already exists", plan.ID)
		default: // an earlier call has committed it
			return nil, nil
		}
		if allowOverlap || plan.Kind != Backfill {
			return json.Marshal(plan)
		}
		for _, r := range plans {
			other, err := decodePlan(r)
			if err != nil {
				return nil, err
			}
			if text := plan.overlapWithJob(&other); text != "" {
				return nil, reject(Overlaps, &plan, "%s", text)
			}
		}
		return json.Marshal(plan)
	})
}

// sameBounds reports whether two plans have the same windows.
func (j *Job) sameBounds(other *Job) bool {
	return slices.EqualFunc(j.Windows, other.Windows, func(a, b Window) bool {
		return a.From == b.From && a.To == b.To
	})
}

// Unknown is the error of a job that the stream does not have.
func (j *Jobs) Unknown(id string) error {
	return reject(Unknown, &Job{}, "stream %s has no job %s", j.stream, id)
}

// Hosts returns the processes of a fleet that can run lanes of the stream's jobs.
func (j *Jobs) Hosts(ctx context.Context) ([]bridge.Member, error) { return j.log.Hosts(ctx) }

// Cancellation cancels or pauses a job.
type Cancellation struct {
	ID string
	// By is who does so, Why that person's reason.
	By, Why string
}

// Pause has all processes that work on a job stop at the end of their transactions. Planner's
// HandOver and Resume end the pause. It is as Cancel otherwise.
func (j *Jobs) Pause(ctx context.Context, c Cancellation, execute bool) (Job, error) {
	return j.stop(ctx, c.ID, execute, func(have *Job) error {
		switch {
		case have.State != Running:
			return reject(IsDone, have, "the job is %s; there is nothing to pause", have.State)
		case !have.Paused:
			have.Paused, have.Changed, have.By, have.Why = true, time.Now().UnixMilli(), c.By, c.Why
			have.Revision++
		}
		return nil
	})
}

// Cancel cancels a job permanently; a process that works on it stops. Without execute,
// Cancel only checks whether the job can be cancelled. It is idempotent. Errors are
// *RejectedErrors and those of the Log.
func (j *Jobs) Cancel(ctx context.Context, c Cancellation, execute bool) (Job, error) {
	return j.stop(ctx, c.ID, execute, func(have *Job) error {
		switch {
		case have.State == Done:
			return reject(IsDone, have, "the job is done; there is nothing to cancel")
		case have.State != Cancelled:
			have.State, have.Changed, have.By, have.Why = Cancelled, time.Now().UnixMilli(), c.By, c.Why
			have.Paused = false
		}
		return nil
	})
}

// stop commits a change of a job, after a check with the job as it is listed. It returns the
// listed job without execute.
func (j *Jobs) stop(ctx context.Context, id string, execute bool, change func(have *Job) error) (Job, error) {
	job, err := j.find(ctx, id)
	if err != nil {
		return Job{}, err
	}
	next := func(have Job) (Job, error) {
		if have.Version == 0 {
			return have, j.Unknown(id)
		}
		err := change(&have)
		return have, err
	}
	if _, err := next(job); err != nil || !execute {
		return job, err
	}
	return j.change(ctx, id, next)
}

// Reason is why a job cannot begin, be resumed or be cancelled.
type Reason string

// The reasons.
const (
	Unknown       Reason = "unknown" // the job does not exist
	Exists        Reason = "exists"  // another job has the id
	IsDone        Reason = "done"
	WasCancelled  Reason = "cancelled"
	OtherKind     Reason = "other-kind"     // the job is of the other kind
	OtherResource Reason = "other-resource" // the stream has another resource now
	OtherSource   Reason = "other-source"   // the stream has another source now
	OtherOrigin   Reason = "other-origin"   // the stream has other event types or ids now
	OtherRoutes   Reason = "other-routes"   // the stream has another topic or other routes now
	OtherPlan     Reason = "other-plan"     // the plan was deleted or has other windows
	InUse         Reason = "in-use"         // another process works on it
	WasPaused     Reason = "paused"         // someone paused it while the resumption waited
	Overlaps      Reason = "overlaps"       // the stream or a backfill publishes the range
	Busy          Reason = "busy"           // the process runs its maximum of windows
	NoBounds      Reason = "no-bounds"      // the API does not take such bounds
)

// RejectedError means that a job cannot begin, be resumed or be cancelled. Nothing was
// changed.
type RejectedError struct {
	Reason Reason
	Job    Job // zero if it does not exist

	text string
}

func (e *RejectedError) Error() string { return e.text }

func reject(why Reason, j *Job, format string, args ...any) *RejectedError {
	return &RejectedError{Reason: why, Job: *j, text: fmt.Sprintf(format, args...)}
}
