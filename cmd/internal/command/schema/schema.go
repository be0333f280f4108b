// Package schema holds the commands that describe the records of topics to other programs:
// as an AsyncAPI document and as a JSON Schema.
package schema

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
)

// Commands returns the commands of the package.
func Commands(a *cli.App) []*cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Infer, check and register the JSON Schema of events",
		Example: "  exportbridge schema infer",
		GroupID: cli.GroupPosition,
		Args:    cli.NoSubcommand,
		RunE:    cli.ShowHelp,

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newInferCommand(a), newCheckCommand(a), newTypesCommand(a), newRegisterCommand(a))
	return []*cobra.Command{newAsyncAPICommand(a), cmd}
}

// printJSON writes a JSON document to an output, where it is exact.
func printJSON(a *cli.App, to *cli.Output, document any) error {
	if !to.Named() {
		return cli.PrintJSON(a.Stdout, document)
	}
	var text bytes.Buffer
	if err := cli.PrintJSON(&text, document); err != nil {
		return err
	}
	return a.PrintTo(to, text.String())
}

// sampled is the number of records that the commands read.
const sampled = 1000

// sample is the topic of a stream, of which a command reads the newest records.
type sample struct {
	stream string
	num    int

	settings *config.Stream
	topic    *kafkaclient.TopicReader
	ends     map[int32]kafkaclient.Span // of the topic when the records were read
	skipped  func()
}

// take gives a command the flags of a sample.
func (s *sample) take(a *cli.App, cmd *cobra.Command) {
	a.TakeSettings(cmd)
	cli.TakeStream(cmd, &s.stream)
	cmd.Flags().IntVarP(&s.num, "num", "n", sampled, "read the newest `N` records")
}

// open loads the settings.
func (s *sample) open(ctx context.Context, a *cli.App) error {
	if s.num < 1 {
		return cli.WrongUsage(fmt.Sprintf("-n %d", sampled), "-n %d is below 1", s.num)
	}
	all, st, err := a.StreamSettings(0, s.stream)
	if err != nil {
		return err
	}
	if err := oneTopic(st); err != nil {
		return err
	}
	s.settings = st
	s.skipped = func() { records.SaySkipped(a, s.topic) }
	s.topic, err = records.OpenTopic(ctx, a, all, &st.Kafka, "KAFKA_TOPIC")
	return err
}

// oneTopic rejects a stream with several topics, of which a command would leave out all but one.
func oneTopic(st *config.Stream) error {
	if routes := st.Kafka.Routes(); len(routes.Topics) > 0 {
		return cli.WrongUsage("add --set KAFKA_ROUTES= --set KAFKA_TOPIC=NAME",
			"stream %s publishes to several topics (KAFKA_ROUTES), choose one", st.Name)
	}
	return nil
}

// read calls visit with the newest records. It first finds where they are, so that it holds
// none of them.
func (s *sample) read(ctx context.Context, visit func(*kgo.Record)) error {
	type place struct {
		partition int32
		offset    int64
	}
	of := func(r *kgo.Record) (place, bool) { return place{r.Partition, r.Offset}, r.Value != nil }
	var err error
	if s.ends, err = s.topic.Bounds(ctx); err != nil {
		return cli.Explain(err)
	}
	places, err := kafkaclient.Newest(ctx, s.topic, s.ends, s.num, of)
	if err != nil {
		return cli.Explain(err)
	}
	wanted, spans := make(map[place]struct{}, len(places)), make(map[int32]kafkaclient.Span)
	for _, at := range places {
		wanted[at] = struct{}{}
		span, ok := spans[at.partition]
		if !ok || at.offset < span.From {
			span = kafkaclient.Span{From: at.offset, To: s.ends[at.partition].To}
		}
		spans[at.partition] = span
	}
	err = s.topic.Read(ctx, spans, func(r *kgo.Record) error {
		at, _ := of(r)
		if _, ok := wanted[at]; ok {
			visit(r)
		}
		return nil
	})
	s.skipped()
	return cli.Explain(err)
}
