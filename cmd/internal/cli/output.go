package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// PrintJSON prints v as one indented JSON document.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// PrintTable prints rows as columns that line up. The first row is the head.
func PrintTable(w io.Writer, rows [][]string) error {
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

// PrintTo prints to a file, or to stdout where none is given.
func (a *App) PrintTo(file, text string) error {
	if file == "" {
		_, err := io.WriteString(a.Stdout, text)
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // for another program to read
		return &Error{Code: ExitFailed, Err: fmt.Errorf("write --output: %w", err), Hint: "another --output"}
	}
	return nil
}

// Counted is a number of things: "1 topic", "2 topics".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// RoundDuration is a duration as people say it, such as 3h20m.
func RoundDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
