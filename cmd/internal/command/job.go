package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// jobOptions are the flags of replay and backfill.
type jobOptions struct {
	app                       *cli.App
	kind                      backfill.Kind
	stream, from, to          string
	rate, resume              string
	request                   backfill.Spec
	execute, here             bool
	json                      *bool
	flags                     *pflag.FlagSet
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
	f.IntVar(&o.request.Windows, "windows", 0,
		"split the range into `N` equal windows (default: 1, or N of --parallel if given)")
	o.takeLimits(cmd, fmt.Sprintf("(default: all, up to %d)", backfill.DefaultParallel),
		"(default half of EXPORT_RATE_LIMIT)")
	f.Var(cli.Parsed(&o.request.Reason, parseReason, "REASON"), "reason", "`REASON` to record in the job list")
	f.StringVar(&o.resume, "resume", "", "resume job `ID`")
	cli.OfferLookup(cmd, "resume", func(ctx context.Context) ([]string, error) {
		return unfinishedJobs(ctx, o.app, o.stream, o.kind)
	})
	o.takeHere(cmd)
	cli.TakeExecute(cmd, &o.execute)
}

// takeLimits adds the flags of the limits, with their defaults.
func (o *jobOptions) takeLimits(cmd *cobra.Command, parallel, rate string) {
	cmd.Flags().IntVar(&o.request.Parallel, "parallel", 0, "read `N` windows at a time "+parallel)
	cmd.Flags().StringVar(&o.rate, "rate-limit", "", "maximum request `RATE` of all windows together, "+
		"such as 10/s, 600/m or 100/h "+rate)
}

func (o *jobOptions) takeHere(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.here, "here", false, "run the job in this process")
}

// check validates the flags before any request.
func (o *jobOptions) check(now time.Time) error {
	o.parallelGiven, o.limitGiven = o.flags.Changed("parallel"), o.flags.Changed("rate-limit")
	if o.parallelGiven && o.request.Parallel < 1 {
		return cli.WrongUsage("--parallel 4", "--parallel %d is below 1", o.request.Parallel)
	}
	if o.limitGiven {
		var err error
		if o.request.RateLimit, err = cli.ParseRateLimit(o.rate); err != nil {
			return err
		}
	}
	if o.resume != "" || o.flags.Changed("resume") {
		return o.checkResume()
	}
	return o.checkBounds(now)
}

// checkResume rejects flags that the plan of the job decides.
func (o *jobOptions) checkResume() error {
	if !backfill.ValidID(o.resume) {
		return cli.WrongUsage("exportbridge backfill list", "--resume %q is not a job id", o.resume)
	}
	for _, name := range []string{"from", "to", "windows", "events", "topic", "allow-overlap", "reason"} {
		if o.flags.Changed(name) {
			return cli.WrongUsage(fmt.Sprintf("exportbridge %s --resume %s", o.kind, o.resume),
				"--%s and --resume are mutually exclusive: a job keeps its plan", name)
		}
	}
	return nil
}

func (o *jobOptions) checkBounds(now time.Time) error {
	for _, bound := range []struct {
		name, text string
		at         *int64
	}{{"from", o.from, &o.request.From}, {"to", o.to, &o.request.To}} {
		if bound.text == "" {
			return cli.WrongUsage("--from -2h --to -1h", "--%s is required", bound.name)
		}
		ms, err := bridge.ParseInstant(bound.text, now)
		if err != nil {
			return cli.WrongUsage("--"+bound.name+" 2026-11-02T00:00:00Z", "--%s: %w", bound.name, err)
		}
		*bound.at = ms
	}
	if o.flags.Changed("windows") && o.request.Windows == 0 { // 0 in a request is the default
		return o.explain(backfill.Invalid("windows", "is not within 1 to %d", backfill.MaxWindows))
	}
	o.request.Kind, o.request.Who = o.kind, cli.Operator()
	return o.explain(o.request.Validate(now))
}

// examples are valid values of the flags of a request.
var examples = map[string]string{
	"from": "--from -2h --to -1h", "to": "--to now", "windows": "--windows 8",
	"events": "--events orderPlaced,userSignedUp", "topic": "--topic export.events.again",
}

// explain is jobError, except that it names the flag of an invalid field.
func (o *jobOptions) explain(err error) error {
	invalid, ok := errors.AsType[*backfill.InvalidError](err)
	if !ok {
		return jobError(err)
	}
	value := ""
	if flag := o.flags.Lookup(invalid.Field); flag != nil && invalid.Field != "events" {
		value = " " + flag.Value.String()
	}
	return cli.WrongUsage(examples[invalid.Field], "--%s%s %w", invalid.Field, value, invalid.Err)
}

// jobPlan is a job that the command runs, or shows in a dry run.
type jobPlan struct {
	*jobOptions
	beside *backfill.Planner
	line   *process.StatusLine
	log    *slog.Logger
	job    backfill.Job
	notes  []string
}

// run runs replay or backfill.
func (o *jobOptions) run(ctx context.Context) error {
	now := time.Now()
	if err := o.check(now); err != nil {
		return err
	}
	p, err := o.open()
	if err != nil {
		return err
	}
	if o.resume != "" {
		return p.goOn(ctx)
	}
	plan, err := p.beside.Plan(ctx, &o.request, now)
	if err != nil {
		return o.explain(err)
	}
	p.job, p.notes = plan.Job, plan.Notes
	if !o.execute {
		return p.print()
	}
	return p.begin(ctx, plan)
}

// open loads the settings. It connects to no server.
func (o *jobOptions) open() (*jobPlan, error) {
	s, st, err := o.app.StreamSettings(config.UsesExport, o.stream)
	if err != nil {
		return nil, err
	}
	p := &jobPlan{jobOptions: o, line: process.NewStatusLine(o.app.Stderr)}
	p.log = process.NewLogger(p.line, &s.Process, o.app.Environ)
	st.LimitPages(o.readers())
	if p.beside, err = process.JobPlanner(s, st, new(kafkasink.JobLogs), p.log); err != nil {
		return nil, err
	}
	p.beside.Retrying = func(err error) { fmt.Fprintf(p.line, "  retrying: %s\n", process.Printable(err.Error())) }
	return p, nil
}

// readers returns the maximum number of windows that the job reads at a time. The windows
// of a resumed job are not known yet.
func (o *jobOptions) readers() int {
	most := cmp.Or(o.request.Parallel, backfill.DefaultParallel)
	if o.resume != "" {
		return most
	}
	return max(1, min(most, cmp.Or(o.request.Windows, o.request.Parallel)))
}

// perSecond returns the maximum request rate of the job, 0 for no limit.
func (p *jobPlan) perSecond() float64 { return cmp.Or(p.job.RateLimit, p.beside.RateLimit) }
