package schema

import (
	"context"
	"fmt"

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
more than 200 names is taken for a map, whose names are values.`,
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

func runInfer(ctx context.Context, a *cli.App, s *sample, output *cli.Output) error {
	if err := s.open(ctx, a); err != nil {
		return err
	}
	var events contract.Inference
	if err := s.read(ctx, func(r *kgo.Record) {
		if err := events.Add(r.Value); err != nil {
			fmt.Fprintf(a.Stderr, "record %d@%d left out: %v\n", r.Partition, r.Offset, err)
		}
	}); err != nil {
		return err
	}
	if events.Events == 0 {
		return cli.Errorf(cli.ExitFailed, "exportbridge status", "topic %s has no events", s.topic.Name)
	}
	title := "Event of topic " + s.topic.Name
	comment := "inferred from " + cli.Counted(events.Events, "record")
	if err := printJSON(a, output, events.Schema(title, comment)); err != nil {
		return err
	}
	fmt.Fprintln(a.Stderr, comment)
	return nil
}
