package schema

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/contract"
)

// checkOptions are the flags of schema check.
type checkOptions struct {
	sample
	follow bool
	json   *bool
}

func newCheckCommand(a *cli.App) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare records with the JSON Schema",
		Long: `Compare the newest records of the topic with the JSON Schema in
EVENT_SCHEMA_FILE. The report counts each difference, with the JSON pointer of
the member and the first record, and shows no values. A member that the schema
does not mention is a difference; allow such members with
"additionalProperties": true. The exit code is 3 if a record differs.

--follow compares new records too, until Ctrl-C, and prints each difference
when it first occurs. The stream is not affected.`,
		Example: `  EVENT_SCHEMA_FILE=order.schema.json exportbridge schema check
  EVENT_SCHEMA_FILE=order.schema.json exportbridge schema check --follow`,
		Args: cli.NoArgs,
	}
	o.take(a, cmd)
	o.json = cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cmd.Flags().BoolVar(&o.follow, "follow", false, "compare new records until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) }
	return cmd
}

func (o *checkOptions) run(ctx context.Context, a *cli.App) error {
	if err := o.open(ctx, a); err != nil {
		return err
	}
	if err := requireSchema(o.settings); err != nil {
		return err
	}
	schema, err := contract.Compile(o.settings.Contract.Schema)
	if err != nil {
		return err
	}
	report := contract.Report{Rows: []contract.Row{}}
	compare := func(r *kgo.Record) {
		place := fmt.Sprintf("%d@%d", r.Partition, r.Offset)
		for _, d := range report.Add(place, schema.Compare(r.Value)) {
			if o.follow {
				fmt.Fprintf(a.Stderr, "%s: %s %s\n", place, d.Place(), d.Text)
			}
		}
	}
	if err := o.read(ctx, compare); err != nil {
		return err
	}
	if o.follow {
		err := records.Follow(ctx, o.topic, o.ends, func(r *kgo.Record) error {
			if r.Value != nil {
				compare(r)
			}
			return nil
		}, func() error { return nil })
		if ctx.Err() == nil {
			return cli.Explain(err)
		}
	}
	if err := o.print(a, &report); err != nil {
		return err
	}
	if report.Differing > 0 {
		differ := "differ"
		if report.Differing == 1 {
			differ = "differs"
		}
		return cli.Errorf(cli.ExitCheck, "correct the schema, or tell the owners of the export",
			"%d of %s %s from the schema", report.Differing, cli.Counted(report.Records, "record"), differ)
	}
	return nil
}

// requireSchema rejects a stream without a schema of its chosen topic.
func requireSchema(st *config.Stream) error {
	if st.Contract.Schema != "" {
		return nil
	}
	return cli.WrongUsage("exportbridge schema infer -o events.schema.json, then EVENT_SCHEMA_FILE=events.schema.json",
		"EVENT_SCHEMA_FILE is not set for stream %s, or has no schema of topic %s", st.Name, st.Kafka.Topic)
}

func (o *checkOptions) print(a *cli.App, r *contract.Report) error {
	r.Rows = r.Sorted()
	if *o.json {
		return cli.PrintJSON(a.Stdout, r)
	}
	if len(r.Rows) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "  %s of topic %s: no differences\n", cli.Counted(r.Records, "record"), o.topic.Name)
		return err
	}
	rows := [][]string{{"RECORDS", "FIRST", "MEMBER", "DIFFERENCE"}}
	for _, row := range r.Rows {
		rows = append(rows, []string{strconv.Itoa(row.Records), row.First, row.Place(), row.Text})
	}
	if r.Unlisted > 0 {
		rows = append(rows, []string{humanize.Comma(int64(r.Unlisted)), "-", "-", "further differences"})
	}
	return a.PrintTable(rows)
}
