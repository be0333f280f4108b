package backfill

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// MaxWindows bounds a job's plan, and the transactional ids that the brokers remember
// for it.
const MaxWindows = 1000

// slowest and fastest are the bounds of a rate limit, in requests per second.
const slowest, fastest = 1.0 / 86400, 1e6

var jobID = regexp.MustCompile(`^[a-z2-7]{6}$`)

// ValidID reports whether a text has the form of a job's id.
func ValidID(text string) bool { return jobID.MatchString(text) }

// Spec describes a new job.
type Spec struct {
	Kind Kind
	// From is inclusive, 0 for the earliest event; To is exclusive. Both are in
	// milliseconds since the epoch.
	From, To int64
	// Windows is the number of windows, Parallel how many run at a time. 0 is the
	// default: Parallel windows, and all at a time but not more than
	// DefaultParallel.
	Windows, Parallel int
	// RateLimit is that of Job; 0 is that of the Planner.
	RateLimit float64
	// Events are the event types, by default the stream's, and Topic is the target,
	// by default a new one. Only a replay may set them.
	Events []string
	Topic  string
	// AllowOverlap publishes again what the stream or a backfill publishes.
	AllowOverlap bool
	// Who creates the job, and the Reason.
	Who, Reason string
	// ID is the job's id; empty for a new one.
	ID string
}

// InvalidError means that a field of a Spec is invalid.
type InvalidError struct {
	// Field is the field's name: kind, from, to, windows, parallel, rate_limit,
	// events, topic or allow_overlap.
	Field string
	// Err is what is wrong, as the predicate of a sentence about the field.
	Err error
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Err.Error() }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

// Invalid returns an InvalidError.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Err: fmt.Errorf(format, args...)}
}

func (s *Spec) windows() int { return cmp.Or(s.Windows, max(1, min(MaxWindows, s.Parallel))) }

// Validate returns what is wrong with the spec, as an *InvalidError. It asks no server.
func (s *Spec) Validate(now time.Time) error {
	n := s.windows()
	switch {
	case s.Kind != Backfill && s.Kind != Replay:
		return Invalid("kind", "is not %s or %s", Backfill, Replay)
	case s.From < 0:
		return Invalid("from", "is before the epoch")
	case s.To > now.UnixMilli():
		return Invalid("to", "is in the future")
	case s.From >= s.To:
		return Invalid("from", "is not before the end of the range")
	case n < 1 || n > MaxWindows:
		return Invalid("windows", "is not within 1 to %d", MaxWindows)
	case s.Parallel < 0:
		return Invalid("parallel", "is below 1")
	case n > 1 && s.From == 0:
		return Invalid("from", "cannot be split into %d windows: give the time of the first event", n)
	case int64(n) > s.To-s.From:
		return Invalid("windows", "is more than the %d milliseconds of the range", s.To-s.From)
	case s.RateLimit != 0 && !(s.RateLimit > slowest && s.RateLimit <= fastest):
		return Invalid("rate_limit", "is not a number of requests per second")
	case slices.Contains(s.Events, ""):
		return Invalid("events", "has an empty event type")
	case s.Kind == Backfill && len(s.Events) > 0:
		return Invalid("events", "is only for a replay: a backfill publishes the stream's events")
	case s.Kind == Backfill && s.Topic != "":
		return Invalid("topic", "is only for a replay: a backfill publishes into the stream's topic")
	case s.Kind == Replay && s.AllowOverlap:
		return Invalid("allow_overlap", "is only for a backfill")
	}
	return nil
}

// Topics are the topics of new jobs.
type Topics interface {
	// Choose sets the topic of a replay, unless it is set, and reports whether the
	// topic exists. It returns an *InvalidError for an unsuitable topic, and an error
	// if the stream's topic, the model of a new one, is missing.
	Choose(ctx context.Context, j *Job) (exists bool, err error)
	// Create creates the missing topics of a new job and returns the ids of Job.Topics by
	// name, none if the brokers have none. It does not recreate a topic that had records.
	Create(ctx context.Context, j *Job) (ids map[string]string, err error)
}

