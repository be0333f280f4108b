package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/cursorstore"
)

// move is what rewind and reset have in common.
type move struct {
	app     *app
	stream  string
	execute bool
	reason  string
	timeout time.Duration
	json    *bool
}

// plannedMove is what a move would do, for people and as JSON.
type plannedMove struct {
	Stream string       `json:"stream"`
	From   bridge.Place `json:"from"`
	To     string       `json:"to"`
	// Again is how many events and pages will be published again, -1 where
	// that cannot be known.
	AgainEvents int64  `json:"again_events"`
	AgainPages  int64  `json:"again_pages"`
	Guarantee   string `json:"guarantee"`
	Executed    bool   `json:"executed"`
	// Answer is set when it was executed.
	Answer *bridge.Answer `json:"answer,omitempty"`

	target bridge.Target
	notes  []string
}

func (m *move) flags(cmd *cobra.Command) {
	m.app.takeSettings(cmd)
	m.json = takeJSON(cmd)
	f := cmd.Flags()
	f.StringVar(&m.stream, "stream", "", "`NAME` of the stream, if there are several")
	f.BoolVar(&m.execute, "execute", false, "do it; without this nothing is changed")
	f.StringVar(&m.reason, "reason", "", "`WHY`, for the history")
	m.timeout = 30 * time.Second
	f.Var(parsed(&m.timeout, parseDuration, "DURATION"), "timeout", "wait for the running bridge to acknowledge (default 30s)")
}

func newCursorRewindCommand(a *app) *cobra.Command {
	m := &move{app: a}
	var at, entry string
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
	cmd.Flags().Int64Var(&shift, "shift-by", 0, "`-N` pages back")
	cmd.Flags().StringVar(&entry, "to-entry", "", "this `ENTRY` of cursor history")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(cmd.Flags(), "to-datetime", "shift-by", "to-entry"); err != nil {
			return err
		}
		find, err := rewindTarget(cmd.Flags(), at, entry, shift)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), find)
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

func rewindTarget(flags *pflag.FlagSet, at, entry string, shift int64) (finder, error) {
	var find func(ctx context.Context, s *cursorstore.Store) (cursorstore.Entry, error)
	note := ""
	switch {
	case flags.Changed("to-datetime"):
		ms, err := parseInstant(at, time.Now())
		if err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime: %w", err), hint: "--to-datetime 2026-11-20T13:00:00Z, or -2h"}
		}
		if time.UnixMilli(ms).After(time.Now()) {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime %s is in the future", at), hint: "--to-datetime -2h"}
		}
		note = "the newest commit at or before the time"
		find = func(ctx context.Context, s *cursorstore.Store) (cursorstore.Entry, error) {
			return entryAt(ctx, s, time.UnixMilli(ms))
		}
	case flags.Changed("to-entry"):
		place, err := cursorstore.ParsePlace(entry)
		if err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-entry: %w", err), hint: "exportbridge cursor history"}
		}
		find = func(ctx context.Context, s *cursorstore.Store) (cursorstore.Entry, error) { return s.Entry(ctx, place) }
	default:
		if shift >= 0 {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--shift-by %d does not go back", shift), hint: "--shift-by -100"}
		}
		note = fmt.Sprintf("the newest commit at least %d pages back", -shift)
		find = func(ctx context.Context, s *cursorstore.Store) (cursorstore.Entry, error) { return s.Back(ctx, -shift) }
	}
	return func(ctx context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error) {
		e, err := find(ctx, p.store)
		if errors.Is(err, cursorstore.ErrNoEntry) {
			hint := "exportbridge cursor history, or cursor reset --to-datetime"
			if ch := now.Change; ch != nil {
				// A reset leads to where no history is; the entry it left does.
				hint = fmt.Sprintf("--to-entry %s, where the last change left, or exportbridge cursor history", ch.From)
			}
			return nil, &exitError{code: exitFailed, err: err, hint: hint}
		}
		if err != nil {
			return nil, hinted(err)
		}
		plan := &plannedMove{
			To: describeEntry(&e, note), AgainEvents: now.Events - e.Events, AgainPages: now.Pages - e.Pages, target: e.Target(),
		}
		if plan.AgainEvents < 0 {
			plan.AgainEvents, plan.AgainPages = -1, -1 // on another branch the counters say nothing
		}
		return plan, nil
	}, nil
}

