package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// retryOptions are the flags of dlq retry.
type retryOptions struct {
	stream, reason string
	all, execute   bool
	timeout        time.Duration
	json           *bool
}

func newDLQRetryCommand(a *cli.App) *cobra.Command {
	var o retryOptions
	cmd := &cobra.Command{
		Use:   "retry [PARTITION:OFFSET...]",
		Short: "Retry dead letters",
		Long: `Publish dead letters to the stream's topic, for example after raising its
message size limit. The command parses the item in the letter again; if the item
was too large for the letter, it fetches the item from the API.

The records have the header eb-origin: repair. Each event is committed in one
transaction with a repair record, so repeated retries publish it once. If a
rewind published the event after the letter was written, a retry publishes it
again. All letters stay in the topic; "dlq list" shows which were retried.

A letter that cannot be published is reported, and the exit code is 1. --all
reads the whole topic before it publishes. Without --execute, the command is a
dry run, with the same exit code.`,
		Example: `  exportbridge dlq retry 0:17 2:4
  exportbridge dlq retry --all --reason too-large --execute`,
		Args: cobra.ArbitraryArgs,
	}
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	cli.TakeStream(cmd, &o.stream)
	cmd.Flags().BoolVar(&o.all, "all", false, "retry all dead letters of the stream")
	takeReason(cmd, &o.reason, "with --all, retry letters")
	cli.TakeExecute(cmd, &o.execute)
	takeReading(cmd, &o.timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return retryLetters(cmd.Context(), a, &o, args) }
	return cmd
}

