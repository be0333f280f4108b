package exportapi

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/problem"
)

const (
	// maxProblem bounds how much of a problem's body is read.
	maxProblem = 64 << 10
	// maxText bounds the characters of foreign text in an error.
	maxText = 200
	// shortCursor is too short to be distinguished from ordinary text.
	shortCursor = 4
)

// describe returns the status of a response that is no page, and what its body
// says, as JSON or plain text. It never includes bodies of other types.
func (e *faults) describe(at bridge.Position, resp *http.Response) string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	plain := media == "text/plain"
	if err != nil || !plain && !isJSON(media) {
		return status
	}
	// What could be read is tried: the status alone decides.
	body, _ := e.readers.Read(resp, nil, maxProblem)
	said := problem.Text(body, resp.StatusCode)
	if plain && said == "" {
		said = string(body)
	}
	if text := e.clean(at, said); text != "" {
		return status + ": " + text
	}
	return status
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
