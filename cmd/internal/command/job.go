package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

const (
	// mostWindows bounds the plan of a job, and the transactional ids that the
	// brokers remember for it.
	mostWindows = 1000
)

// jobOptions are the flags of replay and backfill.
type jobOptions struct {
	app                       *cli.App
	kind                      backfill.Kind
	stream, from, to, topic   string
	rate, reason, resume      string
	events                    []string
	windows, parallel         int
	allowOverlap, execute     bool
	json                      *bool
	flags                     *pflag.FlagSet
	fromMillis, untilMillis   int64
	limit                     float64 // --rate-limit, in requests a second
	parallelGiven, limitGiven bool
}

func (o *jobOptions) take(cmd *cobra.Command) {
	o.app.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	o.app.TakeWide(cmd)
	f := cmd.Flags()
	o.flags = f
	cli.TakeStream(cmd, &o.stream)
	f.StringVar(&o.from, "from", "", "inclusive start `TIME` of the range")
	f.StringVar(&o.to, "to", "", "exclusive end `TIME` of the range, not after now")
	f.IntVar(&o.windows, "windows", 0, "split the range into `N` equal windows (default --parallel if given, else 1)")
	f.IntVar(&o.parallel, "parallel", 0, fmt.Sprintf("read `N` windows at a time (default all windows, at most %d)", backfill.DefaultParallel))
	f.StringVar(&o.rate, "rate-limit", "", "maximum request `RATE` of all windows together, such as 10/s, 600/m or 100/h (default half of EXPORT_RATE_LIMIT)")
	f.Var(cli.Parsed(&o.reason, parseReason, "REASON"), "reason", "`REASON` to record in the job list")
	f.StringVar(&o.resume, "resume", "", "resume job `ID`")
	cli.TakeExecute(cmd, &o.execute)
}

// parseRateLimit reads --rate-limit, in requests a second.
func parseRateLimit(text string) (float64, error) {
	limit, err := (&exportapi.Config{RateLimit: text}).Rate()
	if err != nil || text == "" {
		return 0, cli.WrongUsage("--rate-limit 10/s", "--rate-limit %q is not a rate", text)
	}
	return limit, nil
}

// besideLive is the limit of what reads the export beside the stream, unless
// it is told another one: half of the stream's, 0 for none.
func besideLive(st *config.Stream) (float64, error) {
	perSecond, err := st.Export.Rate()
	return perSecond / 2, err
}

var jobID = regexp.MustCompile(`^[a-z2-7]{6}$`)

// check judges the flags, before anybody is asked.
func (o *jobOptions) check(now time.Time) error {
	o.parallelGiven, o.limitGiven = o.flags.Changed("parallel"), o.flags.Changed("rate-limit")
	if o.parallelGiven && o.parallel < 1 {
		return cli.WrongUsage("--parallel 4", "--parallel %d is below 1", o.parallel)
	}
	if o.limitGiven {
		var err error
		if o.limit, err = parseRateLimit(o.rate); err != nil {
			return err
		}
	}
	if o.flags.Changed("resume") {
		return o.checkResume()
	}
	return o.checkBounds(now)
}

// checkResume wants nothing that the plan says already.
func (o *jobOptions) checkResume() error {
	if !jobID.MatchString(o.resume) {
		return cli.WrongUsage("exportbridge backfill list", "--resume %q is not a job id", o.resume)
	}
	for _, name := range []string{"from", "to", "windows", "events", "topic", "allow-overlap", "reason"} {
		if o.flags.Changed(name) {
			return cli.WrongUsage(fmt.Sprintf("exportbridge %s --resume %s", o.kind, o.resume), "--%s and --resume are mutually exclusive: a job keeps its plan", name)
		}
	}
	return nil
}

