package records

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
)

// attestOptions are the flags of attest.
type attestOptions struct {
	stream, from, to string
	verify           bool
	json             *bool
}

func newAttestCommand(a *cli.App) *cobra.Command {
	var o attestOptions
	cmd := &cobra.Command{
		Use:   "attest",
		Short: "Show and check the records of the attestation",
		Long: `Show the records of the topic <topic>.attest: for each period of BRIDGE_ATTEST,
how many events the API listed, how many of them the topic has, and how many are
missing. --json shows all fields, with a digest over the ids of the events.

--verify checks that each record has the hash of the record before, that no
record and no period between the first and the last record is missing, and that
the records cover the range from --from to --to. It always reads the whole
topic. If the topic has deleted the first records, by retention or compaction,
the chain begins later: a line says so. The exit code is 1 if one of these
checks fails, 3 if all succeed but events of the range are missing, and 6 if a
period may have more events than the API listed, or if nothing of the range was
compared, as for verify.`,
		Example: `  exportbridge attest --from -7d
  exportbridge attest --from 2026-11-01 --to 2026-11-02 --verify`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &o.stream)
	a.TakeWide(cmd)
	cmd.Flags().StringVar(&o.from, "from", "", "show periods that end after `TIME` (default the first one)")
	cmd.Flags().StringVar(&o.to, "to", "", "show periods that begin before `TIME` (default the last one)")
	cmd.Flags().BoolVar(&o.verify, "verify", false, "check the chain of the records, and that they cover the range")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runAttest(cmd.Context(), a, &o) }
	return cmd
}

// attestReport is the JSON form of attest.
type attestReport struct {
	Stream  string        `json:"stream"`
	Topic   string        `json:"topic"`
	Records []attest.Link `json:"records"`
	// Begins says why the chain begins later than with record 1.
	Begins string `json:"begins,omitempty"`
	// Breaks are nil without --verify.
	Breaks []attest.Break `json:"breaks,omitempty"`
}

// bounds returns the range in milliseconds since the epoch; 0 is no bound.
func (o *attestOptions) bounds(now time.Time) (from, to int64, err error) {
	const example = "--from -7d --to -1d"
	if o.from != "" {
		if from, err = bridge.ParsePast(o.from, now); err != nil {
			return 0, 0, cli.WrongUsage(example, "--from: %w", err)
		}
	}
	if o.to != "" {
		if to, err = bridge.ParsePast(o.to, now); err != nil {
			return 0, 0, cli.WrongUsage(example, "--to: %w", err)
		}
	}
	if from != 0 && to != 0 && from >= to {
		return 0, 0, cli.WrongUsage(example, "--from %s is not before --to %s", o.from, o.to)
	}
	return from, to, nil
}

func runAttest(ctx context.Context, a *cli.App, o *attestOptions) error {
	from, to, err := o.bounds(time.Now())
	if err != nil {
		return err
	}
	_, st, err := a.StreamSettings(0, o.stream)
	if err != nil {
		return err
	}
	kafka := st.Kafka.OfAttest()
	there, err := topicExists(ctx, &kafka.Config.Config, kafka.Topic)
	if err != nil {
		return err
	}
	if !there {
		return cli.Errorf(cli.ExitFailed, "set BRIDGE_ATTEST for the bridge, for example 1h; the first record follows "+
			"the first period", "topic %s does not exist: stream %s has no attestation", kafka.Topic, st.Name)
	}
	var marks map[string][]byte
	if o.verify { // before the records are read: a later record has another mark
		if marks, err = kafkasink.Marks(ctx, kafka.Wired(), kafkasink.JobAttest); err != nil {
			return cli.Explain(err)
		}
	}
	topic := &kafkaclient.TopicReader{Open: kafka.Open, Name: kafka.Topic, Patience: usualPatience, Waiting: sayWaiting(a)}
	chain, err := attest.Read(ctx, topic, st.Name)
	if _, incomplete := errors.AsType[*kafkaclient.IncompleteError](err); err != nil && !incomplete {
		err = st.Kafka.ReadFault(err, kafka.Topic)
	}
	if err != nil {
		return cli.Explain(err)
	}
	if err := keepsRecords(ctx, &kafka.Config.Config, kafka.Topic, chain); err != nil {
		return cli.Explain(err)
	}
	report := attestReport{Begins: chain.Begins(), Stream: st.Name, Topic: kafka.Topic, Records: chain.Between(from, to)}
	if o.verify {
		report.Breaks = append(chain.Check(marks[st.Kafka.Topic]), chain.Uncovered(from, to)...)
	}
	if err := o.print(a, &report); err != nil {
		return err
	}
	if report.Begins != "" {
		fmt.Fprintf(a.Stderr, "%s; keep them: %s\n", report.Begins,
			kafka.Alter(kafka.Topic, "cleanup.policy=delete,retention.ms=-1,retention.bytes=-1"))
	}
	if !o.verify {
		return nil
	}
	return report.verdict()
}

