package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// listedLetters is the default --limit of dlq list.
const listedLetters = 50

func newDLQCommand(a *cli.App) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "dlq",
		Short: "Inspect and retry dead letters",
		Example: `  exportbridge dlq list --reason too-large
  exportbridge dlq show 0:17
  exportbridge dlq retry --all --execute`,
		GroupID: cli.GroupPosition,
	}, newDLQListCommand(a), newDLQShowCommand(a), newDLQRetryCommand(a))
}

// letters are the dead letters of one stream.
type letters struct {
	*kafkaclient.TopicReader
	deadletter.Topic
	stream *config.Stream
}

// openLetters connects to the dead-letter topic of a stream.
func openLetters(ctx context.Context, a *cli.App, name string) (*letters, error) {
	_, st, err := a.StreamSettings(0, name)
	if err != nil {
		return nil, err
	}
	l, err := lettersOf(ctx, st)
	if err == nil {
		l.Waiting = sayWaiting(a)
	}
	return l, err
}

// takeReading gives a command that reads dead letters the flag --timeout.
func takeReading(cmd *cobra.Command, timeout *time.Duration) {
	flag := cli.Parsed(timeout, bridge.ParseDuration, "DURATION")
	cmd.Flags().Var(flag, "timeout", fmt.Sprintf(
		"maximum time to read the topic (default: no limit, but give up if a partition is silent for %s)", usualPatience))
}

// reading bounds the reading by --timeout, which is 0 if it was not given.
func (l *letters) reading(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	usual := l.Patience
	l.Patience = 0
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() {
		cancel()
		l.Patience = usual
	}
}

// SaySkipped reports offsets that were deleted during the read.
func SaySkipped(a *cli.App, t *kafkaclient.TopicReader) {
	if t.Skipped > 0 {
		fmt.Fprintf(a.Stderr, "topic %s: %s deleted during the read\n", t.Name, are(t.Skipped, "offset", "was", "were"))
	}
}

// are is a number of things with its verb: "1 offset was", "2 offsets were".
func are(n int64, what, one, many string) string {
	if n != 1 {
		one = many
	}
	return cli.Counted(n, what) + " " + one
}

// lettersOf connects to the dead-letter topic of a stream. A missing topic is empty,
// unless the topic of the events is missing too: then the name is wrong, or nothing was
// published yet.
func lettersOf(ctx context.Context, st *config.Stream) (*letters, error) {
	kafka := st.Kafka
	kafka.Topic = kafka.DeadTopic()
	there, err := topicExists(ctx, &kafka.Config.Config, kafka.Topic)
	if err == nil && !there {
		_, _, err = readersOf(ctx, st)
	}
	if err != nil {
		return nil, err
	}
	reader := &kafkaclient.TopicReader{Open: kafka.Open, Name: kafka.Topic, Patience: usualPatience}
	return &letters{reader, deadletter.Topic{Log: reader, Missing: !there, Stream: st.Name}, st}, nil
}

// shownLetter is the JSON form of a dead letter.
type shownLetter struct {
	Letter  string        `json:"letter"`
	Time    time.Time     `json:"time"`
	Reason  bridge.Defect `json:"reason"`
	Message string        `json:"message"`
	ID      string        `json:"id,omitempty"`
	Size    int           `json:"size"`
	// Holds is what a retry uses: bytes, or position.
	Holds string `json:"holds"`
	// Retried is when a retry published it.
	Retried time.Time `json:"retried,omitzero"`
}

func (l *letters) shown(letter *deadletter.DeadLetter, marks map[string][]byte) shownLetter {
	s := shownLetter{
		Letter: letter.Place.String(), Time: letter.Time.UTC(), Reason: letter.Reason, Message: letter.Message, ID: letter.ID,
		Size: letter.Size, Holds: "position", Retried: deadletter.RetriedAt(marks, letter),
	}
	if letter.Whole {
		s.Holds = "bytes"
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

func newDLQListCommand(a *cli.App) *cobra.Command {
	var o dlqListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Long: `List the dead letters of a stream, newest first, with PARTITION:OFFSET, time,
reason, item id, size and time of a successful retry. If an item was too large
for its letter, the letter holds only the id, size, hash and position of the
item. Such a letter can be retried as long as the API accepts the cursor in it.
If the topic cannot be read to its end, the command fails and prints nothing.`,
		Example: `  exportbridge dlq list --since -24h
  exportbridge dlq list --reason bad-timestamp --limit 1000 --json`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &o.stream)
	a.TakeWide(cmd)
	cmd.Flags().StringVar(&o.since, "since", "", "list letters written since `TIME`")
	takeReason(cmd, &o.reason, "list letters")
	cmd.Flags().IntVar(&o.limit, "limit", listedLetters, "list the newest `N` letters")
	takeReading(cmd, &o.timeout)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return listLetters(cmd.Context(), a, &o) }
	return cmd
}

// allReasons are the reasons that --reason takes.
var allReasons = strings.Join(deadletter.Reasons, ", ")

// takeReason gives a command the flag --reason.
func takeReason(cmd *cobra.Command, reason *string, what string) {
	cmd.Flags().StringVar(reason, "reason", "", what+" with this failure `REASON`, one of "+allReasons)
	cli.Offer(cmd, "reason", deadletter.Reasons...)
}

