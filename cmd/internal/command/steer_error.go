package command

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// steering wraps the RunE of a command that reads or changes streams.
func steering(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return steered(run(cmd, args)) }
}

// steered adds the exit code and the hint to an error of a controller.
func steered(err error) error {
	if _, ok := errors.AsType[*cli.Error](err); ok || err == nil {
		return err
	}
	var (
		absent  *control.NoCheckpointError
		missing *control.NoEntryError
		foreign *control.ForeignCursorError
		refused *control.RefusedError
		late    *control.UnacknowledgedError
		away    *control.StoreAwayError
		over    *control.TakenOverError
		pending *bridge.PendingError
		fault   *bridge.Fault
	)
	e := &cli.Error{Code: cli.ExitFailed, Err: err}
	e.Unsure = errors.As(err, &over) || errors.As(err, &late) && late.State != bridge.CommandWithdrawn
	switch {
	case errors.As(err, &absent):
		e.Hint = absentHint(absent)
	case errors.As(err, &missing):
		e.Hint = missingHint(missing)
	case errors.As(err, &foreign):
		e.Code, e.Hint = cli.ExitRefused, "add --accept-other if the API is known to accept it"
	case errors.Is(err, control.ErrNoPosition):
		e.Hint = "--to-datetime TIME"
	case errors.As(err, &refused) && refused.NoStart:
		e.Code = cli.ExitUsage
		e.Hint = "use exportbridge cursor rewind, which goes to a commit, or exportbridge cursor reset --to-earliest"
	case errors.As(err, &refused) && refused.NeedsStart:
		e.Code = cli.ExitUsage
		e.Hint = "use exportbridge cursor rewind, which goes to a commit, or exportbridge cursor reset --to-datetime TIME"
	case errors.As(err, &refused) && refused.Restored:
		e.Hint = "repeat the command: Redis had lost the checkpoint, which is restored now"
	case errors.Is(err, control.ErrRejected):
		e.Hint = "exportbridge cursor show"
	case errors.As(err, &late) && late.Interrupted && late.State == bridge.CommandWithdrawn:
		e.Code = cli.ExitInterrupted
	case errors.As(err, &late):
		e.Hint = lateHint(late)
	case errors.As(err, &away):
		e.Hint = awayHint(err)
	case errors.As(err, &pending):
		e.Hint = pendingHint(pending)
	case errors.As(err, &fault) && !errors.Is(err, context.Canceled):
		e.Hint = cmp.Or(fault.Hint, cli.EngineHints[fault.HintCode])
	}
	if e.Hint == "" && e.Code == cli.ExitFailed {
		return err
	}
	return e
}

// awayHint returns the hint for a *control.StoreAwayError.
func awayHint(err error) string {
	const again = "start Redis or correct REDIS_URL, then repeat the command"
	var (
		owned *control.OwnedError
		over  *control.TakenOverError
	)
	switch {
	case errors.Is(err, control.ErrStoreHolds):
		return again
	case errors.As(err, &owned):
		return again + "; or stop that process, and the command applies the change itself"
	case errors.As(err, &over):
		return "check whether it was applied: exportbridge cursor show"
	}
	return "exportbridge check"
}

func absentHint(e *control.NoCheckpointError) string {
	switch {
	case e.Live != nil:
		return e.Live.Hint
	case len(e.Known) > 0:
		return "set --stream, or the CURSOR_PREFIX and REDIS_URL of the bridge"
	}
	return "exportbridge run"
}

func missingHint(e *control.NoEntryError) string {
	to := "--to-datetime TIME"
	switch {
	case e.Time.IsZero():
	case e.Time.UnixMilli() == 0:
		to = "--to-earliest"
	default:
		to = "--to-datetime " + e.Time.UTC().Format(time.RFC3339)
	}
	if e.Left != nil {
		return "use --to-entry " + e.Left.String() +
			", the newest with another cursor before the last move, or exportbridge cursor history"
	}
	return "choose an entry of exportbridge cursor history, or run exportbridge cursor reset " + to + " --execute"
}

func pendingHint(e *bridge.PendingError) string {
	if e.Overdue {
		return "repeat the command once the stream runs, or once nothing runs it; " +
			"the pending request was claimed and not acknowledged: exportbridge status"
	}
	return "repeat the command when the pending request is done, by " +
		time.UnixMilli(e.Command.Deadline).UTC().Format(time.RFC3339) + ": exportbridge cursor show"
}

func lateHint(e *control.UnacknowledgedError) string {
	switch {
	case e.State == bridge.CommandUnknown, e.State == bridge.CommandClaimed:
		return "check whether it was applied: exportbridge cursor show"
	case e.Fenced():
		return e.Live.Hint
	case e.Unseen != nil:
		return cli.UnseenOwnerHint
	}
	return "run exportbridge check, or raise --timeout"
}
