package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
	"exportbridge/cmd/internal/config"
)

// BesideLive returns the default rate limit, in requests per second, of whatever reads the
// export beside the stream: half of the stream's limit, 0 for none.
func BesideLive(st *config.Stream) (float64, error) {
	perSecond, err := exportapi.ParseRate(st.Export.RateLimit)
	return perSecond / 2, err
}

// JobPlanner wires the jobs beside a stream. Their windows log only warnings and errors to
// log, unless its level is debug. Streams with the same logs share the reading of the job
// topic.
func JobPlanner(
	s *config.Settings, st *config.Stream, logs *kafkasink.JobLogs, log *slog.Logger,
) (*backfill.Planner, error) {
	perSecond, err := BesideLive(st)
	if err != nil {
		return nil, err
	}
	if st.Export.Shared == nil { // the jobs have a process of their own
		st.Export.Shared, st.Export.Warn = new(exportapi.Shared), warnOnce(log)
		KeysOf(st, true)
		st.Export.Keys() // keeps the keys in memory between windows, until the process ends
	}
	plans, w := st.Kafka.Jobs(logs), &jobPorts{all: s, Stream: st, log: slog.New(quiet{log.Handler()})}
	return &backfill.Planner{
		Jobs: backfill.NewJobs(plans, st.Name), Resource: st.Export.Resource, ItemID: st.Export.IDs(),
		Events: st.Export.Events, Topic: st.Kafka.Topic,
		Request: st.Engine.Origin.Request, PageSize: st.Export.PageSize, RateLimit: perSecond,
		SessionTimeout: st.Kafka.SessionTimeout,
		Live:           st.Kafka.History(), Topics: w, CheckAPI: w.checkAPI, Open: w.open,
		NoBounds: st.Export.Bounded(), NoStart: st.Export.Starts(), Windows: st.Windows.Windows(),
		Routes: st.Export.Routes.Text,
		Owner:  func(id string) backfill.Owner { return plans.Owner(id) },
	}, nil
}

// jobPorts are the ports of a stream's jobs.
type jobPorts struct {
	all *config.Settings
	*config.Stream
	log    *slog.Logger
	former keyring.Pool // the keys of former topics, which windows share
}

// window returns the configuration of the sink of a window.
func (w *jobPorts) window(j *backfill.Job, n int) kafkastream.Config {
	return w.Kafka.OfWindow(kafkasink.Window{
		Name: j.WindowName(n), Topic: j.Topic, Routes: j.Routes, Origin: string(j.Kind),
	})
}

// Choose implements backfill.Topics. It rejects a replay to a topic that a stream uses.
func (w *jobPorts) Choose(ctx context.Context, j *backfill.Job) (exists bool, err error) {
	j.Topic = cmp.Or(j.Topic, kafkaadmin.ReplayTopic(w.Kafka.Topic, j.ID))
	for i := range w.all.Streams {
		k := &w.all.Streams[i].Kafka
		topics := k.Topics()
		unused := []string{k.DLQTopic, "dlq." + k.Topic, kafkasink.AttestTopic(k.Topic), kafkasink.KeysTopic(k.Topic)}
		if slices.Contains(append(topics.All(), unused...), j.Topic) {
			return false, backfill.Invalid("topic", "belongs to stream %s", w.all.Streams[i].Name)
		}
	}
	window := w.window(j, 0)
	if err := window.Validate(); err != nil {
		return false, backfill.Invalid("topic", "is unsuitable: %w", err)
	}
	if exists, err = window.Exists(ctx, j.Topic); exists || err != nil {
		return exists, err
	}
	return false, w.want(ctx, w.Kafka.Topic)
}

// want returns an error if one of the topics does not exist.
func (w *jobPorts) want(ctx context.Context, topics ...string) error {
	for _, topic := range topics {
		exists, err := w.Kafka.Exists(ctx, topic)
		if err != nil {
			return err
		}
		if !exists {
			return bridge.Blockf("topic_missing", bridge.ReasonTopic,
				"check the name (KAFKA_TOPIC, KAFKA_ROUTES); if it is right: exportbridge topics create --execute",
				"topic %s does not exist", topic)
		}
	}
	return nil
}

// Create implements backfill.Topics.
func (w *jobPorts) Create(ctx context.Context, j *backfill.Job) (ids map[string]string, err error) {
	live := w.Kafka.Needs()
	gone, err := live.Vanished(ctx)
	switch {
	case err != nil:
	case len(gone) > 0 && j.Kind == backfill.Backfill:
		err = gone[0]
	case j.Kind == backfill.Replay:
		_, err = live.CreateLike(ctx, j.Topic)
	case !w.Kafka.CreateTopics:
		err = w.want(ctx, j.Topics()...)
	}
	if err != nil {
		return nil, err
	}
	cfg := w.window(j, 0)
	window := cfg.Needs()
	if _, err := window.Create(ctx); err != nil {
		return nil, err
	}
	return window.TopicIDs(ctx)
}

// checkAPI requests one page with the filter of the job and with both bounds, like a
// request of a window.
func (w *jobPorts) checkAPI(ctx context.Context, events []string) error {
	export := w.export(events)
	export.Keys = seal.None // the items of this page are not published
	api, err := exportapi.New(export)
	if err != nil {
		return err
	}
	defer api.Close()
	_, err = exportapi.Inspector{Client: api}.Check(ctx, !w.Windows.NoStart)
	return err
}

// export returns the configuration of a job's requests. The job itself limits the requests
// of its windows.
func (w *jobPorts) export(events []string) exportapi.Config {
	export := w.Export
	export.Events, export.RateLimit, export.Beside = events, "", true
	return export
}

