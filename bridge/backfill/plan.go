package backfill

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
)

// MaxWindows bounds a job's plan, and the transactional ids that the brokers remember
// for it.
const MaxWindows = 1000

// slowest and fastest are the bounds of a rate limit, in requests per second.
const slowest, fastest = 1.0 / 86400, 1e6

var jobID = regexp.MustCompile(`^[a-z2-7]{6}$`)

// ValidID reports whether a text has the form of a job's id.
func ValidID(text string) bool { return jobID.MatchString(text) }

// Request describes a new job.
type Request struct {
	Kind Kind
	// From is inclusive, 0 for the earliest event; To is exclusive. Both are in
	// milliseconds since the epoch.
	From, To int64
	// Windows is the number of windows, Parallel how many run at a time. 0 is the
	// default: Parallel windows, and all at a time but not more than
	// DefaultParallel.
	Windows, Parallel int
	// RateLimit is as in Job; 0 is that of the Stream.
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

// InvalidError means that a field of a Request is invalid.
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

func (r *Request) windows() int { return cmp.Or(r.Windows, max(1, min(MaxWindows, r.Parallel))) }

// Validate returns what is wrong with the request, as an *InvalidError, without asking
// a server.
func (r *Request) Validate(now time.Time) error {
	n := r.windows()
	switch {
	case r.Kind != Backfill && r.Kind != Replay:
		return Invalid("kind", "is not %s or %s", Backfill, Replay)
	case r.From < 0:
		return Invalid("from", "is before the epoch")
	case r.To > now.UnixMilli():
		return Invalid("to", "is in the future")
	case r.From >= r.To:
		return Invalid("from", "is not before the end of the range")
	case n < 1 || n > MaxWindows:
		return Invalid("windows", "is not within 1 to %d", MaxWindows)
	case r.Parallel < 0:
		return Invalid("parallel", "is below 1")
	case n > 1 && r.From == 0:
		return Invalid("from", "cannot be split into %d windows: give the time of the first event", n)
	case int64(n) > r.To-r.From:
		return Invalid("windows", "is more than the %d milliseconds of the range", r.To-r.From)
	case r.RateLimit != 0 && !(r.RateLimit > slowest && r.RateLimit <= fastest):
		return Invalid("rate_limit", "is not a number of requests per second")
	case slices.Contains(r.Events, ""):
		return Invalid("events", "has an empty event type")
	case r.Kind == Backfill && len(r.Events) > 0:
		return Invalid("events", "is only for a replay: a backfill publishes the stream's events")
	case r.Kind == Backfill && r.Topic != "":
		return Invalid("topic", "is only for a replay: a backfill publishes into the stream's topic")
	case r.Kind == Replay && r.AllowOverlap:
		return Invalid("allow_overlap", "is only for a backfill")
	}
	return nil
}

// Topics are the topics of new jobs.
type Topics interface {
	// Choose sets the topic of a replay, unless it is set, and reports whether it
	// exists. It returns an *InvalidError if the topic is unsuitable, and an error
	// if the stream's topic is missing, like which a new one is created.
	Choose(ctx context.Context, j *Job) (exists bool, err error)
	// Create creates the missing topics of a new job and returns the id of the
	// job's topic. It does not recreate a topic that had records.
	Create(ctx context.Context, j *Job) (id string, err error)
}

// Stream is a stream, for the jobs beside it.
type Stream struct {
	Jobs *Jobs
	// Resource, Events, Topic and PageSize are the stream's.
	Resource string
	Events   []string
	Topic    string
	PageSize int
	// Request is the fingerprint of what the settings request.
	Request bridge.Fingerprint
	// RateLimit is the default of a job's limit, in requests per second; 0 is none.
	RateLimit float64
	// SessionTimeout is how long a dead process keeps a job.
	SessionTimeout time.Duration
	Live           LiveStream
	Topics         Topics
	// NoBounds is why the API has no bounded ranges, and NoStart why none that
	// begins at a time; nil if it has.
	NoBounds, NoStart error
	// CheckAPI requests a page of these event types.
	CheckAPI func(ctx context.Context, events []string) error
	// Open makes the engine of window n.
	Open func(j *Job, n int) (*Engine, error)
	// Owner returns the Owner of a job.
	Owner func(id string) Owner
	// Retrying, if not nil, is called before a change of a job is retried.
	Retrying func(error)
}

// Name is the stream's name.
func (s *Stream) Name() string { return s.Jobs.stream }

// Plan is a new job that is not committed.
type Plan struct {
	Job Job
	// Notes are what the operator should know before it begins.
	Notes []string
}

// Hash differs between plans that differ in what they publish, how, or in their id. What
// the live stream learns of the API does not change it: a stream that was just moved knows
// its source with the next page, and whether the API marks its end when it gets there.
func (p *Plan) Hash() string {
	j := p.Job
	j.Created, j.Who, j.Reason = 0, "", ""
	j.Source, j.MarksEnd = bridge.SourceIdentity{}, false
	text, _ := json.Marshal(&j) // no field can fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Plan makes the job of a request and changes nothing. It asks the brokers and the API
// whether the job can begin. Errors are *InvalidErrors, *RefusedErrors and those of the
// ports; an API that is unavailable is only noted.
func (s *Stream) Plan(ctx context.Context, r *Request, now time.Time) (*Plan, error) {
	if err := r.Validate(now); err != nil {
		return nil, err
	}
	if err := s.bounded(r); err != nil {
		return nil, err
	}
	if len(r.Events) > 0 && s.Resource != "events" {
		return nil, Invalid("events", "cannot be chosen: resource %s has no event types", s.Resource)
	}
	n := r.windows()
	p := &Plan{Job: Job{
		Version: Version, ID: cmp.Or(r.ID, strings.ToLower(rand.Text()[:6])), Kind: r.Kind,
		Stream: s.Name(), Resource: s.Resource, Events: s.Events, Topic: s.Topic,
		From: r.From, To: r.To, Windows: Split(r.From, r.To, n),
		RateLimit: cmp.Or(r.RateLimit, s.RateLimit), Parallel: cmp.Or(r.Parallel, min(n, DefaultParallel)), PageSize: s.PageSize,
		Who: r.Who, Reason: r.Reason, Created: now.UnixMilli(), State: Running,
	}}
	if len(r.Events) > 0 {
		p.Job.Events = r.Events
	}
	var err error
	if r.Kind == Backfill {
		err = s.checkOverlap(ctx, p, r.AllowOverlap)
	} else {
		err = s.chooseTopic(ctx, p, r.Topic)
	}
	if err == nil {
		err = s.checkSource(ctx, p)
	}
	if err == nil {
		err = s.checkAPI(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// checkSource makes the job one of the live stream's source, and rejects settings that
// request another list.
func (s *Stream) checkSource(ctx context.Context, p *Plan) error {
	live, err := newest(ctx, s.Live)
	if err != nil {
		return err
	}
	if elsewhere := live.RequestChange(s.Request).Elsewhere(); len(elsewhere) > 0 {
		return refuse(OtherSource, &p.Job, "the settings request another list than stream %s: %s changed", s.Name(), strings.Join(elsewhere, ", "))
	}
	p.Job.Source, p.Job.Request, p.Job.MarksEnd = live.Source, s.Request, live.MarksEnd
	return nil
}

// bounded rejects a range that the API cannot be asked for.
func (s *Stream) bounded(r *Request) error {
	err := s.NoBounds
	if err == nil && r.From != 0 {
		err = s.NoStart
	}
	if err != nil {
		return refuse(NoBounds, &Job{Kind: r.Kind}, "%v", err)
	}
	return nil
}

func (s *Stream) chooseTopic(ctx context.Context, p *Plan, topic string) error {
	p.Job.Topic = topic
	exists, err := s.Topics.Choose(ctx, &p.Job)
	if exists {
		p.Notes = append(p.Notes, "topic "+p.Job.Topic+" exists; the events are appended to it")
	}
	return err
}

// checkOverlap rejects a backfill of what the stream, or an earlier backfill,
// publishes into the same topic.
func (s *Stream) checkOverlap(ctx context.Context, p *Plan, allowed bool) error {
	overlaps, begun, err := s.Jobs.Overlap(ctx, &p.Job, s.Live)
	switch {
	case err != nil:
		return err
	case len(overlaps) > 0 && !allowed:
		return refuse(Overlaps, &p.Job, "%s", overlaps[0])
	case !begun:
		p.Notes = append(p.Notes, "the stream has not started; its first run will find these events in the topic and be blocked until a reset sets its position")
	}
	for _, text := range overlaps {
		p.Notes = append(p.Notes, text+"; it is published again, with the same ce_id")
	}
	return nil
}

// checkAPI requests one page of what the job will request: what the API permanently
// rejects is better known before there is a job.
func (s *Stream) checkAPI(ctx context.Context, p *Plan) error {
	err := s.CheckAPI(ctx, p.Job.Events)
	fault, ok := errors.AsType[*bridge.Fault](err)
	if err == nil || ctx.Err() != nil || ok && fault.Class == bridge.Permanent {
		return err
	}
	p.Notes = append(p.Notes, fmt.Sprintf("the API is unavailable; the job will retry: %v", err))
	return nil
}

// Begin creates the missing topics of a planned job and commits it. It can be resumed
// from then on.
func (s *Stream) Begin(ctx context.Context, p *Plan) (Job, error) {
	id, err := s.Topics.Create(ctx, &p.Job)
	if err != nil {
		return p.Job, err
	}
	p.Job.TopicID = id
	return p.Job, s.Jobs.Begin(ctx, p.Job)
}

// Resumption resumes a job of the stream, of any kind.
func (s *Stream) Resumption(id string) *Resumption {
	return &Resumption{ID: id, Resource: s.Resource, Request: s.Request, SessionTimeout: s.SessionTimeout, Live: s.Live}
}

// Run returns the run of a committed job, for the operator by.
func (s *Stream) Run(job Job, by string) *Run {
	return NewRun(job, Worker{
		Jobs: s.Jobs, Open: s.Open, Owner: s.Owner(job.ID), SessionTimeout: s.SessionTimeout,
		RateLimit: cmp.Or(job.RateLimit, s.RateLimit), By: by, Retrying: s.Retrying,
	})
}
