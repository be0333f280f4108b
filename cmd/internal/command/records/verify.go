package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/reconcile"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// comparedAtOnce is the default --batch, which takes about 150 MB.
const comparedAtOnce = 1_000_000

// verifyOptions are the flags of verify.
type verifyOptions struct {
	stream, from, to string
	rate             string // --rate-limit; empty is half of the stream's
	batch            int
	late             time.Duration
	repair, execute  bool
	json             *bool
}

func newVerifyCommand(a *cli.App) *cobra.Command {
	o := verifyOptions{late: process.LateByDefault}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare a past range of the export with the topic",
		Long: `Fetch the events of a past range again and compare them with the committed
records of the topic: by id, or by content hash if events have no id. The report
counts missing, extra, dead-lettered, duplicate and late events. An event counts
as missing once all records that it can be were read: the whole topic if events
have no ingestion time. Absent events from before the topic's earliest records
are not missing: retention may have deleted them. The range is compared in parts
of at most --batch events to bound memory. The exit code is 3 if events are
missing. It is 6 if more events may follow, or if nothing of the range was
compared: the API lists no event of it, but the topic has ten or more, or the
times of all listed events, ten or more, are outside.

--repair --execute publishes missing events, with the header eb-origin: repair.
The events and a record that lists them are committed in one transaction, so a
second repair publishes none of them again. The range must begin with events
that the topic keeps, and end before the live position. The repair skips events
that the stream may still publish: those ingested after it was last caught up.
If events have no ingestion time, a bridge must be running: the repair waits
until the stream is caught up, then reads the topic again.`,
		Example: `  exportbridge verify --from -2d --to -1d
  exportbridge verify --from -2d --to -1d --repair --execute`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	f := cmd.Flags()
	cli.TakeStream(cmd, &o.stream)
	f.StringVar(&o.from, "from", "", "inclusive start `TIME` of the range")
	f.StringVar(&o.to, "to", "", "exclusive end `TIME` of the range")
	f.IntVar(&o.batch, "batch", comparedAtOnce, "compare `N` events at a time, at about 150 bytes of memory each")
	f.Var(cli.Parsed(&o.late, bridge.ParseDuration, "DURATION"), "late-threshold",
		"count events as late if ingested this long after their time (default 1m)")
	f.StringVar(&o.rate, "rate-limit", "",
		"maximum request `RATE`, such as 10/s, 600/m or 100/h (default half of EXPORT_RATE_LIMIT)")
	f.BoolVar(&o.repair, "repair", false, "find missing events that can be published; with --execute, publish them")
	cli.TakeExecute(cmd, &o.execute)
	cli.Renamed(cmd, "late-after", "late-threshold")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runVerify(cmd.Context(), a, &o) }
	return cmd
}

// bounds checks the flags and returns the range in milliseconds since the epoch.
func (o *verifyOptions) bounds(now time.Time) (from, to int64, err error) {
	wrong := func(hint, format string, values ...any) (int64, int64, error) {
		return 0, 0, cli.WrongUsage(hint, format, values...)
	}
	const example = "--from -2d --to -1d"
	if o.from == "" || o.to == "" {
		return wrong(example, "--from and --to are required")
	}
	if from, err = bridge.ParsePast(o.from, now); err != nil {
		return wrong(example, "--from: %w", err)
	}
	if to, err = bridge.ParsePast(o.to, now); errors.Is(err, bridge.ErrFuture) {
		return wrong("--to now", "--to: %w", err)
	} else if err != nil {
		return wrong(example, "--to: %w", err)
	}
	switch {
	case from >= to:
		return wrong(example, "--from %s is not before --to %s", o.from, o.to)
	case o.batch < 1:
		return wrong("--batch 1000000", "--batch %d is below 1", o.batch)
	case o.late < 0:
		return wrong("--late-threshold 1m", "--late-threshold %s is below 0", o.late)
	case o.execute && !o.repair:
		return wrong("--repair --execute", "--execute requires --repair")
	}
	return from, to, nil
}

// limit sets the request rate, which adds to that of the stream.
func (o *verifyOptions) limit(st *config.Stream) (err error) {
	if o.rate != "" {
		if _, err := cli.ParseRateLimit(o.rate); err != nil {
			return err
		}
		st.Export.RateLimit = o.rate
		return nil
	}
	perSecond, err := process.BesideLive(st)
	if err == nil && perSecond > 0 {
		st.Export.RateLimit = fmt.Sprintf("%g/s", perSecond)
	}
	return err
}