func (o *jobOptions) checkBounds(now time.Time) error {
	for _, bound := range []struct {
		name, text string
		at         *int64
	}{{"from", o.from, &o.fromMillis}, {"to", o.to, &o.untilMillis}} {
		if bound.text == "" {
			return cli.WrongUsage("--from -2h --to -1h", "--%s is required", bound.name)
		}
		ms, err := config.ParseInstant(bound.text, now)
		if err != nil {
			return cli.WrongUsage("--"+bound.name+" 2026-11-02T00:00:00Z", "--%s: %w", bound.name, err)
		}
		*bound.at = ms
	}
	switch {
	case o.untilMillis > now.UnixMilli():
		return cli.WrongUsage("--to now", "--to %s is in the future", o.to)
	case o.fromMillis >= o.untilMillis:
		return cli.WrongUsage("--from -2h --to -1h", "--from %s is not before --to %s", o.from, o.to)
	case o.flags.Changed("windows") && (o.windows < 1 || o.windows > mostWindows):
		return cli.WrongUsage("--windows 8", "--windows %d is not within 1 to %d", o.windows, mostWindows)
	}
	if !o.flags.Changed("windows") {
		o.windows = max(1, min(mostWindows, o.parallel))
	}
	if !o.parallelGiven {
		o.parallel = min(o.windows, backfill.DefaultParallel)
	}
	switch {
	case o.windows > 1 && o.fromMillis == 0:
		return cli.WrongUsage("--from 2026-01-01T00:00:00Z", "--from %s cannot be split into %d windows: give the time of the first event", o.from, o.windows)
	case int64(o.windows) > o.untilMillis-o.fromMillis:
		return cli.WrongUsage("--windows 1", "--windows %d is more than the %d milliseconds of the range", o.windows, o.untilMillis-o.fromMillis)
	case slices.Contains(o.events, ""):
		return cli.WrongUsage("--events orderPlaced,userSignedUp", "--events has an empty event type")
	}
	return nil
}

// jobPlan is a job that is to be carried out, or only shown.
type jobPlan struct {
	*jobOptions
	s         *config.Settings
	st        *config.Stream
	log       *kafkasink.Jobs
	jobs      *backfill.Jobs
	job       backfill.Job
	perSecond float64 // requests, of all windows together; 0 is no limit
	notes     []string
}

// run is replay and backfill.
func (o *jobOptions) run(ctx context.Context) error {
	if err := o.check(time.Now()); err != nil {
		return err
	}
	p, err := o.open()
	if err != nil {
		return err
	}
	if o.resume != "" {
		return p.goOn(ctx)
	}
	if err := p.plan(ctx); err != nil {
		return err
	}
	if !o.execute {
		return p.print()
	}
	return p.begin(ctx)
}

