package dev

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// goodbye is how long a process that is followed may take to end.
const goodbye = 10 * time.Second

// follow measures a process that goes on for ever: from the first request to
// the last record that a read_committed consumer sees.
func (b *bench) follow(ctx context.Context, c cell, name string) (benchRun, error) {
	api, events := b.apis[c.api], c.pages*pageEvents
	if _, err := api.restart(ctx, events); err != nil {
		return benchRun{}, err
	}
	var ended time.Time
	seen := 0
	use, err := b.whileRuns(ctx, c, name, b.settings(c, name), func(ctx context.Context) error {
		return b.read(ctx, name, func(records []*kgo.Record, at time.Time) bool {
			seen, ended = seen+len(records), at
			return seen < events
		})
	})
	if err != nil {
		return benchRun{}, err
	}
	clock, err := api.restart(ctx, 0)
	if err != nil {
		return benchRun{}, err
	}
	return benchRun{
		Seconds: ended.Sub(clock.First).Seconds(), Requests: clock.Requests, Events: events, CPUSeconds: use.CPUSeconds,
	}, nil
}

// whileRuns does something while a cell's process runs, and ends the process
// then. A process that ends before is an error.
func (b *bench) whileRuns(ctx context.Context, c cell, name string, env []string, do func(context.Context) error) (processUse, error) {
	cmd, err := b.followed(ctx, c, env)
	if err != nil {
		return processUse{}, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return processUse{}, fmt.Errorf("start %s: %w", c.work, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ends is its own affair, as long as it does so late enough
		stop(errors.New("it ended too soon"))
	}()
	err = do(ctx)
	if err == nil {
		err = endGently(cmd, ended)
	} else {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
	}
	if err != nil {
		return processUse{}, fmt.Errorf("run %s: %w%s", c.work, err, lastWords([]byte(said.String())))
	}
	return useOf(name, cmd.ProcessState), nil
}

// followed makes the command of a process that is followed.
func (b *bench) followed(ctx context.Context, c cell, env []string) (*exec.Cmd, error) {
	if c.work != workAgainst {
		return b.parts.command(ctx, env, append(b.command(c), "--follow"))
	}
	words := strings.Fields(b.against)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // the user's own program
	cmd.Env = slices.Concat(b.parts.environ, env)
	cmd.WaitDelay = goodbye
	return cmd, nil
}

// endGently asks a process to end, and makes it end if it does not.
func endGently(cmd *exec.Cmd, ended <-chan struct{}) error {
	if err := cmd.Process.Signal(terminate); err != nil {
		_ = cmd.Process.Kill() // where there are no signals
	}
	late := time.NewTimer(goodbye)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-ended
	return nil
}

// readWait is how long a broker may hold a consumer's request for want of
// records. The default of 5 s is as quick: a record ends the wait.
const readWait = time.Second

// read reads the committed records of a topic until more says that no more are
// needed.
func (b *bench) read(ctx context.Context, topic string, more func(records []*kgo.Record, at time.Time) bool) error {
	reader, err := b.traces.reader(topic, kgo.FetchMaxWait(readWait))
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		fetches := reader.PollFetches(ctx)
		at := time.Now()
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read topic %s: %w", topic, err)
		}
		if records := fetches.Records(); len(records) > 0 && !more(records, at) {
			return nil
		}
	}
}

// How many ages are measured, and how much of the export passes before: the
// bridge has to catch up first.
const (
	agesWanted  = 600
	agesSkipped = time.Second
)

// age measures how old the events of a growing export are when they are read.
func (b *bench) age(ctx context.Context, c cell, name string) (benchRun, error) {
	s, err := b.parts.serve(ctx, "growing api", "bench", "serve-api",
		"--rate", fmt.Sprintf("%d/s", growthRate), "--events", "0", "--gzip=false", "--start", "now")
	if err != nil {
		return benchRun{}, err
	}
	ages, err := b.ages(ctx, c, name, &benchAPI{url: s.addr})
	if _, errStop := s.stop(); err != nil || errStop != nil {
		return benchRun{}, errors.Join(err, errStop)
	}
	slices.Sort(ages)
	return benchRun{Events: len(ages), AgeP50: milliseconds(quantile(ages, 0.5)), AgeP99: milliseconds(quantile(ages, 0.99))}, nil
}

func (b *bench) ages(ctx context.Context, c cell, name string, api *benchAPI) ([]time.Duration, error) {
	clock, err := api.restart(ctx, 0)
	if err != nil {
		return nil, err
	}
	env := append(b.settings(c, name), exportSettings(api)...) // the last one of a variable counts
	env = append(env, "EXPORT_POLL_INTERVAL="+pollInterval.String(), "EXPORT_POLL_INTERVAL_MAX="+pollInterval.String())
	wanted := agesWanted
	if c.warming {
		wanted /= 10
	}
	var ages []time.Duration
	var from time.Time
	_, err = b.whileRuns(ctx, c, name, env, func(ctx context.Context) error {
		return b.read(ctx, name, func(records []*kgo.Record, at time.Time) bool {
			if from.IsZero() {
				from = at.Add(agesSkipped)
			}
			for _, r := range records {
				if i, ok := exportsim.IndexOf(r.Value); ok && at.After(from) {
					ages = append(ages, at.Sub(clock.Grew.Add(time.Duration(i)*time.Second/growthRate)))
				}
			}
			return len(ages) < wanted
		})
	})
	return ages, err
}

// quantile is that of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
