package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// move is what rewind, reset and import have in common.
type move struct {
	change
	execute bool
}

func (m *move) flags(cmd *cobra.Command) {
	m.change.flags(cmd)
	cli.TakeExecute(cmd, &m.execute)
	cmd.Flags().StringVar(&m.by.AcceptSource, "accept-source", "", "accept the list that the settings request now: `SOURCE` as the blocked stream names it")
}

func newCursorRewindCommand(a *cli.App) *cobra.Command {
	m := &move{change: newChange(a)}
	var at, by, entry string
	var shift int64
	cmd := &cobra.Command{
		Use:   "rewind",
		Short: "Rewind to a committed cursor",
		Long: `Rewind a stream to a committed cursor of its history. All later events are
published again, with the same ce_id. The running bridge applies and
acknowledges the change; without one, the command applies it itself.

Redis keeps some of the commits, the checkpoint topic all of the last seven
days; both are searched. All targets but --to-entry are on the current branch:
the commits that led to the stream's position, without those that an earlier
rewind or reset left. If it begins after a time, another branch is used.

Without --execute, the command is a dry run.`,
		Example: `  exportbridge cursor rewind --shift-by -100
  exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute
  exportbridge cursor rewind --to-entry 3.87120 --execute`,
		Args: cli.NoArgs,
	}
	m.flags(cmd)
	cmd.Flags().StringVar(&at, "to-datetime", "", "rewind to the newest cursor committed at or before `TIME`")
	cmd.Flags().StringVar(&by, "by-duration", "", "same as --to-datetime with -`DURATION`, such as 2h")
	cmd.Flags().Int64Var(&shift, "shift-by", 0, "go back at least N pages, to the next earlier commit; `-N` such as -100")
	cmd.Flags().StringVar(&entry, "to-entry", "", "rewind to `ENTRY` of cursor history")
	cli.OfferLookup(cmd, "to-entry", m.newestEntries)
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(cmd, "to-datetime", "by-duration", "shift-by", "to-entry"); err != nil {
			return err
		}
		to, err := rewindTarget(cmd.Flags(), at, by, entry, shift)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), to)
	})
	return cmd
}

// offeredEntries is how many entries a shell offers.
const offeredEntries = 50

// newestEntries returns the newest entries in Redis for a shell to offer, each with
// its time.
func (m *move) newestEntries(ctx context.Context) ([]string, error) {
	h, err := openStream(m.app, 0, m.stream)
	if err != nil {
		return nil, err
	}
	defer h.close()
	found, err := h.client.Stream(h.Stream()).History(ctx, bridge.HistoryQuery{Limit: offeredEntries})
	names := make([]string, len(found))
	for i := range found {
		e := &found[i]
		names[i] = cobra.CompletionWithDesc(e.Version.String(), time.UnixMilli(e.WrittenAt).UTC().Format(timeLayout)+", "+cli.Counted(e.Events, "event"))
	}
	return names, err
}

// oneOf wants exactly one of the flags.
func oneOf(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch len(given) {
	case 0:
		return cli.WrongUsage(cmd.CommandPath()+" --help", "a target is required: --%s", strings.Join(names, ", --"))
	case 1:
		return nil
	}
	return cli.WrongUsage("use "+given[0]+" only", "%s are mutually exclusive", strings.Join(given, " and "))
}

// rewindTarget reads the flags that say where to.
func rewindTarget(flags *pflag.FlagSet, at, by, entry string, shift int64) (control.Target, error) {
	switch {
	case flags.Changed("by-duration"):
		back, err := bridge.ParseDuration(by)
		if err == nil && back <= 0 {
			err = errors.New("does not go back")
		}
		if err != nil {
			return nil, cli.WrongUsage("--by-duration 2h", "--by-duration: %q %w", by, err)
		}
		return control.RewindToTime{Time: time.Now().Add(-back)}, nil
	case flags.Changed("to-datetime"):
		ms, err := bridge.ParsePast(at, time.Now())
		if err != nil {
			return nil, cli.WrongUsage("--to-datetime 2026-11-20T13:00:00Z, or -2h", "--to-datetime: %w", err)
		}
		return control.RewindToTime{Time: time.UnixMilli(ms)}, nil
	case flags.Changed("to-entry"):
		version, err := bridge.ParseVersion(entry)
		if err != nil {
			return nil, cli.WrongUsage("exportbridge cursor history", "--to-entry: %w", err)
		}
		return control.RewindToEntry{Entry: version}, nil
	}
	if shift >= 0 {
		return nil, cli.WrongUsage("--shift-by -100", "--shift-by %d does not go back", shift)
	}
	return control.RewindPages{Pages: -shift}, nil
}

func newCursorResetCommand(a *cli.App) *cobra.Command {
	m := &move{change: newChange(a)}
	var at, cursor string
	var earliest, latest, current bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Reset to an arbitrary position",
		Long: `Reset a stream to an arbitrary position, in or outside its history. Some changes
block a stream until a reset accepts them: another event filter (EXPORT_EVENTS),
another end (EXPORT_END), another topic (KAFKA_TOPIC), an API key of another
application, and topics that were re-created or have lost records. Settings that
request another list (EXPORT_URL, EXPORT_PATH, EXPORT_PARAMS, a tenant's header)
are accepted by --accept-source only. The running bridge applies the change and
acknowledges it; without one, the command applies it itself.

--to-current accepts such changes and leaves the position as it is. --to-latest
skips all events up to now. Without --execute, the command is a dry run.`,
		Example: `  exportbridge cursor reset --to-datetime 2026-11-20T00:00:00Z
  exportbridge cursor reset --to-cursor "$CURSOR" --reason "bad page" --execute`,
		Args: cli.NoArgs,
	}
	m.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&earliest, "to-earliest", false, "reset to the first event")
	f.BoolVar(&current, "to-current", false, "keep the position")
	f.BoolVar(&latest, "to-latest", false, "skip all events up to now")
	f.StringVar(&at, "to-datetime", "", "reset to the first event with an event time of `TIME` or later")
	f.StringVar(&cursor, "to-cursor", "", "reset to cursor `VALUE`, byte for byte")
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(cmd, "to-earliest", "to-current", "to-latest", "to-datetime", "to-cursor"); err != nil {
			return err
		}
		to, err := resetTarget(f, at, cursor)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), to)
	})
	return cmd
}

