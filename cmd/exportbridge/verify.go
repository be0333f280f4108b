package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// Headers of the record contract that say which event a record is.
const (
	headerEventID   = "ce_id"
	headerEventTime = "ce_time"
)

const (
	// comparedAtOnce is how many events are compared at once: about 150 MB.
	comparedAtOnce = 1_000_000
	// lateByDefault is how long after its time an event is late.
	lateByDefault = time.Minute
	// namedEvents is how many missing and extra events are named.
	namedEvents = 10
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	stream, from, to string
	rate             string // --rate-limit; empty is half of the stream's
	batch            int
	late             time.Duration
	repair, execute  bool
	json             *bool
}

func newVerifyCommand(a *app) *cobra.Command {
	o := verifyOptions{late: lateByDefault}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare a past window of the export with the topic",
		Long: `Read the events of [--from, --to) again from the API and compare them with what
the topic holds, read_committed, by id, or by a hash of the bytes where events
have none. It tells which are missing and which the topic has but the API has
not, which are dead letters, and how late events came where the API says when it
took them in. The window is compared in parts of at most --batch events, so that
memory stays bounded. The exit code is 3 if events are missing.

--repair --execute publishes what is missing, with eb-origin repair: events and a
mark that names them are one transaction, so that another repair does not publish
them twice. Only a window that ends before the live position can be repaired, and
only what the stream can no longer publish itself: events that the API took in
before the stream was last at the end of the export. Where events do not say when
that was, a bridge must run: the repair waits until that is at the end again, and
looks into the topic once more.`,
		Example: `  exportbridge verify --from -2d --to -1d
  exportbridge verify --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --repair --execute`,
		GroupID: groupPosition,
		Args:    noArgs,
	}
	a.takeSettings(cmd)
	o.json = takeJSON(cmd)
	f := cmd.Flags()
	takeStream(cmd, &o.stream)
	f.StringVar(&o.from, "from", "", "`TIME` of the first event")
	f.StringVar(&o.to, "to", "", "`TIME` behind the last event")
	f.IntVar(&o.batch, "batch", comparedAtOnce, "compare at most `N` events at once; about 150 bytes of memory each")
	f.Var(parsed(&o.late, config.ParseDuration, "DURATION"), "late-after", "an event that the API took in so long after its time is late (default 1m)")
	f.StringVar(&o.rate, "rate-limit", "", "most requests per second, minute or hour, for example 10/s (default half of EXPORT_RATE_LIMIT)")
	f.BoolVar(&o.repair, "repair", false, "publish what is missing")
	f.BoolVar(&o.execute, "execute", false, "do it; without this nothing is changed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.verify(cmd.Context(), &o) }
	return cmd
}

// window reads the flags and returns the window in milliseconds since the epoch.
func (o *verifyOptions) window(now time.Time) (from, to int64, err error) {
	wrong := func(hint, format string, values ...any) (int64, int64, error) {
		return 0, 0, wrongUsage(hint, format, values...)
	}
	const example = "--from -2d --to -1d"
	if o.from == "" || o.to == "" {
		return wrong(example, "say which window: --from and --to")
	}
	if from, err = config.ParseInstant(o.from, now); err != nil {
		return wrong(example, "--from: %w", err)
	}
	if to, err = config.ParseInstant(o.to, now); err != nil {
		return wrong(example, "--to: %w", err)
	}
	switch {
	case to > now.UnixMilli():
		return wrong("--to now", "--to %s is in the future", o.to)
	case from >= to:
		return wrong(example, "--from %s is not before --to %s", o.from, o.to)
	case o.batch < 1:
		return wrong("--batch 1000000", "--batch %d is below 1", o.batch)
	case o.late < 0:
		return wrong("--late-after 1m", "--late-after %s is below 0", o.late)
	case o.execute && !o.repair:
		return wrong("--repair --execute", "--execute without --repair: there is nothing to do")
	}
	return from, to, nil
}

// limit sets how often the API is asked, beside the stream.
func (o *verifyOptions) limit(st *config.Stream) (err error) {
	if o.rate != "" {
		if _, err := parseRateLimit(o.rate); err != nil {
			return err
		}
		st.Export.RateLimit = o.rate
		return nil
	}
	perSecond, err := besideLive(st)
	if err == nil && perSecond > 0 {
		st.Export.RateLimit = fmt.Sprintf("%g/s", perSecond)
	}
	return err
}