func runVerify(ctx context.Context, a *cli.App, o *verifyOptions) error {
	from, to, err := o.bounds(time.Now())
	if err != nil {
		return err
	}
	s, st, err := a.StreamSettings(config.UsesExport|config.UsesCursor, o.stream)
	if err != nil {
		return err
	}
	if err := o.limit(st); err != nil {
		return err
	}
	if err := cmp.Or(st.Export.Bounded(), st.Export.Starts()); err != nil {
		return cli.Boundless(err)
	}
	api, err := openAPI(st, o.execute)
	if err != nil {
		return err
	}
	defer api.Close()
	redis, err := cli.OpenRedis(s)
	if err != nil {
		return err
	}
	defer redis.Close()
	store := redis.Stream(st.Name)
	events, dead, err := readersOf(ctx, st)
	if err != nil {
		return err
	}
	events.Waiting, dead.Waiting = sayWaiting(a), sayWaiting(a)
	c := process.Comparison{
		Stream: st, API: api, Events: events, Dead: dead, Waiting: sayWaiting(a), Compared: sayCompared(a),
		Live: process.NewLiveStream(st, func(ctx context.Context) (bridge.Status, bool) {
			s, ok, err := store.Status(ctx)
			return s, ok && err == nil // while Redis is unreachable, the position in Kafka counts
		}),
		AwaitingEnd: func() {
			fmt.Fprintf(a.Stderr, "waiting for stream %s to catch up: its events have no ingestion time\n", st.Name)
		},
	}
	found, err := c.Run(ctx, reconcile.Config{
		From: from, To: to, Mode: o.mode(), Batch: o.batch, LateThreshold: o.late, By: cli.Operator(),
	})
	if err != nil {
		return verifyError(err)
	}
	SaySkipped(a, events)
	SaySkipped(a, dead)
	if err := o.print(a, found); err != nil {
		return err
	}
	return o.verdict(a, found)
}

// sayCompared returns a function that reports each compared part.
func sayCompared(a *cli.App) func(reconcile.Progress) {
	return func(p reconcile.Progress) {
		fmt.Fprintf(a.Stderr, "compared %s to %s: %s events, %d missing\n",
			instantText(p.From), instantText(p.To), humanize.Comma(p.Events), p.Missing)
	}
}

func (o *verifyOptions) mode() reconcile.Mode {
	switch {
	case o.execute:
		return reconcile.Repair
	case o.repair:
		return reconcile.Rehearse
	}
	return reconcile.Compare
}

// verifyHints are the hints of refused comparisons and repairs.
var verifyHints = map[reconcile.Reason]string{
	reconcile.NeverRan: "exportbridge run",
	reconcile.PositionUnknown: "repeat the command in a minute, while exportbridge run runs; " +
		"exportbridge status shows the position",
	reconcile.NotPassed: "repeat the command when the stream has passed the range; " +
		"exportbridge status shows its position",
	reconcile.NotKept:      "choose a later range: retention deletes all of this one",
	reconcile.OtherOrigin:  bridge.SameOriginHint,
	reconcile.OtherSource:  bridge.SameRequestHint,
	reconcile.StreamPaused: "run exportbridge resume, then repeat the command",
	reconcile.NotRunning:   "start exportbridge run, then repeat the command",
	reconcile.NotAtEnd:     "repeat the command when exportbridge status shows the stream caught up",
	reconcile.Moved:        "repeat the command",
	reconcile.TopicMade:    "repeat the command",
	reconcile.TopicLost:    cli.EngineHints[bridge.HintTopicLost],
	reconcile.UnknownMark:  "upgrade exportbridge",
	reconcile.OtherRules:   "compare a range that was published under today's rules, or replay into a new topic",
	reconcile.OtherRoutes:  bridge.SameRoutesHint,
	reconcile.CutOff:       cli.EngineHints[bridge.HintFullPage],
	reconcile.Endless:      "try a smaller range; if it has as many empty pages, " + cli.EngineHints[bridge.HintEndless],
	reconcile.CursorCycle:  "report it to the operator of the API, or try a smaller range",
}