// open loads the settings. No server is asked.
func (o *jobOptions) open() (*jobPlan, error) {
	s, st, err := o.app.StreamSettings(config.UsesExport, o.stream)
	if err != nil {
		return nil, err
	}
	p := &jobPlan{jobOptions: o, s: s, st: st, log: kafkasink.NewJobs(st.Kafka), perSecond: o.limit}
	p.jobs = backfill.NewJobs(p.log, st.Name)
	if !o.limitGiven {
		if p.perSecond, err = besideLive(st); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// plan makes the job of what the flags say, and refuses what must not be done.
func (p *jobPlan) plan(ctx context.Context) error {
	p.job = backfill.Job{
		Version: backfill.Version, ID: strings.ToLower(rand.Text()[:6]), Kind: p.kind,
		Stream: p.st.Name, Resource: p.st.Export.Resource, Events: p.st.Export.Events, Topic: p.st.Kafka.Topic,
		From: p.fromMillis, To: p.untilMillis, Windows: backfill.Split(p.fromMillis, p.untilMillis, p.windows),
		RateLimit: p.perSecond, Parallel: p.parallel, PageSize: p.st.Export.PageSize, Who: operator(), Reason: p.reason, Created: time.Now().UnixMilli(), State: backfill.Running,
	}
	if len(p.events) > 0 {
		if p.job.Resource != "events" {
			return cli.WrongUsage("omit --events", "--events: resource %s has no event types", p.job.Resource)
		}
		p.job.Events = p.events
	}
	settle := p.chooseTopic
	if p.kind == backfill.Backfill {
		settle = p.refuseOverlap
	}
	if err := settle(ctx); err != nil {
		return err
	}
	return p.askAPI(ctx)
}

// chooseTopic settles where a replay goes: to no topic that the stream itself
// uses.
func (p *jobPlan) chooseTopic(ctx context.Context) error {
	live := p.st.Kafka
	p.job.Topic = kafkaadmin.ReplayTopic(live.Topic, p.job.ID)
	if p.flags.Changed("topic") {
		p.job.Topic = p.topic
		for i := range p.s.Streams {
			k := &p.s.Streams[i].Kafka
			if slices.Contains([]string{k.Topic, k.DLQTopic, "dlq." + k.Topic, k.CheckpointTopic}, p.topic) {
				return cli.WrongUsage("choose another --topic, or use exportbridge backfill", "--topic %s belongs to stream %s", p.topic, p.s.Streams[i].Name)
			}
		}
	}
	window := live.OfWindow(windowOf(&p.job, 0))
	if err := window.Validate(); err != nil {
		return cli.WrongUsage("--topic export.events.again", "--topic %s: %w", p.job.Topic, err)
	}
	exists, err := window.Exists(ctx, window.Topic)
	if err != nil {
		return cli.Explain(err)
	}
	if exists {
		p.notes = append(p.notes, "topic "+p.job.Topic+" exists; the events are appended to it")
		return nil
	}
	return p.wantTopic(ctx, &live) // the replay's will be made like it
}

// windowOf is a window of a job as the sink has it.
func windowOf(j *backfill.Job, n int) kafkasink.Window {
	return kafkasink.Window{Name: j.WindowName(n), Topic: j.Topic, Origin: string(j.Kind)}
}

// wantTopic refuses a job whose stream has no topic yet.
func (p *jobPlan) wantTopic(ctx context.Context, live *kafkasink.Config) error {
	exists, err := live.Exists(ctx, live.Topic)
	switch {
	case err != nil:
		return cli.Explain(err)
	case !exists:
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("topic %s does not exist", p.st.Kafka.Topic), Hint: "exportbridge topics create --execute"}
	}
	return nil
}

// askAPI asks for one page of what the job will ask for: what the API refuses
// for good is better known before there is a job. A server that is away is
// waited for later.
func (p *jobPlan) askAPI(ctx context.Context) error {
	export := p.st.Export
	export.Events = p.job.Events
	api, err := exportapi.New(export)
	if err != nil {
		return err
	}
	defer api.Close()
	_, err = api.Check(ctx)
	fault, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	case ok && fault.Class == bridge.Permanent:
		return cli.Explain(err)
	}
	p.notes = append(p.notes, fmt.Sprintf("the API is unavailable; the job will retry: %v", err))
	return nil
}

// refuseOverlap refuses a backfill of what the stream, or a backfill before,
// publishes into the same topic.
func (p *jobPlan) refuseOverlap(ctx context.Context) error {
	overlaps, begun, err := p.jobs.Overlap(ctx, &p.job, p.st.Kafka.History())
	if err != nil {
		return cli.Explain(err)
	}
	if len(overlaps) > 0 && !p.allowOverlap {
		return &cli.Error{Code: cli.ExitFailed, Err: errors.New(overlaps[0]), Hint: "choose another range, or add --allow-overlap to publish it again, with the same ce_id"}
	}
	if !begun {
		p.notes = append(p.notes, "the stream has not started; its first run will find these events in the topic and require a start: exportbridge cursor reset")
	}
	for _, text := range overlaps {
		p.notes = append(p.notes, text+"; it is published again, with the same ce_id")
	}
	return nil
}
