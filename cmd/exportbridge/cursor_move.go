package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// move is what rewind, reset and import have in common.
type move struct {
	request
	execute bool
}

// plannedMove is what a move would do, for people and as JSON.
type plannedMove struct {
	ops.Plan
	Executed bool `json:"executed"`
	// Answer is set when it was executed.
	Answer *bridge.Answer `json:"answer,omitempty"`

	target bridge.Target
}

// newPlan plans a move to a place that text describes. How much comes again
// is not known yet.
func newPlan(text string, to bridge.Target) *plannedMove {
	return &plannedMove{
		Plan:   ops.Plan{To: ops.Spot{Text: text, CursorHash: bridge.CursorHash(to.Cursor)}, AgainEvents: -1, AgainPages: -1},
		target: to,
	}
}

func (m *move) flags(cmd *cobra.Command) {
	m.request.flags(cmd)
	cmd.Flags().BoolVar(&m.execute, "execute", false, "do it; without this nothing is changed")
}

func newCursorRewindCommand(a *app) *cobra.Command {
	m := &move{request: newRequest(a)}
	var at, by, entry string
	var shift int64
	cmd := &cobra.Command{
		Use:   "rewind",
		Short: "Go back to a committed cursor of the history",
		Long: `Go back to a committed cursor of the history: everything after it is published
again, with the same record ids. A running bridge applies it and acknowledges;
without one the command moves the cursor itself.

Without --execute nothing is changed.`,
		Example: `  exportbridge cursor rewind --shift-by -100
  exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute
  exportbridge cursor rewind --to-entry 3.87120 --execute`,
		Args: noArgs,
	}
	m.flags(cmd)
	cmd.Flags().StringVar(&at, "to-datetime", "", "the newest commit at or before this `TIME`")
	cmd.Flags().StringVar(&by, "by-duration", "", "the newest commit at least this `DURATION` ago, for example 2h")
	cmd.Flags().Int64Var(&shift, "shift-by", 0, "`-N` pages back")
	cmd.Flags().StringVar(&entry, "to-entry", "", "this `ENTRY` of cursor history")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(cmd.Flags(), "to-datetime", "by-duration", "shift-by", "to-entry"); err != nil {
			return err
		}
		l, err := lookupOf(cmd.Flags(), at, by, entry, shift)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), rewindTo(l))
	}
	return cmd
}

