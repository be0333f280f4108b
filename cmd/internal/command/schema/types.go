package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
)

// seenType is an event type, with the records that have it.
type seenType struct {
	Type    string    `json:"type"`
	Records int       `json:"records"`
	Last    time.Time `json:"last"` // the latest time of a record
}

func newTypesCommand(a *cli.App) *cobra.Command {
	var s sample
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List the event types of the newest records",
		Long: `List the event types in the newest records of the topic, with the number of
records and the time of the latest one. Rare types can be absent: read more
records.`,
		Example: `  exportbridge schema types
  exportbridge schema types -n 100000 --json`,
		Args: cli.NoArgs,
	}
	s.take(a, cmd)
	asJSON := cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := s.types(cmd.Context(), a)
		if err != nil {
			return err
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, all)
		}
		rows := [][]string{{"TYPE", "RECORDS", "LAST"}}
		for _, t := range all {
			rows = append(rows, []string{cmp.Or(t.Type, "-"), humanize.Comma(int64(t.Records)), t.Last.Format(cli.TimeLayout)})
		}
		return a.PrintTable(rows)
	}
	return cmd
}

// types returns the types of the newest records, the most frequent first.
func (s *sample) types(ctx context.Context, a *cli.App) ([]seenType, error) {
	if err := s.open(ctx, a); err != nil {
		return nil, err
	}
	all, n := []seenType{}, 0
	index := make(map[string]int) // in all
	err := s.read(ctx, func(r *kgo.Record) {
		n++
		name := records.TypeOf(r)
		i, known := index[name]
		if !known {
			i = len(all)
			index[name] = i
			all = append(all, seenType{Type: name})
		}
		all[i].Records++
		if at := r.Timestamp.UTC(); at.After(all[i].Last) {
			all[i].Last = at
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b seenType) int {
		return cmp.Or(b.Records-a.Records, cmp.Compare(a.Type, b.Type))
	})
	fmt.Fprintf(a.Stderr, "%s of topic %s\n", cli.Counted(n, "record"), s.topic.Name)
	return all, nil
}
