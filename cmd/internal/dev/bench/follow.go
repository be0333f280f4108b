package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// shutdownGrace is how long a process may take to end after a signal.
const shutdownGrace = 10 * time.Second

// ending ends a process and waits for its end.
type ending func(cmd *exec.Cmd, ended <-chan struct{}) error

// whileRuns starts a cell's process, calls do, and ends the process. It is an error
// if the process ends before do returns.
func (b *bench) whileRuns(ctx context.Context, c cell, env []string, end ending, do func(context.Context) error) error {
	p := b.part(c)
	p.Follow = true
	cmd, err := b.processes.command(ctx, env, p.args())
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.work, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // an end after do is no error
		stop(errors.New("it ended too soon"))
	}()
	err = do(ctx)
	if err == nil {
		err = end(cmd, ended)
	} else {
		err = cmp.Or(context.Cause(ctx), err) // before Kill, which ends ctx too
		_ = cmd.Process.Kill()                // it may have ended
		<-ended
	}
	if err != nil {
		return fmt.Errorf("run %s: %w%s", c.work, err, lastError([]byte(stderr.String())))
	}
	return nil
}

// endGently ends a process by SIGTERM, and after shutdownGrace kills it.
func endGently(cmd *exec.Cmd, ended <-chan struct{}) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		_ = cmd.Process.Kill() // without signals, on Windows
	}
	late := time.NewTimer(shutdownGrace)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
	}
	return kill(cmd, ended)
}

// kill ends a process at once.
func kill(cmd *exec.Cmd, ended <-chan struct{}) error {
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-ended
	return nil
}

// readWait is how long a broker may wait for records to answer a fetch.
const readWait = time.Second

// read reads the committed records of a topic until more returns false.
func (b *bench) read(ctx context.Context, topic string, more func(records []*kgo.Record, at time.Time) bool) error {
	reader, err := b.backend.reader(topic, kgo.FetchMaxWait(readWait))
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

const (
	agesWanted  = 600         // how many ages are measured
	agesSkipped = time.Second // how long the bridge may catch up before
)

// age measures how old the events of a growing export are when they are read.
func (b *bench) age(ctx context.Context, c cell, name string) (measurement, error) {
	ages, err := b.onOwnAPI(ctx, part{Growing: true}, func(api apiServer) ([]time.Duration, error) {
		return b.ages(ctx, c, name, api)
	})
	if err != nil {
		return measurement{}, err
	}
	return measurement{Events: len(ages), AgeP99: milliseconds(quantile(ages, 0.99))}, nil
}

func (b *bench) ages(ctx context.Context, c cell, name string, api apiServer) ([]time.Duration, error) {
	clock, err := api.restart(ctx, 0)
	if err != nil {
		return nil, err
	}
	env := append(b.settings(c, name, api), "EXPORT_POLL_INTERVAL="+pollInterval.String(),
		"EXPORT_POLL_INTERVAL_MAX="+pollInterval.String())
	wanted := agesWanted
	if c.warming {
		wanted /= 10
	}
	var ages []time.Duration
	var from time.Time
	err = b.whileRuns(ctx, c, env, endGently, func(ctx context.Context) error {
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

// onOwnAPI calls do with an API that it starts for this run, and sorts the result.
func (b *bench) onOwnAPI(
	ctx context.Context, p part, do func(apiServer) ([]time.Duration, error),
) ([]time.Duration, error) {
	p.Kind = serverAPI
	s, err := b.processes.serve(ctx, "API of one run", nil, p.args())
	if err != nil {
		return nil, err
	}
	values, err := do(apiServer(s.addr))
	slices.Sort(values)
	return values, errors.Join(err, s.stop())
}

// quantile returns the quantile q of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