// named reads the places of the arguments, each once.
func (o *retryOptions) named(args []string) ([]deadletter.Place, error) {
	wrong := func(format string, values ...any) error {
		return cli.WrongUsage("exportbridge dlq retry --help", format, values...)
	}
	switch {
	case o.all && len(args) > 0:
		return nil, wrong("--all and PARTITION:OFFSET are mutually exclusive")
	case !o.all && len(args) == 0:
		return nil, wrong("PARTITION:OFFSET or --all is required")
	case !o.all && o.reason != "":
		return nil, wrong("--reason requires --all")
	}
	if err := checkReason(o.reason); err != nil {
		return nil, err
	}
	places := make([]deadletter.Place, 0, len(args))
	for _, arg := range args {
		p, err := deadletter.ParsePlace(arg)
		if err != nil {
			return nil, cli.WrongUsage("exportbridge dlq list", "%w", err)
		}
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	return places, nil
}

func retryLetters(ctx context.Context, a *cli.App, o *retryOptions, args []string) error {
	places, err := o.named(args)
	if err != nil {
		return err
	}
	_, st, err := a.StreamSettings(config.UsesExport, o.stream)
	if err != nil {
		return err
	}
	api, err := openAPI(st, o.execute)
	if err != nil {
		return err
	}
	defer api.Close()
	l, err := lettersOf(ctx, st)
	if err != nil {
		return err
	}
	l.Waiting = sayWaiting(a)
	reading, read := l.reading(ctx, o.timeout)
	if o.all {
		places, err = l.Places(reading, o.reason)
	} else {
		err = l.Check(reading, places)
	}
	if read(); err != nil {
		return letterError(err)
	}
	SaySkipped(a, l.TopicReader)
	out, count := []deadletter.Retried{}, make(map[deadletter.Outcome]int)
	err = retryEach(ctx, a, l, places, &deadletter.Retry{
		Topic: &l.Topic, Source: api, Ranges: process.Ranges(st, api), FetchTimeout: st.Engine.FetchTimeout,
		Bounded:   errors.Join(st.Export.Starts(), st.Export.Bounded()) == nil,
		Rehearsal: !o.execute, By: cli.Operator(), Redacted: st.Kafka.Redacted, Check: st.Export.Check,
		Done: func(one deadletter.Retried) error {
			count[one.Result]++
			if *o.json {
				out = append(out, one)
				return nil
			}
			return printRetried(a, one)
		},
	})
	if *o.json {
		err = errors.Join(err, cli.PrintJSON(a.Stdout, out))
	}
	if err != nil {
		return err
	}
	return o.verdict(a, l, len(places), count)
}

// verdict returns the error of letters that cannot be published.
func (o *retryOptions) verdict(a *cli.App, l *letters, all int, count map[deadletter.Outcome]int) error {
	letters := cli.Counted(all, "letter")
	if n := count[deadletter.Duplicate]; n > 0 {
		fmt.Fprintf(a.Stderr, "%s of %s share their event with another letter: each event is published once\n",
			humanize.Comma(int64(n)), letters)
	}
	switch {
	case all == 0:
		fmt.Fprintf(a.Stderr, "no matching dead letters in %s\n", l.shownName())
	case !o.execute:
		sayDryRun(a, count[deadletter.WouldPublish], "letter")
	}
	if count[deadletter.Refused] > 0 {
		return cli.Errorf(cli.ExitFailed, "exportbridge dlq show PARTITION:OFFSET", "%s of %s cannot be published",
			humanize.Comma(int64(count[deadletter.Refused])), letters)
	}
	return nil
}

// retryEach runs the retry on Kafka.
func retryEach(ctx context.Context, a *cli.App, l *letters, places []deadletter.Place, r *deadletter.Retry) error {
	if len(places) == 0 {
		return nil
	}
	begin := kafkasink.OpenRepair
	if r.Rehearsal {
		begin = kafkasink.Rehearse
	}
	kafka := l.stream.Kafka
	kafka.Report = sayWaiting(a)
	repair, err := begin(ctx, kafka.Wired(), kafkasink.JobDLQ)
	if err != nil {
		return repairError(err)
	}
	defer repair.Close()
	c, err := bridge.Newest(ctx, l.stream.Kafka.History())
	if err != nil {
		return cli.Explain(err)
	}
	if r.Origin = c.Origin; c.Zero() {
		r.Origin = l.stream.Engine.Origin
	}
	events, _, err := readersOf(ctx, l.stream)
	if err != nil {
		return err
	}
	events.Waiting = sayWaiting(a)
	r.Publisher, r.Live, r.Known, r.Events = repair, c.Source, c.Topics, events
	change := c.RequestChange(l.stream.Engine.Origin.Request)
	if r.Elsewhere = change.Elsewhere(); change.Rules {
		return cli.Errorf(cli.ExitUsage, bridge.SameRequestHint,
			"the settings have other rules for private data than stream %s", l.stream.Name)
	}
	want := l.stream.Engine.Origin
	// The letters of a wrong resource are published by the right one.
	if err := c.OriginConflict(want); err != nil && want.Resource == c.Origin.Resource {
		return cli.Errorf(cli.ExitUsage, bridge.SameOriginHint, "%w", err)
	}
	if err := c.RoutesConflict(l.stream.Kafka.Topic, l.stream.Export.Routes.Text); err != nil {
		return cli.Errorf(cli.ExitUsage, bridge.SameRoutesHint, "%w", err)
	}
	return repairError(letterError(r.Run(ctx, places)))
}

func printRetried(a *cli.App, one deadletter.Retried) error {
	id := process.Cut(cmp.Or(one.ID, "-"), 40)
	line := fmt.Sprintf("  %-10s %-14s %-24s from its %-6s  %s", one.Letter, one.Reason, id, one.From, one.Result)
	if one.Detail != "" {
		line += ": " + one.Detail
	}
	_, err := fmt.Fprintln(a.Stdout, process.Printable(line))
	return err
}

// sayDryRun reports that nothing was changed, and how many of something could be.
func sayDryRun(a *cli.App, n int, what string) {
	if n == 0 {
		fmt.Fprintln(a.Stderr, "dry run: nothing was changed; there is nothing to publish.")
		return
	}
	fmt.Fprintf(a.Stderr, "dry run: nothing was changed. Add --execute to publish %s.\n", cli.Counted(n, what))
}

// repairError adds the exit code and the hint to an error of a repair.
func repairError(err error) error {
	if _, known := errors.AsType[*cli.Error](err); known || err == nil {
		return err
	}
	if errors.Is(err, bridge.ErrFenced) {
		return cli.Errorf(cli.ExitNotOwner, "wait for the other repair to finish", "%w", err)
	}
	return cli.Explain(err)
}

// sayWaiting returns a function that reports each new cause of a wait for Kafka.
func sayWaiting(a *cli.App) func(error) {
	last := ""
	return func(err error) {
		if err == nil || err.Error() == last {
			return
		}
		last = err.Error()
		fmt.Fprintf(a.Stderr, "waiting for Kafka: %s\n", last)
	}
}

// openAPI opens the API of a stream, whose items it decodes as the stream publishes them.
func openAPI(st *config.Stream, publishes bool) (*exportapi.Client, error) {
	process.KeysOf(st, publishes)
	if err := process.CheckSchema(st, &st.Export); err != nil {
		return nil, err
	}
	return exportapi.New(st.Export)
}