func listLetters(ctx context.Context, a *cli.App, o *dlqListOptions) error {
	if o.limit < 1 {
		return cli.WrongUsage("--limit 50", "--limit %d is below 1", o.limit)
	}
	if err := checkReason(o.reason); err != nil {
		return err
	}
	q := deadletter.Query{Reason: o.reason, Limit: o.limit}
	if o.since != "" {
		var err error
		if q.Since, err = bridge.ParsePast(o.since, time.Now()); err != nil {
			return cli.WrongUsage("--since -24h", "--since: %w", err)
		}
	}
	l, err := openLetters(ctx, a, o.stream)
	if err != nil {
		return err
	}
	marks, err := kafkasink.Marks(ctx, l.stream.Kafka.Wired(), kafkasink.JobDLQ)
	if err != nil {
		return cli.Explain(err)
	}
	reading, cancel := l.reading(ctx, o.timeout)
	defer cancel()
	found, err := l.List(reading, q)
	if err != nil {
		return letterError(err)
	}
	SaySkipped(a, l.TopicReader)
	all := make([]shownLetter, len(found))
	for i := range found {
		all[i] = l.shown(&found[i], marks)
	}
	if *o.json {
		return cli.PrintJSON(a.Stdout, all)
	}
	return printLetters(a, l, all)
}

// checkReason rejects a reason that no letter has.
func checkReason(reason string) error {
	if reason == "" || slices.Contains(deadletter.Reasons, reason) {
		return nil
	}
	near := cmp.Or(config.Nearest(reason, deadletter.Reasons), deadletter.Reasons[len(deadletter.Reasons)-1])
	return cli.WrongUsage("--reason "+near, "--reason %q is not one of: %s", reason, allReasons)
}

// shownName is the name of the topic, with a note if it does not exist.
func (l *letters) shownName() string {
	if l.Missing {
		return l.Name + ", which does not exist"
	}
	return l.Name
}

func printLetters(a *cli.App, l *letters, all []shownLetter) error {
	if len(all) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "  no dead letters in %s\n", l.shownName())
		return err
	}
	rows := [][]string{{"LETTER", "TIME", "REASON", "SIZE", "HOLDS", "RETRIED", "ID"}}
	for i := range all {
		s := &all[i]
		retried := "-"
		if !s.Retried.IsZero() {
			retried = s.Retried.Format(cli.TimeLayout)
		}
		rows = append(rows, []string{
			s.Letter, s.Time.Format(cli.TimeLayout), cmp.Or(string(s.Reason), "-"), strconv.Itoa(s.Size), s.Holds,
			retried, cmp.Or(s.ID, "-"),
		})
	}
	return a.PrintTable(rows)
}

func newDLQShowCommand(a *cli.App) *cobra.Command {
	var stream string
	var raw bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "show PARTITION:OFFSET",
		Short: "Show a dead letter",
		Long: `Show the headers and the value of a dead letter. The value is the item, or the
id, size, hash and position of an item that was too large. --raw prints only the
item's bytes.`,
		Example: `  exportbridge dlq show 0:17
  exportbridge dlq show 0:17 --raw | jq .`,
		Args: cobra.ArbitraryArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().BoolVar(&raw, "raw", false, "print only the item's bytes")
	takeReading(cmd, &timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if raw && *asJSON {
			return cli.WrongUsage("use --raw only", "--raw and --json are mutually exclusive")
		}
		if len(args) != 1 {
			return cli.WrongUsage("exportbridge dlq show 0:17", "%s given, expected one", cli.Counted(len(args), "letter"))
		}
		place, err := deadletter.ParsePlace(args[0])
		if err != nil {
			return cli.WrongUsage("exportbridge dlq list", "%w", err)
		}
		l, err := openLetters(cmd.Context(), a, stream)
		if err != nil {
			return err
		}
		ctx, cancel := l.reading(cmd.Context(), timeout)
		defer cancel()
		records, err := l.Load(ctx, []deadletter.Place{place})
		if err != nil {
			return letterError(err)
		}
		letter := deadletter.Read(records[0])
		switch {
		case raw:
			return printItem(a, place, &letter)
		case *asJSON:
			_, err := process.JSON(a.Stdout).Write(appendRecordJSON(nil, records[0]))
			return err
		}
		return showLetter(ctx, a, l, records[0], &letter)
	}
	return cmd
}

// letterError adds the exit code and the hint to an error of reading dead letters.
func letterError(err error) error {
	if errors.Is(err, deadletter.ErrNotFound) {
		return cli.Errorf(cli.ExitFailed, "exportbridge dlq list", "%w", err)
	}
	return cli.ReadError(err, "check the brokers with exportbridge check, or wait longer with --timeout 10m")
}

// printItem prints only the item's bytes.
func printItem(a *cli.App, place deadletter.Place, letter *deadletter.DeadLetter) error {
	if !letter.Whole {
		return cli.Errorf(cli.ExitFailed, "exportbridge dlq show "+place.String(),
			"letter %s has only the position of its item of %d bytes", place, letter.Size)
	}
	_, err := process.Raw(a.Stdout).Write(letter.Item)
	return err
}

func showLetter(ctx context.Context, a *cli.App, l *letters, r *kgo.Record, letter *deadletter.DeadLetter) error {
	marks, err := kafkasink.Marks(ctx, l.stream.Kafka.Wired(), kafkasink.JobDLQ)
	if err != nil {
		return cli.Explain(err)
	}
	s := l.shown(letter, marks)
	rows := [][2]string{{"letter", s.Letter + " of " + l.Name}, {"time", r.Timestamp.UTC().Format(recordTime)}}
	if !s.Retried.IsZero() {
		rows = append(rows, [2]string{"retried", s.Retried.Format(cli.TimeLayout)})
	}
	if r.Key != nil {
		rows = append(rows, [2]string{"key", string(r.Key)})
	}
	for _, h := range r.Headers {
		rows = append(rows, [2]string{h.Key, string(h.Value)})
	}
	return cli.PrintFields(a.Stdout, append(rows, [2]string{"value", valueText(r.Value)}), a.Columns)
}
