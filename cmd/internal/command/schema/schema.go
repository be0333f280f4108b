// Package schema holds the commands that describe the records of topics to other programs:
// as an AsyncAPI document and as a JSON Schema.
package schema

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/contract"
)

// Commands returns the commands of the package.
func Commands(a *cli.App) []*cobra.Command {
	cmd := cli.Parent(&cobra.Command{
		Use:                   "schema",
		Short:                 "Infer, check and register the JSON Schema of events",
		Example:               "  exportbridge schema infer",
		GroupID:               cli.GroupPosition,
		DisableFlagsInUseLine: true,
	}, newInferCommand(a), newCheckCommand(a), newTypesCommand(a), newRegisterCommand(a))
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

// sample is a topic of a stream, of which a command reads the newest records.
type sample struct {
	stream, name string // of the flags
	num          int

	all      *config.Settings
	settings *config.Stream
	topic    *kafkaclient.TopicReader
	ends     map[int32]kafkaclient.Span // of the topic when the records were read
	skipped  func()
}

// take gives a command the flags of a sample.
func (s *sample) take(a *cli.App, cmd *cobra.Command) {
	a.TakeSettings(cmd)
	cli.TakeStream(cmd, &s.stream)
	takeTopic(cmd, &s.name)
	cmd.Flags().IntVarP(&s.num, "num", "n", sampled, "read the newest `N` records")
}

func takeTopic(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "topic", "", "`TOPIC` of the stream, if KAFKA_ROUTES names several")
}

// load loads the settings.
func (s *sample) load(a *cli.App) (err error) {
	if s.num < 1 {
		return cli.WrongUsage(fmt.Sprintf("-n %d", sampled), "-n %d is below 1", s.num)
	}
	s.all, s.settings, err = a.StreamSettings(0, s.stream)
	return err
}

// topicsOf returns the topic with a name, or all topics of a stream if the name is empty.
func topicsOf(st *config.Stream, name string) ([]string, error) {
	topics := st.Kafka.Topics()
	all := topics.OfEvents()
	switch {
	case name == "":
		return all, nil
	case slices.Contains(all, name):
		return []string{name}, nil
	}
	return nil, cli.WrongUsage("--topic "+all[0], "topic %s is not one of stream %s: %s", name, st.Name,
		strings.Join(all, ", "))
}

// choose makes the topic with a name, or the only one, that of the stream, and its schema that
// of the topic.
func choose(st *config.Stream, name string) error {
	topics, err := topicsOf(st, name)
	if err != nil {
		return err
	}
	if len(topics) > 1 {
		return cli.WrongUsage("add --topic "+topics[1], "stream %s publishes to several topics (KAFKA_ROUTES): %s", st.Name,
			strings.Join(topics, ", "))
	}
	all := st.Kafka.Topics()
	st.Contract.Schema = contract.SchemaOf(st.Contract.Schema, topics[0], all.OfEvents())
	st.Kafka.Topic = topics[0]
	return nil
}

// open loads the settings, and opens the topic.
func (s *sample) open(ctx context.Context, a *cli.App) error {
	err := s.load(a)
	if err == nil {
		err = choose(s.settings, s.name)
	}
	if err != nil {
		return err
	}
	return s.openTopic(ctx, a, s.settings.Kafka.Topic)
}

func (s *sample) openTopic(ctx context.Context, a *cli.App, name string) (err error) {
	kafka := s.settings.Kafka
	kafka.Topic = name
	s.skipped = func() { records.SaySkipped(a, s.topic) }
	s.topic, err = records.OpenTopic(ctx, a, s.all, &kafka, "KAFKA_TOPIC")
	return err
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
