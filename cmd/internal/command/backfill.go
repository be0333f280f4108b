package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
)

func newBackfillCommand(a *cli.App) *cobra.Command {
	o := &jobOptions{app: a, kind: backfill.Backfill}
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Backfill a range the stream has not covered",
		Long: `Publish a past range to the stream's topic while the stream keeps running, with
the header eb-origin: backfill. The range is split into windows that are read in
parallel; each is published exactly once. A range that overlaps the stream or an
earlier backfill is rejected; --allow-overlap publishes it again, with the same
ce_id.

Running processes carry the job out, in --parallel lanes that they share, and
the command returns; "backfill watch" shows the progress. With --here, and if no
process runs or all have BRIDGE_OWNERSHIP=stream, the job runs in this process.
After an interruption or a crash, continue it with --resume; no event is lost or
repeated. "backfill resume --help" says what a new --parallel or --rate-limit
changes. A window includes its start and excludes its end; order is kept within
a window. If the API lists an event late, or changes its time, the event can be
missing or published twice.

Without --execute, the command is a dry run.`,
		Example: `  exportbridge backfill --from 2026-01-01T00:00:00Z --to -30d --windows 8
  exportbridge backfill --from -90d --to -30d --rate-limit 20/s --execute
  exportbridge backfill --resume k3xq7a --here --execute
  exportbridge backfill watch k3xq7a`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoSubcommand,
	}
	o.take(cmd)
	cmd.Flags().BoolVar(&o.request.AllowOverlap, "allow-overlap", false,
		"publish events that the stream or a backfill also publishes")
	cli.Renamed(cmd, "again", "allow-overlap")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) }
	cmd.AddCommand(newBackfillListCommand(a), newBackfillWatchCommand(a), newBackfillPauseCommand(a),
		newBackfillResumeCommand(a), newBackfillCancelCommand(a))
	return cmd
}

// openJobs returns the jobs of a stream.
func openJobs(a *cli.App, stream string) (*backfill.Jobs, error) {
	_, st, err := a.StreamSettings(0, stream)
	if err != nil {
		return nil, err
	}
	return backfill.NewJobs(st.Kafka.Jobs(new(kafkasink.JobLogs)), st.Name), nil
}

func newBackfillListCommand(a *cli.App) *cobra.Command {
	var stream string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List backfills and replays",
		Long: `List the backfills and replays of a stream, oldest first, with the processes
that run each. No process runs an interrupted job; "backfill resume" continues
it. Running processes start a waiting job by themselves.

Starting a job deletes the stored state of replays that ended more than 30 days
ago; published events stay. Backfills stay listed, because their ranges count as
published.`,
		Example: "  exportbridge backfill list --json",
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		jobs, err := openJobs(a, stream)
		if err != nil {
			return err
		}
		list, err := jobs.Overview(cmd.Context(), 0)
		if err != nil {
			return cli.Explain(err)
		}
		all := make([]jobReport, len(list))
		for i := range list {
			all[i] = reportOf(&list[i].Job)
			all[i].Executed, all[i].Listed = true, list[i]
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
			r.ID, string(r.Kind), stateText(&r.Listed), boundText(r.From), boundText(r.To),
			fmt.Sprintf("%d/%d", r.WindowsDone, len(r.Windows)), humanize.Comma(r.TotalEvents), strings.Join(r.Topics(), ", "),
			secondText(r.Created), r.note(),
		})
	}
	return a.PrintTable(rows)
}

// boundText returns a bound of a job for a table, in whole seconds.
func boundText(ms int64) string {
	if ms == 0 {
		return bridge.BoundText(ms)
	}
	return secondText(ms)
}

func (r *jobReport) note() string {
	text := "by " + r.Who + byText("", r.Reason)
	if r.RateLimit > 0 {
		text += "; limit " + rateText(r.RateLimit)
	}
	if r.TotalOutside > 0 {
		text += "; " + records.OutsideNote(r.TotalOutside, r.TotalEvents)
	}
	if r.State == backfill.Cancelled {
		text += "; cancelled" + r.ByWhom()
	}
	if r.Status() == backfill.Paused {
		text += "; paused" + r.ByWhom()
	}
	if runs := runsText(&r.Listed); runs != "" {
		text += "; " + runs
	}
	return text
}

// unfinishedJobs returns the unfinished jobs of a stream for a shell's completion: those of
// these kinds, or all if no kind is given.
func unfinishedJobs(ctx context.Context, a *cli.App, stream string, kinds ...backfill.Kind) ([]string, error) {
	jobs, err := openJobs(a, stream)
	if err != nil {
		return nil, err
	}
	all, err := jobs.List(ctx, backfill.Kept)
	var ids []string
	for i := range all {
		if j := &all[i]; j.State == backfill.Running && (len(kinds) == 0 || slices.Contains(kinds, j.Kind)) {
			ids = append(ids, cobra.CompletionWithDesc(j.ID, fmt.Sprintf("%s, begun %s", j.Kind, secondText(j.Created))))
		}
	}
	return ids, err
}