// verified is what verify found, for people and as JSON. Times are in
// milliseconds since the epoch.
type verified struct {
	Stream string `json:"stream"`
	Topic  string `json:"topic"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	// API counts the window's events in the API, Held those of them that the
	// topic holds, each once.
	API     int64 `json:"api_events"`
	Held    int64 `json:"topic_events"`
	Missing int64 `json:"missing"`
	// DeadLettered are not in the topic but among the dead letters.
	DeadLettered int64 `json:"dead_lettered"`
	// Extra are in the topic but not in the API's window.
	Extra int64 `json:"extra"`
	// Again counts further copies in the topic, as rewinds make them.
	Again int64    `json:"again"`
	Late  lateness `json:"late"`
	Parts int      `json:"parts"`
	// MissingEvents and ExtraEvents name the first of them.
	MissingEvents []namedEvent `json:"missing_events,omitempty"`
	ExtraEvents   []namedEvent `json:"extra_events,omitempty"`
	// Position is where the live stream is, 0 where that is not known.
	Position int64     `json:"live_position,omitempty"`
	Repair   *repaired `json:"repair,omitempty"`
}

// namedEvent names an event in the output.
type namedEvent struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time,omitzero"`
}

// timeOf returns an event's time, zero where it has none.
func timeOf(e *bridge.Event) time.Time {
	if e.Time == bridge.NoTime || e.Defect == bridge.DefectTime {
		return time.Time{}
	}
	return time.UnixMilli(e.Time).UTC()
}

// verifier compares one stream's export with its topic.
type verifier struct {
	app    *app
	opts   *verifyOptions
	stream *config.Stream
	api    *exportapi.Client
	window exportWindow
	topic  *topicReader
	dead   *letters
	live   bridge.Checkpoint
	repair *repairer // nil without --repair
	report verified
}

func (a *app) verify(ctx context.Context, o *verifyOptions) error {
	from, to, err := o.window(time.Now())
	if err != nil {
		return err
	}
	_, st, err := a.steeredStream(ctx, config.UsesExport, o.stream)
	if err != nil {
		return err
	}
	if err := o.limit(st); err != nil {
		return err
	}
	api, err := openExport(st)
	if err != nil {
		return err
	}
	defer api.Close()
	v := &verifier{
		app: a, opts: o, stream: st, api: api, window: exportWindow{api: api, emptyPages: st.Engine.EmptyPages},
		report: verified{Stream: st.Name, Topic: st.Kafka.Topic, From: from, To: to},
	}
	if err := v.connect(ctx); err != nil {
		return err
	}
	if o.repair {
		if v.repair, err = v.openRepair(ctx); err != nil {
			return err
		}
		defer v.repair.Close()
		v.report.Repair = &v.repair.repaired
	}
	if err := v.run(ctx, from, to); err != nil {
		return err
	}
	a.saySkipped(v.topic)
	a.saySkipped(v.dead.topicReader)
	if *o.json {
		err = printJSON(a.stdout, &v.report)
	} else {
		err = v.print()
	}
	if err != nil {
		return err
	}
	return v.verdict()
}

// connect finds out where the live stream is, and connects to the topics.
func (v *verifier) connect(ctx context.Context) (err error) {
	if v.live, err = newestCheckpoint(ctx, v.stream); err != nil {
		return err
	}
	v.report.Position = v.live.PositionTime
	if v.opts.repair {
		if err := v.repairable(); err != nil {
			return err
		}
		if err := v.overlapsBackfill(ctx); err != nil {
			return err
		}
	}
	if v.dead, err = lettersOf(ctx, v.stream); err != nil {
		return err
	}
	v.topic, err = eventReader(ctx, v.stream)
	if err == nil {
		v.topic.say, v.dead.say = v.app.sayWaiting(), v.app.sayWaiting()
	}
	return err
}

// eventReader reads the stream's records in its topic.
func eventReader(ctx context.Context, st *config.Stream) (*topicReader, error) {
	sink, err := kafkasink.New(st.Kafka)
	if err != nil {
		return nil, err
	}
	defer sink.Close()
	there, err := sink.Exists(ctx)
	if err != nil {
		return nil, explained(err)
	}
	if !there {
		return nil, &exitError{code: exitFailed, err: fmt.Errorf("topic %s does not exist", st.Kafka.Topic), hint: "exportbridge topics plan"}
	}
	keep := keepStream(st.Name)
	if st.Kafka.Headers == "none" {
		keep = keepAll
	}
	return &topicReader{open: sink.Consumer, topic: st.Kafka.Topic, keep: keep, patience: usualPatience}, nil
}