// verifyError adds the exit code and the hint to an error of reconcile.Run.
func verifyError(err error) error {
	if known, ok := errors.AsType[*cli.Error](err); ok {
		return known
	}
	refused, ok := errors.AsType[*reconcile.RejectedError](err)
	if !ok {
		return repairError(err)
	}
	e := &cli.Error{Code: cli.ExitFailed, Err: err, Hint: verifyHints[refused.Reason]}
	switch refused.Reason {
	case reconcile.NeverRan, reconcile.PositionUnknown, reconcile.OtherOrigin, reconcile.OtherSource,
		reconcile.OtherRoutes:
		e.Code = cli.ExitUsage
	case reconcile.NotPassed:
		e.Code = cli.ExitUsage
		if refused.Position > 0 {
			e.Hint = "--to " + instantText(refused.Position)
		}
	case reconcile.NotKept:
		e.Code = cli.ExitUsage
		if refused.Position > 0 {
			e.Hint = "--from " + instantText(refused.Position)
		}
	case reconcile.BackfillOpen:
		e.Hint = fmt.Sprintf("exportbridge backfill --resume %s --execute, "+
			"or exportbridge backfill cancel %[1]s --execute", refused.Backfill)
	}
	return e
}

// instantText returns a time that --from and --to take, exact to the millisecond.
func instantText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// readersOf is process.ComparedTopics. KAFKA_TOPIC must exist.
func readersOf(ctx context.Context, st *config.Stream) (events, dead *kafkaclient.TopicReader, err error) {
	if err := wantTopic(ctx, &st.Kafka, st.Kafka.Topic, "KAFKA_TOPIC"); err != nil {
		return nil, nil, err
	}
	events, dead, err = process.ComparedTopics(ctx, st,
		kafkaclient.TopicReader{Open: st.Kafka.Open, Patience: usualPatience})
	return events, dead, cli.Explain(err)
}

// verdict is the error of a report with missing events.
func (o *verifyOptions) verdict(a *cli.App, r *reconcile.Report) error {
	left := r.Missing
	hint := "repeat the command with --repair"
	switch {
	case r.Position == 0:
		hint = "run the stream first: it has published no event since its start or its last move"
	case r.Position < r.To: // the missing events may all be after the position
		hint = "choose a range that ends before the stream's position, " + bridge.BoundText(r.Position)
	case !r.AtEnd:
		hint = "repeat the command when exportbridge status shows the stream caught up"
	}
	if r.Repair != nil && o.execute {
		left -= r.Repair.Events
		hint = "see above for the events that were left out"
	} else if r.Repair != nil {
		hint = "repeat the command with --execute"
		sayDryRun(a, int(r.Repair.Events+r.Repair.Unproven), "event")
	}
	if left == 0 && r.EndedEmpty {
		return cli.Errorf(cli.ExitEmptyEnd, cli.EngineHints[bridge.HintEmptyEnd],
			"compared as far as read: empty pages in a row ended the range, more events may follow")
	}
	if left == 0 {
		return uncompared(r.API, r.Outside, r.Extra, r.Topic)
	}
	return cli.Errorf(cli.ExitCheck, hint, "%s missing in topic %s", are(left, "event", "is", "are"), r.Topic)
}

// uncompared is the error of a range of which no event was compared, although it has events. A few events prove
// nothing: an API that selects by the time of ingestion lists late ones in another range, and those of that range here.
func uncompared(listed, outside, extra int64, topic string) error {
	const hint = "correct EXPORT_START_PARAM, EXPORT_END_PARAM or EXPORT_TIME_FORMAT"
	switch {
	case listed == 0 && extra >= backfill.FewestOutside:
		return cli.Errorf(cli.ExitEmptyEnd, hint+", or choose a range that the API still lists",
			"nothing was compared: the API lists no event of the range, but %s in %s", are(extra, "event", "is", "are"), topic)
	case outside == listed && outside >= backfill.FewestOutside:
		return cli.Errorf(cli.ExitEmptyEnd, hint, "nothing of the range was compared: the times of all listed events are outside")
	}
	return nil
}

