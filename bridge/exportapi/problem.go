package exportapi

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"exportbridge/bridge"
)

const (
	// maxProblem bounds how much of a problem's body is read.
	maxProblem = 64 << 10
	// maxText bounds the characters of foreign text in an error.
	maxText = 200
	// shortCursor is too short to be distinguished from ordinary text.
	shortCursor = 4
)

// problem is RFC 9457 in the forms seen so far: detail or details, each of any
// type.
type problem struct {
	Title   any `json:"title"`
	Type    any `json:"type"`
	Status  any `json:"status"`
	Detail  any `json:"detail"`
	Details any `json:"details"`
	// Violations names each invalid parameter, as an object or a text.
	Violations any `json:"violations"`
}

// Members of a violation that name the parameter, and that describe the problem.
var (
	violationNames = []string{"field", "path", "parameter", "param", "name", "property", "pointer"}
	violationTexts = []string{"message", "detail", "details", "reason", "description", "title"}
)

// maxViolations is how many violations an error shows.
const maxViolations = 5

// describe returns the status of a response that is no page, and the text of
// its problem document. It never includes bodies of other types.
func (e *faults) describe(at bridge.Position, resp *http.Response) string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || !isJSON(media) {
		return status
	}
	// What could be read is tried: the status alone decides.
	body, _ := e.readers.read(resp, nil, maxProblem)
	if text := e.clean(at, problemText(body, resp.StatusCode)); text != "" {
		return status + ": " + text
	}
	return status
}

// problemText joins the texts of a problem. Anything else yields an empty text.
func problemText(body []byte, code int) string {
	var p problem
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	var parts []string
	// Violations come first: the end is cut.
	for _, member := range []any{p.Title, violationText(p.Violations), p.Detail, p.Details} {
		if text, ok := member.(string); ok && text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	text := strings.Join(parts, ": ")
	if status, ok := p.Status.(float64); ok && status != float64(code) {
		text += fmt.Sprintf(" (status %v)", status)
	}
	if kind, ok := p.Type.(string); ok && kind != "" && kind != "about:blank" {
		text += " (" + kind + ")"
	}
	return strings.TrimSpace(text)
}

// violationText joins the violations of a problem: each parameter with what is
// wrong about it.
func violationText(member any) string {
	all, _ := member.([]any)
	var shown []string
	for _, v := range all[:min(len(all), maxViolations)] {
		text, _ := v.(string)
		if object, ok := v.(map[string]any); ok {
			text = strings.TrimSuffix(textOf(object, violationNames)+": "+textOf(object, violationTexts), ": ")
			text = strings.TrimPrefix(text, ": ")
		}
		if text != "" {
			shown = append(shown, text)
		}
	}
	if more := len(all) - maxViolations; more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return strings.Join(shown, "; ")
}

// textOf returns the first member that is a text, or "".
func textOf(object map[string]any, names []string) string {
	for _, name := range names {
		if text, ok := object[name].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// clean prepares foreign text for an error: without control characters, key and
// cursor, and truncated.
func (e *faults) clean(at bridge.Position, text string) string {
	text = onePrintedLine(text)
	var pairs []string
	hide := func(secret, shown string) {
		for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret), onePrintedLine(secret)} {
			if form != "" {
				pairs = append(pairs, form, shown)
			}
		}
	}
	for _, secret := range e.auth.secrets() {
		hide(secret.Reveal(), secret.String())
	}
	for _, secret := range e.hidden {
		hide(secret, bridge.Secret(secret).String())
	}
	if len(at.Cursor) >= shortCursor {
		hide(at.Cursor, "cursor "+bridge.CursorHash(at.Cursor))
	}
	text = strings.NewReplacer(pairs...).Replace(text)
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

// target names the host of a redirect.
func (e *faults) target(at bridge.Position, resp *http.Response) string {
	to, err := resp.Location()
	if err != nil || to.Host == "" {
		return "an unreadable location"
	}
	return "host " + e.clean(at, hostPort(to))
}
