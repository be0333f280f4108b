package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// Each error of a controller has an exit code and a hint.
func TestSteered(t *testing.T) {
	t.Parallel()
	const again = "start Redis, or correct REDIS_URL, and the same command again"
	left, at := bridge.Version{Epoch: 1, Seq: 7}, time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	redis := &bridge.Fault{Err: errors.New("connection refused"), Hint: "check that Redis runs"}
	noEntry := fmt.Errorf("entry 1.2: %w", bridge.ErrNoEntry)
	away := func(because error) error { return &control.StoreAwayError{Because: because, Err: redis} }
	for _, test := range []struct {
		err  error
		code int
		hint string
	}{
		{&control.NoCheckpointError{Stream: "events"}, exitFailed, "exportbridge run"},
		{&control.NoCheckpointError{Known: []string{"users"}}, exitFailed, "--stream, or the CURSOR_PREFIX and REDIS_URL of the bridge"},
		{&control.NoCheckpointError{Live: &bridge.Status{Hint: "look"}}, exitFailed, "look"},
		{&control.NoEntryError{Err: noEntry}, exitFailed, "exportbridge cursor history, or cursor reset --to-datetime"},
		{&control.NoEntryError{Err: noEntry, Time: at}, exitFailed, "exportbridge cursor history, or cursor reset --to-datetime 2026-11-20T13:00:00Z"},
		{&control.NoEntryError{Err: noEntry, Left: &left}, exitFailed, "--to-entry 1.7, where the last change left, or exportbridge cursor history"},
		{&control.NoEntryError{Err: noEntry, Left: &left, Time: at}, exitFailed, "--to-entry 1.7, where the last change left, or exportbridge cursor reset --to-datetime 2026-11-20T13:00:00Z"},
		{fmt.Errorf("stream events has %w", control.ErrNoPosition), exitFailed, "--to-datetime TIME"},
		{&control.ForeignCursorError{Differences: []string{"stream"}}, exitRefused, "--accept-other if you know that the API takes it all the same"},
		{&control.RefusedError{}, exitFailed, "exportbridge cursor show"},
		{&control.RefusedError{Restored: true}, exitFailed, "Redis had lost its copy of the cursor, which is there again: the same command once more"},
		{&control.MovedError{}, exitFailed, "exportbridge cursor show"},
		{&control.UnacknowledgedError{State: bridge.RequestWithdrawn}, exitFailed, "exportbridge check, or a longer --timeout"},
		{&control.UnacknowledgedError{State: bridge.RequestWithdrawn, Interrupted: true}, exitInterrupted, ""},
		{&control.UnacknowledgedError{State: bridge.RequestClaimed, Interrupted: true}, exitFailed, "exportbridge cursor show, to see whether it was applied"},
		{&control.UnacknowledgedError{State: bridge.RequestUnknown, Err: redis}, exitFailed, "exportbridge cursor show"},
		{away(control.ErrStoreHolds), exitFailed, again},
		{away(&control.OwnedError{}), exitFailed, again + "; or stop that process: then the command does it by itself"},
		{away(&control.OwnerUnknownError{Err: redis}), exitFailed, "exportbridge check"},
		{away(&control.TakenOverError{Err: bridge.ErrFenced}), exitFailed, "exportbridge cursor show, to see whether it was applied"},
		{fmt.Errorf("load: %w", redis), exitFailed, "check that Redis runs"},
		{fmt.Errorf("no bridge answers, and %w", &exitError{code: exitUsage, err: errors.New("embedded"), hint: "its address"}), exitUsage, "its address"},
	} {
		e, ok := errors.AsType[*exitError](steered(test.err))
		if !ok || e.code != test.code || e.hint != test.hint || steered(test.err).Error() != test.err.Error() {
			t.Errorf("%T %v: %+v, want code %d and the hint %q", test.err, test.err, e, test.code, test.hint)
		}
	}
	for _, err := range []error{nil, errors.New("strange"), context.Canceled} {
		if _, known := errors.AsType[*exitError](steered(err)); known || !errors.Is(steered(err), err) {
			t.Errorf("%v becomes %v", err, steered(err))
		}
	}
}

// A request that is in the way is done by its deadline, unless that has passed:
// then nobody knows when.
func TestPendingHint(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC).UnixMilli()
	for overdue, want := range map[bool]string{false: "2026-11-20T13:00:00Z at the latest", true: "has not answered it"} {
		e := &bridge.PendingError{Command: bridge.Command{Deadline: deadline}, Overdue: overdue}
		known, ok := errors.AsType[*exitError](steered(fmt.Errorf("request: %w", e)))
		if !ok || known.code != exitFailed || !strings.Contains(known.hint, want) || strings.Contains(known.hint, "at the latest") == overdue {
			t.Errorf("overdue %v: %+v, want %q", overdue, known, want)
		}
	}
}