// entryAt finds where the stream stood at a time: on the current branch of the
// history, or, where a reset cut that off later, on any.
func entryAt(ctx context.Context, s *cursorstore.Store, t time.Time) (cursorstore.Entry, error) {
	e, err := s.EntryAt(ctx, t)
	if !errors.Is(err, cursorstore.ErrNoEntry) {
		return e, err
	}
	all, listErr := s.History(ctx, cursorstore.Query{})
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

func describeEntry(e *cursorstore.Entry, note string) string {
	text := "entry " + e.Place.String()
	if e.PositionTime > 0 {
		text += "   " + time.UnixMilli(e.PositionTime).UTC().Format(timeLayout)
	}
	if note != "" {
		text += "   (" + note + ")"
	}
	return text
}

func newCursorResetCommand(a *app) *cobra.Command {
	m := &move{app: a}
	var at, cursor string
	var earliest, latest bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Go to a place that is not in the history",
		Long: `Go to a place that is not in the history: the export is asked from there, without
or with another cursor. It also accepts a changed filter, end or application for
a stream. A running bridge applies it and acknowledges; without one the command
moves the cursor itself.

--to-latest skips what was not exported yet. Without --execute nothing is
changed.`,
		Example: `  exportbridge cursor reset --to-datetime 2026-11-20T00:00:00Z
  exportbridge cursor reset --to-cursor "$CURSOR" --reason "as the vendor says" --execute`,
		Args: noArgs,
	}
	m.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&earliest, "to-earliest", false, "from the first event")
	f.BoolVar(&latest, "to-latest", false, "only what comes from now on")
	f.StringVar(&at, "to-datetime", "", "events from this `TIME` on")
	f.StringVar(&cursor, "to-cursor", "", "this cursor `VALUE`, byte for byte")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf(f, "to-earliest", "to-latest", "to-datetime", "to-cursor"); err != nil {
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
	plan := plannedMove{AgainEvents: -1, AgainPages: -1}
	useNow := false
	switch {
	case flags.Changed("to-cursor"):
		switch {
		case cursor == "":
			return nil, &exitError{code: exitUsage, err: errors.New("--to-cursor is empty"), hint: "--to-earliest"}
		case len(cursor) > bridge.MaxCursor:
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-cursor has %d bytes, at most %d can be followed", len(cursor), bridge.MaxCursor)}
		case !utf8.ValidString(cursor):
			return nil, &exitError{code: exitUsage, err: errors.New("--to-cursor is not UTF-8, which every cursor in a JSON page is"), hint: "copy the cursor as the API sent it"}
		case strings.ContainsAny(cursor, "\r\n"):
			return nil, &exitError{code: exitUsage, err: errors.New("--to-cursor holds a line break"), hint: `--to-cursor "$(tr -d '\n' < FILE)"`}
		}
		plan.target.Cursor = cursor
		plan.To = fmt.Sprintf("cursor %s  (sha256 %s)", shorten(cursor), bridge.CursorHash(cursor))
	case flags.Changed("to-datetime"):
		ms, err := parseInstant(at, time.Now())
		if err != nil {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime: %w", err), hint: "--to-datetime 2026-11-20T13:00:00Z, or -2h"}
		}
		if time.UnixMilli(ms).After(time.Now()) {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("--to-datetime %s is in the future", at), hint: "--to-latest"}
		}
		plan.target.Start = ms
		plan.To = "events from " + time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) + " on"
	case flags.Changed("to-latest"):
		useNow = true
	default:
		plan.To = "the earliest event"
	}
	return func(ctx context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error) {
		found := plan
		if useNow {
			// Redis's clock: the one that all who take part agree on.
			t, err := p.store.Now(ctx)
			if err != nil {
				return nil, hinted(err)
			}
			found.target.Start = t.UnixMilli()
			found.To = "events from now on, " + t.UTC().Format(time.RFC3339Nano)
			found.notes = append(found.notes, "what is between the present position and now will not be published")
		}
		return &found, nil
	}, nil
}

