package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
)

func TestProgressText(t *testing.T) {
	t.Parallel()
	first := backfill.Progress{Windows: 4}
	for want, now := range map[string]backfill.Progress{
		"  [1/4]   62 %  40 events   4/s   eta 6s":     {Ended: 1, Windows: 4, Events: 40, Share: 0.625, Worked: 0.625},
		"  [1/4]   75 %  40 events   4/s   eta 10s":    {Ended: 1, Windows: 4, Events: 40, Share: 0.75, Worked: 0.25},
		"  [2/4]   50 %  0 events   0/s   eta unknown": {Ended: 2, Windows: 4, Share: 0.5},
		"  [0/4]    0 %  9 events   1/s   eta unknown": {Windows: 4, Events: 9, Share: 1e-12, Worked: 1e-12},
		"  [4/4]  100 %  40 events   4/s":              {Ended: 4, Windows: 4, Events: 40, Share: 1, Worked: 0.25},
	} {
		if got := progressText(&now, &first, 10*time.Second); got != want {
			t.Errorf("shows %q, want %q", got, want)
		}
	}
}

func TestRateText(t *testing.T) {
	t.Parallel()
	for want, perSecond := range map[string]float64{
		"1/m": 1. / 60, "1.667/s": 100. / 60, "10/s": 10, "1.5/s": 1.5, "20/h": 20. / 3600, "1/h": 1. / 3600, "0.5/h": 0.5 / 3600,
	} {
		if got := rateText(perSecond); got != want {
			t.Errorf("%g per second is %s, want %s", perSecond, got, want)
		}
	}
}

// TestReplayPlanTopic: a dry run of a replay names no topic that --execute will not use.
func TestReplayPlanTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runOnce(t)
	got := runProgram(t, w.env, "replay", "--from", "2020-01-01T00:00:00Z", "--to", "2020-01-02T00:00:00Z", "--json")
	var plan struct{ ID, Topic string }
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || plan.ID != "" || plan.Topic != "export.events.replay.<id>" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRunsText: a process that may run lanes is not said to run the job.
func TestRunsText(t *testing.T) {
	t.Parallel()
	member := []bridge.Member{{ClientID: "pod-0", Host: "h"}}
	for want, l := range map[string]backfill.Listed{
		"":                                   {LaneProcesses: []string{"", ""}},
		"a runs lanes 1, 3; b runs lane 2":   {Processes: member, LaneProcesses: []string{"a", "b", "a"}},
		member[0].String() + " runs the job": {Processes: member},
		"a rebalance hides which processes run its lanes": {
			Job: backfill.Job{Lanes: 2}, Processes: member, LaneProcesses: []string{"", ""}},
	} {
		if got := runsText(&l); got != want {
			t.Errorf("%+v: %q, want %q", l, got, want)
		}
	}
}

// TestJobErrors: each error of a job has an exit code and a hint.
func TestJobErrors(t *testing.T) {
	t.Parallel()
	for why, code := range map[backfill.Reason]int{
		backfill.Unknown: cli.ExitFailed, backfill.Exists: cli.ExitFailed, backfill.IsDone: cli.ExitFailed,
		backfill.WasCancelled: cli.ExitFailed,
		backfill.OtherKind:    cli.ExitUsage, backfill.OtherResource: cli.ExitUsage, backfill.OtherPlan: cli.ExitFailed,
		backfill.OtherOrigin: cli.ExitUsage,
		backfill.InUse:       cli.ExitNotOwner, backfill.Overlaps: cli.ExitFailed,
		backfill.NoBounds: cli.ExitUsage,
	} {
		refused := &backfill.RejectedError{Reason: why, Job: backfill.Job{ID: "aaaaaa", Kind: backfill.Backfill,
			Resource: "events"}}
		if exit, ok := errors.AsType[*cli.Error](jobError(refused)); !ok || exit.Code != code || exit.Hint == "" {
			t.Errorf("%s: %+v, want code %d and a hint", why, exit, code)
		}
	}
	p := &jobPlan{jobOptions: &jobOptions{kind: backfill.Backfill}}
	p.job = backfill.Job{ID: "aaaaaa", Windows: backfill.Split(0, 4, 4)}
	p.job.Windows[1].Ended, p.job.Windows[1].Events = "on its last page", 7
	fault := &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonCursor, Err: errors.New("gone")}
	for name, test := range map[string]struct {
		cause error
		code  int
		hint  string
	}{
		"cancelled":   {fmt.Errorf("%w by me", backfill.ErrCancelled), cli.ExitFailed, "exportbridge backfill list"},
		"interrupted": {context.Canceled, cli.ExitInterrupted, "exportbridge backfill --resume aaaaaa --execute"},
		"away": {&bridge.Fault{Class: bridge.Transient, Err: errors.New("i/o timeout")}, cli.ExitFailed,
			"exportbridge backfill --resume aaaaaa --execute"},
		"elsewhere": {bridge.ErrNotOwner, cli.ExitNotOwner,
			"wait for the other process or stop it; then exportbridge backfill --resume aaaaaa --execute"},
		"blocked": {&bridge.BlockedError{Reason: bridge.ReasonCursor, Err: fault}, cli.ExitRefused,
			"backfill cancel aaaaaa"},
	} {
		exit, ok := errors.AsType[*cli.Error](p.interrupted(test.cause))
		if !ok || exit.Code != test.code || !exit.Unsure || !strings.Contains(exit.Hint, test.hint) ||
			name == "blocked" && strings.Contains(exit.Hint, "--resume") || // a cancelled job cannot be resumed
			!strings.Contains(exit.Error(), "job aaaaaa has 1 of 4 windows done, 7 events so far") {
			t.Errorf("%s: %+v", name, exit)
		}
	}
}
