package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/ops/door"
)

// Jobs plans backfills and replays, and runs them in this process, by the contract of
// backfill.Host. All methods may be called concurrently.
type Jobs interface {
	Plan(ctx context.Context, stream string, r *backfill.Spec) (*backfill.Plan, error)
	Start(ctx context.Context, p *backfill.Plan) error
	Resume(ctx context.Context, id, by string, execute bool) (backfill.Job, error)
	Cancel(ctx context.Context, c backfill.Cancellation, execute bool) (backfill.Job, error)
	Trouble(l *backfill.Listed) string
}

// statePlanned is the state of a job that is not committed.
const statePlanned backfill.State = "planned"

// job is a backfill or replay.
type job struct {
	ID     string         `json:"id"`
	Kind   backfill.Kind  `json:"kind"`
	Stream string         `json:"stream"`
	State  backfill.State `json:"state"`
	// Topic gets the events from From on and before To, with the further topics of Routes.
	Topic  string    `json:"topic"`
	Routes string    `json:"routes,omitempty"`
	From   time.Time `json:"from,omitzero"` // absent from the earliest event on
	To     time.Time `json:"to"`
	// Windows counts the job's windows, Done the windows that have ended, Events the events
	// read.
	Windows int   `json:"windows"`
	Done    int   `json:"done"`
	Events  int64 `json:"events"`
	// Outside counts the Events with a time outside their window; Note explains it.
	Outside int64  `json:"outside_range,omitempty"`
	Note    string `json:"note,omitempty"`
	// Dropped counts the Events that a route dropped.
	Dropped int64 `json:"dropped_by_route,omitempty"`
	// Progress is the share of the range that is done, from 0 to 1, Worked the part of it
	// in windows with events.
	Progress float64 `json:"progress"`
	Worked   float64 `json:"progress_with_events"`
	// Parallel is the number of windows that run at a time, RateLimit the maximum number
	// of requests per second, 0 for no limit.
	Parallel  int     `json:"parallel"`
	RateLimit float64 `json:"rate_limit"`
	// Who started the job at Begun, for Reason.
	Who    string    `json:"who,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Begun  time.Time `json:"begun"`
	// Process runs the job; empty if no process does. Trouble is why the job waits or
	// stopped, if this process ran the job.
	Process string `json:"process,omitempty"`
	Trouble string `json:"trouble,omitempty"`
}

func jobOf(l *backfill.Listed) job {
	total := l.Totals()
	share, worked := l.Progress()
	j := job{
		ID: l.ID, Kind: l.Kind, Stream: l.Stream, State: l.Status(), Topic: l.Topic,
		Routes: l.Routes, Dropped: total.Dropped,
		To:      time.UnixMilli(l.To).UTC(),
		Windows: len(l.Windows), Done: l.Ended(), Events: total.Events, Progress: share, Worked: worked,
		Parallel: l.AtOnce(), RateLimit: l.RateLimit, Who: l.Who, Reason: l.Reason, Begun: time.UnixMilli(l.Created).UTC(),
	}
	if l.From > 0 {
		j.From = time.UnixMilli(l.From).UTC()
	}
	if j.Outside = total.Outside; j.Outside > 0 {
		j.Note = fmt.Sprintf("%d of %d events %s", j.Outside, total.Events, backfill.OutsideRange)
	}
	if len(l.Processes) > 0 {
		j.Process = l.Processes[0].String()
	}
	return j
}

// jobIn is a job in a state that is not listed.
func jobIn(state backfill.State, j *backfill.Job) job {
	shown := jobOf(&backfill.Listed{Job: *j})
	shown.State = state
	return shown
}

func (h *handler) jobs(*http.Request) (string, reader, error) {
	return "", func(ctx context.Context) (any, error) {
		all, err := h.Records.Jobs(ctx)
		jobs := make([]job, len(all))
		for i := range all {
			jobs[i] = jobOf(&all[i])
			if h.Jobs != nil {
				jobs[i].Trouble = h.Jobs.Trouble(&all[i])
			}
		}
		shown := struct {
			Jobs []job `json:"jobs"`
			// Incomplete is why the jobs of a stream are missing; empty if none are.
			Incomplete string `json:"incomplete,omitempty"`
		}{Jobs: jobs}
		if err != nil && len(all) > 0 {
			shown.Incomplete, err = err.Error(), nil
		}
		return shown, err
	}, nil
}

// jobRequest is the body of a new job.
type jobRequest struct {
	Stream string        `json:"stream"`
	Kind   backfill.Kind `json:"kind"`
	// From is inclusive, an absolute time or earliest; To is exclusive.
	From string `json:"from"`
	To   string `json:"to"`
	// Windows, Parallel, RateLimit, Events, Topic and AllowOverlap are as in
	// backfill.Spec, 0 and empty for the default.
	Windows      int64    `json:"windows"`
	Parallel     int64    `json:"parallel"`
	RateLimit    float64  `json:"rate_limit"`
	Events       []string `json:"events"`
	Topic        string   `json:"topic"`
	AllowOverlap bool     `json:"allow_overlap"`
	Reason       string   `json:"reason"`
	Execute      bool     `json:"execute"`
	// Confirm repeats the stream's name, ID and PlanHash are those of the plan; only with
	// Execute.
	Confirm  string `json:"confirm"`
	ID       string `json:"id"`
	PlanHash string `json:"plan_hash"`
}

// earliest is the From of a range from the first event on.
const earliest = "earliest"

func (j *jobRequest) parse(who string) (*backfill.Spec, error) {
	r := &backfill.Spec{
		Kind: j.Kind, Windows: int(j.Windows), Parallel: int(j.Parallel), RateLimit: j.RateLimit, Events: j.Events,
		Topic:        j.Topic,
		AllowOverlap: j.AllowOverlap, Who: who, Reason: j.Reason,
	}
	if j.Execute {
		r.ID = j.ID
	}
	var err error
	if j.From != earliest {
		if r.From, err = millis("from", j.From); err != nil {
			return nil, err
		}
	}
	r.To, err = millis("to", j.To)
	return r, err
}

func millis(field, text string) (int64, error) {
	now := time.Now()
	ms, err := bridge.ParseInstant(shorten(text), now)
	if err == nil {
		err = wantAbsolute(shorten(text), now)
	}
	if err != nil {
		return 0, badRequest(timeHint(field), "%s: %w", field, err)
	}
	return ms, nil
}

func timeHint(field string) string { return fmt.Sprintf(`"%s": "2026-11-02T00:00:00Z"`, field) }

// wantAbsolute rejects a relative time, which would differ between plan and execution.
func wantAbsolute(text string, now time.Time) error {
	ms, err := bridge.ParseInstant(text, now)
	if later, _ := bridge.ParseInstant(text, now.Add(time.Hour)); err == nil && later != ms {
		return fmt.Errorf("%q is a relative time; use an absolute time", text)
	}
	return nil
}

// jobPlan is a planned job, with the values that its execution requires.
type jobPlan struct {
	job
	PageSize int      `json:"page_size"`
	Notes    []string `json:"notes"`
	PlanHash string   `json:"plan_hash"`
}

// startJob plans a job, or starts one that was planned.
func (h *handler) startJob(ctx context.Context, _ string, who sender, body []byte) (any, error) {
	var q jobRequest
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if err := h.knowsStream(q.Stream); err != nil {
		return nil, err
	}
	r, err := q.parse(who.String())
	if err == nil {
		err = checkReason(q.Reason)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !q.Execute:
	case q.Confirm != q.Stream:
		return nil, unconfirmed(q.Confirm, q.Stream)
	case !backfill.ValidID(q.ID) || q.PlanHash == "":
		return nil, badRequest("use the id and the plan_hash of the plan",
			"id or plan_hash is missing: plan the job before executing it")
	}
	plan, err := h.Jobs.Plan(ctx, q.Stream, r)
	if err != nil {
		return nil, jobFailure(err)
	}
	if !q.Execute {
		notes := append([]string{}, plan.Notes...) // an empty list instead of null
		return jobPlan{jobIn(statePlanned, &plan.Job), plan.Job.PageSize, notes, plan.Hash()}, nil
	}
	if plan.Hash() != q.PlanHash {
		return nil, errorf(http.StatusConflict, "plan again", "the plan has changed: the request or the settings differ")
	}
	job := plan.Job // Start may still use the plan after ctx has ended
	entry := door.Record{Action: "start", Stream: job.Stream, Job: job.ID, Reason: q.Reason}
	return h.changeJob(who, entry, func() (backfill.Job, error) { return job, h.Jobs.Start(ctx, plan) })
}

// jobAction is the body of a resumption or cancellation.
type jobAction struct {
	Reason  string `json:"reason"`
	Execute bool   `json:"execute"`
}

func (h *handler) resumeJob(ctx context.Context, id string, who sender, body []byte) (any, error) {
	return h.actOnJob(who, door.Record{Action: "resume", Job: id}, body, func(q *jobAction) (backfill.Job, error) {
		return h.Jobs.Resume(ctx, id, who.String(), q.Execute)
	})
}

func (h *handler) cancelJob(ctx context.Context, id string, who sender, body []byte) (any, error) {
	return h.actOnJob(who, door.Record{Action: "cancel", Job: id}, body, func(q *jobAction) (backfill.Job, error) {
		return h.Jobs.Cancel(ctx, backfill.Cancellation{ID: id, By: who.String(), Why: q.Reason}, q.Execute)
	})
}

func (h *handler) actOnJob(
	who sender, entry door.Record, body []byte, act func(*jobAction) (backfill.Job, error),
) (any, error) {
	var q jobAction
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if err := checkReason(q.Reason); err != nil {
		return nil, err
	}
	if !q.Execute {
		j, err := act(&q)
		return jobIn(j.State, &j), jobFailure(err)
	}
	entry.Reason = q.Reason
	return h.changeJob(who, entry, func() (backfill.Job, error) { return act(&q) })
}

// changeJob records a change, executes it and logs it with its caller.
func (h *handler) changeJob(who sender, entry door.Record, change func() (backfill.Job, error)) (any, error) {
	entry.Outcome = door.Allowed
	if err := h.record(who, entry); err != nil {
		return nil, err // an action without its record must not happen
	}
	j, err := change()
	action := strings.TrimSpace(entry.Action + " " + string(j.Kind)) // after an error the job may be unknown
	log := h.Logger.With("stream", j.Stream, "action", action, "job", cmp.Or(j.ID, entry.Job), "who", who.String(),
		"reason", entry.Reason)
	if err != nil {
		log.Warn("action failed", "error", err.Error())
		entry.Outcome, entry.Error = door.Failed, err.Error()
		_ = h.record(who, entry)
		return nil, jobFailure(err)
	}
	log.Info("action done", "topic", j.Topic)
	return jobIn(j.State, &j), nil
}

// jobID returns the id in the request's path.
func jobID(r *http.Request) (string, error) {
	if id := r.PathValue("job"); backfill.ValidID(id) {
		return id, nil
	}
	return "", errorf(http.StatusNotFound, "/api/v1/jobs", "%q is not a job id", shorten(r.PathValue("job")))
}

// noObject is the object of an action whose body names it.
func noObject(*http.Request) (string, error) { return "", nil }

// refusals are the hints of refused jobs.
var refusals = map[backfill.Reason]string{
	backfill.Unknown:       "/api/v1/jobs",
	backfill.Exists:        "check /api/v1/jobs: it may have begun; otherwise plan again",
	backfill.WasCancelled:  "start a new job for the remaining windows",
	backfill.OtherResource: "correct EXPORT_RESOURCE",
	backfill.OtherSource:   bridge.SameRequestHint + ", or start a new job",
	backfill.OtherOrigin:   bridge.SameOriginHint + ", or start a new job",
	backfill.OtherRoutes:   bridge.SameRoutesHint,
	backfill.InUse:         "wait until that process stops, or ends the job",
	backfill.WasPaused:     "resume the job again to end the pause",
	backfill.Overlaps:      `choose another range, or "allow_overlap": true publishes it again, with the same ce_id`,
	backfill.NoBounds:      "correct these settings, if the API has bounds",
	backfill.Busy: "retry when one of them is done, lower parallel, " +
		"or run exportbridge backfill or replay in another process",
}

// jobFailure adds the status and the hint to an error of Jobs.
func jobFailure(err error) error {
	if invalid, ok := errors.AsType[*backfill.InvalidError](err); ok {
		return badRequest("correct "+invalid.Field, "%s", shorten(err.Error()))
	}
	if refused, ok := errors.AsType[*backfill.RejectedError](err); ok {
		status := http.StatusConflict
		if refused.Reason == backfill.Unknown {
			status = http.StatusNotFound
		}
		return errorf(status, refusals[refused.Reason], "%w", err)
	}
	if errors.Is(err, backfill.ErrStopping) {
		return errorf(http.StatusServiceUnavailable, "retry when it has restarted", "%w", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errorf(http.StatusGatewayTimeout, "check /api/v1/jobs: the change may have been applied", "%w", err)
	}
	return err
}
