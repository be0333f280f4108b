// Package problem reads the texts of error responses: of problem documents
// (RFC 9457), and of the usual shapes of other APIs.
package problem

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// document has the members of an error response, of any type.
type document map[string]any

// textMembers have the texts of a document. Violations come early, because a long text is cut
// at its end.
var textMembers = []string{"title", "error", "message", "msg", "violations", "errors", "error_description",
	"message_detail", "detail", "details"}

// violationNames are the members of an object that name a parameter, violationTexts those
// that describe its problem.
var (
	violationNames = []string{"field", "path", "parameter", "param", "name", "property", "pointer"}
	violationTexts = []string{"message", "detail", "details", "reason", "description", "title", "msg"}
)

// maxViolations is the number of violations that an error shows.
const maxViolations = 5

// Text joins the texts of an error response. It returns "" for anything else.
func Text(body []byte, code int) string {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return ""
	}
	d := document{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		d[strings.ToLower(name)] = object[name]
	}
	return d.text(code)
}

// InPage returns the texts of a response with status 200 that is no page. failed is set if
// the response says that it is an error: by a member error or errors, by an error code or
// message, by ok or success that is false, by a search that ended early, or by a status or code of an error.
func InPage(object map[string]any) (said string, failed bool) {
	if len(object) == 0 { // most pages: they must not allocate
		return "", false
	}
	d := document{}
	for _, name := range textMembers {
		d[name] = object[name]
	}
	failed = holds(d["error"]) || holds(d["errors"])
	for name, member := range object {
		switch name = strings.ToLower(strings.ReplaceAll(name, "_", "")); name {
		case "ok", "success":
			fine, is := member.(bool)
			failed = failed || is && !fine
		case "status", "statuscode", "code":
			if n, is := member.(float64); is {
				failed = failed || n >= http.StatusBadRequest && n < 600
			} else if word, is := member.(string); is {
				failed = failed || slices.Contains(failures, strings.ToLower(word))
			}
		case "incompleteresults", "timedout":
			early, _ := member.(bool)
			failed = failed || early
		case "errormessage", "errorcode":
			if failed = failed || holds(member); name == "errormessage" || d["error_description"] == nil {
				d["error_description"] = member
			}
		}
	}
	return d.text(http.StatusOK), failed
}

// Partial reports whether a member of a page, known by is, may say that items are missing: an error, or true for a
// search that ended early, as GitHub and Elasticsearch say.
func Partial(is func(name string) bool, value []byte) bool {
	return is("error") || is("errors") ||
		(is("incomplete_results") || is("timed_out")) && strings.TrimSpace(string(value)) == "true"
}

// failures are the words of a status that is an error.
var failures = []string{"error", "fail", "failed", "failure"}

// successes are the texts of an error member that say that there is none.
var successes = []string{"", "0", "ok", "success", "none"}

// holds reports whether a member has a value other than null, false, zero, empty or success, or is an object
// with such a member.
func holds(member any) bool {
	switch m := member.(type) {
	case nil:
		return false
	case string:
		return !slices.Contains(successes, strings.ToLower(m))
	case bool:
		return m
	case float64:
		return m != 0
	case []any:
		return len(m) > 0
	case map[string]any:
		for _, inside := range m {
			if holds(inside) {
				return true
			}
		}
		return false
	}
	return true
}

// text joins the texts.
func (d document) text(code int) string {
	var parts []string
	for _, name := range textMembers {
		if text := said(d[name]); text != "" && text != http.StatusText(code) && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	text := strings.Join(parts, ": ")
	if status, ok := d["status"].(float64); ok && status != float64(code) {
		text += fmt.Sprintf(" (status %v)", status)
	}
	if kind, ok := d["type"].(string); ok && kind != "" && kind != "about:blank" {
		text += " (" + kind + ")"
	}
	return strings.TrimSpace(text)
}

// said returns the text of a member: a string, the texts of an object, or those of a list.
func said(member any) string {
	switch m := member.(type) {
	case string:
		return m
	case map[string]any:
		text := strings.TrimSuffix(textOf(m, violationNames)+": "+textOf(m, violationTexts), ": ")
		return strings.TrimPrefix(text, ": ")
	case []any:
		var shown []string
		for _, v := range m[:min(len(m), maxViolations)] {
			if _, list := v.([]any); list {
				continue
			}
			if text := said(v); text != "" {
				shown = append(shown, text)
			}
		}
		if more := len(m) - maxViolations; more > 0 {
			shown = append(shown, fmt.Sprintf("%d more", more))
		}
		return strings.Join(shown, "; ")
	}
	return ""
}

// textOf returns the first member that is a text, or "".
func textOf(object map[string]any, names []string) string {
	for _, name := range names {
		for member, value := range object {
			if text, ok := value.(string); ok && text != "" && strings.EqualFold(member, name) {
				return text
			}
		}
	}
	return ""
}

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