// oneOf wants exactly one of the flags.
func oneOf(flags *pflag.FlagSet, names ...string) error {
	var given []string
	for _, name := range names {
		if flags.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch len(given) {
	case 0:
		return &exitError{code: exitUsage, err: fmt.Errorf("say where to: --%s", strings.Join(names, ", --")), hint: "exportbridge cursor --help"}
	case 1:
		return nil
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("%s exclude each other", strings.Join(given, " and ")), hint: given[0] + " alone"}
}

// finder finds the target of a move.
type finder func(ctx context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error)

// lookup is how the target of a rewind is found: in Redis, or else in the
// checkpoint topic.
type lookup struct {
	note string
	find func(ctx context.Context, s *cursorstore.Store) (bridge.Entry, error)
	like func(now bridge.Checkpoint) matcher
	// any is true where the entry may be on another branch than the stream.
	any bool
	// reset leads there where no history does.
	reset string
}

func lookupAt(t time.Time) lookup {
	return lookup{
		note:  "the newest commit at or before " + t.UTC().Format(timeLayout),
		reset: "cursor reset --to-datetime " + t.UTC().Format(time.RFC3339),
		find:  func(ctx context.Context, s *cursorstore.Store) (bridge.Entry, error) { return entryAt(ctx, s, t) },
		like:  func(bridge.Checkpoint) matcher { return isAt(t) },
	}
}

func lookupEntry(place bridge.Place) lookup {
	return lookup{
		find: func(ctx context.Context, s *cursorstore.Store) (bridge.Entry, error) { return s.Entry(ctx, place) },
		like: func(bridge.Checkpoint) matcher { return isEntry(place) },
		any:  true,
	}
}

func lookupBack(pages int64) lookup {
	return lookup{
		note: fmt.Sprintf("the newest commit at least %d pages back", pages),
		find: func(ctx context.Context, s *cursorstore.Store) (bridge.Entry, error) { return s.Back(ctx, pages) },
		like: func(now bridge.Checkpoint) matcher { return isBack(now, pages) },
	}
}

// lookupOf reads the flags that say where to.
func lookupOf(flags *pflag.FlagSet, at, by, entry string, shift int64) (lookup, error) {
	switch {
	case flags.Changed("by-duration"):
		back, err := config.ParseDuration(by)
		if err == nil && back <= 0 {
			err = errors.New("does not go back")
		}
		if err != nil {
			return lookup{}, &exitError{code: exitUsage, err: fmt.Errorf("--by-duration: %q %w", by, err), hint: "--by-duration 2h"}
		}
		return lookupAt(time.Now().Add(-back)), nil
	case flags.Changed("to-datetime"):
		ms, err := config.ParseInstant(at, time.Now())
		if err != nil {
			return lookup{}, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime: %w", err), hint: "--to-datetime 2026-11-20T13:00:00Z, or -2h"}
		}
		if time.UnixMilli(ms).After(time.Now()) {
			return lookup{}, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime %s is in the future", at), hint: "--to-datetime -2h"}
		}
		return lookupAt(time.UnixMilli(ms)), nil
	case flags.Changed("to-entry"):
		place, err := bridge.ParsePlace(entry)
		if err != nil {
			return lookup{}, &exitError{code: exitUsage, err: fmt.Errorf("--to-entry: %w", err), hint: "exportbridge cursor history"}
		}
		return lookupEntry(place), nil
	}
	if shift >= 0 {
		return lookup{}, &exitError{code: exitUsage, err: fmt.Errorf("--shift-by %d does not go back", shift), hint: "--shift-by -100"}
	}
	return lookupBack(-shift), nil
}

// rewindTo plans a rewind to what the lookup finds.
func rewindTo(l lookup) finder {
	return func(ctx context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error) {
		e, err := bridge.Entry{}, bridge.ErrNoEntry
		if p.away == nil {
			e, err = l.find(ctx, p.store)
		}
		if errors.Is(err, bridge.ErrNoEntry) || errors.Is(err, bridge.ErrNoCheckpoint) {
			e, err = p.older(ctx, fmt.Errorf("%w (nor in the checkpoint topic)", err), l.like(now))
		}
		switch {
		case errors.Is(err, bridge.ErrNoEntry), errors.Is(err, bridge.ErrNoCheckpoint):
			hint := "exportbridge cursor history, or " + cmp.Or(l.reset, "cursor reset --to-datetime")
			if ch := now.Change; ch != nil {
				// A reset leads to where no history is; the entry it left does.
				hint = fmt.Sprintf("--to-entry %s, where the last change left, or exportbridge %s", ch.From, cmp.Or(l.reset, "cursor history"))
			}
			return nil, &exitError{code: exitFailed, err: err, hint: hint}
		case err != nil:
			return nil, hinted(err)
		}
		plan := newPlan("", e.Target())
		plan.To = spotOf(&e.Checkpoint)
		if l.note != "" {
			plan.To.Text += "   (" + l.note + ")"
		}
		switch again := now.Events - e.Events; {
		case e.PositionTime > now.PositionTime && now.PositionTime > 0:
			plan.Notes = append(plan.Notes, "it is ahead of the stream: what lies between and was not published before will not be")
		case again >= 0 && !l.any: // on another branch the counters say nothing
			plan.AgainEvents, plan.AgainPages = again, now.Pages-e.Pages
		}
		return plan, nil
	}
}

// entryAt finds where the stream stood at a time: on the current branch of the
// history, or, where a reset cut that off later, on any.
func entryAt(ctx context.Context, s *cursorstore.Store, t time.Time) (bridge.Entry, error) {
	e, err := s.EntryAt(ctx, t)
	if !errors.Is(err, bridge.ErrNoEntry) {
		return e, err
	}
	all, listErr := s.History(ctx, bridge.HistoryQuery{})
	if listErr != nil {
		return e, listErr
	}
	for _, older := range all {
		if older.WrittenAt <= t.UnixMilli() {
			return older, nil
		}
	}
	return e, err
}

func newCursorResetCommand(a *app) *cobra.Command {
	m := &move{request: newRequest(a)}
	var at, cursor string
	var earliest, latest, current bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Go to a place that is not in the history",
		Long: `Go to a place that is not in the history: the export is asked from there, without
or with another cursor. It also accepts a changed filter, end or application for
a stream, and topics that were made again or lost records. A running bridge
applies it and acknowledges; without one the command moves the cursor itself.

--to-current stays where the stream is, and only accepts what has changed.
--to-latest skips what was not exported yet. Without --execute nothing is
changed.`,
		Example: `  exportbridge cursor reset --to-datetime 2026-11-20T00:00:00Z
  exportbridge cursor reset --to-cursor "$CURSOR" --reason "as the vendor says" --execute`,
		Args: noArgs,
	}
	m.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&earliest, "to-earliest", false, "from the first event")
	f.BoolVar(&current, "to-current", false, "stay at the same position")
	f.BoolVar(&latest, "to-latest", false, "only what comes from now on")
	f.StringVar(&at, "to-datetime", "", "events from this `TIME` on")
	f.StringVar(&cursor, "to-cursor", "", "this cursor `VALUE`, byte for byte")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(f, "to-earliest", "to-current", "to-latest", "to-datetime", "to-cursor"); err != nil {
			return err
		}
		find, err := resetTarget(f, at, cursor)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), find)
	}
	return cmd
}