// run shows what the move would do and, with --execute, does it.
func (m *move) run(ctx context.Context, find finder) error {
	p, err := m.app.openPosition(ctx, usesExport|usesKafka, m.stream)
	if err != nil {
		return err
	}
	defer p.close()
	now, err := p.store.Load(ctx)
	if errors.Is(err, bridge.ErrNoCheckpoint) {
		// The bridge may be blocked because the checkpoint was lost.
		now = bridge.Checkpoint{}
	} else if err != nil {
		return hinted(err)
	}
	plan, err := find(ctx, p, now)
	if err != nil {
		return err
	}
	plan.Stream, plan.From = p.store.Name(), now.Place
	if want := p.stream.engine.Origin; plan.target.Entry == nil && !now.Zero() && !now.Origin.Same(want) {
		plan.notes = append(plan.notes, fmt.Sprintf("the settings change, from %s to %s", now.Origin, want))
	}
	plan.Guarantee = string(p.stream.engine.Mode)
	if !*m.json {
		m.show(plan, &now)
	}
	if !m.execute {
		if *m.json {
			return printJSON(m.app.stdout, plan)
		}
		_, err := fmt.Fprintln(m.app.stdout, "  dry run: nothing was changed. Add --execute to apply.")
		return err
	}
	asked := time.Now()
	answer, id, err := m.apply(ctx, p, now, plan.target)
	if err != nil {
		return err
	}
	plan.Executed, plan.Answer = true, &answer
	if *m.json {
		return printJSON(m.app.stdout, plan)
	}
	_, err = fmt.Fprintf(m.app.stdout, "  requested %s, acknowledged by %s in %s, now at entry %s\n", id, answer.By, roundDuration(time.Since(asked)), answer.Place)
	return err
}

func (m *move) show(plan *plannedMove, now *bridge.Checkpoint) {
	w := m.app.stdout
	from := "no checkpoint"
	if !now.Zero() {
		from = "entry " + now.Place.String()
		if now.PositionTime > 0 {
			from += "   " + time.UnixMilli(now.PositionTime).UTC().Format(timeLayout)
		}
	}
	fmt.Fprintf(w, "  from   %s\n  to     %s\n", from, plan.To)
	switch {
	case plan.AgainEvents < 0:
		fmt.Fprintln(w, "  again  all that the API has from there on, however much that is; what was published before has the same ce_id")
	case plan.AgainEvents == 0:
		fmt.Fprintln(w, "  again  nothing will be published again")
	default:
		fmt.Fprintf(w, "  again  about %s events in %s pages will be published a second time, same ce_id\n",
			humanize.Comma(plan.AgainEvents), humanize.Comma(plan.AgainPages))
	}
	for _, note := range plan.notes {
		fmt.Fprintf(w, "  note   %s\n", note)
	}
}

// apply puts the request and waits until whoever owns the stream has applied
// it. Where nobody does, this process is the owner.
func (m *move) apply(ctx context.Context, p *position, now bridge.Checkpoint, target bridge.Target) (bridge.Answer, string, error) {
	cmd := bridge.Command{
		ID: strings.ToLower(rand.Text()[:6]), Kind: bridge.KindReset, BaseEpoch: now.Epoch, Target: target, Who: operator(), Reason: m.reason,
	}
	if err := p.store.Request(ctx, cmd, m.timeout); err != nil {
		if pending, ok := errors.AsType[*cursorstore.PendingError](err); ok {
			return bridge.Answer{}, "", &exitError{code: exitFailed, err: pending, hint: "the same command again when that one is done: exportbridge cursor show"}
		}
		return bridge.Answer{}, "", hinted(err)
	}
	answer, err := m.await(ctx, p, cmd)
	if err != nil {
		return answer, cmd.ID, err
	}
	if !answer.Applied {
		hint := "exportbridge cursor show"
		if now.Zero() {
			hint = "Redis had lost its copy of the cursor, which is there again: the same command once more"
		}
		return answer, cmd.ID, &exitError{code: exitFailed, err: fmt.Errorf("refused by %s: %s", answer.By, answer.Detail), hint: hint}
	}
	return answer, cmd.ID, nil
}

// aliveInterval is how often a waiting command looks whether a bridge runs.
const aliveInterval = 500 * time.Millisecond