func (o *verifyOptions) print(a *cli.App, r *reconcile.Report) error {
	if *o.json {
		return cli.PrintJSON(a.Stdout, r)
	}
	number := humanize.Comma
	rows := [][2]string{
		{"window", instantText(r.From) + " to " + instantText(r.To) + ", compared in " + cli.Counted(r.Parts, "part")},
		{"export", number(r.API) + " events"},
		{"topic", number(r.Held) + " of them in " + r.Topic},
		{"missing", number(r.Missing)},
		{"dead letters", number(r.DeadLettered)},
		{"extra", extraText(r)},
		{"copies", number(r.Again) + " duplicate records"},
		{"late", latenessText(r, o.late)},
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		rows = append(rows, [2]string{"", fmt.Sprintf("%s of %s in %s, %s missing", number(t.Held), number(t.Listed), t.Topic,
			number(t.Missing))})
	}
	if r.Dropped > 0 {
		rows = append(rows, [2]string{"dropped", number(r.Dropped) + " by a route"})
	}
	if r.Deleted > 0 {
		text := number(r.Deleted) + " older than " + instantText(r.KeptFrom) + " may have been deleted by retention"
		rows = append(rows, [2]string{"deleted", text})
	}
	rows = append(rows, eventRows("missing", r.MissingEvents, r.Missing)...)
	rows = append(rows, eventRows("extra", r.ExtraEvents, r.Extra)...)
	if r.Repair != nil {
		rows = append(rows, repairRows(r.Repair, o.execute)...)
	}
	return cli.PrintFields(a.Stdout, append(rows, verifyNotes(r)...), a.Width())
}

// verifyNotes are warnings about the numbers.
func verifyNotes(r *reconcile.Report) (rows [][2]string) {
	note := func(text string) { rows = append(rows, [2]string{"note", text}) }
	switch {
	case r.Position < r.To:
		note("the stream has not reached the end of the range yet; it can still publish the missing events")
	case !r.AtEnd:
		note("the stream has not caught up; it can still publish the missing events")
	}
	if r.API == 0 {
		note("the API lists no event of the range: nothing was compared")
	}
	if r.Outside > 0 {
		note(OutsideNote(r.Outside, r.API))
	}
	return rows
}

// OutsideNote counts the events of the export outside the range.
func OutsideNote(outside, all int64) string {
	return fmt.Sprintf("%s of %s events %s", humanize.Comma(outside), humanize.Comma(all), backfill.OutsideRange)
}

// eventRows lists the first events of a finding, and counts the others.
func eventRows(name string, first []reconcile.Event, all int64) [][2]string {
	var rows [][2]string
	for i := range first {
		rows = append(rows, [2]string{name, eventText(&first[i])})
	}
	if more := all - int64(len(first)); more > 0 {
		rows = append(rows, [2]string{"", "and " + humanize.Comma(more) + " more"})
	}
	return rows
}

func eventText(e *reconcile.Event) string {
	when := "without a time"
	if !e.Time.IsZero() {
		when = e.Time.UTC().Format(recordTime)
	}
	return process.Cut(e.ID, 80) + "  " + when
}

// extraText counts the events of the topic that the API does not list. A record without
// a time is in no range.
func extraText(r *reconcile.Report) string {
	switch r.Undated {
	case 0:
		return humanize.Comma(r.Extra) + " in the topic but not in the API's range"
	case r.API:
		return "unknown: the events have no time"
	}
	return fmt.Sprintf("%s in the topic but not in the API's range; unknown for events without a time (%s)",
		humanize.Comma(r.Extra), humanize.Comma(r.Undated))
}

// latenessText describes the late events.
func latenessText(r *reconcile.Report, after time.Duration) string {
	l := &r.Late
	switch {
	case l.Known == 0 && r.Undated > 0 && r.Undated == r.API:
		return "unknown: the events have no time"
	case l.Known == 0:
		return "unknown: the events have no ingestion time"
	}
	text := fmt.Sprintf("%s ingested more than %s after their time", humanize.Comma(l.Events), after)
	if l.Events > 0 {
		ms := func(n int64) time.Duration {
			return (time.Duration(n) * time.Millisecond).Round(100 * time.Millisecond)
		}
		text += fmt.Sprintf(": p50 %s, p99 %s, max %s", ms(l.P50), ms(l.P99), ms(l.Max))
	}
	return text
}

// repairRows count the missing events by the result of their repair.
func repairRows(r *reconcile.Repaired, executed bool) [][2]string {
	done := "would be published"
	if executed {
		done = "published"
	}
	rows := [][2]string{{"repair", humanize.Comma(r.Events) + " " + done}}
	for _, left := range []struct {
		n    int64
		text string
	}{
		{r.Live, "left to the running stream"},
		{r.Unproven, "without an ingestion time: the stream can still publish them; " +
			"--execute waits for a running bridge to decide"},
		{r.Before, "published by an earlier repair and no longer in the topic"},
		{r.Refused, "cannot be published"},
	} {
		if left.n > 0 {
			rows = append(rows, [2]string{"", humanize.Comma(left.n) + " " + left.text})
		}
	}
	for _, why := range r.Reasons {
		rows = append(rows, [2]string{"", why})
	}
	return rows
}
