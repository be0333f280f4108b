package command

import (
	"fmt"
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
	cmd := &cobra.Command{
		Use:   "cursor",
		Short: "Show and move the committed cursor",
		Example: `  exportbridge cursor show
  exportbridge cursor history --limit 20
  exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute`,
		GroupID: groupPosition,
		Args:    cli.NoSubcommand,
		RunE:    cli.ShowHelp,
	}
	cmd.AddCommand(newCursorShowCommand(a), newCursorHistoryCommand(a), newCursorListCommand(a), newCursorRewindCommand(a), newCursorResetCommand(a),
		newCursorExportCommand(a), newCursorImportCommand(a))
	return cmd
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
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		h, err := openStream(a, 0, stream)
		if err != nil {
			return err
		}
		defer h.close()
		c, err := h.Position(cmd.Context())
		if err != nil {
			return err
		}
		if raw {
			_, err := fmt.Fprintln(process.Raw(a.Stdout), c.Cursor)
			return err
		}
		live, alive, err := h.Live(cmd.Context())
		if err != nil && c.Note == "" {
			return err
		}
		if *asJSON {
			shown := cursorShown{Checkpoint: control.Mask(&c.Checkpoint), Note: c.Note}
			if alive {
				shown.Live = &live
			}
			return cli.PrintJSON(a.Stdout, shown)
		}
		return showCursor(a, &c, &live, alive, err != nil)
	})
	return cmd
}

// cursorShown is the JSON form of cursor show.
type cursorShown struct {
	Checkpoint *control.Masked `json:"checkpoint"`
	// Note says why the checkpoint is not from Redis, where it is not.
	Note string         `json:"note,omitempty"`
	Live *bridge.Status `json:"live,omitempty"`
}

// noStatus is the state of a stream of which Redis has no status. Whether a process runs
// it, with another Redis perhaps, only its group in Kafka can tell: status asks it.
const noStatus = "no status in Redis"

// showCursor prints what is known of a stream. silent is true where Redis does
// not say whether a bridge runs it.
func showCursor(a *cli.App, c *control.Position, live *bridge.Status, alive, silent bool) error {
	now := time.Now()
	state := noStatus
	var reported *bridge.Status
	switch {
	case alive:
		reported, state = live, fmt.Sprintf("%s (by %s)%s", describeStatus(placed(live, &c.Checkpoint), now), live.Owner, resumeText(live.PausedUntil))
	case silent:
		state = "unknown: Redis is unreachable"
	case c.Paused(now):
		state = pauseText(c.PausedUntil, now) + ", " + state + resumeText(c.PausedUntil)
	}
	cursor := "none yet; the export starts at " + bridge.BoundText(c.Origin.Start)
	if c.Cursor != "" {
		cursor = fmt.Sprintf("%s  (%s bytes, sha256 %s)", control.ShortCursor(c.Cursor), humanize.Comma(int64(len(c.Cursor))), bridge.CursorHash(c.Cursor))
	}
	rows := [][2]string{
		{"stream", c.Stream},
		{"state", state},
		{"cursor", cursor},
		{"position", positionText(&c.Checkpoint, reported, now)},
		{"committed", fmt.Sprintf("entry %s, page %s, %s events, %s ago", c.Version, humanize.Comma(c.Pages), humanize.Comma(c.Events), cli.RoundDuration(now.Sub(time.UnixMilli(c.WrittenAt))))},
	}
	if len(c.Tail) > 0 {
		rows = append(rows, [2]string{"tail", cli.Counted(len(c.Tail), "event") + " published of the last page, which may grow"})
	}
	if alive && live.DeadLettered > 0 {
		rows = append(rows, [2]string{"dead letters", fmt.Sprintf("%s since the bridge started: exportbridge tail --dlq", humanize.Comma(live.DeadLettered))})
	}
	if alive && live.Owner != c.Owner && c.Kind != bridge.KindReset {
		rows = append(rows, [2]string{"note", fmt.Sprintf("the newest commit is by %s: do two bridges run this stream?", c.Owner)})
	}
	if ch := c.Change; ch != nil {
		rows = append(rows, [2]string{"last change", changeText(ch)})
	}
	if c.Note != "" {
		rows = append(rows, [2]string{"note", c.Note})
	}
	return cli.PrintFields(a.Stdout, a.Advised(rows, c.Stream), a.Width())
}

