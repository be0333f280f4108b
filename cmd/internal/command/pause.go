package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// pauseReport is the JSON form of a pause or a resume of one stream.
type pauseReport struct {
	Stream string      `json:"stream"`
	Kind   bridge.Kind `json:"kind"`
	// State is the state that a plan found.
	State bridge.State `json:"state,omitempty"`
	// PausedUntil is in milliseconds since the epoch; -1 is a pause without an end.
	PausedUntil int64          `json:"paused_until,omitempty"`
	Answer      *bridge.Answer `json:"answer,omitempty"`
	Error       string         `json:"error,omitempty"`
}

func newPauseCommand(a *cli.App) *cobra.Command {
	var length time.Duration
	p := &pausing{change: newChange(a), kind: bridge.KindPause}
	p.act = func(ctx context.Context, c *control.Controller) (control.Done, error) {
		return c.Pause(ctx, p.by, length)
	}
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause a stream, or many",
		Long: `Pause a stream. The command acts at once: it has no dry run and needs no
--execute. The bridge commits the batch in flight, then stops calling the API.
The pause lasts until "exportbridge resume", or for --duration, and survives
restarts and failovers. A bounded run (--once, --max-events, --until or
EXPORT_END) of a paused stream is rejected. Without a running bridge, the
command applies the pause itself.

With --all or --match, the command is a dry run without --execute. It goes on
after a failure, and names the streams that failed.`,
		Example: `  exportbridge pause --duration 30m --reason "vendor migration"
  exportbridge pause
  exportbridge pause --match 'acme-*' --reason "vendor migration" --execute`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	p.flags(cmd)
	flag := cli.Parsed(&length, bridge.ParseDuration, "DURATION")
	cmd.Flags().Var(flag, "duration", "resume after `DURATION`, such as 30m")
	cli.Renamed(cmd, "for", "duration")
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("duration") && length < time.Second {
			return cli.WrongUsage("--duration 30m", "--duration %s is less than a second", length)
		}
		return p.run(cmd)
	})
	return cmd
}

func newResumeCommand(a *cli.App) *cobra.Command {
	p := &pausing{change: newChange(a), kind: bridge.KindResume}
	p.act = func(ctx context.Context, c *control.Controller) (control.Done, error) { return c.Resume(ctx, p.by) }
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume a stream, or many",
		Long: `Resume a paused stream at its position; a stream that is not paused is left as
it is. Without a running bridge, the command applies the change itself. With
--all or --match, it is a dry run without --execute; it goes on after a failure,
and names the streams that failed.`,
		Example: `  exportbridge resume
  exportbridge resume --all --execute`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	p.flags(cmd)
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error { return p.run(cmd) })
	return cmd
}

// runOne pauses or resumes one stream, and prints the result.
func (p *pausing) runOne(ctx context.Context) error {
	h, err := p.open()
	if err != nil {
		return err
	}
	defer h.close()
	asked := time.Now()
	done, same, err := p.do(ctx, h.Controller)
	switch {
	case err != nil:
		return err
	case *p.json:
		return cli.PrintJSON(p.app.Stdout, p.done(h.Stream(), &done))
	case same:
		_, err = fmt.Fprintf(p.app.Stdout, "  stream %s is not paused\n", h.Stream())
	default:
		_, err = fmt.Fprintf(p.app.Stdout, "  %s%s\n", doneText(p.kind, done, asked),
			p.app.Advice(resumeText(done.PausedUntil), ""))
	}
	return err
}

// do changes a stream. same is true if the stream to resume is not paused. Then the answer
// has the reason.
func (p *pausing) do(ctx context.Context, c *control.Controller) (done control.Done, same bool, err error) {
	done, err = p.act(ctx, c)
	if refused, ok := errors.AsType[*control.RefusedError](err); ok && refused.NotPaused() {
		done.Answer = bridge.Answer{Detail: refused.Detail, By: refused.By}
		return done, true, nil
	}
	return done, false, err
}

// done returns the report of a change that was applied, or that was not needed.
func (p *pausing) done(stream string, done *control.Done) pauseReport {
	return pauseReport{Stream: stream, Kind: p.kind, PausedUntil: done.PausedUntil, Answer: &done.Answer}
}

// doneText describes a pause or a resume that was applied.
func doneText(kind bridge.Kind, done control.Done, asked time.Time) string {
	what := "resumed"
	if kind == bridge.KindPause {
		what = pauseText(done.PausedUntil, time.Now())
	}
	return fmt.Sprintf("%s, acknowledged by %s in %s, now at entry %s", what, done.Answer.By,
		cli.RoundDuration(time.Since(asked)), done.Answer.Version)
}

// pauseText describes a pause.
func pauseText(until int64, now time.Time) string {
	if until == bridge.Forever {
		return "paused"
	}
	end := time.UnixMilli(until)
	return fmt.Sprintf("paused until %s (%s left)", end.UTC().Format(cli.TimeLayout),
		cli.RoundDuration(max(0, end.Sub(now))))
}

// resumeText returns the command that ends a pause without an end.
func resumeText(until int64) string {
	if until != bridge.Forever {
		return ""
	}
	return "; to go on: exportbridge resume"
}
