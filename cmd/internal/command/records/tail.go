package records

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// tailRecords is the number of records that tail shows before it follows the topic.
const tailRecords = 10

// tailOptions are the flags of tail.
type tailOptions struct {
	stream, topic string
	dlq           bool
	from          string
	n             int
	bounded       bool // -n was given
	format        string
	json, meta    bool
	types         []string
	key           string
	keyed         bool // --key was given
	several       bool // true if the stream has several topics
}

func newTailCommand(a *cli.App) *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print and follow the records of a topic",
		Long: `Print the newest records of the topic and follow it, as a read_committed
consumer. Partitions are merged by time, with KAFKA_ROUTES those of all topics;
then each line names its topic. Topics of former routes are left out: --topic
reads one. The command joins no consumer group and commits no offsets.

  without -n      the newest 10 records, then new ones until Ctrl-C
  -n N            the newest N records, then exit
  -n N -o AT      up to N existing records from AT on, then exit
  -n N -o end     N new records, then exit

-o is start, end, N records before the end of each partition (-N), or a time
(@TIME, such as @-10m).

-f takes the % verbs of rpk: %t topic, %p partition, %o offset, %k key,
%v value, %h{%k=%v } headers, %d{strftime[%H:%M:%S]} time, \n newline.`,
		Example: `  exportbridge tail
  exportbridge tail -n 5 --type orderPlaced
  exportbridge tail -n 1000 --json | jq .value.userId
  exportbridge tail -o @-10m -f '%d{strftime[%H:%M:%S]} %k %v\n'
  exportbridge tail --dlq -n 20`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	a.TakeWide(cmd)
	flags := cmd.Flags()
	flags.IntVarP(&o.n, "num", "n", tailRecords, "print `N` records and exit; without -n, print the newest and follow")
	flags.StringVarP(&o.from, "offset", "o", "", "begin `AT`: start, end, -N or @TIME")
	cli.Offer(cmd, "offset", "start", "end")
	flags.StringVarP(&o.format, "format", "f", "", "print each record in `FORMAT`")
	flags.BoolVar(&o.json, "json", false, "print each record as a line of JSON")
	flags.BoolVar(&o.meta, "meta", false, "print the headers")
	flags.StringSliceVar(&o.types, "type", nil, "print events of these `TYPES`")
	flags.StringVar(&o.key, "key", "", "print records with exactly this `KEY`")
	flags.StringVar(&o.topic, "topic", "", "read `TOPIC` instead of the stream's")
	flags.BoolVar(&o.dlq, "dlq", false, "read the dead-letter topic")
	cli.TakeStream(cmd, &o.stream)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.bounded, o.keyed = flags.Changed("num"), flags.Changed("key")
		return runTail(cmd.Context(), a, &o)
	}
	return cmd
}

// runTail reads until it has shown enough records, ctx ends or the output is closed. The
// last two are no errors.
func runTail(ctx context.Context, a *cli.App, o *tailOptions) error {
	if err := o.validate(); err != nil {
		return cli.WrongUsage("exportbridge tail --help", "%w", err)
	}
	from, err := parseTailStart(o.from, time.Now())
	if err != nil {
		return cli.WrongUsage("exportbridge tail --help", "-o: %w", err)
	}
	show, err := newRecordPrinter(o, a.Width(), process.IsTerminal(a.Stdout))
	if err != nil {
		return cli.WrongUsage(`exportbridge tail -f '%d %k %v\n'`, "-f: %w", err)
	}
	t, err := openTail(ctx, a, o)
	switch {
	case err != nil && o.bounded && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return ignoreEnd(ctx, err)
	}
	// A closed pipe ends the command without an error.
	signal.Ignore(syscall.SIGPIPE)
	t.print = show
	if o.bounded {
		t.left = o.n
	}
	err = cli.Explain(ignoreEnd(ctx, errors.Join(t.run(ctx, from, o), t.flush())))
	SaySkipped(a, &t.TopicReader)
	if o.bounded && !t.complete && err == nil && ctx.Err() != nil {
		return ctx.Err() // interrupted before all N records
	}
	if err == nil && ctx.Err() == nil && t.shown == 0 {
		fmt.Fprintf(a.Stderr, "no matching records in topic %s\n", t.Topic())
	}
	return err
}

