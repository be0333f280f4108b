package exportapi

import (
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/problem"
	"exportbridge/bridge/exportapi/internal/redirect"
	"exportbridge/bridge/internal/secrets"
)

const (
	// maxProblem bounds how much of a problem's body is read.
	maxProblem = 64 << 10
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
	e.reader.Open(resp)
	defer e.reader.Done()
	body, err := e.reader.Read(nil, math.MaxInt, maxProblem)
	said := problem.Text(body, resp.StatusCode)
	if plain && said == "" {
		said = string(body)
		if i := strings.LastIndexAny(said, " \t\r\n"); i >= 0 && err != nil { // it may end within a key
			said = said[:i]
		}
	}
	if text := e.clean(at, said); text != "" {
		return status + ": " + text
	}
	return status
}

// clean prepares foreign text for an error: without control characters, key and
// cursor, and truncated. One with a key in a form that cannot be cut out is withheld.
func (e *faults) clean(at bridge.Position, text string) string {
	var hidden []problem.Hidden
	for _, secret := range append(e.auth.secrets(), e.hidden...) {
		for _, form := range secrets.Forms(secret.Reveal()) {
			hidden = append(hidden, problem.Hidden{Text: form, Shown: secret.String()})
		}
	}
	for _, part := range e.cursorParts(at.Cursor) {
		if len(part) >= shortCursor {
			hidden = append(hidden, problem.Hidden{Text: part, Shown: "cursor " + bridge.CursorHash(at.Cursor)})
		}
	}
	return problem.Show(text, hidden, secrets.NewFinder(e.withheld()).In)
}

// cursorParts returns a cursor, and the parts of it that the API may repeat alone.
func (e *faults) cursorParts(cursor string) []string {
	if cursor == "" {
		return nil
	}
	parts := []string{cursor}
	if text, ok := nextlink.Unquote(cursor).(string); ok && text != cursor {
		parts = append(parts, text)
	}
	if !e.cfg.leads() {
		return parts
	}
	return append(parts, nextlink.Parts(cursor, e.endpoint.EscapedPath(), e.cfg.PageSizeParam)...)
}

// pathSetting names the setting of the path of requests.
func (e *faults) pathSetting(at bridge.Position) string {
	if at.Cursor != "" && e.cfg.CursorPath != "" {
		return "EXPORT_CURSOR_PATH"
	}
	return "EXPORT_PATH"
}

// redirect returns what a redirect means, and what to do.
func (e *faults) redirect(at bridge.Position, resp *http.Response) (text, hint string) {
	to, err := resp.Location()
	if err != nil || to.Host == "" {
		return fmt.Sprintf("%d redirect to an unreadable location not followed", resp.StatusCode),
			"check EXPORT_URL and EXPORT_PATH"
	}
	base, _ := url.Parse(e.cfg.URL) // validated
	r := redirect.Redirect{Status: resp.StatusCode, To: to, Asked: resp.Request.URL, Base: base.EscapedPath(),
		Setting: e.pathSetting(at)}
	if at.Cursor != "" && e.cfg.leads() {
		r.Setting = ""
	}
	r.Clean = func(text string) string { return e.clean(at, text) }
	return r.Explain()
}
