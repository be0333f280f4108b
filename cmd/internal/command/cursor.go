package command

import (
	"cmp"
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

func newCursorCommand(a *cli.App) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "cursor",
		Short: "Show and move the committed cursor",
		Example: `  exportbridge cursor show
  exportbridge cursor history --limit 20
  exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute`,
		GroupID: cli.GroupPosition,
	}, newCursorShowCommand(a), newCursorHistoryCommand(a), newCursorListCommand(a), newCursorRewindCommand(a),
		newCursorResetCommand(a), newCursorExportCommand(a), newCursorImportCommand(a))
}

func newCursorShowCommand(a *cli.App) *cobra.Command {
	var stream string
	var raw bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the position of a stream",
		Long: `Show the committed cursor of a stream. It is read from Redis, or from the
checkpoint topic if Redis has none or is unreachable; a note says so.`,
		Example: "  exportbridge cursor show --json",
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().BoolVar(&raw, "raw", false, "print only the cursor, which can be sensitive")
	cmd.RunE = withStream(a, &stream, func(ctx context.Context, h *streamHandle) error {
		c, err := h.Position(ctx)
		if err != nil {
			return err
		}
		if raw {
			_, err := fmt.Fprintln(process.Raw(a.Stdout), c.Cursor)
			return err
		}
		status, alive, err := h.Live(ctx)
		if err != nil && c.Note == "" {
			return err
		}
		var live *bridge.Status
		if alive {
			live = &status
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, cursorShown{control.Mask(&c.Checkpoint), c.Note, live})
		}
		return showCursor(a, &c, live, err != nil)
	})
	return cmd
}

// cursorShown is the JSON form of cursor show.
type cursorShown struct {
	Checkpoint *control.Masked `json:"checkpoint"`
	// Note says why the checkpoint is not from Redis.
	Note string         `json:"note,omitempty"`
	Live *bridge.Status `json:"live,omitempty"`
}

// noStatus is the state of a stream without a status in Redis. A process with another Redis
// may run the stream. Only the stream's group in Kafka shows such a process; exportbridge
// status reads this group.
const noStatus = "no status in Redis"

// showCursor prints the position of a stream. live is nil if Redis has no status of the
// stream. silent is true if Redis did not answer.
func showCursor(a *cli.App, c *control.Position, live *bridge.Status, silent bool) error {
	now := time.Now()
	state := noStatus
	switch {
	case live != nil:
		state = fmt.Sprintf("%s (by %s)%s",
			describeStatus(placed(live, &c.Checkpoint), now), live.Owner, resumeText(live.PausedUntil))
	case silent:
		state = "unknown: Redis is unreachable"
	case c.Paused(now):
		state = pauseText(c.PausedUntil, now) + ", " + state + resumeText(c.PausedUntil)
	}
	cursor := "none yet; the export starts at " + bridge.BoundText(c.Origin.Start)
	if c.Cursor != "" {
		cursor = fmt.Sprintf("%s  (%s bytes, sha256 %s)",
			control.ShortCursor(c.Cursor), humanize.Comma(int64(len(c.Cursor))), bridge.CursorHash(c.Cursor))
	}
	rows := [][2]string{
		{"stream", c.Stream},
		{"state", state},
		{"cursor", cursor},
		{"position", positionText(&c.Checkpoint, live, now)},
		{"committed", committedText(&c.Checkpoint, "events", now)},
	}
	add := func(name, text string) { rows = append(rows, [2]string{name, text}) }
	if len(c.Tail) > 0 {
		add("tail", cli.Counted(len(c.Tail), "event")+" published of the last page, which may grow")
	}
	if live != nil && live.DeadLettered > 0 {
		add("dead letters", humanize.Comma(live.DeadLettered)+" since the bridge started: exportbridge tail --dlq")
	}
	if live != nil && rivals(live, &c.Checkpoint) {
		add("note", fmt.Sprintf("the newest commit is by %s: do two bridges run this stream?", c.Owner))
	}
	if c.Change != nil {
		add("last change", changeText(c.Change))
	}
	if c.Note != "" {
		add("note", c.Note)
	}
	return cli.PrintFields(a.Stdout, a.Advised(rows, c.Stream), a.Width())
}

