package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// listedLetters is how many dead letters dlq list shows.
const listedLetters = 50

// headerOfStream says whose record it is.
const headerOfStream = "eb-stream"

// defects are the reasons that a dead letter can have.
var defects = []string{string(bridge.DefectNotObject), string(bridge.DefectTime), string(bridge.DefectTooLarge), string(bridge.DefectSharedID)}

func newDLQCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at the dead letters, or publish them after all",
		Example: `  exportbridge dlq list --reason too-large
  exportbridge dlq show 0:17
  exportbridge dlq retry --all --execute`,
		GroupID: groupPosition,
		Args:    noSubcommand,
		RunE:    showHelp,
	}
	cmd.AddCommand(newDLQListCommand(a), newDLQShowCommand(a), newDLQRetryCommand(a))
	return cmd
}

// letterPlace names a dead letter. Its text is PARTITION:OFFSET.
type letterPlace struct {
	partition int32
	offset    int64
}

func (p letterPlace) String() string { return fmt.Sprintf("%d:%d", p.partition, p.offset) }

// mark is the letter's name among the marks of kafkasink.JobDLQ.
func (p letterPlace) mark() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

func (p letterPlace) compare(q letterPlace) int {
	return cmp.Or(cmp.Compare(p.partition, q.partition), cmp.Compare(p.offset, q.offset))
}

func placeOf(l *kafkasink.Letter) letterPlace { return letterPlace{l.Partition, l.Offset} }

// parseLetterPlace reads PARTITION:OFFSET, or PARTITION@OFFSET as tail shows it.
func parseLetterPlace(text string) (letterPlace, error) {
	partition, offset, ok := strings.Cut(strings.Replace(text, "@", ":", 1), ":")
	p, err1 := strconv.ParseUint(partition, 10, 31)
	o, err2 := strconv.ParseUint(offset, 10, 63)
	if !ok || err1 != nil || err2 != nil {
		return letterPlace{}, fmt.Errorf("%q is not PARTITION:OFFSET, for example 0:17", text)
	}
	return letterPlace{int32(p), int64(o)}, nil
}

// letterMark is what a retry leaves behind. Its JSON form is kept for ever.
type letterMark struct {
	Version int `json:"v"`
	// Topic and Written, in milliseconds since the epoch, are the letter's: a
	// topic that was made anew has others at the same places.
	Topic   string `json:"topic"`
	Written int64  `json:"written"`
	ID      string `json:"id,omitempty"`
	// Item names the event, in whichever letters it is, as itemOf does; empty in
	// marks of older versions.
	Item string `json:"item,omitempty"`
	// At is when it was published, in milliseconds since the epoch.
	At int64  `json:"at"`
	By string `json:"by,omitempty"`
}

// letters are the dead letters of one stream.
type letters struct {
	*topicReader
	stream *config.Stream
	there  bool // their topic
}

// openLetters connects to the topic of the stream's dead letters.
func (a *app) openLetters(ctx context.Context, name string) (*letters, error) {
	_, st, err := a.steeredStream(ctx, 0, name)
	if err != nil {
		return nil, err
	}
	l, err := lettersOf(ctx, st)
	if err == nil {
		l.say = a.sayWaiting()
	}
	return l, err
}

// takeReading gives a command that reads dead letters the flag --timeout.
func takeReading(cmd *cobra.Command, timeout *time.Duration) {
	flag := &parsedFlag[time.Duration]{target: timeout, parse: config.ParseDuration, kind: "DURATION"}
	cmd.Flags().Var(flag, "timeout", fmt.Sprintf("read the dead letters for so long at most (default until a partition shows nothing for %s)", usualPatience))
}

// reading bounds the reading by --timeout, 0 where that was not given.
func (l *letters) reading(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	usual := l.patience
	l.patience = 0
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() {
		cancel()
		l.patience = usual
	}
}