func resetTarget(flags *pflag.FlagSet, at, cursor string) (control.Target, error) {
	switch {
	case flags.Changed("to-cursor"):
		if cursor == "" {
			return nil, cli.WrongUsage("--to-earliest", "--to-cursor is empty")
		}
		if err := control.CheckCursor(cursor); err != nil {
			return nil, cli.WrongUsage(`copy the cursor as the API sent it; from a file: --to-cursor "$(tr -d '\n' < FILE)"`, "--to-cursor: %w", err)
		}
		return control.ResetToCursor{Cursor: cursor}, nil
	case flags.Changed("to-datetime"):
		ms, err := bridge.ParsePast(at, time.Now())
		if errors.Is(err, bridge.ErrFuture) {
			return nil, cli.WrongUsage("--to-latest", "--to-datetime: %w", err)
		}
		if err != nil {
			return nil, cli.WrongUsage("--to-datetime 2026-11-20T13:00:00Z, or -2h", "--to-datetime: %w", err)
		}
		return control.ResetToTime{Time: time.UnixMilli(ms)}, nil
	case flags.Changed("to-latest"):
		return control.ResetToLatest{}, nil
	case flags.Changed("to-current"):
		return control.ResetToCurrent{}, nil
	}
	return control.ResetToEarliest{}, nil
}

// shownMove is the JSON form of a move.
type shownMove struct {
	control.Plan
	Executed bool `json:"executed"`
	// Answer is set when it was executed.
	Answer *bridge.Answer `json:"answer,omitempty"`
}

// run shows what the move would do and, with --execute, does it.
func (m *move) run(ctx context.Context, to control.Target) error {
	if s := m.by.AcceptSource; s != "" && !bridge.IsDigest(s) {
		return cli.WrongUsage("copy the source that the error of the blocked stream names: eight digits of 0-9 and a-f", "--accept-source %q is no source", s)
	}
	h, err := m.open()
	if err != nil {
		return err
	}
	defer h.close()
	planned, err := h.Plan(ctx, to)
	if err != nil {
		return err
	}
	if _, stays := to.(control.ResetToCurrent); stays {
		planned.Notes = append(planned.Notes, m.app.Advice("to publish missing events: exportbridge verify --repair --from TIME --to TIME --execute", ""))
	}
	if !*m.json {
		m.show(&planned.Plan)
	}
	if !m.execute {
		if *m.json {
			return cli.PrintJSON(m.app.Stdout, shownMove{Plan: planned.Plan})
		}
		_, err := fmt.Fprintln(m.app.Stdout, "  dry run: nothing was changed. Add --execute to apply.")
		return err
	}
	asked := time.Now()
	done, err := h.Move(ctx, planned, m.by)
	if err != nil {
		return err
	}
	answer := done.Answer
	if *m.json {
		return cli.PrintJSON(m.app.Stdout, shownMove{Plan: planned.Plan, Executed: true, Answer: &answer})
	}
	_, err = fmt.Fprintf(m.app.Stdout, "  requested %s, acknowledged by %s in %s, now at entry %s\n", done.ID, answer.By, cli.RoundDuration(time.Since(asked)), answer.Version)
	if answer.Detail != "" {
		fmt.Fprintf(m.app.Stderr, "  warning: also accepted: %s\n", process.Printable(answer.Detail))
	}
	return err
}

func (m *move) show(plan *control.Plan) {
	w := m.app.Stdout
	fmt.Fprintf(w, "  from   %s\n  to     %s\n", plan.From.Text, plan.To.Text)
	fmt.Fprintf(w, "  again  %s\n", repeatsText(plan))
	for _, note := range plan.Notes {
		fmt.Fprintf(w, "  note   %s\n", note)
	}
}

// repeatsText describes how many events a move publishes again.
func repeatsText(plan *control.Plan) string {
	const same = ", with the same ce_id"
	r := plan.Repeats
	most := cli.Counted(int64(r.Max), "event")
	switch {
	case r.Why != "":
		return "not known: " + r.Why
	case r.Max == 0:
		return "no event is published again"
	case r.Max < 0:
		return "at least " + cli.Counted(int64(r.Min), "event") + same
	case r.Min == 0:
		return "at most " + most + same
	case r.Min < r.Max:
		return fmt.Sprintf("%s to %s%s", humanize.Comma(int64(r.Min)), most, same)
	case r.Pages < 0:
		return most + same
	}
	pages := "" // none if only the last page has grown
	if r.Pages > 0 {
		pages = " in " + cli.Counted(int64(r.Pages), "page")
	}
	text := most + pages + same
	if !plan.FirstPublished.IsZero() {
		text += fmt.Sprintf(",\n         first published between %s and %s", plan.FirstPublished.Format(timeLayout), plan.From.At.Format(timeLayout))
	}
	return text
}