// keysOf returns the topic whose keys encrypt the values of a job: KAFKA_TOPIC of when it began. The name of a
// replay's topic does not show it if an operator chose the name.
func (w *jobPorts) keysOf(j *backfill.Job) string {
	if j.Kind == backfill.Backfill {
		return j.Topic
	}
	if topic, ok := strings.CutSuffix(j.Topic, kafkaadmin.ReplayTopic("", j.ID)); ok {
		return topic
	}
	return w.Kafka.Topic
}

// open opens a window. Its bridge has the settings of the stream and the page size of the
// job.
func (w *jobPorts) open(j *backfill.Job, n int) (setup *backfill.Setup, err error) {
	log := w.log.With("job", j.ID)
	export, kafka, cfg, st := w.export(j.Events), w.window(j, n), w.Engine, *w.Stream
	if st.Kafka.Topic = w.keysOf(j); st.Kafka.Topic != w.Kafka.Topic {
		st.Kafka.CreateTopics = false // a former topic without keys has lost them
		UseKeys(&st, &w.former)
		export.Keys = st.Export.Keys
	}
	export.PageSize = cmp.Or(j.PageSize, export.PageSize)
	if export.Routes, err = bridge.ParseRoutes(j.Routes, j.Topic); err != nil {
		return nil, fmt.Errorf("routes of job %s: %w", j.ID, err)
	}
	if err := CheckSchema(w.Stream, &export); err != nil {
		return nil, err
	}
	api, err := exportapi.New(export)
	if err != nil {
		return nil, err
	}
	said := logChanges(log, "kafka")
	kafka.Log, kafka.Report = log.With(logComponent, "kafka"), func(err error) { said(err) }
	sink, err := kafka.Sink()
	if err != nil {
		api.Close()
		return nil, err
	}
	cfg.PageSize, cfg.Owner, cfg.Log = export.PageSize, w.all.Owner(), log
	cfg.ShutdownTimeout /= 2 // the job needs the rest for its last change, and to leave its group
	st.Engine.PageSize = export.PageSize
	ranges := func(source bridge.Source) bridge.Source { return Ranges(&st, source) }
	return &backfill.Setup{Config: cfg, Source: api, Ranges: ranges, Sink: sink, Close: func() {
		sink.Close()
		api.Close()
	}}, nil
}

// quiet drops messages below warnings, unless the level is debug.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, level) && (level >= slog.LevelWarn || q.Handler.Enabled(ctx, slog.LevelDebug))
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// planners wires the jobs of the streams: those begun over HTTP, and those that run in
// lanes. The windows of either kind together hold as many bytes of pages in memory as a
// stream. planners changes the settings.
func (p *Process) planners(s *config.Settings) ([]*backfill.Planner, error) {
	var planners []*backfill.Planner
	for i := range s.Streams {
		st := &s.Streams[i]
		st.Export.Shared, st.Engine.Budget = &p.exports, p.budget
		UseKeys(st, &p.keys)
		st.Engine.PrefetchBytes = max(1, st.Engine.PrefetchBytes/backfill.HostedWindows)
		st.LimitPages(len(s.Streams) + backfill.HostedWindows + LaneCapacity)
		log := p.log.With(logStream, st.Name)
		planner, err := JobPlanner(s, st, &p.jobLogs, log)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", st.Name, err)
		}
		if p.fleet != nil {
			plans := st.Kafka.Jobs(&p.jobLogs)
			planner.Lane = func(id string, n int) (backfill.Owner, error) { return plans.Lane(p.fleet, id, n) }
		}
		planner.Retrying = func(err error) { log.Warn("job: commit failed; retrying", logError, err) }
		planners = append(planners, planner)
	}
	return planners, nil
}

// logJob logs the outcome of a job.
func (p *Process) logJob(j *backfill.Job, err error) {
	events := j.Totals().Events
	log := p.log.With(logStream, j.Stream, "job", j.ID, "kind", string(j.Kind), "windows",
		fmt.Sprintf("%d/%d", j.Ended(), len(j.Windows)), "events", events)
	resume := fmt.Sprintf("exportbridge %s --resume %s --execute", j.Kind, j.ID)
	switch {
	case err == nil:
		log.Info("job done")
	case errors.Is(err, backfill.ErrCancelled):
		log.Info("job cancelled", logError, err)
	case errors.Is(err, backfill.ErrPaused):
		log.Info("job paused", logError, err)
	case errors.Is(err, context.Canceled):
		log.Info("job interrupted", logHint, p.streams.advice(resume, j.Stream))
	default:
		log.Error("job stopped", logError, err, logHint, p.streams.advice(JobHint(err, j, resume), j.Stream))
	}
}

// JobHint returns the hint for a job that has stopped. resume is the command that resumes it, empty if it is retried. The
// cursor of a blocked window cannot be moved, its topic cannot be accepted, and a cancelled job cannot be resumed.
func JobHint(err error, j *backfill.Job, resume string) string {
	blocked, ok := errors.AsType[*bridge.BlockedError](err)
	if !ok {
		return resume
	}
	then := func(hint string) string {
		if hint == "" || resume == "" {
			return hint + resume
		}
		return hint + "; then " + resume
	}
	fault, ok := errors.AsType[*bridge.Fault](blocked.Err)
	switch {
	case blocked.Reason == bridge.ReasonCursor:
		return fmt.Sprintf("cancel the job, whose cursor the API no longer accepts: exportbridge backfill cancel %s "+
			"--execute, then start a new job for the remaining windows", j.ID)
	case blocked.Reason == bridge.ReasonSource:
		return then(bridge.SameRequestHint)
	case ok && fault.Code == bridge.CodeTopicLost:
		return fmt.Sprintf("cancel the job, whose topic has lost events: exportbridge backfill cancel %s --execute, "+
			"then start a new job for the whole range", j.ID)
	}
	return then(blocked.Hint)
}