func (m *move) await(ctx context.Context, p *position, cmd bridge.Command) (bridge.Answer, error) {
	deadline := time.Now().Add(m.timeout)
	for {
		answer, err := m.look(ctx, p, cmd.ID)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return m.giveUp(p, cmd)
		}
		_, alive, err := p.store.Status(ctx)
		if err != nil || alive {
			continue
		}
		switch free, err := p.unowned(ctx); {
		case err != nil:
			return m.giveUpWith(p, cmd, err)
		case !free:
			continue
		}
		answer, err = m.applyOffline(ctx, p, cmd)
		if errors.Is(err, bridge.ErrFenced) {
			continue // a bridge has started meanwhile: it will answer
		}
		if err != nil {
			return m.giveUpWith(p, cmd, err)
		}
		return answer, nil
	}
}

// unowned reports whether no process has the stream. Redis shows none; Kafka's
// coordinator knows for certain.
func (p *position) unowned(ctx context.Context) (bool, error) {
	if slices.Equal(p.stream.kafka.Brokers, []string{embedded}) {
		return false, &exitError{
			code: exitUsage, err: errors.New("no bridge answers, and KAFKA_BROKERS=embedded is a Kafka inside another process"),
			hint: "the address that it printed, for example --kafka-brokers " + usualKafka,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	members, err := p.sink.Members(ctx)
	if err != nil {
		return false, fmt.Errorf("no bridge answers, and whether one runs the stream is not known: %w", err)
	}
	return len(members) == 0, nil
}

// membersTimeout bounds the question who runs the stream.
const membersTimeout = 10 * time.Second

// look waits for the answer for a moment. Redis may refuse at once; then it
// waits all the same, so as not to ask in a hot loop.
func (m *move) look(ctx context.Context, p *position, id string) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveInterval)
	defer cancel()
	answer, err := p.store.Wait(ctx, id)
	if err != nil {
		<-ctx.Done()
	}
	return answer, err
}

// applyOffline moves the stream itself, by the same steps as a running bridge:
// a session of its own, which fences whoever believes to own the stream,
// claim, commit, answer.
func (m *move) applyOffline(ctx context.Context, p *position, cmd bridge.Command) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	cfg := p.stream.engine
	cfg.Owner = p.owner
	answer, err := bridge.Apply(ctx, cfg, bridge.Ports{Sink: p.sink, Store: p.store, Inbox: p.store}, cmd)
	if err == nil && answer.By == p.owner {
		answer.By = "this command (no bridge runs the stream)"
	}
	return answer, err
}

// giveUpWith takes the request back because of an error, and says which of the
// two happened.
func (m *move) giveUpWith(p *position, cmd bridge.Command, cause error) (bridge.Answer, error) {
	answer, err := m.giveUp(p, cmd)
	if err == nil {
		return answer, nil // it was applied all the same
	}
	return answer, hinted(cause)
}

// giveUp takes the request back, and says which of the two happened.
func (m *move) giveUp(p *position, cmd bridge.Command) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	outcome, err := p.store.Withdraw(ctx, cmd.ID)
	if err != nil {
		return bridge.Answer{}, &exitError{code: exitFailed, err: fmt.Errorf("request %s is not acknowledged, and Redis does not answer: %w", cmd.ID, err), hint: "exportbridge cursor show"}
	}
	switch outcome.Standing {
	case cursorstore.Answered:
		return outcome.Answer, nil
	case cursorstore.Claimed:
		return bridge.Answer{}, &exitError{
			code: exitFailed, err: fmt.Errorf("request %s is being applied by %s, which has not acknowledged it within %s", cmd.ID, outcome.Owner, m.timeout),
			hint: "exportbridge cursor show, to see whether it was applied",
		}
	}
	detail := ""
	if live, alive, err := p.store.Status(ctx); err == nil && alive {
		detail = fmt.Sprintf("; %s is %s", live.Owner, describeStatus(&live, time.Now()))
	}
	return bridge.Answer{}, &exitError{
		code: exitFailed, err: fmt.Errorf("no acknowledgement within %s: request %s is withdrawn, nothing was changed%s", m.timeout, cmd.ID, detail),
		hint: "exportbridge check, or a longer --timeout",
	}
}

// operator names who asks, for the history.
func operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
