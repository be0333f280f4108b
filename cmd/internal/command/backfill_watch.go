package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// jobWatchInterval is how often a watched job is looked up.
const jobWatchInterval = 2 * time.Second

func newBackfillWatchCommand(a *cli.App) *cobra.Command {
	var stream string
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Show the progress of a backfill or replay",
		Long: `Show the progress of a backfill or replay, and which process runs which of its
lanes, until the job is done or stops. Ctrl-C ends the command, not the job.
With --json, the command prints the job once.`,
		Example: "  exportbridge backfill watch k3xq7a",
		Args:    oneJob("watch"),
	}
	cmd.ValidArgsFunction = cli.Lookup(func(ctx context.Context) ([]string, error) {
		return unfinishedJobs(ctx, a, stream)
	})
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		jobs, err := openJobs(a, stream)
		if err != nil {
			return err
		}
		w := &jobWatch{app: a, jobs: jobs, id: args[0]}
		if *asJSON {
			report, err := w.look(cmd.Context())
			if err != nil {
				return err
			}
			return cli.PrintJSON(a.Stdout, report)
		}
		return w.run(cmd.Context())
	}
	return cmd
}

// jobWatch watches a job.
type jobWatch struct {
	app  *cli.App
	jobs *backfill.Jobs
	id   string
	now  atomic.Pointer[jobReport]
}

// look returns the present state of the job.
func (w *jobWatch) look(ctx context.Context) (*jobReport, error) {
	all, err := w.jobs.Overview(ctx, 0)
	if err != nil {
		return nil, cli.Explain(err)
	}
	i := slices.IndexFunc(all, func(l backfill.Listed) bool { return l.ID == w.id })
	if i < 0 {
		return nil, jobError(w.jobs.Unknown(w.id))
	}
	report := reportOf(&all[i].Job)
	report.Executed, report.Listed = true, all[i]
	return &report, nil
}

func (w *jobWatch) run(ctx context.Context) error {
	report, err := w.look(ctx)
	if err != nil {
		return err
	}
	line := process.NewStatusLine(w.app.Stderr)
	w.now.Store(report)
	stop := tellProgress(line, func() backfill.Progress { return w.now.Load().CommittedProgress() })
	defer stop()
	return w.follow(ctx, line)
}

// follow looks the job up until no process will run it any more.
func (w *jobWatch) follow(ctx context.Context, line io.Writer) error {
	said := ""
	for {
		r := w.now.Load()
		state := r.Status()
		if state != backfill.Running && state != backfill.Waiting {
			return w.end(r)
		}
		now := cmp.Or(runsText(&r.Listed), "waiting for a process; processes look for jobs every 3 s")
		if now != said {
			fmt.Fprintf(line, "  %s\n", process.Printable(now))
			said = now
		}
		if bridge.Sleep(ctx, jobWatchInterval); ctx.Err() != nil {
			fmt.Fprintf(line, "  stopped watching; job %s continues\n", w.id)
			return nil
		}
		next, err := w.look(ctx)
		if ctx.Err() == nil && err != nil {
			return err
		}
		if err == nil {
			w.now.Store(next)
		}
	}
}

// end prints the outcome of the job.
func (w *jobWatch) end(r *jobReport) error {
	_, err := fmt.Fprintf(w.app.Stdout, "  %s %s: %s: %d of %s, %s\n", r.Kind, r.ID, stateText(&r.Listed),
		r.WindowsDone, cli.Counted(len(r.Windows), "window"), cli.Counted(r.TotalEvents, "event"))
	switch {
	case err != nil:
		return err
	case r.State == backfill.Done:
		return shortfall(&r.Job)
	case r.State == backfill.Cancelled:
		return cli.Errorf(cli.ExitFailed, jobAnew(&r.Job), "the job was cancelled%s", r.ByWhom())
	}
	hint := fmt.Sprintf("exportbridge backfill resume %s --execute", r.ID)
	if r.Paused {
		return cli.Errorf(cli.ExitFailed, hint, "the job was paused%s", r.ByWhom())
	}
	return cli.Errorf(cli.ExitFailed, hint, "the job was interrupted: no process runs it")
}

// runsText describes which process runs a job, or which process runs each lane; empty if
// none runs. Lanes count from 1.
func runsText(l *backfill.Listed) string {
	lanes, names := make(map[string][]string), []string{}
	for n, name := range l.LaneProcesses {
		if name == "" {
			continue
		}
		if lanes[name] == nil {
			names = append(names, name)
		}
		lanes[name] = append(lanes[name], strconv.Itoa(n+1))
	}
	switch {
	case len(l.Processes) == 0 || len(names) > 0:
	case l.Lanes > 0:
		return "a rebalance hides which processes run its lanes"
	default:
		return l.Processes[0].String() + " runs the job"
	}
	slices.Sort(names)
	for i, name := range names {
		word := "lanes"
		if len(lanes[name]) == 1 {
			word = "lane"
		}
		names[i] = fmt.Sprintf("%s runs %s %s", name, word, strings.Join(lanes[name], ", "))
	}
	return strings.Join(names, "; ")
}
