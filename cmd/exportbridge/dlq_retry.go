package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// lettersAtOnce is how many dead letters are in memory at a time.
const lettersAtOnce = 64

// retryOptions are the flags of dlq retry.
type retryOptions struct {
	stream, reason string
	all, execute   bool
	timeout        time.Duration
	json           *bool
}

func newDLQRetryCommand(a *app) *cobra.Command {
	var o retryOptions
	cmd := &cobra.Command{
		Use:   "retry [PARTITION:OFFSET...]",
		Short: "Publish dead letters after all",
		Long: `Publish dead letters to the stream's topic, for instance when that takes larger
records now. A letter that holds its item is read again by the rules of the
stream's resource; for one that holds only the item's position the page is
fetched again at its cursor. The record is as it would have been, with eb-origin
repair. It and a mark that this letter was retried are one transaction: whatever
happens meanwhile, no letter is published twice, nor is an event that a rewind has
left in several of them. The letter itself stays. The running stream is not
touched.

A letter that still cannot be published is told with the reason, and stays. With
--all nothing is published before all letters were found. Without --execute
nothing is changed.`,
		Example: `  exportbridge dlq retry 0:17 2:4
  exportbridge dlq retry --all --reason too-large --execute`,
		Args: cobra.ArbitraryArgs,
	}
	a.takeSettings(cmd)
	o.json = takeJSON(cmd)
	takeStream(cmd, &o.stream)
	cmd.Flags().BoolVar(&o.all, "all", false, "all dead letters of the stream")
	cmd.Flags().StringVar(&o.reason, "reason", "", "of all only those with this `REASON`: "+strings.Join(defects, ", "))
	cmd.Flags().BoolVar(&o.execute, "execute", false, "do it; without this nothing is changed")
	takeReading(cmd, &o.timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.retryLetters(cmd.Context(), &o, args) }
	return cmd
}