// keepsRecords sets whether the settings of the topic delete records: compaction keeps only the
// last record of a stream, and does not change where the topic begins.
func keepsRecords(ctx context.Context, kafka *kafkaclient.Config, topic string, chain *attest.Chain) error {
	compacts, err := kafkaclient.With(ctx, kafka, topic,
		func(ctx context.Context, client *kafkaclient.Client) (bool, error) {
			found, err := client.Describe(ctx, topic)
			return err == nil && found[0].Settings.Compacted, err
		})
	chain.Deletes = chain.Deletes || compacts
	return err
}

func (o *attestOptions) print(a *cli.App, r *attestReport) error {
	if *o.json {
		return cli.PrintJSON(a.Stdout, r)
	}
	if len(r.Records) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "  no records of stream %s in %s\n", r.Stream, r.Topic)
		return err
	}
	rows := [][]string{{"RECORD", "FROM", "TO", "LISTED", "IN TOPIC", "MISSING", "REPAIRED", "LATE", "HASH"}}
	for i := range r.Records {
		l := &r.Records[i]
		rows = append(rows, []string{
			strconv.FormatInt(l.Seq, 10), l.From.Format(cli.TimeLayout), l.To.Format(cli.TimeLayout),
			humanize.Comma(l.Listed), humanize.Comma(l.Held), humanize.Comma(l.Missing), humanize.Comma(l.Repaired),
			humanize.Comma(l.Late), l.Hash[:12],
		})
	}
	return a.PrintTable(rows)
}

// verdict is the error of a chain that is broken, of missing events, or of a listing without
// an end.
func (r *attestReport) verdict() error {
	if len(r.Breaks) > 0 {
		text := r.Breaks[0].Text
		if more := len(r.Breaks) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more; --json shows all)", more)
		}
		return cli.Errorf(cli.ExitFailed, "exportbridge verify --from TIME --to TIME compares the events themselves",
			"topic %s does not prove the range: %s", r.Topic, text)
	}
	var missing, listed, outside, extra int64
	var first, cut *attest.Link
	for i := range r.Records {
		l := &r.Records[i]
		listed, outside, extra = listed+l.Listed, outside+l.Outside, extra+l.Extra
		if l.Missing > 0 {
			missing += l.Missing
			if first == nil {
				first = l
			}
		} else if l.EndedEmpty && cut == nil {
			cut = l
		}
	}
	switch {
	case missing == 0 && cut != nil:
		return cli.Errorf(cli.ExitEmptyEnd, cli.EngineHints[bridge.HintEmptyEnd],
			"empty pages ended the listing of record %d: its period may have more events", cut.Seq)
	case missing == 0:
		if len(r.Records) > 1 {
			outside = 0 // an event ingested late is in a later period
		}
		return uncompared(listed, outside, extra, r.Records[0].Record.Topic)
	}
	return cli.Errorf(cli.ExitCheck, fmt.Sprintf("exportbridge verify --from %s --to %s", first.From.Format(time.RFC3339),
		first.To.Format(time.RFC3339)), "%s missing when the periods were attested", are(missing, "event", "was", "were"))
}
