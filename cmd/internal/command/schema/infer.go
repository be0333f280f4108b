package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/contract"
)

func newInferCommand(a *cli.App) *cobra.Command {
	var s sample
	cmd := &cobra.Command{
		Use:   "infer",
		Short: "Infer a JSON Schema from the newest records",
		Long: `Infer a JSON Schema (2020-12) from the newest records of the topic. It has the
names and types of the members, and no values. A member that all records of the
sample have is required: read more records, and edit the file. An object with
more than 200 names is taken for a map, whose names are values.

With KAFKA_ROUTES and without --topic, the schema of each topic is in $defs, by
the topic's name. The other commands use it for the topic.`,
		Example: `  exportbridge schema infer -o order.schema.json
  exportbridge schema infer -n 100000 -o order.schema.json --force
  EVENT_SCHEMA_FILE=order.schema.json exportbridge schema check`,
		Args: cli.NoArgs,
	}
	s.take(a, cmd)
	output := cli.TakeOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runInfer(cmd.Context(), a, &s, output) }
	return cmd
}

// shownUnreadable is how many unreadable records of a topic infer names.
const shownUnreadable = 10

func runInfer(ctx context.Context, a *cli.App, s *sample, output *cli.Output) error {
	if err := s.load(a); err != nil {
		return err
	}
	topics, err := topicsOf(s.settings, s.name)
	if err != nil {
		return err
	}
	found := make(map[string]*contract.Inferred)
	for _, name := range topics {
		var comment string
		if found[name], comment, err = inferTopic(ctx, a, s, name); err != nil {
			return err
		}
		if found[name] == nil {
			delete(found, name)
			continue
		}
		if len(topics) > 1 {
			comment = "topic " + name + ": " + comment
		}
		fmt.Fprintln(a.Stderr, comment)
	}
	switch {
	case len(found) == 0:
		return cli.Errorf(cli.ExitFailed, "exportbridge status", "topic %s has no events", strings.Join(topics, ", "))
	case len(topics) == 1:
		return printJSON(a, output, found[topics[0]])
	}
	return printJSON(a, output, contract.OfTopics(found))
}

// inferTopic returns the schema of the records of a topic, nil if there are none.
func inferTopic(ctx context.Context, a *cli.App, s *sample, name string) (*contract.Inferred, string, error) {
	if err := s.openTopic(ctx, a, name); err != nil {
		return nil, "", err
	}
	var events contract.Inference
	unreadable := 0
	if err := s.read(ctx, func(r *kgo.Record) {
		err := events.Add(r.Value)
		if err == nil {
			return
		}
		if unreadable++; unreadable <= shownUnreadable {
			fmt.Fprintf(a.Stderr, "record %d@%d of topic %s left out: %v\n", r.Partition, r.Offset, name, err)
		}
	}); err != nil {
		return nil, "", err
	}
	if more := unreadable - shownUnreadable; more > 0 {
		fmt.Fprintf(a.Stderr, "%s more of topic %s left out\n", cli.Counted(more, "record"), name)
	}
	if events.Events == 0 {
		return nil, "", nil
	}
	comment := "inferred from " + cli.Counted(events.Events, "record")
	return events.Schema("Event of topic "+name, comment), comment, nil
}
