// Package redirect explains redirects of an API, and names the settings to change.
package redirect

import (
	"fmt"
	"net/url"
	"strings"

	"exportbridge/bridge/exportapi/internal/nextlink"
)

// Redirect is a redirect that is not followed.
type Redirect struct {
	Status    int
	To, Asked *url.URL
	Base      string // the path of EXPORT_URL, escaped
	Setting   string // of the path of Asked; empty for a next URL
	// Clean removes control characters and secrets from a text.
	Clean func(string) string
}

// Explain returns what happened, and what to do. The text has the path of a redirect on the
// same host only, and never the query.
func (r *Redirect) Explain() (text, hint string) {
	to, asked := r.To, r.Asked
	upgrade := to.Scheme == "https" && asked.Scheme == "http"
	switch same := strings.EqualFold(to.Hostname(), asked.Hostname()); {
	case same && to.Scheme == "http" && asked.Scheme == "https" && to.EscapedPath() != asked.EscapedPath():
		// The server does not know that a proxy ends TLS: only the path differs.
	case !same || to.Scheme == asked.Scheme && !nextlink.SameHost(to, asked) ||
		to.Scheme != "http" && to.Scheme != "https":
		return fmt.Sprintf("%d redirect to host %s not followed, to keep the key from that host", r.Status, r.Clean(to.Host)),
			"if the API has moved there, set EXPORT_URL to the new address"
	case upgrade:
		text, hint = fmt.Sprintf("%d redirect to https on the same host not followed", r.Status),
			"set EXPORT_URL to its https:// address"
		if to.EscapedPath() == asked.EscapedPath() {
			return text, hint
		}
		hint += ", and "
	case to.Scheme != asked.Scheme:
		return fmt.Sprintf("%d redirect to plain HTTP on the same host not followed, "+
				"which would send the key in clear text", r.Status),
			"check EXPORT_URL, and whether a proxy in front of the API ends TLS without telling it"
	case to.EscapedPath() == asked.EscapedPath():
		return fmt.Sprintf("%d redirect to the same path not followed", r.Status),
			"check EXPORT_API_KEY and EXPORT_PARAMS, and whether a proxy asks for a sign-in"
	}
	path := r.Clean(to.EscapedPath())
	if plain := r.Clean(to.Path); plain != to.Path { // a secret may be escaped in the path
		path = plain
	}
	text = fmt.Sprintf("%d redirect to the path %s on the same host not followed", r.Status, path)
	above := strings.TrimRight(r.Base, "/")
	switch {
	case r.Setting == "":
		hint += "check EXPORT_CURSOR_IN: a next URL is redirected to that path"
	case nextlink.Below(to, above) && strings.HasPrefix(path, above+"/"):
		hint += "if the API's pages are there, set " + r.Setting + "=" + strings.TrimPrefix(path, above)
	default:
		hint += "if the API's pages are there, set EXPORT_URL and " + r.Setting + " to that path"
	}
	return text, hint
}