// keepStream keeps the records of one stream.
func keepStream(name string) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return header(r, headerOfStream) == name }
}

// saySkipped says that something was not read since it is gone.
func (a *app) saySkipped(t *topicReader) {
	if t.skipped > 0 {
		fmt.Fprintf(a.stderr, "topic %s: %s deleted while they were read\n", t.topic, areDeleted(t.skipped))
	}
}

func areDeleted(n int64) string {
	if n == 1 {
		return "1 offset was"
	}
	return fmt.Sprintf("%d offsets were", n)
}

// lettersOf connects to the topic of a stream's dead letters. A topic that does
// not exist is empty.
func lettersOf(ctx context.Context, st *config.Stream) (*letters, error) {
	kafka := st.Kafka
	kafka.Topic = kafka.DeadTopic()
	there, err := topicExists(ctx, &kafka.Config, kafka.Topic)
	if err != nil {
		return nil, err
	}
	reader := &topicReader{
		open: kafka.Open, topic: kafka.Topic, keep: keepStream(st.Name), patience: usualPatience,
		again: "exportbridge check says whether the brokers are well; --timeout 10m waits longer",
	}
	return &letters{topicReader: reader, stream: st, there: there}, nil
}

// retried returns when the letter was published after all, zero if it was not.
func (l *letters) retried(marks map[string][]byte, letter *kafkasink.Letter) time.Time {
	var m letterMark
	value := marks[placeOf(letter).mark()]
	if json.Unmarshal(value, &m) != nil || m.Topic != l.topic || m.Written != letter.Time.UnixMilli() {
		return time.Time{}
	}
	return time.UnixMilli(m.At).UTC()
}

// shownLetter is a dead letter in the output.
type shownLetter struct {
	Letter  string        `json:"letter"`
	Time    time.Time     `json:"time"`
	Reason  bridge.Defect `json:"reason"`
	Message string        `json:"message"`
	ID      string        `json:"id,omitempty"`
	Size    int           `json:"size"`
	// Holds says what a retry would work with: bytes, or position.
	Holds string `json:"holds"`
	// Retried is when it was published after all.
	Retried *time.Time `json:"retried,omitempty"`
}

func (l *letters) shown(letter *kafkasink.Letter, marks map[string][]byte) shownLetter {
	s := shownLetter{
		Letter: placeOf(letter).String(), Time: letter.Time.UTC(), Reason: letter.Reason, Message: letter.Message, ID: letter.ID,
		Size: letter.Size, Holds: "bytes",
	}
	if letter.Item == nil {
		s.Holds = "position"
	}
	if at := l.retried(marks, letter); !at.IsZero() {
		s.Retried = &at
	}
	return s
}

// dlqListOptions are the flags of dlq list.
type dlqListOptions struct {
	stream, since, reason string
	limit                 int
	timeout               time.Duration
	json                  *bool
}

func newDLQListCommand(a *app) *cobra.Command {
	var o dlqListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the dead letters, newest first",
		Long: `List the dead letters of a stream, newest first: where each is, when it was
written, what was wrong, the item's id and size, and when it was published after
all. One that holds only the item's position can be retried as long as the API
takes its cursor. A list that could not be read to the end of the topic is an
error, and nothing is printed.`,
		Example: `  exportbridge dlq list --since -24h
  exportbridge dlq list --reason bad-timestamp --limit 1000 --json`,
		Args: noArgs,
	}
	a.takeSettings(cmd)
	o.json = takeJSON(cmd)
	takeStream(cmd, &o.stream)
	cmd.Flags().StringVar(&o.since, "since", "", "only those written at or after this `TIME`")
	cmd.Flags().StringVar(&o.reason, "reason", "", "only those with this `REASON`: "+strings.Join(defects, ", "))
	cmd.Flags().IntVar(&o.limit, "limit", listedLetters, "the newest `N`")
	takeReading(cmd, &o.timeout)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.listLetters(cmd.Context(), &o) }
	return cmd
}