// rivals reports whether a second bridge may run the stream: the newest commit is by another
// owner than live, live does not know it yet, and no command made it.
func rivals(live *bridge.Status, c *bridge.Checkpoint) bool {
	command := slices.Contains([]bridge.Kind{bridge.KindReset, bridge.KindPause, bridge.KindResume}, c.Kind)
	return live.Owner != c.Owner && !command && live.Version.Compare(c.Version) < 0
}

func secondText(ms int64) string { return time.UnixMilli(ms).UTC().Format(cli.TimeLayout) }

// committedText describes the last commit. events is the noun after its number of events.
func committedText(c *bridge.Checkpoint, events string, now time.Time) string {
	ago := cli.RoundDuration(max(0, now.Sub(time.UnixMilli(c.WrittenAt)))) // the owner's clock may be ahead
	return fmt.Sprintf("entry %s, page %s, %s %s, %s ago",
		c.Version, humanize.Comma(c.Pages), humanize.Comma(c.Events), events, ago)
}

func changeText(c *bridge.Change) string {
	return fmt.Sprintf("%s %s from entry %s at %s%s", c.Kind, c.ID, c.From, secondText(c.At), byText(c.Who, c.Reason))
}

// byText returns the end of a change's text: who made the change, and why.
func byText(who, reason string) (text string) {
	if who != "" {
		text = " by " + who
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func newCursorHistoryCommand(a *cli.App) *cobra.Command {
	var stream, since string
	var limit int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List committed cursors, newest first",
		Long: `List committed cursors, newest first: at most one per second for the last 24
hours, one per minute up to CURSOR_HISTORY_AGE, fewer while only the last page
grows, and every operator action. Entries older than those in Redis are read
from the checkpoint topic, which keeps all commits of the last seven days.
cursor rewind finds the commits between entries too.

"other branch" marks the entries that a later rewind or reset left.`,
		Example: `  exportbridge cursor history --limit 20
  exportbridge cursor history --since -2h --json`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().StringVar(&since, "since", "", "list entries committed since `TIME`")
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most `N` entries; 0 for all")
	q := bridge.HistoryQuery{}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if q.Limit = limit; limit < 0 {
			return cli.WrongUsage("--limit 50", "--limit %d is below 0", limit)
		}
		if since != "" {
			ms, err := bridge.ParsePast(since, time.Now())
			if err != nil {
				return cli.WrongUsage("--since -2h", "--since: %w", err)
			}
			q.Since = time.UnixMilli(ms)
		}
		return nil
	}
	cmd.RunE = withStream(a, &stream, func(ctx context.Context, h *streamHandle) error {
		found, err := h.History(ctx, q)
		if err != nil {
			return err
		}
		if found.Note != "" {
			fmt.Fprintf(a.Stderr, "  %s\n", found.Note)
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, found.Entries)
		}
		if len(found.Entries) == 0 {
			_, err := h.Position(ctx)
			return err
		}
		return showHistory(a, found.Entries)
	})
	return cmd
}

func showHistory(a *cli.App, entries []control.HistoryEntry) error {
	rows := [][]string{{"ENTRY", "COMMITTED", "POSITION", "PAGE", "EVENTS", "NOTE"}}
	for i := range entries {
		e, position := &entries[i], "-"
		if e.PositionTime > 0 {
			position = secondText(e.PositionTime)
		}
		rows = append(rows, []string{
			e.Version.String(), secondText(e.WrittenAt), position,
			humanize.Comma(e.Pages), humanize.Comma(e.Events), entryNote(e),
		})
	}
	return a.PrintTable(rows)
}

// entryNote names the change that made an entry, and marks an entry of another branch.
func entryNote(e *control.HistoryEntry) string {
	var notes []string
	if e.OtherBranch {
		notes = append(notes, "other branch")
	}
	switch ch := e.Change; {
	case ch != nil && e.Seq == 0:
		notes = append(notes, fmt.Sprintf("%s from %s%s", ch.Kind, ch.From, byText(ch.Who, ch.Reason)))
	case e.Kind == bridge.KindRoutes:
		notes = append(notes, "routes: "+cmp.Or(e.Routes, "none"))
	case e.Kind != bridge.KindData:
		notes = append(notes, string(e.Kind))
	}
	return strings.Join(notes, "; ")
}
