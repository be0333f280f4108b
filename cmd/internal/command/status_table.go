package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// mostInFull is the maximum number of streams that status shows in full. More streams
// become a table.
const mostInFull = 3

// statusTable returns a table of the streams, the worst first, below the number of streams
// in each condition. The table has at most height lines, and leaves out the last streams. A
// height of 0 is no limit.
func statusTable(a *cli.App, all []streamStatus, height int) string {
	now := time.Now()
	briefs := make([]control.Brief, len(all))
	for i := range all {
		briefs[i] = all[i].Brief(now)
	}
	slices.SortFunc(briefs, control.Brief.Compare)
	head := strings.Join(cli.Wrap(summary(briefs), a.Columns), "\n") + "\n"
	for shown := len(briefs); ; {
		text := head + briefTable(a, briefs[:shown])
		if left := len(briefs) - shown; left > 0 {
			text += "and " + cli.Counted(left, "stream") + " more\n"
		}
		over := strings.Count(text, "\n") + 1 - height // the terminal's cursor is below the last line
		if height == 0 || over <= 0 || shown == 1 {
			return text
		}
		shown = max(1, shown-over)
	}
}

// summary counts the streams in each condition.
func summary(briefs []control.Brief) string {
	n := make(map[bridge.State]int)
	for i := range briefs {
		n[briefs[i].Condition]++
	}
	var parts []string
	for _, c := range control.Conditions {
		if n[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[c], c.Text()))
		}
	}
	return cli.Counted(len(briefs), "stream") + ": " + strings.Join(parts, ", ")
}

func briefTable(a *cli.App, briefs []control.Brief) string {
	rows := [][]string{{"STREAM", "STATE", "BEHIND", "EVENTS/S", "OWNER", "NOTE"}}
	for i := range briefs {
		b := &briefs[i]
		row := []string{b.Stream, b.Condition.Text(), "-", "-", "-", b.Why}
		if b.Condition == bridge.StateBlocked {
			row[1] = fmt.Sprintf("BLOCKED (%s)", b.Reason)
		}
		if b.Lag >= 0 {
			row[2] = cli.RoundDuration(b.Lag)
		}
		if b.Owner != "" {
			row[3], row[4] = fmt.Sprintf("%.0f", b.Rate), b.Owner
		}
		rows = append(rows, row)
	}
	var text strings.Builder
	_, _ = cli.PrintTable(&text, rows, a.Columns) // cannot fail in memory
	if a.Columns > 0 && !process.NoColor(a.Environ) {
		return strings.ReplaceAll(text.String(), "  BLOCKED (", "  \x1b[1;31mBLOCKED\x1b[0m (")
	}
	return text.String()
}