func (a *app) listLetters(ctx context.Context, o *dlqListOptions) error {
	if o.limit < 1 {
		return &exitError{code: exitUsage, err: fmt.Errorf("--limit %d is below 1", o.limit), hint: "--limit 50"}
	}
	if err := checkReason(o.reason); err != nil {
		return err
	}
	from := tailStart{kind: fromStart}
	if o.since != "" {
		ms, err := config.ParseInstant(o.since, time.Now())
		if err != nil {
			return &exitError{code: exitUsage, err: fmt.Errorf("--since: %w", err), hint: "--since -24h"}
		}
		from = tailStart{kind: fromTime, n: ms}
	}
	l, err := a.openLetters(ctx, o.stream)
	if err != nil {
		return err
	}
	marks, err := kafkasink.Marks(ctx, l.stream.Kafka, kafkasink.JobDLQ)
	if err != nil {
		return explained(err)
	}
	reading, cancel := l.reading(ctx, o.timeout)
	defer cancel()
	records, err := l.latest(reading, from, o)
	if err != nil {
		return err
	}
	a.saySkipped(l.topicReader)
	all := make([]shownLetter, 0, len(records))
	for _, r := range slices.Backward(records) {
		letter := kafkasink.ReadLetter(r)
		all = append(all, l.shown(&letter, marks))
	}
	if *o.json {
		return printJSON(a.stdout, all)
	}
	return a.printLetters(l, all)
}

// checkReason refuses a reason that no letter has.
func checkReason(reason string) error {
	if reason == "" || slices.Contains(defects, reason) {
		return nil
	}
	return &exitError{
		code: exitUsage, err: fmt.Errorf("--reason %q is not one of: %s", reason, strings.Join(defects, ", ")),
		hint: "--reason " + cmp.Or(config.Nearest(reason, defects), defects[len(defects)-1]),
	}
}

// latest returns the newest letters that were asked for, the newest last.
func (l *letters) latest(ctx context.Context, from tailStart, o *dlqListOptions) ([]*kgo.Record, error) {
	if !l.there {
		return nil, nil
	}
	spans, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx, spans, from); err != nil {
		return nil, err
	}
	ours := l.keep
	l.keep = func(r *kgo.Record) bool {
		return ours(r) && (o.reason == "" || header(r, headerReason) == o.reason) &&
			(from.kind != fromTime || r.Timestamp.UnixMilli() >= from.n)
	}
	return l.newest(ctx, spans, o.limit)
}

func (a *app) printLetters(l *letters, all []shownLetter) error {
	if len(all) == 0 {
		_, err := fmt.Fprintf(a.stdout, "  no dead letters in %s\n", l.topic)
		return err
	}
	rows := [][]string{{"LETTER", "TIME", "REASON", "ID", "SIZE", "HOLDS", "RETRIED"}}
	for i := range all {
		s := &all[i]
		retried := "-"
		if s.Retried != nil {
			retried = s.Retried.Format(timeLayout)
		}
		rows = append(rows, []string{
			s.Letter, s.Time.Format(timeLayout), orDash(string(s.Reason)), orDash(printable(cut(s.ID, 40))), strconv.Itoa(s.Size), s.Holds, retried,
		})
	}
	return printTable(a.stdout, rows)
}