const timeLayout = "2006-01-02 15:04:05Z"

func changeText(c *bridge.Change) string {
	text := fmt.Sprintf("%s %s from entry %s at %s", c.Kind, c.ID, c.From, time.UnixMilli(c.At).UTC().Format(timeLayout))
	if c.Who != "" {
		text += " by " + c.Who
	}
	if c.Reason != "" {
		text += ": " + c.Reason
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
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		q := bridge.HistoryQuery{Limit: limit}
		if limit < 0 {
			return cli.WrongUsage("--limit 50", "--limit %d is below 0", limit)
		}
		if since != "" {
			ms, err := bridge.ParsePast(since, time.Now())
			if err != nil {
				return cli.WrongUsage("--since -2h", "--since: %w", err)
			}
			q.Since = time.UnixMilli(ms)
		}
		h, err := openStream(a, 0, stream)
		if err != nil {
			return err
		}
		defer h.close()
		found, err := h.History(cmd.Context(), q)
		if err != nil {
			return err
		}
		if found.Note != "" {
			fmt.Fprintf(a.Stderr, "  %s\n", found.Note)
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, historyJSON(found.Entries))
		}
		if len(found.Entries) == 0 {
			_, err := h.Position(cmd.Context())
			return err
		}
		return showHistory(a, found.Entries)
	})
	return cmd
}

// historyEntry is the JSON form of an entry.
type historyEntry struct {
	Entry string `json:"entry"`
	*control.Masked
	Parent string `json:"parent,omitempty"`
	// OtherBranch is true if a later move left the entry.
	OtherBranch bool `json:"other_branch,omitempty"`
}

func historyJSON(entries []control.HistoryEntry) []historyEntry {
	out := make([]historyEntry, len(entries))
	for i := range entries {
		e := &entries[i]
		out[i] = historyEntry{Entry: e.Version.String(), Masked: control.Mask(&e.Checkpoint), OtherBranch: e.OtherBranch}
		if e.Parent != nil {
			out[i].Parent = e.Parent.String()
		}
	}
	return out
}

func showHistory(a *cli.App, entries []control.HistoryEntry) error {
	rows := [][]string{{"ENTRY", "COMMITTED", "POSITION", "PAGE", "EVENTS", "NOTE"}}
	for i := range entries {
		e, position := &entries[i], "-"
		if e.PositionTime > 0 {
			position = time.UnixMilli(e.PositionTime).UTC().Format(timeLayout)
		}
		rows = append(rows, []string{
			e.Version.String(), time.UnixMilli(e.WrittenAt).UTC().Format(timeLayout), position,
			humanize.Comma(e.Pages), humanize.Comma(e.Events), entryNote(e),
		})
	}
	return a.PrintTable(rows)
}

// entryNote says what is special about an entry.
func entryNote(e *control.HistoryEntry) string {
	var notes []string
	if e.OtherBranch {
		notes = append(notes, "other branch")
	}
	switch ch := e.Change; {
	case ch != nil && e.Seq == 0:
		note := fmt.Sprintf("%s from %s", ch.Kind, ch.From)
		if ch.Who != "" {
			note += " by " + ch.Who
		}
		if ch.Reason != "" {
			note += ": " + ch.Reason
		}
		notes = append(notes, note)
	case e.Kind != bridge.KindData:
		notes = append(notes, string(e.Kind))
	}
	return strings.Join(notes, "; ")
}