// named reads the letters that were named, each once.
func (o *retryOptions) named(args []string) ([]letterPlace, error) {
	wrong := func(format string, values ...any) error {
		return &exitError{code: exitUsage, err: fmt.Errorf(format, values...), hint: "exportbridge dlq retry --help"}
	}
	switch {
	case o.all && len(args) > 0:
		return nil, wrong("--all and named letters exclude each other")
	case !o.all && len(args) == 0:
		return nil, wrong("say which letters: PARTITION:OFFSET, or --all")
	case !o.all && o.reason != "":
		return nil, wrong("--reason needs --all")
	}
	if err := checkReason(o.reason); err != nil {
		return nil, err
	}
	places := make([]letterPlace, 0, len(args))
	for _, arg := range args {
		p, err := parseLetterPlace(arg)
		if err != nil {
			return nil, &exitError{code: exitUsage, err: err, hint: "exportbridge dlq list"}
		}
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	return places, nil
}

// What became of a letter, or would.
const (
	letterPublished = "published"
	letterWould     = "would be published"
	letterBefore    = "published before"
	letterDuplicate = "duplicate" // another letter of the same event is published
	letterRefused   = "cannot be published"
)

// retriedLetter is one letter in the output of dlq retry.
type retriedLetter struct {
	Letter string        `json:"letter"`
	Reason bridge.Defect `json:"reason"`
	ID     string        `json:"id,omitempty"`
	// From says where the item came from: bytes or cursor.
	From   string `json:"from"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// retrier publishes the dead letters of one stream.
type retrier struct {
	*letters
	api    *exportapi.Client
	repair *kafkasink.Repair
	origin bridge.Origin // what the stream asks the API for
	result string
	done   func(retriedLetter) error
	// items are the events that are published from letters, as itemOf names
	// them, and which letters those are.
	items map[string]string
}

// itemOf names the event of a letter, the same in every letter of it. Events
// without an id that are equal may be two: they are told apart by their places,
// and those that share an id by their bytes.
func itemOf(e *bridge.Event, r *kgo.Record) string {
	text := "id " + string(e.ID)
	switch {
	case e.ID != nil && kafkasink.ReadLetter(r).Reason == bridge.DefectSharedID:
		text += fmt.Sprintf(" form %x", sha256.Sum256(e.Raw))
	case e.ID == nil:
		text = fmt.Sprintf("at %s %s %s", header(r, headerCursorHash), header(r, headerIndex), e.AppendRecordID(nil))
	}
	return itemName(text)
}

func itemName(text string) string {
	name := kafkasink.FingerprintOf([]byte(text))
	return hex.EncodeToString(name[:])
}

// mostMarkedID is how long an id may be to be whole in a mark.
const mostMarkedID = 255

// itemsOf returns the events that earlier retries have published.
func itemsOf(marks map[string][]byte) map[string]string {
	items := make(map[string]string)
	for name, value := range marks {
		var m letterMark
		if json.Unmarshal(value, &m) != nil {
			continue
		}
		if m.Item == "" && m.ID != "" && len(m.ID) <= mostMarkedID {
			m.Item = itemName("id " + m.ID) // of an older version
		}
		items[m.Item] = strings.Replace(name, "/", ":", 1) + ", at " + time.UnixMilli(m.At).UTC().Format(timeLayout)
	}
	return items
}

func (a *app) retryLetters(ctx context.Context, o *retryOptions, args []string) error {
	places, err := o.named(args)
	if err != nil {
		return err
	}
	_, st, err := a.steeredStream(ctx, config.UsesExport, o.stream)
	if err != nil {
		return err
	}
	api, err := openExport(st)
	if err != nil {
		return err
	}
	defer api.Close()
	l, err := lettersOf(ctx, st)
	if err != nil {
		return err
	}
	l.say = a.sayWaiting()
	reading, read := l.reading(ctx, o.timeout)
	if o.all {
		places, err = l.places(reading, o.reason)
	} else {
		err = l.check(reading, places)
	}
	if read(); err != nil {
		return err
	}
	a.saySkipped(l.topicReader)
	out := []retriedLetter{}
	t := &retrier{letters: l, api: api, result: letterWould, done: func(one retriedLetter) error {
		if *o.json {
			out = append(out, one)
			return nil
		}
		return a.printRetried(one)
	}}
	n, err := t.run(ctx, a, places, o.execute)
	if *o.json {
		err = errors.Join(err, printJSON(a.stdout, out))
	}
	if err != nil {
		return err
	}
	if n[letterDuplicate] > 0 {
		fmt.Fprintf(a.stderr, "%d of %s are of events that another letter holds too: each event is published once\n", n[letterDuplicate], counted(len(places), "letter"))
	}
	switch {
	case len(places) == 0:
		fmt.Fprintf(a.stderr, "no dead letters in %s are what was asked for\n", l.topic)
	case !o.execute:
		a.sayDryRun(n[t.result], "letter")
	case n[letterRefused] > 0:
		return &exitError{code: exitFailed, err: fmt.Errorf("%d of %s cannot be published", n[letterRefused], counted(len(places), "letter")), hint: "exportbridge dlq show PARTITION:OFFSET"}
	}
	return nil
}

// openExport connects to the export API of a stream.
func openExport(st *config.Stream) (*exportapi.Client, error) {
	if st.Simulated {
		return nil, &exitError{
			code: exitUsage, err: errors.New("EXPORT_URL=simulated is an API inside another process"),
			hint: "the address that it printed, for example EXPORT_URL=http://" + usualSimulator,
		}
	}
	return exportapi.New(st.Export)
}

func (a *app) printRetried(one retriedLetter) error {
	line := fmt.Sprintf("  %-10s %-14s %-24s from its %-6s  %s", one.Letter, one.Reason, printable(cut(orDash(one.ID), 40)), one.From, one.Result)
	if one.Detail != "" {
		line += ": " + printable(one.Detail)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// places returns where the stream's letters are.
func (l *letters) places(ctx context.Context, reason string) ([]letterPlace, error) {
	if !l.there {
		return nil, nil
	}
	spans, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	var all []letterPlace
	err = l.read(ctx, spans, func(r *kgo.Record) {
		if reason == "" || header(r, headerReason) == reason {
			all = append(all, letterPlace{r.Partition, r.Offset})
		}
	})
	slices.SortFunc(all, letterPlace.compare)
	return all, err
}

// check makes sure that all letters are there before one is published.
func (l *letters) check(ctx context.Context, places []letterPlace) error {
	for some := range slices.Chunk(places, lettersAtOnce) {
		if _, err := l.load(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// sayDryRun says that nothing was changed, and what could be.
func (a *app) sayDryRun(n int, what string) {
	if n == 0 {
		fmt.Fprintln(a.stderr, "dry run: nothing was changed, and there is nothing to publish.")
		return
	}
	fmt.Fprintf(a.stderr, "dry run: nothing was changed. Add --execute to publish %s.\n", counted(n, what))
}

// run publishes the letters one after the other, each in a transaction of its
// own, and returns how many had which result. An error ends it; what is published
// until then has its mark.
func (t *retrier) run(ctx context.Context, a *app, places []letterPlace, execute bool) (results map[string]int, err error) {
	results = make(map[string]int)
	if len(places) == 0 {
		return results, nil
	}
	begin := kafkasink.Rehearse
	if execute {
		begin, t.result = kafkasink.OpenRepair, letterPublished
	}
	kafka := t.stream.Kafka
	kafka.Report = a.sayWaiting()
	if t.repair, err = begin(ctx, kafka, kafkasink.JobDLQ); err != nil {
		return results, repairError(err)
	}
	defer t.repair.Close()
	t.items = itemsOf(t.repair.Marks())
	if err := t.findOrigin(ctx); err != nil {
		return results, err
	}
	for some := range slices.Chunk(places, lettersAtOnce) {
		records, err := t.load(ctx, some)
		if err != nil {
			return results, err
		}
		for _, r := range records {
			one, err := t.one(ctx, r)
			if err != nil {
				return results, fmt.Errorf("letter %s: %w", letterPlace{r.Partition, r.Offset}, err)
			}
			results[one.Result]++
			if err := t.done(one); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// repairError says what to do when a repair cannot go on.
func repairError(err error) error {
	if errors.Is(err, bridge.ErrFenced) {
		return &exitError{code: exitNotOwner, err: err, hint: "wait for the other one; what it publishes has its mark"}
	}
	return explained(err)
}

// sayWaiting returns a reporter that says on stderr, once for each cause, why
// nothing moves.
func (a *app) sayWaiting() func(error) {
	last := ""
	return func(err error) {
		if err == nil || err.Error() == last {
			return
		}
		last = err.Error()
		fmt.Fprintf(a.stderr, "waiting for Kafka: %s\n", last)
	}
}

// findOrigin learns what the stream has asked for: the first page, which has no
// cursor, may have letters too, and a window's bounds go with every cursor.
func (t *retrier) findOrigin(ctx context.Context) error {
	c, err := newestCheckpoint(ctx, t.stream)
	if t.origin = c.Origin; c.Zero() {
		t.origin = t.stream.Engine.Origin
	}
	return err
}

// newestCheckpoint returns the stream's, as the checkpoint topic has it; the
// zero value where there is none.
func newestCheckpoint(ctx context.Context, st *config.Stream) (bridge.Checkpoint, error) {
	sink, err := kafkasink.New(st.Kafka)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	defer sink.Close()
	newest, err := newestOf(ctx, sink)
	return newest, explained(err)
}

// one publishes a letter. Its error is one that ends the command.
func (t *retrier) one(ctx context.Context, r *kgo.Record) (retriedLetter, error) {
	letter := kafkasink.ReadLetter(r)
	l := &letter
	one := retriedLetter{Letter: placeOf(l).String(), Reason: l.Reason, ID: l.ID, From: "bytes", Result: t.result}
	if l.Item == nil {
		one.From = "cursor"
	}
	if at := t.retried(t.repair.Marks(), l); !at.IsZero() {
		one.Result, one.Detail = letterBefore, "at "+at.Format(timeLayout)
		return one, nil
	}
	page, note, err := t.page(ctx, l)
	if reason, ok := errors.AsType[*unusableLetter](err); ok {
		one.Result, one.Detail = letterRefused, reason.Error()
		return one, nil
	}
	if err != nil {
		return one, explained(err)
	}
	defer page.Release()
	one.ID, one.Detail = string(page.Events[0].AppendRecordID(nil)), note
	item := itemOf(&page.Events[0], r)
	if other, ok := t.items[item]; ok {
		one.Result, one.Detail = letterDuplicate, "of letter "+other
		return one, nil
	}
	value, err := json.Marshal(letterMark{
		Version: 1, Topic: t.topic, Written: l.Time.UnixMilli(), ID: cut(one.ID, 256), Item: item, At: time.Now().UnixMilli(), By: operator(),
	})
	if err != nil {
		return one, fmt.Errorf("encode its mark: %w", err)
	}
	switch _, err := t.repair.Publish(ctx, page, placeOf(l).mark(), value); {
	case errors.Is(err, bridge.ErrRefused):
		one.Result, one.Detail = letterRefused, refusal(err)
	case err != nil:
		return one, repairError(err)
	default:
		t.items[item] = one.Letter
	}
	return one, nil
}

// refusal is why the topic cannot take an event.
func refusal(err error) string {
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return fault.Error()
	}
	return err.Error()
}

// unusableLetter says why there is nothing to publish of a letter.
type unusableLetter struct{ why string }

func (e *unusableLetter) Error() string { return e.why }

// page returns a page with only the letter's item, and what there is to say
// about it. The caller releases the page.
func (t *retrier) page(ctx context.Context, l *kafkasink.Letter) (page *bridge.Page, note string, err error) {
	switch {
	case l.Item != nil:
		page, err = t.api.DecodeItem(l.Item)
		if err != nil {
			return nil, "", &unusableLetter{"its bytes are not an item: " + err.Error()}
		}
		page.Source = l.Source
		return page, "", nil
	case l.CursorLost:
		return nil, "", &unusableLetter{"its cursor was too long for the letter"}
	}
	at := bridge.Position{Cursor: l.Cursor, Start: t.origin.Start, End: t.origin.End, Window: t.origin.End != 0}
	page, err = fetchPage(ctx, t.api, at)
	if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Class == bridge.BadCursor {
		return nil, "", &unusableLetter{"the API refuses its cursor: " + fault.Error()}
	}
	if err != nil {
		return nil, "", err
	}
	if !keepOnly(page, l, true) {
		if !keepOnly(page, l, false) {
			page.Release()
			return nil, "", &unusableLetter{fmt.Sprintf("the page at its cursor does not have it any more (it was item %d)", l.Index)}
		}
		note = "the API serves other bytes of it now"
	}
	return page, note, nil
}

// keepOnly drops all events of the page but the letter's, and reports whether
// that was there: with the same bytes, or only with the same id.
func keepOnly(page *bridge.Page, l *kafkasink.Letter, exactly bool) bool {
	for i := range page.Events {
		if same, unchanged := l.Names(&page.Events[i]); same && (unchanged || !exactly) {
			page.Events = page.Events[i : i+1]
			return true
		}
	}
	return false
}

const (
	// fetchTries is how often a page is asked for before a command gives up.
	fetchTries = 8
	// fetchBackoff is the longest wait of its own between two of them.
	fetchBackoff = 10 * time.Second
)

// fetchPage asks for a page and splits it. What may pass by waiting is tried
// again, for some minutes at most. The caller releases the page.
func fetchPage(ctx context.Context, api *exportapi.Client, at bridge.Position) (*bridge.Page, error) {
	for try := 0; ; try++ {
		page, err := api.Fetch(ctx, at)
		if err == nil {
			if err = api.Decode(page); err == nil {
				return page, nil
			}
			page.Release()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fault, ok := errors.AsType[*bridge.Fault](err)
		last := try == fetchTries
		if ok && (fault.Class == bridge.Malformed || fault.Class == bridge.BadCursor) {
			last = try >= 2
		}
		if last || ok && fault.Class == bridge.Permanent {
			return nil, err
		}
		wait := rand.N(min(fetchBackoff, 250*time.Millisecond<<try) + 1)
		if ok {
			wait = max(wait, fault.RetryAfter)
		}
		if err := waitFor(ctx, wait); err != nil {
			return nil, err
		}
	}
}
