package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
)

// jobStop is a command that stops a job.
type jobStop struct {
	verb, past string
	last       func(id string) string // advice at the end of the output
	stop       func(*backfill.Jobs, context.Context, backfill.Cancellation, bool) (backfill.Job, error)
}

func newBackfillCancelCommand(a *cli.App) *cobra.Command {
	s := jobStop{verb: "cancel", past: "cancelled", last: func(string) string { return "published events stay" },
		stop: (*backfill.Jobs).Cancel}
	return s.command(a, "Cancel a backfill or replay",
		`Cancel a backfill or replay. Its processes commit the open transactions and stop
within seconds; the job cannot be resumed. Published events stay.`)
}

func newBackfillPauseCommand(a *cli.App) *cobra.Command {
	s := jobStop{verb: "pause", past: "paused", stop: (*backfill.Jobs).Pause,
		last: func(id string) string { return "to continue: exportbridge backfill resume " + id + " --execute" }}
	return s.command(a, "Pause a backfill or replay",
		`Pause a backfill or replay. Its processes commit the open transactions and stop
within seconds. "backfill resume" continues it; no event is lost or repeated.

A process of a version without this command, which runs the job with --here or
by HTTP, goes on: stop that process, or cancel the job.`)
}

func (s *jobStop) command(a *cli.App, short, long string) *cobra.Command {
	var stream, reason string
	var execute bool
	cmd := &cobra.Command{
		Use:     s.verb + " ID",
		Short:   short,
		Long:    long + "\n\nWithout --execute, the command is a dry run.",
		Example: "  exportbridge backfill " + s.verb + " k3xq7a --execute",
		Args:    oneJob(s.verb),
	}
	cmd.ValidArgsFunction = cli.Lookup(func(ctx context.Context) ([]string, error) {
		return unfinishedJobs(ctx, a, stream)
	})
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().Var(cli.Parsed(&reason, parseReason, "REASON"), "reason", "`REASON` to record in the job list")
	cli.TakeExecute(cmd, &execute)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		jobs, err := openJobs(a, stream)
		if err != nil {
			return err
		}
		job, err := s.stop(jobs, cmd.Context(), backfill.Cancellation{ID: args[0], By: cli.Operator(), Why: reason}, execute)
		if err != nil {
			return jobError(err)
		}
		report := reportOf(&job)
		report.Executed = execute
		if *asJSON {
			return cli.PrintJSON(a.Stdout, report)
		}
		return s.print(a, &report)
	}
	return cmd
}

// oneJob requires the id of a job as the only argument.
func oneJob(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		const list = "exportbridge backfill list"
		switch {
		case len(args) == 0:
			return cli.WrongUsage(list, "a job id is missing: exportbridge backfill %s ID", verb)
		case len(args) > 1:
			return cli.WrongUsage(list, "%d arguments, want one job id: exportbridge backfill %s ID", len(args), verb)
		case !backfill.ValidID(args[0]):
			return cli.WrongUsage(list, "%q is not a job id, for example k3xq7a", args[0])
		}
		return nil
	}
}

func (s *jobStop) print(a *cli.App, r *jobReport) error {
	verb, end := s.past+" with", "; "+a.Advice(s.last(r.ID), "")
	if !r.Executed {
		verb = "has"
		end = fmt.Sprintf(", %s\n  dry run: nothing was changed. Add --execute to %s.",
			cli.Counted(r.TotalEvents, "event"), s.verb)
	}
	_, err := fmt.Fprintf(a.Stdout, "  %s %s %s %d of %s done%s\n",
		r.Kind, r.ID, verb, r.WindowsDone, cli.Counted(len(r.Windows), "window"), end)
	return err
}

func newBackfillResumeCommand(a *cli.App) *cobra.Command {
	o := &jobOptions{app: a}
	cmd := &cobra.Command{
		Use:   "resume ID",
		Short: "Resume a backfill or replay",
		Long: `Resume a paused or interrupted backfill or replay, as backfill --resume does:
running processes carry it out, or this process with --here or without them. A
new --rate-limit applies within seconds, but not to requests that already wait.
A new --parallel does not change a job in lanes; it applies with --here, and to
a job that has run in one process.

Without --execute, the command is a dry run.`,
		Example: "  exportbridge backfill resume k3xq7a --execute",
		Args:    oneJob("resume"),
	}
	cmd.ValidArgsFunction = cli.Lookup(func(ctx context.Context) ([]string, error) {
		return unfinishedJobs(ctx, a, o.stream)
	})
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cli.TakeStream(cmd, &o.stream)
	o.flags = cmd.Flags()
	o.takeLimits(cmd, "(default: the job's)", "(default: the job's)")
	o.takeHere(cmd)
	cli.TakeExecute(cmd, &o.execute)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.resume = args[0]
		return o.run(cmd.Context())
	}
	return cmd
}
