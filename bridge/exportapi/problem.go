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
	// maxProblem is the most that is read of an error's body, in bytes.
	maxProblem = 64 << 10
	// shortCursor is the shortest text that is hidden in errors, in bytes: a shorter one is
	// also part of ordinary text.
	shortCursor = 4
)

// describe returns the status of a response, and what its body says as JSON or plain text.
// It never includes a body of another type, and none if there are rules for private data.
func (f *faults) describe(at bridge.Position, resp *http.Response) string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	plain := media == "text/plain"
	if err != nil || !plain && !isJSON(media) || f.cfg.Private.Set() {
		return status
	}
	// A part of the body is good enough: only the status decides.
	f.reader.Open(resp)
	defer f.reader.Done()
	body, err := f.reader.Read(nil, math.MaxInt, maxProblem)
	said := problem.Text(body, resp.StatusCode)
	if plain && said == "" {
		said = string(body)
		if i := strings.LastIndexAny(said, " \t\r\n"); i >= 0 && err != nil { // the last word may be part of a key
			said = said[:i]
		}
	}
	if text := f.clean(at, said); text != "" {
		return status + ": " + text
	}
	return status
}

// clean prepares foreign text for an error: it removes control characters, keys and the
// cursor, and truncates the text. It withholds a text with a key that it cannot remove.
func (f *faults) clean(at bridge.Position, text string) string {
	var hidden []problem.Hidden
	for _, secret := range append(f.auth.secrets(), f.hidden...) {
		for _, form := range secrets.Forms(secret.Reveal()) {
			hidden = append(hidden, problem.Hidden{Text: form, Shown: secret.String()})
		}
	}
	for _, part := range f.cursorParts(at.Cursor) {
		if len(part) >= shortCursor {
			hidden = append(hidden, problem.Hidden{Text: part, Shown: "cursor " + bridge.CursorHash(at.Cursor)})
		}
	}
	return problem.Show(text, hidden, secrets.NewFinder(f.withheld()).In)
}

// cursorParts returns a cursor, and the parts of it that the API may repeat alone.
func (f *faults) cursorParts(cursor string) []string {
	if cursor == "" {
		return nil
	}
	parts := []string{cursor}
	if text, ok := nextlink.Unquote(cursor).(string); ok && text != cursor {
		parts = append(parts, text)
	}
	if !f.cfg.leads() {
		return parts
	}
	return append(parts, nextlink.Parts(cursor, f.urls.first.EscapedPath(), f.cfg.PageSizeParam)...)
}

// pathSetting names the setting of the path of requests.
func (f *faults) pathSetting(at bridge.Position) string {
	if at.Cursor != "" && f.cfg.CursorPath != "" {
		return "EXPORT_CURSOR_PATH"
	}
	return "EXPORT_PATH"
}

// redirect returns the text and the hint for a redirect.
func (f *faults) redirect(at bridge.Position, resp *http.Response) (text, hint string) {
	to, err := resp.Location()
	if err != nil || to.Host == "" {
		return fmt.Sprintf("%d redirect to an unreadable location not followed", resp.StatusCode),
			"check EXPORT_URL and EXPORT_PATH"
	}
	base, _ := url.Parse(f.cfg.URL) // validated
	r := redirect.Redirect{Status: resp.StatusCode, To: to, Asked: resp.Request.URL, Base: base.EscapedPath(),
		Setting: f.pathSetting(at)}
	if at.Cursor != "" && f.cfg.leads() {
		r.Setting = ""
	}
	r.Clean = func(text string) string { return f.clean(at, text) }
	return r.Explain()
}