// run compares the window part by part. A part with too many events is halved;
// the next one grows again.
func (v *verifier) run(ctx context.Context, from, to int64) error {
	width := to - from
	for begin := from; begin < to; {
		end := begin + min(width, to-begin)
		p, err := v.compare(ctx, begin, end)
		if errors.Is(err, errTooMany) {
			width = (end - begin) / 2
			continue
		}
		if err != nil {
			return err
		}
		v.report.add(p)
		if begin > from || end < to {
			fmt.Fprintf(v.app.stderr, "compared %s to %s: %s events, %d missing\n", instantText(begin), instantText(end), humanize.Comma(p.API), p.Missing)
		}
		begin = end
		if p.API < int64(v.opts.batch)/4 {
			width = min(2*width, to-from)
		}
	}
	return nil
}

func instantText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// add puts a part's findings to those of the window.
func (r *verified) add(p *verified) {
	r.API, r.Held, r.Missing, r.DeadLettered = r.API+p.API, r.Held+p.Held, r.Missing+p.Missing, r.DeadLettered+p.DeadLettered
	r.Extra, r.Again, r.Parts = r.Extra+p.Extra, r.Again+p.Again, r.Parts+1
	r.Late.add(&p.Late)
	r.MissingEvents = firstOf(slices.Concat(r.MissingEvents, p.MissingEvents))
	r.ExtraEvents = firstOf(slices.Concat(r.ExtraEvents, p.ExtraEvents))
}

func firstOf(all []namedEvent) []namedEvent { return all[:min(len(all), namedEvents)] }

// verdict is the exit code: whether events are missing still.
func (v *verifier) verdict() error {
	r := &v.report
	left := r.Missing
	hint := "exportbridge verify with the same window and --repair"
	switch {
	case r.Position < r.To: // which may be all that is missing
		hint = "a window that ends before the stream's position, " + startText(r.Position)
	case !atEnd(&v.live):
		hint = "the same when exportbridge status says that the stream has caught up"
	}
	if r.Repair != nil && v.opts.execute {
		left -= r.Repair.Events
		hint = "the events that were left out are named above"
	} else if r.Repair != nil {
		hint = "the same with --execute"
		v.app.sayDryRun(int(r.Repair.Events+r.Repair.Unproven), "event")
	}
	if left == 0 {
		return nil
	}
	return &exitError{code: exitCheck, err: fmt.Errorf("%s missing in topic %s", areMissing(left), r.Topic), hint: hint}
}

func areMissing(n int64) string {
	if n == 1 {
		return "1 event is"
	}
	return humanize.Comma(n) + " events are"
}

// print shows the findings to people.
func (v *verifier) print() error {
	r := &v.report
	number := humanize.Comma
	rows := [][]string{
		{"window", instantText(r.From) + " to " + instantText(r.To) + ", compared in " + counted(r.Parts, "part")},
		{"export", number(r.API) + " events"},
		{"topic", number(r.Held) + " of them in " + r.Topic},
		{"missing", number(r.Missing)},
		{"dead letters", number(r.DeadLettered)},
		{"extra", number(r.Extra) + " in the topic that the API does not have in this window"},
		{"copies", number(r.Again) + " more records of the same events"},
		{"late", r.Late.text(v.opts.late)},
	}
	for _, e := range r.MissingEvents {
		rows = append(rows, []string{"missing", e.text()})
	}
	for _, e := range r.ExtraEvents {
		rows = append(rows, []string{"extra", e.text()})
	}
	if r.Repair != nil {
		rows = append(rows, r.Repair.rows(v.opts.execute)...)
	}
	switch {
	case r.Position < r.To:
		rows = append(rows, []string{"note", "the live stream has not passed the end of the window: what is missing may be on its way"})
	case !atEnd(&v.live):
		rows = append(rows, []string{"note", "the live stream is not at the end of the export: what is missing may be on its way"})
	}
	for i := range rows {
		rows[i][0] = "  " + rows[i][0]
	}
	return printTable(v.app.stdout, rows)
}

func (e *namedEvent) text() string {
	when := "without a time"
	if !e.Time.IsZero() {
		when = e.Time.UTC().Format(recordTime)
	}
	return printable(cut(e.ID, 80)) + "  " + when
}
