package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// listed is a line of cursor list.
type listed struct {
	Stream     string          `json:"stream"`
	Checkpoint *control.Masked `json:"checkpoint,omitempty"`
	Live       *bridge.Status  `json:"live,omitempty"`
	// Note is the origin of the checkpoint, or why there is none.
	Note   string `json:"note,omitempty"`
	silent bool   // Redis did not answer, so it is unknown whether a bridge runs the stream
}

func newCursorListCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List streams and their positions",
		Long: `List streams and their positions: the streams of BRIDGE_STREAMS, and others that
Redis holds under CURSOR_PREFIX.`,
		Example: "  exportbridge cursor list --json",
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	a.TakeWide(cmd)
	asJSON := cli.TakeJSON(cmd)
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		all, err := listCursors(cmd.Context(), a)
		if err != nil {
			return err
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, all)
		}
		return showList(a, all)
	})
	return cmd
}

func listCursors(ctx context.Context, a *cli.App) ([]listed, error) {
	client, streams, err := openStreams(a, 0, "")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	others, _ := client.Streams(ctx) // the notes of the streams show the error
	others = slices.DeleteFunc(others, func(name string) bool {
		return slices.ContainsFunc(streams, func(c *control.Controller) bool { return c.Stream() == name })
	})
	all := make([]listed, len(streams)+len(others))
	control.Each(len(all), func(i int) {
		if i < len(streams) {
			all[i] = listedOf(ctx, streams[i].Stream(), streams[i].Position, streams[i].Live)
			return
		}
		store := client.Stream(others[i-len(streams)])
		position := func(ctx context.Context) (control.Position, error) {
			c, err := store.Load(ctx)
			return control.Position{Checkpoint: c}, err
		}
		all[i] = listedOf(ctx, others[i-len(streams)], position, store.Status)
	})
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.Stream, b.Stream) })
	return all, ctx.Err()
}

func listedOf(
	ctx context.Context, name string,
	position func(context.Context) (control.Position, error), status func(context.Context) (bridge.Status, bool, error),
) listed {
	l := listed{Stream: name}
	at, err := position(ctx)
	if err != nil {
		l.Note = process.Cut(err.Error(), 160)
	} else {
		l.Checkpoint, l.Note = control.Mask(&at.Checkpoint), at.Note
	}
	live, alive, err := status(ctx)
	if alive {
		l.Live = &live
	}
	l.silent = err != nil
	return l
}

func showList(a *cli.App, all []listed) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "  no streams")
		return err
	}
	now := time.Now()
	rows := [][]string{{"STREAM", "STATE", "POSITION", "ENTRY", "EVENTS", "OWNER", "NOTE"}}
	for i := range all {
		l := &all[i]
		row := []string{l.Stream, noStatus, "-", "-", "-", "-", l.Note}
		if c := l.Checkpoint; c != nil {
			row[3], row[4] = c.Version.String(), humanize.Comma(c.Events)
			if c.PositionTime > 0 {
				row[2] = secondText(c.PositionTime)
			}
			if c.Paused(now) {
				row[1] = "paused, " + noStatus
			}
			if ch := c.Change; ch != nil && l.Note == "" {
				row[6] = fmt.Sprintf("%s from %s", ch.Kind, ch.From)
			}
		}
		if l.silent {
			row[1] = "unknown"
		}
		if l.Live != nil {
			live := l.Live
			if c := l.Checkpoint; c != nil {
				live = placed(live, c.Checkpoint)
			}
			row[1], row[5] = describeState(live, now), live.Owner
		}
		rows = append(rows, row)
	}
	return a.PrintTable(rows)
}