// validate rejects flags that are wrong, or mutually exclusive.
func (o *tailOptions) validate() error {
	switch {
	case o.n < 1:
		return fmt.Errorf("-n %d is below 1", o.n)
	case o.json && o.format != "":
		return errors.New("--json and -f are mutually exclusive")
	case o.meta && o.format != "":
		return errors.New("--meta and -f are mutually exclusive; %h prints headers")
	case o.dlq && o.topic != "":
		return errors.New("--dlq and --topic are mutually exclusive")
	}
	return nil
}

// ignoreEnd drops the error of a tail that was ended on purpose.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errEnough) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// openTail checks that the topic exists, and returns a tailer of it.
func openTail(ctx context.Context, a *cli.App, o *tailOptions) (*tailer, error) {
	s, st, err := a.StreamSettings(0, o.stream)
	if err != nil {
		return nil, err
	}
	kafka, setting, further := st.Kafka, "KAFKA_TOPIC", []string(nil)
	switch {
	case o.topic != "":
		kafka.Topic, setting = o.topic, "--topic"
	case o.dlq:
		kafka.Topic, setting = kafka.DeadTopic(), "KAFKA_DLQ_TOPIC"
	default:
		further = kafka.Routes().Topics
	}
	o.several = len(further) > 0
	for _, topic := range further {
		if err := wantTopic(ctx, &kafka, topic, "KAFKA_ROUTES"); err != nil {
			return nil, err
		}
	}
	reader, err := OpenTopic(ctx, a, s, &kafka, setting)
	if err != nil {
		return nil, err
	}
	reader.Further = further
	return &tailer{
		TopicReader: *reader, keep: o.keep(), out: bufio.NewWriterSize(process.Exact(a.Stdout), 64<<10), left: -1,
	}, nil
}

// OpenTopic returns a reader of kafka.Topic, whose name is from a setting or a flag. The topic
// must exist.
func OpenTopic(
	ctx context.Context, a *cli.App, s *config.Settings, kafka *kafkastream.Config, setting string,
) (*kafkaclient.TopicReader, error) {
	if err := wantTopic(ctx, kafka, kafka.Topic, setting); err != nil {
		return nil, err
	}
	// While a command follows the topic, the client's warnings report an unreachable Kafka.
	kafka.Log = process.NewLogger(a.Stderr, &s.Process, a.Environ)
	return &kafkaclient.TopicReader{Open: kafka.Open, Name: kafka.Topic, Waiting: sayWaiting(a)}, nil
}

// wantTopic returns an error if a topic, whose name is from a setting or a flag, does not exist.
func wantTopic(ctx context.Context, kafka *kafkastream.Config, topic, setting string) error {
	there, err := topicExists(ctx, &kafka.Config.Config, topic)
	if err != nil || there {
		return err
	}
	named := cli.WithSimilar(ctx, &kafka.Config.Config, setting, topic)
	hint := cli.MissingTopic(named)
	if strings.HasPrefix(setting, "--") {
		hint = "check " + named + "; the stream's topics: exportbridge topics plan"
	}
	return cli.Errorf(cli.ExitFailed, hint, "topic %s does not exist", topic)
}

// topicExists reports whether a topic exists.
func topicExists(ctx context.Context, kafka *kafkaclient.Config, topic string) (bool, error) {
	var p bridge.Problems
	kafkaclient.CheckTopic(&p, "KAFKA_TOPIC", topic, "export.events")
	if err := p.Err(); err != nil {
		return false, cli.WrongUsage("exportbridge topics plan", "%w", err)
	}
	there, err := kafka.Exists(ctx, topic)
	return there, cli.Explain(err)
}

