package process

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"exportbridge/bridge"
)

// Text is a writer for people. It replaces characters that can mislead the reader of a
// terminal, because values come from Redis, Kafka and the API. It keeps line breaks and
// tabs.
type Text struct{ To io.Writer }

// Write implements io.Writer.
func (t Text) Write(p []byte) (int, error) {
	_, err := io.WriteString(t.To, printable(string(p), "\n\t"))
	return len(p), err
}

func (t Text) beneath() io.Writer { return t.To }

// Exact returns the writer beneath a Text, and any other writer itself. It is for output
// that programs read byte by byte, and for escape sequences.
func Exact(w io.Writer) io.Writer {
	if t, ok := w.(Text); ok {
		return t.To
	}
	return w
}

// JSON returns a writer for JSON documents, each written whole. For a terminal, the writer
// escapes what can mislead the reader, which does not change the documents. Otherwise it is
// Exact.
func JSON(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return jsonText{Exact(w)}
	}
	return Exact(w)
}

type jsonText struct{ to io.Writer }

func (j jsonText) Write(p []byte) (int, error) {
	_, err := io.WriteString(j.to, PrintableJSON(string(p)))
	return len(p), err
}

// PrintableJSON escapes the parts of JSON documents that can mislead the reader of a
// terminal, and bytes that are not UTF-8.
func PrintableJSON(documents string) string {
	var b strings.Builder
	for _, r := range documents {
		if r == utf8.RuneError || bridge.Misleads(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Raw returns a writer for unchanged bytes: Exact, or on a terminal the writer itself.
func Raw(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return w
	}
	return Exact(w)
}

// Printable returns the text as one line that cannot mislead the reader of a
// terminal.
func Printable(text string) string { return printable(text, "") }

// printable replaces characters that mislead, except those in keep. It replaces bytes that
// are not UTF-8 by replacement characters.
func printable(text, keep string) string {
	return strings.Map(func(r rune) rune {
		if bridge.Misleads(r) && !strings.ContainsRune(keep, r) {
			return ' '
		}
		return r
	}, text)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool { return Columns(w) > 0 }

// Columns returns the width of the terminal w, 0 if w is not a terminal.
func Columns(w io.Writer) int {
	columns, _ := Size(w)
	return columns
}

// Size returns the width and the height of the terminal w, 0 if w is not a terminal.
func Size(w io.Writer) (columns, rows int) {
	for {
		over, ok := w.(interface{ beneath() io.Writer })
		if !ok {
			break
		}
		w = over.beneath()
	}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, 0
	}
	if columns, rows, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 && rows > 0 {
		return columns, rows
	}
	return 80, 24
}

// Cut shortens a text to n columns. The last column is then an ellipsis.
func Cut(text string, n int) string {
	if len(text) <= n || Width(text) <= n {
		return text
	}
	used := 0
	for i, r := range text {
		if used += runeWidth(r); used >= n {
			return text[:i] + "…"
		}
	}
	return text
}

// Width returns the number of terminal columns of a text.
func Width(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	switch {
	case r < utf8.RuneSelf:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// NoColor reports whether the user asked for text without colours (no-color.org).
func NoColor(environ []string) bool {
	return variableIn(environ, "NO_COLOR") != "" || variableIn(environ, "TERM") == "dumb"
}