func resetTarget(flags *pflag.FlagSet, at, cursor string) (finder, error) {
	switch {
	case flags.Changed("to-cursor"):
		if cursor == "" {
			return nil, &exitError{code: exitUsage, err: errors.New("--to-cursor is empty"), hint: "--to-earliest"}
		}
		if err := checkCursor(cursor); err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-cursor: %w", err), hint: `copy the cursor as the API sent it; from a file: --to-cursor "$(tr -d '\n' < FILE)"`}
		}
		return resetTo(fmt.Sprintf("cursor %s  (sha256 %s)", shorten(cursor), bridge.CursorHash(cursor)), bridge.Target{Cursor: cursor}), nil
	case flags.Changed("to-datetime"):
		ms, err := config.ParseInstant(at, time.Now())
		if err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime: %w", err), hint: "--to-datetime 2026-11-20T13:00:00Z, or -2h"}
		}
		if time.UnixMilli(ms).After(time.Now()) {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime %s is in the future", at), hint: "--to-latest"}
		}
		return resetToTime(ms), nil
	case flags.Changed("to-latest"):
		return resetToLatest, nil
	case flags.Changed("to-current"):
		return resetToCurrent, nil
	}
	return resetToEarliest, nil
}

// resetToCurrent plans a reset that moves nothing.
func resetToCurrent(_ context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error) {
	if now.Zero() {
		return nil, &exitError{code: exitFailed, err: fmt.Errorf("stream %s has no checkpoint, so it has no position to stay at", p.store.Name()), hint: "--to-datetime TIME"}
	}
	plan := newPlan("the same position", bridge.Target{
		Cursor: now.Cursor, Tail: now.Tail, Carried: now.Carried, Start: now.Origin.Start, Events: now.Events, Pages: now.Pages, Entry: &now.Place,
	})
	plan.AgainEvents, plan.AgainPages = 0, 0
	plan.Notes = append(plan.Notes, "the topics are accepted as they are now; what they have lost stays missing: exportbridge verify --repair --from TIME --to TIME --execute")
	return plan, nil
}

// resetTo plans a reset to a place that is known.
func resetTo(text string, to bridge.Target) finder {
	return func(context.Context, *position, bridge.Checkpoint) (*plannedMove, error) {
		return newPlan(text, to), nil
	}
}

// resetToTime plans a reset to a time, which may be one that the stream has not
// come to.
func resetToTime(ms int64) finder {
	return func(_ context.Context, _ *position, now bridge.Checkpoint) (*plannedMove, error) {
		plan := newPlan("events from "+time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)+" on", bridge.Target{Start: ms})
		if !now.Zero() && ms > max(now.PositionTime, now.Origin.Start) {
			plan.Notes = append(plan.Notes, "it is ahead of the stream: what lies between will not be published")
		}
		return plan, nil
	}
}

func resetToEarliest(context.Context, *position, bridge.Checkpoint) (*plannedMove, error) {
	return newPlan("the earliest event", bridge.Target{}), nil
}

func resetToLatest(ctx context.Context, p *position, _ bridge.Checkpoint) (*plannedMove, error) {
	t, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	plan := newPlan("events from now on, "+t.UTC().Format(time.RFC3339Nano), bridge.Target{Start: t.UnixMilli()})
	plan.Notes = append(plan.Notes, "what is between the present position and now will not be published")
	return plan, nil
}

