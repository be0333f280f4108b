package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge/kafkagroup"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// groupOf asks Kafka for the processes that share the named stream, or all streams.
func groupOf(ctx context.Context, a *cli.App, name string) (kafkagroup.Overview, error) {
	s, err := a.StreamsSettings(config.WithoutKey, name)
	if err != nil {
		return kafkagroup.Overview{}, err
	}
	groups := make([]*kafkagroup.Group, len(s.Streams))
	for i := range s.Streams {
		groups[i] = s.Streams[i].Kafka.Ownership()
	}
	o, err := groups[0].Overview(ctx, groups)
	return o, cli.Explain(err)
}

func showGroup(ctx context.Context, a *cli.App, name string, asJSON bool) error {
	o, err := groupOf(ctx, a, name)
	switch {
	case err != nil:
		return err
	case asJSON:
		err = cli.PrintJSON(a.Stdout, &o)
	default:
		err = printGroup(a, &o)
	}
	return cmp.Or(err, incomplete(&o))
}

// incomplete returns the error of an overview for which a group could not be described. During a rebalance nothing is
// wrong.
func incomplete(o *kafkagroup.Overview) error {
	unknown := func(s kafkagroup.GroupStream) bool { return s.Error != "" }
	i := slices.IndexFunc(o.Streams, unknown)
	if i < 0 || slices.ContainsFunc(o.Processes, func(p kafkagroup.GroupProcess) bool { return p.Unknown }) {
		return nil
	}
	return cli.Errorf(cli.ExitFailed, "exportbridge check", "the status of stream %s is incomplete: %s", o.Streams[i].Stream,
		o.Streams[i].Error)
}

func printGroup(a *cli.App, o *kafkagroup.Overview) error {
	rows := [][2]string{{"group", o.Group + ", " + generationText(o, time.Now())}}
	for i := range o.Processes {
		name := ""
		if i == 0 {
			name = "processes"
		}
		rows = append(rows, [2]string{name, processText(&o.Processes[i], o.Streams)})
	}
	rows = slices.Concat(rows, blockedRows(o.Streams), waitingRows(o.Streams))
	var text strings.Builder
	_ = cli.PrintFields(&text, rows, a.Columns) // cannot fail in memory
	_, err := io.WriteString(process.Exact(a.Stdout), text.String())
	return err
}

func generationText(o *kafkagroup.Overview, now time.Time) string {
	switch {
	case len(o.Processes) == 0 &&
		slices.ContainsFunc(o.Streams, func(s kafkagroup.GroupStream) bool { return s.OwnGroup != "" }):
		return "no processes: the streams have groups of their own (BRIDGE_OWNERSHIP=stream)"
	case len(o.Processes) == 0:
		return "no processes"
	case o.Generation == 0:
		return "generation unknown: a rebalance is in progress, or the leader has an older version"
	}
	age := cli.RoundDuration(max(0, now.Sub(o.Planned)))
	return fmt.Sprintf("generation %d, assigned %s ago", o.Generation, age)
}

// processText describes a process and the streams that it owns.
func processText(p *kafkagroup.GroupProcess, streams []kafkagroup.GroupStream) string {
	text := p.Name + " at " + p.Host
	if p.Version != "" {
		text += ", version " + p.Version
	}
	if p.Unknown {
		return text + ": its streams are unknown, as during a rebalance"
	}
	if p.Lanes > 0 {
		lanes := cli.Counted(int(p.Capacity), "job lane") //nolint:gosec // a few
		text += fmt.Sprintf(", runs %d of at most %s", p.Lanes, lanes)
	}
	var names []string
	for i := range streams {
		if streams[i].Owner == p.Name {
			names = append(names, streams[i].Stream)
		}
	}
	if other := p.Owned - len(names); other > 0 {
		names = append(names, fmt.Sprintf("%d not asked for", other))
	}
	text += fmt.Sprintf(", owns %d of %s", p.Owned, cli.Counted(p.Listed, "stream"))
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

// blockedRows lists the streams that no process may begin, and what to do.
func blockedRows(streams []kafkagroup.GroupStream) (rows [][2]string) {
	hint := ""
	for i := range streams {
		if s := &streams[i]; s.Blocked != "" {
			text := s.Stream + ": " + s.Blocked
			if s.Owner != "" {
				text += "; assigned to " + s.Owner
			}
			rows, hint = append(rows, [2]string{"", text}), s.Hint
		}
	}
	if len(rows) > 0 {
		rows[0][0] = "blocked"
		rows = append(rows, [2]string{"try", hint})
	}
	return rows
}

// waitingRows lists the streams that no process runs, including assigned streams that their
// process does not run yet.
func waitingRows(streams []kafkagroup.GroupStream) (rows [][2]string) {
	for i := range streams {
		s := &streams[i]
		text := ""
		switch {
		case s.Blocked != "":
			continue
		case s.Error != "":
			text = "unknown: " + s.Error
		case s.OwnGroup != "":
			text = "owned by " + s.OwnGroup + "; all others wait until it has left"
		case s.Releasing:
			text = "the others wait until " + s.Owner + " has released it"
		case s.Owner != "":
			continue
		case len(s.Standby) > 0:
			text = "not assigned yet; can run in " + strings.Join(s.Standby, ", ")
		case len(s.Declined) > 0:
			text = "declined by " + strings.Join(s.Declined, ", ") + ", which are blocked or ask again later"
		default:
			text = "no process lists it"
		}
		name := ""
		if len(rows) == 0 {
			name = "waiting"
		}
		rows = append(rows, [2]string{name, s.Stream + ": " + text})
	}
	return rows
}
