package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// pausing pauses or resumes one stream or several.
type pausing struct {
	change
	kind    bridge.Kind
	act     func(context.Context, *control.Controller) (control.Done, error)
	all     bool
	match   string
	execute bool
}

func (p *pausing) flags(cmd *cobra.Command) {
	p.change.flags(cmd)
	cmd.Flags().BoolVar(&p.all, "all", false, fmt.Sprintf("%s all streams; a dry run without --execute", p.kind))
	cmd.Flags().StringVar(&p.match, "match", "",
		fmt.Sprintf("%s the streams whose names match `PATTERN`, such as 'acme-*'", p.kind))
	cli.TakeExecute(cmd, &p.execute)
	cmd.Flags().Lookup("execute").Usage = "with --all or --match: apply the change"
	cmd.Flags().Lookup("dry-run").Usage = "with --all or --match: show the plan (default)"
}

func (p *pausing) run(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	many := p.all || given("match")
	_, wrong := path.Match(p.match, "")
	switch example := fmt.Sprintf("exportbridge %s --match 'acme-*'", p.kind); {
	case many && given("stream") || p.all && given("match"):
		return cli.WrongUsage(example, "--stream, --all and --match are mutually exclusive")
	case wrong != nil:
		return cli.WrongUsage(example, "--match %q: %w", p.match, wrong)
	case many:
		return p.runMany(cmd.Context())
	case given("execute"):
		example = fmt.Sprintf("exportbridge %s", p.kind)
		fallthrough
	case given("dry-run"):
		return cli.WrongUsage(example, "--execute and --dry-run require --all or --match: "+
			"the %s of one stream takes effect at once", p.kind)
	}
	return p.runOne(cmd.Context())
}

func (p *pausing) runMany(ctx context.Context) error {
	client, streams, err := openStreams(p.app, config.UsesExport, "")
	if err != nil {
		return err
	}
	defer client.Close()
	streams = slices.DeleteFunc(streams, func(c *control.Controller) bool {
		matches, _ := path.Match(p.match, c.Stream()) // the pattern is valid
		return !p.all && !matches
	})
	if len(streams) == 0 {
		return cli.WrongUsage("exportbridge status", "no stream matches %q", p.match)
	}
	if !p.execute {
		return p.plan(ctx, streams)
	}
	return p.apply(ctx, streams)
}

// plan shows the streams and changes nothing.
func (p *pausing) plan(ctx context.Context, streams []*control.Controller) error {
	all := make([]streamStatus, len(streams))
	control.Each(len(streams), func(i int) { all[i] = streamStatus{Report: streams[i].Glance(ctx)} })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if *p.json {
		plan := make([]pauseReport, len(all))
		for i := range all {
			plan[i] = pauseReport{Stream: all[i].Stream, Kind: p.kind, State: all[i].Brief(time.Now()).Condition}
		}
		return errors.Join(cli.PrintJSON(p.app.Stdout, plan), unreachable(all))
	}
	text := fmt.Sprintf("%s %s\n", p.kind, statusTable(p.app, all, 0))
	_, err := fmt.Fprintln(p.app.Stdout, text+"  dry run: nothing was changed. Add --execute to apply.")
	return errors.Join(err, unreachable(all))
}

// apply changes the streams, several at a time. It continues after a failure, and prints
// each result at once. Its error names the streams that failed.
func (p *pausing) apply(ctx context.Context, streams []*control.Controller) error {
	p.sign()
	var mu sync.Mutex // guards the output and all below
	waiting := p.by.Waiting
	p.by.Waiting = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		waiting(err)
	}
	var failed []string
	hint, changed := "", 0
	results := make([]pauseReport, len(streams))
	control.Each(len(streams), func(i int) {
		c, asked := streams[i], time.Now()
		done, same, err := control.Done{}, false, ctx.Err()
		if err == nil {
			done, same, err = p.do(ctx, c)
		}
		mu.Lock()
		defer mu.Unlock()
		results[i] = p.done(c.Stream(), &done)
		switch {
		case same:
		case err != nil:
			results[i] = pauseReport{Stream: c.Stream(), Kind: p.kind, Error: err.Error()}
			failed = append(failed, c.Stream())
			if e, ok := errors.AsType[*cli.Error](steered(err)); ok {
				hint = cmp.Or(hint, p.app.Advice(e.Hint, c.Stream()))
			}
			fmt.Fprintf(p.app.Stderr, "  %s: %v\n", c.Stream(), err)
		default:
			changed++
			if !*p.json {
				fmt.Fprintf(p.app.Stdout, "  %s: %s\n", c.Stream(), doneText(p.kind, done, asked))
			}
		}
	})
	return p.report(ctx, results, changed, failed, hint)
}

// report prints the results, and returns the error of the streams that failed.
func (p *pausing) report(
	ctx context.Context, results []pauseReport, changed int, failed []string, hint string,
) error {
	var err error
	if *p.json {
		err = cli.PrintJSON(p.app.Stdout, results)
	} else {
		text := fmt.Sprintf("  %d of %s %sd", changed, cli.Counted(len(results), "stream"), p.kind)
		if same := len(results) - changed - len(failed); same > 0 {
			text += fmt.Sprintf(", %d not paused", same)
		}
		_, err = fmt.Fprintln(p.app.Stdout, text)
	}
	if err != nil || len(failed) == 0 {
		return err
	}
	code := cli.ExitFailed
	if ctx.Err() != nil {
		code = cli.ExitInterrupted
	}
	slices.Sort(failed)
	return cli.Errorf(code, hint, "%s of %d not %sd: %s", cli.Counted(len(failed), "stream"), len(results), p.kind,
		strings.Join(failed, ", "))
}
