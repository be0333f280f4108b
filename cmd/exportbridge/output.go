package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takeJSON gives the command the flag --json.
func takeJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// takeStream gives the command the flag --stream.
func takeStream(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "`NAME` of the stream, if there are several")
}

// renamed keeps the old spelling of a flag, which help does not show.
func renamed(cmd *cobra.Command, old, name string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// printJSON prints v as one indented JSON document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// printTable prints rows as columns that line up. The first row is the head.
func printTable(w io.Writer, rows [][]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = cellReplacer.Replace(cell)
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}

// cellReplacer keeps a cell from breaking its table.
var cellReplacer = strings.NewReplacer("\t", " ", "\n", " ", "\r", "")

// takeOutput adds the flag that has a command write to a file.
func takeOutput(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "output", "", "write to `FILE`, not to standard output")
}

// printTo prints to a file, or to stdout where none is given.
func (a *app) printTo(file, text string) error {
	if file == "" {
		_, err := io.WriteString(a.stdout, text)
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // for another program to read
		return &exitError{code: exitFailed, err: fmt.Errorf("write --output: %w", err), hint: "another --output"}
	}
	return nil
}