// keep returns the filter of the flags.
func (o *tailOptions) keep() func(*kgo.Record) bool {
	return func(r *kgo.Record) bool {
		if o.keyed && (r.Key == nil || string(r.Key) != o.key) {
			return false
		}
		if len(o.types) == 0 {
			return true
		}
		full := TypeOf(r)
		return full != "" && (slices.Contains(o.types, full) || slices.Contains(o.types, shortType(full)))
	}
}

// tailStart is where reading begins.
type tailStart struct {
	kind startKind
	n    int64 // records before the end, or milliseconds since the epoch
}

type startKind int

const (
	fromNewest startKind = iota // the newest records over all partitions
	fromStart
	fromEnd
	fromBack // n before each partition's end
	fromTime
)

// parseTailStart reads the value of -o.
func parseTailStart(text string, now time.Time) (tailStart, error) {
	switch text {
	case "":
		return tailStart{kind: fromNewest}, nil
	case "start":
		return tailStart{kind: fromStart}, nil
	case "end":
		return tailStart{kind: fromEnd}, nil
	}
	if at, ok := strings.CutPrefix(text, "@"); ok {
		ms, err := bridge.ParsePast(at, now)
		return tailStart{kind: fromTime, n: ms}, err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < 0 {
		return tailStart{kind: fromBack, n: -n}, nil
	}
	if _, err := bridge.ParseInstant(text, now); err == nil {
		return tailStart{}, fmt.Errorf("a time starts with @: @%s", text)
	}
	return tailStart{}, fmt.Errorf("%q is not start, end, -N (such as -100) or @TIME (such as @-10m)", text)
}

// errEnough means that all requested records were shown.
var errEnough = errors.New("enough records")

// tailer shows the records of topics, read_committed. One goroutine uses it.
type tailer struct {
	kafkaclient.TopicReader
	keep     func(*kgo.Record) bool
	print    func(to []byte, r *kgo.Record) []byte
	out      *bufio.Writer
	shown    int
	left     int  // records still to show, below 0 for no end
	complete bool // all requested records of the topics were shown
	line     []byte
}

// run shows the present records of the topics, and then follows them unless the options set
// an end.
func (t *tailer) run(ctx context.Context, from tailStart, o *tailOptions) error {
	spans, err := t.Bounds(ctx)
	if err != nil {
		return err
	}
	if from.kind == fromNewest {
		records, err := t.Newest(ctx, spans, o.n, t.keep)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := t.show(r); err != nil {
				return err
			}
		}
	} else {
		if err := t.begin(ctx, spans, from); err != nil {
			return err
		}
		show := t.show
		if from.kind == fromTime {
			show = since(time.UnixMilli(from.n), show)
		}
		if err := t.Merge(ctx, spans, show, t.flush); err != nil {
			return err
		}
	}
	if t.complete = true; o.bounded && from.kind != fromEnd {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	return Follow(ctx, &t.TopicReader, spans, t.show, t.flush)
}

// since drops older records: Kafka returns the first offset at or after a time, and later
// offsets can have earlier times.
func since(at time.Time, show func(*kgo.Record) error) func(*kgo.Record) error {
	return func(r *kgo.Record) error {
		if r.Timestamp.Before(at) {
			return nil
		}
		return show(r)
	}
}

// show prints a record, unless the filter drops it.
func (t *tailer) show(r *kgo.Record) error {
	if !t.keep(r) {
		return nil
	}
	t.line = t.print(t.line[:0], r)
	if _, err := t.out.Write(t.line); err != nil {
		return fmt.Errorf("print record: %w", err)
	}
	t.shown++
	if t.left > 0 {
		t.left--
	}
	if t.left == 0 {
		return errEnough
	}
	return nil
}

func (t *tailer) flush() error {
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("print records: %w", err)
	}
	return nil
}
