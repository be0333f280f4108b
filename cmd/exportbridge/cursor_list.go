package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
)

// listed is a line of cursor list.
type listed struct {
	Stream     string             `json:"stream"`
	Checkpoint *bridge.Checkpoint `json:"checkpoint,omitempty"`
	Live       *bridge.Status     `json:"live,omitempty"`
	// Note says where the checkpoint is from, or why there is none.
	Note   string `json:"note,omitempty"`
	silent bool   // Redis does not say whether a bridge runs it
}

func newCursorListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the streams and where they are",
		Long: `List the streams and where they are: those of BRIDGE_STREAMS, and any other that
Redis knows under CURSOR_PREFIX.`,
		Example: "  exportbridge cursor list --json",
		Args:    noArgs,
	}
	a.takeSettings(cmd)
	asJSON := takeJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := a.listCursors(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(a.stdout, all)
		}
		return a.showList(all)
	}
	return cmd
}

func (a *app) listCursors(ctx context.Context) ([]listed, error) {
	var all []listed
	err := a.eachPosition(ctx, "", func(p *position) error {
		all = append(all, p.listed(ctx))
		if len(all) > 1 {
			return nil
		}
		known, err := p.client.Streams(ctx)
		if err != nil {
			return nil //nolint:nilerr // the note of each stream says so
		}
		for _, name := range known {
			if _, err := streamNamed(p.all, name); err == nil {
				continue
			}
			other := *p
			other.store, other.sink = p.client.Stream(name), nil
			all = append(all, other.listed(ctx))
		}
		return nil
	})
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.Stream, b.Stream) })
	return all, err
}

func (p *position) listed(ctx context.Context) listed {
	l := listed{Stream: p.store.Name()}
	c, err := p.find(ctx)
	if err != nil {
		l.Note = cut(err.Error(), 160)
	} else {
		l.Checkpoint, l.Note = &c.Checkpoint, c.note
	}
	live, alive, err := p.store.Status(ctx)
	if alive {
		l.Live = &live
	}
	l.silent = err != nil
	return l
}

func (a *app) showList(all []listed) error {
	now := time.Now()
	rows := [][]string{{"STREAM", "STATE", "POSITION", "ENTRY", "EVENTS", "OWNER", "NOTE"}}
	for i := range all {
		l := &all[i]
		row := []string{l.Stream, "not running", "-", "-", "-", "-", l.Note}
		if c := l.Checkpoint; c != nil {
			row[3], row[4] = c.Place.String(), humanize.Comma(c.Events)
			if c.PositionTime > 0 {
				row[2] = time.UnixMilli(c.PositionTime).UTC().Format(timeLayout)
			}
			if c.Paused(now) {
				row[1] = "paused, not running"
			}
		}
		if l.silent {
			row[1] = "not known"
		}
		if l.Live != nil {
			row[1], row[5] = describeState(l.Live, now), l.Live.Owner
		}
		rows = append(rows, row)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.stdout, "  no streams")
		return err
	}
	return printTable(a.stdout, rows)
}