func newDLQShowCommand(a *app) *cobra.Command {
	var stream string
	var raw bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "show PARTITION:OFFSET",
		Short: "Show one dead letter",
		Long: `Show the headers and the value of one dead letter. The value is the item as it
came, or where that was too large its id, size, hash and position. --raw prints
the item's bytes alone.`,
		Example: `  exportbridge dlq show 0:17
  exportbridge dlq show 0:17 --raw | jq .`,
		Args: cobra.ArbitraryArgs,
	}
	a.takeSettings(cmd)
	asJSON := takeJSON(cmd)
	takeStream(cmd, &stream)
	cmd.Flags().BoolVar(&raw, "raw", false, "print the item's bytes and nothing else")
	takeReading(cmd, &timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if raw && *asJSON {
			return &exitError{code: exitUsage, err: errors.New("--raw and --json exclude each other"), hint: "--raw alone"}
		}
		if len(args) != 1 {
			return &exitError{code: exitUsage, err: fmt.Errorf("%s are given, want one", counted(len(args), "letter")), hint: "exportbridge dlq show 0:17"}
		}
		place, err := parseLetterPlace(args[0])
		if err != nil {
			return &exitError{code: exitUsage, err: err, hint: "exportbridge dlq list"}
		}
		l, err := a.openLetters(cmd.Context(), stream)
		if err != nil {
			return err
		}
		ctx, cancel := l.reading(cmd.Context(), timeout)
		defer cancel()
		return a.showLetter(ctx, l, place, raw, *asJSON)
	}
	return cmd
}

func (a *app) showLetter(ctx context.Context, l *letters, place letterPlace, raw, asJSON bool) error {
	records, err := l.load(ctx, []letterPlace{place})
	if err != nil {
		return err
	}
	r := records[0]
	letter := kafkasink.ReadLetter(r)
	switch {
	case raw && letter.Item == nil:
		return &exitError{
			code: exitFailed, err: fmt.Errorf("letter %s does not hold the item's %d bytes, only where it was", place, letter.Size),
			hint: "exportbridge dlq show " + place.String(),
		}
	case raw:
		_, err := a.stdout.Write(letter.Item)
		return err
	case asJSON:
		_, err := a.stdout.Write(appendRecordJSON(nil, r))
		return err
	}
	marks, err := kafkasink.Marks(ctx, l.stream.Kafka, kafkasink.JobDLQ)
	if err != nil {
		return explained(err)
	}
	s := l.shown(&letter, marks)
	rows := [][]string{{"letter", s.Letter + " of " + l.topic}, {"time", r.Timestamp.UTC().Format(recordTime)}}
	if s.Retried != nil {
		rows = append(rows, []string{"retried", s.Retried.Format(timeLayout)})
	}
	if r.Key != nil {
		rows = append(rows, []string{"key", printable(string(r.Key))})
	}
	for _, h := range r.Headers {
		rows = append(rows, []string{h.Key, printable(string(h.Value))})
	}
	return printTable(a.stdout, append(rows, []string{"value", printable(valueText(r.Value))}))
}

// load reads the letters at these places, in that order. It is an error if one
// is not there, or not the stream's.
func (l *letters) load(ctx context.Context, places []letterPlace) ([]*kgo.Record, error) {
	found := make(map[letterPlace]*kgo.Record, len(places))
	if l.there {
		there, err := l.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		spans, wanted := make(map[int32]span), make(map[letterPlace]bool)
		for _, p := range places {
			if all, ok := there[p.partition]; !ok || p.offset < all.From || p.offset >= all.To {
				continue
			}
			wanted[p] = true
			s, ok := spans[p.partition]
			if !ok {
				s = span{From: p.offset, To: p.offset + 1}
			}
			spans[p.partition] = span{From: min(s.From, p.offset), To: max(s.To, p.offset+1)}
		}
		err = l.read(ctx, spans, func(r *kgo.Record) {
			if p := (letterPlace{r.Partition, r.Offset}); wanted[p] {
				found[p] = r
			}
		})
		if err != nil {
			return nil, err
		}
	}
	records := make([]*kgo.Record, 0, len(places))
	for _, p := range places {
		if found[p] == nil {
			return nil, &exitError{
				code: exitFailed, err: fmt.Errorf("topic %s has no dead letter of stream %s at %s", l.topic, l.stream.Name, p),
				hint: "exportbridge dlq list",
			}
		}
		records = append(records, found[p])
	}
	return records, nil
}
