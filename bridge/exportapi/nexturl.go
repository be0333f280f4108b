package exportapi

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/params"
)

// codeNextURL is the Fault.Code of a next URL that must not be followed.
const codeNextURL = "next_url"

// errForm: the cursor is no path that cursorOf returned for this EXPORT_URL.
var errForm = errors.New("the stored cursor is of another EXPORT_CURSOR_IN or EXPORT_URL: " +
	"it is no path below EXPORT_URL")

// nextURL returns the cursor of a next URL. asked is the URL of the request. A next URL is
// untrusted input: it must lead to the same server, below EXPORT_URL's path. If it equals
// asked, the cursor is the page's own.
func (r *pageReader) nextURL(ref string, at bridge.Position, asked *url.URL) (string, *bridge.Fault) {
	to, err := nextlink.Parse(ref, r.requests.urls.first)
	if err != nil {
		return "", r.stray(to, hintNextURL, "is not followed: %w", err)
	}
	to = asked.ResolveReference(to)
	to.Fragment, to.RawFragment = "", ""
	base := r.requests.urls.first
	whole := r.cfg.NextURL != nextPath || to.Scheme != "http" && to.Scheme != "https"
	switch {
	case to.User != nil:
		return "", r.stray(to, hintNextURL, "has a user or password")
	case whole && !strings.EqualFold(to.Scheme, base.Scheme):
		return "", r.stray(to, "the scheme differs from that of EXPORT_URL: "+
			"where a proxy in front of the API ends TLS, EXPORT_NEXT_URL=path takes only path and query; "+
			"else correct EXPORT_URL",
			"changes from %s to %q", base.Scheme, to.Scheme)
	case whole && !nextlink.SameHost(to, base):
		return "", r.stray(to, "the key is only sent to the host of EXPORT_URL: "+
			"where the API calls itself by another name, EXPORT_NEXT_URL=path takes only path and query; "+
			"else check EXPORT_URL and EXPORT_CURSOR_IN",
			"is not on %s", base.Host)
	case !nextlink.Below(to, r.requests.base):
		return "", r.stray(to, "the key is only sent below the path of EXPORT_URL: "+
			"move what the paths do not share from EXPORT_URL to EXPORT_PATH", "is not below the path of EXPORT_URL")
	}
	r.lack(to, at)
	return r.requests.cursorsAt(at).Next(to, asked, at.Cursor), nil
}

const hintNextURL = "check EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD: " +
	"a next URL leads to the scheme and host of EXPORT_URL, below its path"

// lack records which parameters of requests a next URL lacks, and warns of them.
func (r *pageReader) lack(to *url.URL, at bridge.Position) {
	names := slices.Sorted(maps.Keys(nextlink.Missing(to.RawQuery, r.requests.expected(at, r.cfg.PageSize))))
	if (r.cfg.NextParams != nextWarn && r.cfg.NextParams != "") || len(names) == 0 || slices.Equal(names, r.lacking) {
		return
	}
	if r.lacking = names; r.cfg.Warn != nil {
		r.cfg.Warn(TextLacking(names), HintLacking)
	}
}

// TextLacking returns the warning for what Inspector.Lacking returns.
func TextLacking(names []string) string {
	return "the next URL lacks parameters of the first request: " + strings.Join(names, ", ")
}

// HintLacking is the hint for TextLacking.
const HintLacking = "events may be missing, or others be included; " +
	"set EXPORT_NEXT_PARAMS=add-missing, or EXPORT_NEXT_PARAMS=keep if the URL implies them"

// stray returns the fault of a next URL that must not be followed. The fault names the host
// of the URL, never its query.
func (r *pageReader) stray(to *url.URL, hint, format string, args ...any) *bridge.Fault {
	name := "next URL"
	if to != nil && to.Host != "" {
		name += " to host " + r.faults.clean(bridge.Position{}, to.Host)
	}
	return bridge.Blockf(codeNextURL, bridge.ReasonConfig, hint, "%s "+format, append([]any{name}, args...)...)
}

// expected returns the parameters that the next URL of a page should have. The bounds are
// among them if the position is a window.
func (r *requests) expected(at bridge.Position, size int) url.Values {
	if !at.Window {
		return r.common(r.carried, at, size)
	}
	at.Cursor = ""
	return r.query(at, size)
}

// cursorsAt returns what turns the next URLs of a position into cursors and back.
func (r *requests) cursorsAt(at bridge.Position) *nextlink.Cursors {
	c := r.cursors
	c.Params = params.Query(r.cfg.filled(r.carried, at))
	return &c
}

// target returns the URL of a page of at most size items, whose cursor is a next URL.
func (r *requests) target(at bridge.Position, size int) (*url.URL, error) {
	u, err := r.cursorsAt(at).URL(at.Cursor)
	if errors.Is(err, nextlink.ErrCredential) {
		return nil, err
	}
	if err != nil || !nextlink.Below(u, r.base) {
		return nil, errForm
	}
	to := *r.urls.first
	to.Path, to.RawPath, to.RawQuery = u.Path, u.RawPath, u.RawQuery
	if r.cfg.NextParams == nextAdd {
		if added := nextlink.Missing(to.RawQuery, r.expected(at, size)); len(added) > 0 {
			to.RawQuery = strings.TrimPrefix(to.RawQuery+"&"+params.Encode(added), "&")
		}
	}
	return &to, nil
}