// Planner plans, begins, resumes and runs the jobs of one stream.
type Planner struct {
	Jobs *Jobs
	// Resource, ItemID, Events, Topic, Routes and PageSize are the stream's.
	Resource, ItemID string
	Events           []string
	Topic, Routes    string
	PageSize         int
	// Request is the fingerprint of what the settings request.
	Request bridge.Fingerprint
	// RateLimit is the default of a job's limit, in requests per second; 0 is none.
	RateLimit float64
	// SessionTimeout is how long a dead process keeps a job.
	SessionTimeout time.Duration
	Live           bridge.CheckpointLog
	Topics         Topics
	// NoBounds is why the API has no bounded ranges, NoStart why no range can begin at
	// a time; nil if the API has them.
	NoBounds, NoStart error
	// Windows is set if the stream follows windows: those of a job then list their ranges.
	Windows bool
	// CheckAPI requests a page of these event types.
	CheckAPI func(ctx context.Context, events []string) error
	// Open sets window n up.
	Open func(j *Job, n int) (*Setup, error)
	// Owner returns the Owner of a job for this process, Lane that of a lane of a job; nil
	// if this process is in no fleet.
	Owner func(id string) Owner
	Lane  func(id string, n int) (Owner, error)
	// Retrying, if not nil, is called before a change of a job is retried.
	Retrying func(error)
}

// version is that of new jobs.
func (p *Planner) version() int {
	if p.Windows {
		return listed
	}
	return 1
}

// Name is the stream's name.
func (p *Planner) Name() string { return p.Jobs.stream }

// Plan is a new job that is not committed.
type Plan struct {
	Job Job
	// Notes are what the operator should know before the job begins.
	Notes []string

	allowOverlap bool // of the Spec
}

