package command

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge/backfill"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
)

func newBackfillCommand(a *cli.App) *cobra.Command {
	o := &jobOptions{app: a, kind: backfill.Backfill}
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Publish a time that the stream did not, into its topic",
		Long: `Publish a time that the stream did not, into its topic, while the stream goes on
untouched: with eb-origin: backfill, in windows that are read in parallel, each
exactly once. What the stream exports, or a backfill before, is refused: it would
be there twice. --allow-overlap publishes it all the same, with the same ce_id.

It runs in this process. When that is interrupted or killed, --resume goes on
where it was, with no event lost or twice. Windows are half open, and so is the
seam with the stream, so no event is in two; in order are the events within one
window only. What the API lists later, or with another time than when it was
asked, cannot be known: it may be missing, or be on both sides of a seam.

Without --execute nothing is changed.`,
		Example: `  exportbridge backfill --from 2026-01-01T00:00:00Z --to 2026-11-01T00:00:00Z --windows 8
  exportbridge backfill --from -90d --to -30d --windows 60 --parallel 8 --rate-limit 20/s --execute
  exportbridge backfill --resume k3xq7a --execute
  exportbridge backfill list`,
		GroupID: groupPosition,
		Args:    cli.NoSubcommand,
	}
	o.take(cmd)
	cmd.Flags().BoolVar(&o.allowOverlap, "allow-overlap", false, "publish also what the stream, or a backfill, has published or will")
	cli.Renamed(cmd, "again", "allow-overlap")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) }
	cmd.AddCommand(newBackfillListCommand(a), newBackfillCancelCommand(a))
	return cmd
}

// openJobs returns the jobs of the stream that the command is about.
func openJobs(a *cli.App, stream string) (*backfill.Jobs, error) {
	_, st, err := a.StreamSettings(0, stream)
	if err != nil {
		return nil, err
	}
	return backfill.NewJobs(kafkasink.NewJobs(st.Kafka), st.Name), nil
}

func newBackfillListCommand(a *cli.App) *cobra.Command {
	var stream string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the backfills and replays of a stream",
		Long: `List the backfills and replays of a stream, oldest first, and who works on them. A
job that is running and that nobody works on was interrupted: --resume goes on.

The first job that begins 30 days after another ended removes that one's records.
A backfill stays in the list: its range is not published again.`,
		Example: "  exportbridge backfill list --json",
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		jobs, err := openJobs(a, stream)
		if err != nil {
			return err
		}
		list, err := jobs.Overview(cmd.Context(), 0)
		if err != nil {
			return explained(err)
		}
		all := make([]jobReport, len(list))
		for i := range list {
			all[i] = reportOf(&list[i].Job)
			all[i].Executed, all[i].Processes = true, list[i].Processes
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, all)
		}
		return showJobs(a, all)
	}
	return cmd
}

func showJobs(a *cli.App, all []jobReport) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "  no jobs")
		return err
	}
	rows := [][]string{{"JOB", "KIND", "STATE", "FROM", "TO", "WINDOWS", "EVENTS", "TOPIC", "BEGUN", "NOTE"}}
	for i := range all {
		r := &all[i]
		rows = append(rows, []string{
			r.ID, string(r.Kind), string(r.Status()), startText(r.From), startText(r.To), fmt.Sprintf("%d/%d", r.WindowsDone, len(r.Windows)),
			humanize.Comma(r.TotalEvents), r.Topic, time.UnixMilli(r.Created).UTC().Format(timeLayout), r.note(),
		})
	}
	return cli.PrintTable(a.Stdout, rows)
}

func (r *jobReport) note() string {
	text := "by " + r.Who
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.RateLimit > 0 {
		text += fmt.Sprintf("; at most %g requests a second", r.RateLimit)
	}
	if r.State == backfill.Cancelled {
		text += "; cancelled" + r.ByWhom()
	}
	if len(r.Processes) > 0 {
		text += "; " + r.Processes[0].String() + " works on it"
	}
	return text
}

func newBackfillCancelCommand(a *cli.App) *cobra.Command {
	var stream, reason string
	var execute bool
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a backfill or replay for good",
		Long: `End a backfill or replay for good: the process that works on it stops within
seconds, at the end of its transactions, and it cannot be resumed. What it has
published stays where it is.

Without --execute nothing is changed.`,
		Example: "  exportbridge backfill cancel k3xq7a --execute",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !jobID.MatchString(args[0]) {
				return wrongUsage("exportbridge backfill list", "cancel takes the id of one job, not %q", args)
			}
			return nil
		},
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().Var(cli.Parsed(&reason, parseReason, "WHY"), "reason", "`WHY`, for the list of jobs")
	cmd.Flags().BoolVar(&execute, "execute", false, "do it; without this nothing is changed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		jobs, err := openJobs(a, stream)
		if err != nil {
			return err
		}
		job, err := jobs.Cancel(cmd.Context(), backfill.Cancellation{ID: args[0], By: operator(), Why: reason}, execute)
		if err != nil {
			return jobError(err)
		}
		report := reportOf(&job)
		report.Executed = execute
		if *asJSON {
			return cli.PrintJSON(a.Stdout, report)
		}
		text := fmt.Sprintf("%s %s is cancelled with %d of %s done; what it published stays", job.Kind, job.ID, job.Ended(), cli.Counted(len(job.Windows), "window"))
		if !execute {
			text = fmt.Sprintf("%s %s has %d of %s done, %s events\n  dry run: nothing was changed. Add --execute to cancel it.", job.Kind, job.ID,
				job.Ended(), cli.Counted(len(job.Windows), "window"), strconv.FormatInt(report.TotalEvents, 10))
		}
		_, err = fmt.Fprintf(a.Stdout, "  %s\n", text)
		return err
	}
	return cmd
}
