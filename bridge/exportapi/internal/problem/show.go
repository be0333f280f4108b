package problem

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// maxText is the most characters of foreign text in an error.
const maxText = 200

// Hidden is a text that no error shows, and the text in its place.
type Hidden struct{ Text, Shown string }

// Show prepares foreign text for an error: it removes control characters, replaces what is
// hidden, and truncates the text. It withholds a text in which find still finds a secret.
func Show(text string, hidden []Hidden, find func(string) (name string)) string {
	var forms []Hidden
	for _, h := range hidden {
		for _, form := range []string{url.QueryEscape(h.Text), url.PathEscape(h.Text), onePrintedLine(h.Text)} {
			if form != "" {
				forms = append(forms, Hidden{form, h.Shown})
			}
		}
	}
	// Longer forms first, since a form may begin with another one.
	slices.SortStableFunc(forms, func(a, b Hidden) int { return len(b.Text) - len(a.Text) })
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form.Text, form.Shown)
	}
	text = strings.NewReplacer(pairs...).Replace(onePrintedLine(text))
	if name := find(text); name != "" {
		return "(a text that contains " + name + ")"
	}
	if runes := []rune(text); len(runes) > maxText {
		return string(runes[:maxText]) + "..."
	}
	return text
}

// onePrintedLine collapses white space and removes other unprintable
// characters.
func onePrintedLine(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)), " ")
}
