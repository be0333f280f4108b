package command

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// steering gives the errors of a command that looks at streams or steers them
// their exit codes and hints.
func steering(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return steered(run(cmd, args)) }
}

// steered gives an error of a controller its exit code and its hint.
func steered(err error) error {
	if _, ok := errors.AsType[*cli.Error](err); ok || err == nil {
		return err
	}
	var (
		pending *bridge.PendingError
		foreign *control.ForeignCursorError
		late    *control.UnacknowledgedError
	)
	e := &cli.Error{Code: cli.ExitFailed, Err: err, Hint: steeringHint(err)}
	switch {
	case errors.As(err, &foreign):
		e.Code = cli.ExitRefused
	case errors.As(err, &late) && late.Interrupted && late.State == bridge.RequestWithdrawn:
		e.Code = cli.ExitInterrupted
	case errors.As(err, &pending):
		e.Hint = pendingHint(pending)
	}
	if e.Hint == "" && e.Code == cli.ExitFailed {
		return err
	}
	return e
}

// steeringHint says what to do about an error, or nothing.
func steeringHint(err error) string {
	const again = "start Redis, or correct REDIS_URL, and the same command again"
	var (
		absent  *control.NoCheckpointError
		missing *control.NoEntryError
		foreign *control.ForeignCursorError
		refused *control.RefusedError
		late    *control.UnacknowledgedError
		away    *control.StoreAwayError
		owned   *control.OwnedError
		over    *control.TakenOverError
		fault   *bridge.Fault
	)
	switch {
	case errors.As(err, &absent):
		return absentHint(absent)
	case errors.As(err, &missing):
		return missingHint(missing)
	case errors.As(err, &foreign):
		return "--accept-other if you know that the API takes it all the same"
	case errors.Is(err, control.ErrNoPosition):
		return "--to-datetime TIME"
	case errors.As(err, &refused) && refused.Restored:
		return "Redis had lost its copy of the cursor, which is there again: the same command once more"
	case errors.Is(err, control.ErrRefused):
		return "exportbridge cursor show"
	case errors.As(err, &late):
		return lateHint(late)
	case errors.As(err, &away):
		switch {
		case errors.Is(err, control.ErrStoreHolds):
			return again
		case errors.As(err, &owned):
			return again + "; or stop that process: then the command does it by itself"
		case errors.As(err, &over):
			return "exportbridge cursor show, to see whether it was applied"
		}
		return "exportbridge check"
	case errors.As(err, &fault):
		return cmp.Or(fault.Hint, cli.EngineHints[fault.Advice])
	}
	return ""
}

func absentHint(e *control.NoCheckpointError) string {
	switch {
	case e.Live != nil:
		return e.Live.Hint
	case len(e.Known) > 0:
		return "--stream, or the CURSOR_PREFIX and REDIS_URL of the bridge"
	}
	return "exportbridge run"
}

func missingHint(e *control.NoEntryError) string {
	reset := ""
	if !e.Time.IsZero() {
		reset = "cursor reset --to-datetime " + e.Time.UTC().Format(time.RFC3339)
	}
	if e.Left != nil {
		return "--to-entry " + e.Left.String() + ", where the last change left, or exportbridge " + cmp.Or(reset, "cursor history")
	}
	return "exportbridge cursor history, or " + cmp.Or(reset, "cursor reset --to-datetime")
}

func pendingHint(e *bridge.PendingError) string {
	if e.Overdue {
		return "the same command again when a bridge runs the stream, or none: whoever claimed that one has not answered it: exportbridge status"
	}
	return "the same command again when that one is done, " +
		time.UnixMilli(e.Command.Deadline).UTC().Format(time.RFC3339) + " at the latest: exportbridge cursor show"
}

func lateHint(e *control.UnacknowledgedError) string {
	switch {
	case e.State == bridge.RequestUnknown:
		return "exportbridge cursor show"
	case e.State == bridge.RequestClaimed:
		return "exportbridge cursor show, to see whether it was applied"
	case e.Interrupted:
		return ""
	}
	return "exportbridge check, or a longer --timeout"
}
