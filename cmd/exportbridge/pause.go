package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// held is the JSON form of what pause and resume did.
type held struct {
	Stream string      `json:"stream"`
	Kind   bridge.Kind `json:"kind"`
	// PausedUntil is in milliseconds since the epoch, -1 without an end.
	PausedUntil int64         `json:"paused_until,omitempty"`
	Answer      bridge.Answer `json:"answer"`
}

func newPauseCommand(a *app) *cobra.Command {
	r := newRequest(a)
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Hold a stream where it is",
		Long: `Hold a stream where it is: what is in hand is committed, and the API is not asked
any more, until resume or, with --for, until that time has passed. A pause
outlives restarts and take-overs. A run that would end by itself does not begin.
Without a running bridge the command pauses the stream itself.`,
		Example: `  exportbridge pause --for 30m --reason "the vendor migrates"
  exportbridge pause`,
		GroupID: groupPosition,
		Args:    noArgs,
	}
	r.flags(cmd)
	cmd.Flags().Var(parsed(&length, config.ParseDuration, "DURATION"), "for", "end the pause after this `DURATION`, for example 30m (default: resume ends it)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("for") && length < time.Second {
			return &exitError{code: exitUsage, err: fmt.Errorf("--for %s is less than a second", length), hint: "--for 30m"}
		}
		return r.holdAndSay(cmd.Context(), bridge.KindPause, length)
	}
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	r := newRequest(a)
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End the pause of a stream",
		Long: `End the pause of a stream: it goes on where it was. Without a running bridge the
command changes the stream itself.`,
		Example: "  exportbridge resume",
		GroupID: groupPosition,
		Args:    noArgs,
	}
	r.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return r.holdAndSay(cmd.Context(), bridge.KindResume, 0)
	}
	return cmd
}

// hold pauses the stream, without an end if length is 0, or resumes it.
func (r *request) hold(ctx context.Context, p *position, kind bridge.Kind, length time.Duration) (held, error) {
	now, err := p.find(ctx)
	if err != nil {
		return held{}, err
	}
	order := r.command(kind, &now.Checkpoint)
	if kind == bridge.KindPause {
		order.PausedUntil = bridge.Forever
	}
	if length > 0 {
		// Redis's clock, as for a request's deadline. The bridge's own may
		// differ by a little.
		t, err := p.now(ctx)
		if err != nil {
			return held{}, err
		}
		order.PausedUntil = t.Add(length).UnixMilli()
	}
	answer, err := r.apply(ctx, p, order, &now.Checkpoint)
	return held{Stream: p.store.Name(), Kind: kind, PausedUntil: order.PausedUntil, Answer: answer}, err
}

// holdAndSay is pause and resume.
func (r *request) holdAndSay(ctx context.Context, kind bridge.Kind, length time.Duration) error {
	p, err := r.app.openPosition(ctx, config.UsesExport|config.UsesKafka, r.stream)
	if err != nil {
		return err
	}
	defer p.close()
	asked := time.Now()
	h, err := r.hold(ctx, p, kind, length)
	if err != nil {
		return err
	}
	if *r.json {
		return printJSON(r.app.stdout, h)
	}
	answer, what := h.Answer, "resumed"
	if kind == bridge.KindPause {
		what = pauseText(h.PausedUntil, time.Now())
	}
	_, err = fmt.Fprintf(r.app.stdout, "  %s, acknowledged by %s in %s, now at entry %s\n", what, answer.By, roundDuration(time.Since(asked)), answer.Place)
	return err
}

// pauseText says until when a stream is paused.
func pauseText(until int64, now time.Time) string {
	if until == bridge.Forever {
		return "paused until exportbridge resume"
	}
	end := time.UnixMilli(until)
	return fmt.Sprintf("paused until %s, for another %s", end.UTC().Format(timeLayout), roundDuration(max(0, end.Sub(now))))
}