// Hash differs between plans with different ids, with different events, or with a different
// way of publishing. It leaves out facts that the live stream learns later: a moved stream
// learns its source from the next page, and the end mark at the end of the results.
func (p *Plan) Hash() string {
	j := p.Job
	j.Created, j.Who, j.Reason = 0, "", ""
	j.Source, j.Habits = bridge.SourceIdentity{}, Habits{}
	text, _ := json.Marshal(&j) // no field can fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Plan makes a new job and changes nothing. It asks the brokers and the API whether the
// job can begin. Errors are *InvalidErrors, *RejectedErrors and those of the ports. An
// unavailable API is only noted.
func (p *Planner) Plan(ctx context.Context, s *Spec, now time.Time) (*Plan, error) {
	if err := s.Validate(now); err != nil {
		return nil, err
	}
	if err := p.bounded(s); err != nil {
		return nil, err
	}
	if len(s.Events) > 0 && p.Resource != "events" {
		return nil, Invalid("events", "cannot be chosen: resource %s has no event types", p.Resource)
	}
	n := s.windows()
	plan := &Plan{allowOverlap: s.AllowOverlap, Job: Job{
		Version: p.version(), ID: cmp.Or(s.ID, strings.ToLower(rand.Text()[:6])), Kind: s.Kind,
		Stream: p.Name(), Resource: p.Resource, Events: p.Events, Topic: p.Topic, Routes: p.Routes,
		From: s.From, To: s.To, Windows: Split(s.From, s.To, n),
		RateLimit: cmp.Or(s.RateLimit, p.RateLimit), Parallel: cmp.Or(s.Parallel, min(n, DefaultParallel)),
		PageSize: p.PageSize,
		Who:      s.Who, Reason: s.Reason, Created: now.UnixMilli(), State: Running,
	}}
	if len(s.Events) > 0 {
		plan.Job.Events = s.Events
	}
	var err error
	if s.Kind == Backfill {
		err = p.checkOverlap(ctx, plan, s.AllowOverlap)
	} else {
		err = p.chooseTopic(ctx, plan, s.Topic)
	}
	if err == nil {
		err = p.checkSource(ctx, plan)
	}
	if err == nil {
		err = p.checkAPI(ctx, plan)
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// checkSource gives the job the live stream's source, and rejects settings that request
// another list, publish other events or ids, or publish by other routes.
func (p *Planner) checkSource(ctx context.Context, plan *Plan) error {
	live, err := newest(ctx, p.Live)
	if err != nil {
		return err
	}
	change := live.RequestChange(p.Request)
	change.Rules = change.Rules && plan.Job.Kind == Backfill // a replay has its own topic
	if elsewhere := change.Elsewhere(); len(elsewhere) > 0 {
		return reject(OtherSource, &plan.Job, "the settings are not those of stream %s: %s changed",
			p.Name(), strings.Join(elsewhere, ", "))
	}
	if err := p.checkOrigin(&live, &plan.Job); err != nil {
		return err
	}
	if err := live.RoutesConflict(p.Topic, p.Routes); err != nil && plan.Job.Kind == Backfill {
		return reject(OtherRoutes, &plan.Job, "%v", err)
	}
	plan.Job.Source, plan.Job.Request = live.Source, p.Request
	plan.Job.learn(&live)
	return nil
}

// learn notes what the live stream knows of the API's cursors. The cursor of one that follows
// windows is not the API's.
func (j *Job) learn(live *bridge.Checkpoint) {
	if live.Listing == nil {
		j.MarksEnd, j.Paged = j.MarksEnd || live.MarksEnd, j.Paged || live.Cursor != ""
		j.CursorHeeded = j.CursorHeeded || position.Heeded(live)
	}
}

// checkOrigin rejects a job that publishes other events, or ids, than the live stream. A replay
// has its own event types.
func (p *Planner) checkOrigin(live *bridge.Checkpoint, j *Job) error {
	want := bridge.Origin{Resource: j.Resource, Events: j.Events, ItemID: p.ItemID}
	if j.Kind == Replay {
		want.Events = live.Origin.Events
	}
	if err := live.OriginConflict(want); err != nil {
		return reject(OtherOrigin, j, "%v", err)
	}
	return nil
}

// bounded rejects a range that the API cannot list.
func (p *Planner) bounded(s *Spec) error {
	err := p.NoBounds
	if err == nil && s.From != 0 {
		err = p.NoStart
	}
	if err != nil {
		return reject(NoBounds, &Job{Kind: s.Kind}, "%v", err)
	}
	return nil
}

func (p *Planner) chooseTopic(ctx context.Context, plan *Plan, topic string) error {
	plan.Job.Topic = topic
	exists, err := p.Topics.Choose(ctx, &plan.Job)
	if exists {
		plan.Notes = append(plan.Notes, "topic "+plan.Job.Topic+" exists; the events are appended to it")
	}
	return err
}

// checkOverlap rejects a backfill of events that the stream, or an earlier backfill,
// publishes into the same topic.
func (p *Planner) checkOverlap(ctx context.Context, plan *Plan, allowed bool) error {
	overlaps, begun, err := p.overlaps(ctx, &plan.Job)
	switch {
	case err != nil:
		return err
	case len(overlaps) > 0 && !allowed:
		return reject(Overlaps, &plan.Job, "%s", overlaps[0])
	case !begun:
		plan.Notes = append(plan.Notes, "the stream has not started; its first run will find these events "+
			"in the topic and be blocked until a reset sets its position")
	}
	for _, text := range overlaps {
		plan.Notes = append(plan.Notes, text+"; it is published again, with the same ce_id")
	}
	return nil
}

// checkAPI requests one page like the job: a request that the API permanently rejects is
// better known before the job begins.
func (p *Planner) checkAPI(ctx context.Context, plan *Plan) error {
	err := p.CheckAPI(ctx, plan.Job.Events)
	if err == nil || ctx.Err() != nil || bridge.FaultOf(err).Class == bridge.Permanent {
		return err
	}
	plan.Notes = append(plan.Notes, fmt.Sprintf("the API is unavailable; the job will retry: %v", err))
	return nil
}

// Begin creates the missing topics of a planned job and commits the job as Jobs.Begin does. The
// job can be resumed from then on.
func (p *Planner) Begin(ctx context.Context, plan *Plan) (Job, error) {
	ids, err := p.Topics.Create(ctx, &plan.Job)
	if err != nil {
		return plan.Job, err
	}
	plan.Job.TopicID = ids[plan.Job.Topic]
	delete(ids, plan.Job.Topic)
	plan.Job.RoutedIDs = ids
	return plan.Job, p.Jobs.Begin(ctx, plan.Job, plan.allowOverlap)
}
