package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// Each error of a controller has an exit code and a hint.
func TestSteered(t *testing.T) {
	t.Parallel()
	const again = "start Redis or correct REDIS_URL, then repeat the command"
	left, at := bridge.Version{Epoch: 1, Seq: 7}, time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	redis := &bridge.Fault{Err: errors.New("connection refused"), Hint: "check that Redis runs"}
	noEntry := fmt.Errorf("entry 1.2: %w", bridge.ErrNoEntry)
	away := func(because error) error { return &control.StoreAwayError{Because: because, Err: redis} }
	for _, test := range []struct {
		err  error
		code int
		hint string
	}{
		{&control.NoCheckpointError{Stream: "events"}, cli.ExitFailed, "exportbridge run"},
		{&control.NoCheckpointError{Known: []string{"users"}}, cli.ExitFailed,
			"set --stream, or the CURSOR_PREFIX and REDIS_URL of the bridge"},
		{&control.NoCheckpointError{Live: &bridge.Status{Hint: "look"}}, cli.ExitFailed, "look"},
		{&control.NoEntryError{Err: noEntry}, cli.ExitFailed,
			"choose an entry of exportbridge cursor history, or run exportbridge cursor reset --to-datetime TIME --execute"},
		{&control.NoEntryError{Err: noEntry, Time: at}, cli.ExitFailed,
			"choose an entry of exportbridge cursor history, or run exportbridge cursor reset --to-datetime " +
				"2026-11-20T13:00:00Z --execute"},
		{&control.NoEntryError{Err: noEntry, Left: &left}, cli.ExitFailed,
			"use --to-entry 1.7, the newest with another cursor before the last move, or exportbridge cursor history"},
		{fmt.Errorf("stream events has %w", control.ErrNoPosition), cli.ExitFailed, "--to-datetime TIME"},
		{&control.ForeignCursorError{Differences: []string{"stream"}}, cli.ExitRefused,
			"add --accept-other if the API is known to accept it"},
		{&control.RefusedError{}, cli.ExitFailed, "exportbridge cursor show"},
		{&control.RefusedError{NeedsStart: true}, cli.ExitUsage,
			"use exportbridge cursor rewind, which goes to a commit, or exportbridge cursor reset --to-datetime TIME"},
		{&control.RefusedError{Restored: true}, cli.ExitFailed,
			"repeat the command: Redis had lost the checkpoint, which is restored now"},
		{new(control.Move).CheckEpoch(1), cli.ExitFailed, "exportbridge cursor show"},
		{&control.UnacknowledgedError{State: bridge.CommandWithdrawn}, cli.ExitFailed,
			"run exportbridge check, or raise --timeout"},
		{&control.UnacknowledgedError{State: bridge.CommandWithdrawn,
			Live: &bridge.Status{State: bridge.StateBlocked, Reason: bridge.ReasonOwner, Hint: "stop one"}}, cli.ExitFailed,
			"stop one"},
		{&control.UnacknowledgedError{State: bridge.CommandWithdrawn, Interrupted: true}, cli.ExitInterrupted, ""},
		{&control.UnacknowledgedError{State: bridge.CommandClaimed, Interrupted: true}, cli.ExitFailed,
			"check whether it was applied: exportbridge cursor show"},
		{fmt.Errorf("%w; %w", away(&control.OwnedError{}), &control.UnacknowledgedError{State: bridge.CommandUnknown,
			Err: redis}), cli.ExitFailed, "check whether it was applied: exportbridge cursor show"},
		{away(control.ErrStoreHolds), cli.ExitFailed, again},
		{away(&control.OwnedError{}), cli.ExitFailed, again +
			"; or stop that process, and the command applies the change itself"},
		{away(control.ErrOwnerUnknown), cli.ExitFailed, "exportbridge check"},
		{away(&control.TakenOverError{Err: bridge.ErrFenced}), cli.ExitFailed,
			"check whether it was applied: exportbridge cursor show"},
		{fmt.Errorf("load: %w", redis), cli.ExitFailed, "check that Redis runs"},
		{fmt.Errorf("no bridge answers, and %w", &cli.Error{Code: cli.ExitUsage, Err: errors.New("embedded"),
			Hint: "its address"}), cli.ExitUsage, "its address"},
	} {
		e, ok := errors.AsType[*cli.Error](steered(test.err))
		unsure := test.hint == "check whether it was applied: exportbridge cursor show"
		if !ok || e.Code != test.code || e.Unsure != unsure || e.Hint != test.hint || steered(test.err).Error() != test.err.Error() {
			t.Errorf("%T %v: %+v, want code %d and the hint %q", test.err, test.err, e, test.code, test.hint)
		}
	}
	for _, err := range []error{nil, errors.New("strange"), context.Canceled} {
		if _, known := errors.AsType[*cli.Error](steered(err)); known || !errors.Is(steered(err), err) {
			t.Errorf("%v becomes %v", err, steered(err))
		}
	}
}

// The hint about a pending request names its deadline, unless the deadline has passed.
func TestPendingHint(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC).UnixMilli()
	for overdue, want := range map[bool]string{false: "by 2026-11-20T13:00:00Z",
		true: "was claimed and not acknowledged"} {
		e := &bridge.PendingError{Command: bridge.Command{Deadline: deadline}, Overdue: overdue}
		known, ok := errors.AsType[*cli.Error](steered(fmt.Errorf("request: %w", e)))
		if !ok || known.Code != cli.ExitFailed || !strings.Contains(known.Hint, want) ||
			strings.Contains(known.Hint, " by ") == overdue {
			t.Errorf("overdue %v: %+v, want %q", overdue, known, want)
		}
	}
}

// The hint of a rewind to the earliest names a reset that is accepted.
func TestHintOfRewindToEarliest(t *testing.T) {
	t.Parallel()
	hint := missingHint(&control.NoEntryError{Time: time.UnixMilli(0), Err: bridge.ErrNoEntry})
	if !strings.HasSuffix(hint, "exportbridge cursor reset --to-earliest --execute") {
		t.Errorf("the hint is %q", hint)
	}
}

// TestSteeredInterrupted: an interrupted command gets no exit code and no hint of a failure.
func TestSteeredInterrupted(t *testing.T) {
	t.Parallel()
	err := error(&bridge.Fault{Hint: "check that Redis runs", Err: fmt.Errorf("read: %w", context.Canceled)})
	if got := steered(err); !errors.Is(got, err) || errors.As(got, new(*cli.Error)) {
		t.Errorf("%#v", got)
	}
}
