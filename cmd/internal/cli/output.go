package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"exportbridge/cmd/internal/process"
)

// TimeLayout is the form of times in seconds.
const TimeLayout = "2006-01-02 15:04:05Z"

// PrintJSON prints v as one indented JSON document.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(process.JSON(w))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

const (
	// narrowCell is the width below which a cell is not cut: that of a time.
	narrowCell = 20
	// narrowText replaces narrowCell in a table whose times and the like are not cut.
	narrowText = 6
)

// PrintTable prints rows as a table in the width of the terminal. The first row is the
// head. It recommends --wide if it has cut a cell.
func (a *App) PrintTable(rows [][]string) error {
	cut, err := PrintTable(a.Stdout, rows, a.Width())
	if cut && a.tables {
		fmt.Fprintln(a.Stderr, "  add --wide to see full lines")
	}
	return err
}

// PrintTable prints rows as a table that is width characters wide; 0 is no limit. The first
// row is the head. PrintTable cuts the widest columns, except those with an index in whole,
// and reports whether it has cut a cell. Columns that do not fit follow below each row.
func PrintTable(w io.Writer, rows [][]string, width int, whole ...int) (cut bool, err error) {
	var widths []int
	total := -2
	for _, row := range rows {
		for i, cell := range row {
			row[i] = process.Printable(cell)
			if i == len(widths) {
				widths = append(widths, 0)
				total += 2
			}
			n := process.Width(row[i])
			total += max(0, n-widths[i])
			widths[i] = max(n, widths[i])
		}
	}
	cuttable, narrow := widths, narrowCell
	if len(whole) > 0 {
		cuttable, narrow = slices.Clone(widths), narrowText
		for _, i := range whole {
			cuttable[i] = 0
		}
	}
	for ; width > 0 && total > width && slices.Max(cuttable) > narrow; total-- {
		i := slices.Index(cuttable, slices.Max(cuttable))
		cuttable[i]--
		widths[i] = cuttable[i]
	}
	fit := len(widths)
	for ; width > 0 && total > width && fit > 1; fit-- {
		total -= widths[fit-1] + 2
	}
	var text strings.Builder
	for n, row := range rows {
		line := ""
		for i, cell := range row[:min(fit, len(row))] {
			shown := process.Cut(cell, widths[i])
			cut = cut || shown != cell
			line += shown + strings.Repeat(" ", 2+widths[i]-process.Width(shown))
		}
		var below []string
		if fit < len(row) {
			line, below = overflow(line, rows[0], row, fit, width)
		}
		if n == 0 {
			below = nil // the lines below a row repeat the head
		}
		for _, l := range append([]string{strings.TrimRight(line, " ")}, below...) {
			text.WriteString(l + "\n")
		}
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return cut, fmt.Errorf("print table: %w", err)
	}
	return cut, nil
}

// overflow adds the columns of a row from an index on, which do not fit. It adds a short last
// column to the line, and returns the others as lines below it.
func overflow(line string, head, row []string, from, width int) (string, []string) {
	if from == len(row)-1 && process.Width(line)+process.Width(row[from]) <= width {
		return line + row[from], nil
	}
	var parts []string
	for i := from; i < len(row); i++ {
		switch {
		case row[i] == "" || row[i] == "-":
		case i == len(head)-1 && head[i] == "NOTE":
			parts = append(parts, row[i])
		default:
			parts = append(parts, strings.ToLower(head[i])+" "+row[i])
		}
	}
	if len(parts) == 0 {
		return line, nil
	}
	below := Wrap(strings.Join(parts, ", "), width-4)
	for i := range below {
		below[i] = "    " + below[i]
	}
	return line, below
}

// PrintFields prints a line for each field, which is a name and a text. A text that exceeds
// width continues on the next lines; 0 is no limit.
func PrintFields(w io.Writer, fields [][2]string, width int) error {
	names := 10
	for _, f := range fields {
		names = max(names, len(f[0]))
	}
	var text strings.Builder
	for _, f := range fields {
		for i, line := range Wrap(process.Printable(f[1]), width-names-3) {
			if i > 0 {
				f[0] = ""
			}
			fmt.Fprintf(&text, "  %-*s %s\n", names, process.Printable(f[0]), line)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// Wrap splits a text between words into lines of at most width characters; 0 is no limit.
// A longer word is a line of its own.
func Wrap(text string, width int) []string {
	if width <= 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && process.Width(line)+1+process.Width(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// PrintTo writes text to the file of o, or to standard output if o names none.
func (a *App) PrintTo(o *Output, text string) error {
	if o.file == "" {
		_, err := io.WriteString(a.Stdout, text)
		return err
	}
	err := writeNew(o.file, text)
	flag := "--" + cmp.Or(o.flag, "output")
	hint := "choose another " + flag
	if errors.Is(err, fs.ErrExist) {
		hint += ", or add --force"
		if o.force || o.beside != nil && o.beside.force {
			err = replace(o.file, text)
		}
	}
	if err != nil {
		return &Error{Code: ExitFailed, Err: fmt.Errorf("write %s: %w", flag, err), Hint: hint}
	}
	return nil
}

// writeNew writes a new file. A link of that name is an error too.
func writeNew(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // for another program to read
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}

// replace replaces a regular file. A crash leaves the old file or the whole new one.
func replace(name, text string) error {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "replace", Path: name, Err: errors.New("not a regular file")}
	}
	next, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.new")
	if err != nil {
		return err
	}
	_, err = io.WriteString(next, text)
	if err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Close()); err == nil {
		err = os.Rename(next.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}

// Counted returns a number with its noun: "1 topic", "2 topics", "2 processes".
func Counted[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

// RoundDuration returns a rounded duration, such as 3h20m.
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
