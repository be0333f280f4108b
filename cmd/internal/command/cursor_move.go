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

// move is the common part of rewind, reset and import.
type move struct {
	change
	execute bool
}

func (m *move) flags(cmd *cobra.Command) {
	m.change.flags(cmd)
	cli.TakeExecute(cmd, &m.execute)
	cmd.Flags().StringVar(&m.by.AcceptSource, "accept-source", "",
		"accept the list that the settings request now: `SOURCE` as the blocked stream names it")
}

// runTo makes the command a move to the target of one of the flags.
func (m *move) runTo(cmd *cobra.Command, flags []targetFlag) {
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		to, err := readTarget(cmd, flags)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), to)
	})
}

func newCursorRewindCommand(a *cli.App) *cobra.Command {
	m := &move{change: newChange(a)}
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
	f := cmd.Flags()
	f.String("to-datetime", "", "rewind to the newest cursor committed at or before `TIME`")
	f.String("by-duration", "", "same as --to-datetime with -`DURATION`, such as 2h")
	f.Int64("shift-by", 0, "go back at least N pages, to the next earlier commit; `-N` such as -100")
	f.String("to-entry", "", "rewind to `ENTRY` of cursor history")
	cli.OfferLookup(cmd, "to-entry", m.newestEntries)
	m.runTo(cmd, []targetFlag{
		{"to-datetime", control.TargetDatetime, timeHint},
		{"by-duration", control.TargetAgo, "--by-duration 2h"},
		{"shift-by", control.TargetShift, "--shift-by -100"},
		{"to-entry", control.TargetEntry, "exportbridge cursor history"},
	})
	return cmd
}

// offeredEntries is the number of entries that completion offers.
const offeredEntries = 50

// newestEntries returns the newest entries in Redis for completion, each with its time.
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
		names[i] = cobra.CompletionWithDesc(e.Version.String(), secondText(e.WrittenAt)+", "+cli.Counted(e.Events, "event"))
	}
	return names, err
}

// targetFlag is a flag whose value is a target of control.ParseTarget. hint is the hint for
// an invalid value.
type targetFlag struct{ name, target, hint string }

// timeHint is the hint for an invalid time.
const timeHint = "--to-datetime 2026-11-20T13:00:00Z, or -2h"

// readTarget returns the target of the flags. One of them must be given.
func readTarget(cmd *cobra.Command, flags []targetFlag) (control.Target, error) {
	var all, given []string
	var f targetFlag
	for _, flag := range flags {
		all = append(all, "--"+flag.name)
		if chosen(cmd.Flags().Lookup(flag.name)) {
			given, f = append(given, "--"+flag.name), flag
		}
	}
	switch len(given) {
	case 0:
		return nil, cli.WrongUsage(cmd.CommandPath()+" --help", "a target is required: %s", strings.Join(all, ", "))
	case 1:
	default:
		return nil, cli.WrongUsage("use "+given[0]+" only", "%s are mutually exclusive", strings.Join(given, " and "))
	}
	text := cmd.Flags().Lookup(f.name).Value.String()
	if f.target == control.TargetCursor && text == "" {
		return nil, cli.WrongUsage("--to-earliest", "--%s is empty", f.name)
	}
	to, err := control.ParseTarget(f.target, text, time.Now())
	if f.target == control.TargetEventTime && errors.Is(err, bridge.ErrFuture) {
		f.hint = "--to-latest"
	}
	if err != nil {
		return nil, cli.WrongUsage(f.hint, "--%s: %w", f.name, err)
	}
	return to, nil
}

// chosen reports whether a flag is set. A switch that is off, such as --to-latest=false, is not.
func chosen(f *pflag.Flag) bool {
	return f.Changed && (f.Value.Type() != "bool" || f.Value.String() == "true")
}

func newCursorResetCommand(a *cli.App) *cobra.Command {
	m := &move{change: newChange(a)}
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

--to-current accepts such changes and leaves the position as it is. After a
change of EXPORT_FOLLOW it goes on the other way from there, and publishes
nothing again that the topic holds: do that while the stream is caught up.
--to-latest skips all events up to now. Without --execute, the command is a dry
run.`,
		Example: `  exportbridge cursor reset --to-datetime 2026-11-20T00:00:00Z
  exportbridge cursor reset --to-cursor "$CURSOR" --reason "bad page" --execute`,
		Args: cli.NoArgs,
	}
	m.flags(cmd)
	f := cmd.Flags()
	f.Bool("to-earliest", false, "reset to the first event")
	f.Bool("to-current", false, "keep the position")
	f.Bool("to-latest", false, "skip all events up to now")
	f.String("to-datetime", "", "reset to the first event with an event time of `TIME` or later")
	f.String("to-cursor", "", "reset to cursor `VALUE`, byte for byte")
	m.runTo(cmd, []targetFlag{
		{"to-earliest", control.TargetEarliest, ""},
		{"to-current", control.TargetCurrent, ""},
		{"to-latest", control.TargetLatest, ""},
		{"to-datetime", control.TargetEventTime, timeHint},
		{
			"to-cursor", control.TargetCursor,
			`copy the cursor as the API sent it; from a file: --to-cursor "$(tr -d '\n' < FILE)"`,
		},
	})
	return cmd
}

// shownMove is the JSON form of a move.
type shownMove struct {
	control.Plan
	Executed bool `json:"executed"`
	// Answer is set if the move was executed.
	Answer *bridge.Answer `json:"answer,omitempty"`
}

// run prints the plan and, with --execute, applies it.
func (m *move) run(ctx context.Context, to control.Target) error {
	if s := m.by.AcceptSource; s != "" && !bridge.IsDigest(s) {
		return cli.WrongUsage("copy the source that the error of the blocked stream names: eight digits of 0-9 and a-f",
			"--accept-source %q is no source", s)
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
		const repair = "to publish missing events: exportbridge verify --repair --from TIME --to TIME --execute"
		planned.Notes = append(planned.Notes, m.app.Advice(repair, ""))
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
	_, err = fmt.Fprintf(m.app.Stdout, "  requested %s, acknowledged by %s in %s, now at entry %s\n",
		done.ID, answer.By, cli.RoundDuration(time.Since(asked)), answer.Version)
	if answer.Detail != "" {
		fmt.Fprintf(m.app.Stderr, "  warning: also accepted: %s\n", process.Printable(answer.Detail))
	}
	return err
}

func (m *move) show(plan *control.Plan) {
	w := m.app.Stdout
	fmt.Fprintf(w, "  from   %s\n  to     %s\n  again  %s\n", plan.From.Text, plan.To.Text, repeatsText(plan))
	for _, note := range plan.Notes {
		fmt.Fprintf(w, "  note   %s\n", note)
	}
}

// repeatsText describes how many events a move publishes again.
func repeatsText(plan *control.Plan) string {
	same, r := ", with the same ce_id", plan.Repeats
	if plan.OtherIDs {
		same = ""
	}
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
	pages := "" // empty if only the last page has grown
	if r.Pages > 0 {
		pages = " in " + cli.Counted(int64(r.Pages), "page")
	}
	text := most + pages + same
	if !plan.FirstPublished.IsZero() {
		text += fmt.Sprintf(",\n         first published between %s and %s",
			plan.FirstPublished.Format(cli.TimeLayout), plan.From.At.Format(cli.TimeLayout))
	}
	return text
}