// checkCursor says why a cursor cannot be one of the API's.
func checkCursor(cursor string) error {
	switch {
	case len(cursor) > bridge.MaxCursor:
		return fmt.Errorf("the cursor has %d bytes, at most %d can be followed", len(cursor), bridge.MaxCursor)
	case !utf8.ValidString(cursor):
		return errors.New("the cursor is not UTF-8, which every cursor in a JSON page is")
	case strings.ContainsAny(cursor, "\r\n"):
		return errors.New("the cursor holds a line break")
	}
	return nil
}

// run shows what the move would do and, with --execute, does it.
func (m *move) run(ctx context.Context, find finder) error {
	p, err := m.app.openPosition(ctx, config.UsesExport|config.UsesKafka, m.stream)
	if err != nil {
		return err
	}
	defer p.close()
	plan, now, err := p.plan(ctx, find)
	if err != nil {
		return err
	}
	if !*m.json {
		m.show(plan)
	}
	if !m.execute {
		if *m.json {
			return printJSON(m.app.stdout, plan)
		}
		_, err := fmt.Fprintln(m.app.stdout, "  dry run: nothing was changed. Add --execute to apply.")
		return err
	}
	asked := time.Now()
	order, answer, err := m.move(ctx, p, plan, &now)
	if err != nil {
		return err
	}
	plan.Executed, plan.Answer = true, &answer
	if *m.json {
		return printJSON(m.app.stdout, plan)
	}
	_, err = fmt.Fprintf(m.app.stdout, "  requested %s, acknowledged by %s in %s, now at entry %s\n", order.ID, answer.By, roundDuration(time.Since(asked)), answer.Place)
	if answer.Detail != "" {
		fmt.Fprintf(m.app.stderr, "  warning: accepted with it: %s\n", printable(answer.Detail))
	}
	return err
}

// plan says what a move would do to the stream, and where the stream stands.
func (p *position) plan(ctx context.Context, find finder) (*plannedMove, bridge.Checkpoint, error) {
	now, err := p.standing(ctx)
	if err != nil {
		return nil, now, err
	}
	plan, err := find(ctx, p, now)
	if err != nil {
		return nil, now, err
	}
	plan.Stream, plan.From, plan.BaseEpoch = p.store.Name(), spotOf(&now), now.Epoch
	if want := p.stream.Engine.Origin; plan.target.Entry == nil && !now.Zero() && !now.Origin.Same(want) {
		plan.Notes = append(plan.Notes, fmt.Sprintf("the settings change, from %s to %s", now.Origin, want))
	}
	if p.away != nil {
		plan.Notes = append(plan.Notes, p.awayNote())
	}
	plan.Guarantee = string(p.stream.Engine.Mode)
	return plan, now, nil
}

// move does what was planned where the stream stood at now.
func (r *request) move(ctx context.Context, p *position, plan *plannedMove, now *bridge.Checkpoint) (bridge.Command, bridge.Answer, error) {
	order := r.command(bridge.KindReset, now)
	order.Target = plan.target
	answer, err := r.apply(ctx, p, order, now)
	return order, answer, err
}

// spotOf is a checkpoint as one end of a move.
func spotOf(c *bridge.Checkpoint) ops.Spot {
	s := ops.Spot{Place: &c.Place, Text: "no checkpoint", Events: c.Events, Pages: c.Pages, CursorHash: bridge.CursorHash(c.Cursor)}
	if c.Zero() {
		return s
	}
	s.Text, s.At = "entry "+c.Place.String(), time.UnixMilli(c.WrittenAt).UTC()
	if c.PositionTime > 0 {
		s.Position = time.UnixMilli(c.PositionTime).UTC()
		s.Text += "   " + s.Position.Format(timeLayout)
	}
	return s
}

func (m *move) show(plan *plannedMove) {
	w := m.app.stdout
	fmt.Fprintf(w, "  from   %s\n  to     %s\n", plan.From.Text, plan.To.Text)
	switch {
	case plan.AgainEvents < 0:
		fmt.Fprintln(w, "  again  all that the API has from there on, however much that is; what was published before has the same ce_id")
	case plan.AgainEvents == 0:
		fmt.Fprintln(w, "  again  nothing will be published again")
	default:
		fmt.Fprintf(w, "  again  about %s events in %s pages will be published a second time, same ce_id\n",
			humanize.Comma(plan.AgainEvents), humanize.Comma(plan.AgainPages))
	}
	for _, note := range plan.Notes {
		fmt.Fprintf(w, "  note   %s\n", note)
	}
}
