package exportapi

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
)

// codeNextURL is the Fault.Code of a next URL that is not followed.
const codeNextURL = "next_url"

// nextURL returns the cursor that a next URL stands for: its path and query,
// without the secrets, which requests add. asked is the URL of the request. A
// next URL is input: it leads to the same server and below EXPORT_URL's path,
// or nowhere. The URL that was requested names no next page.
func (c *Client) nextURL(ref, at string, asked *url.URL) (string, *bridge.Fault) {
	to, err := url.Parse(ref)
	if err == nil {
		err = nextlink.Check(ref, to)
	}
	if err != nil {
		return "", c.stray(to, "is not followed: %w", plainCause(err))
	}
	to = asked.ResolveReference(to)
	to.Fragment, to.RawFragment = "", ""
	switch base := c.endpoint; {
	case to.User != nil:
		return "", c.stray(to, "has a user or password")
	case !strings.EqualFold(to.Scheme, base.Scheme):
		return "", c.stray(to, "changes from %s to %q", base.Scheme, to.Scheme)
	case !nextlink.SameHost(to, base):
		return "", c.stray(to, "is not on %s", hostPort(base))
	case !c.requests.below(to):
		return "", c.stray(to, "is not below the path of EXPORT_URL")
	}
	next := c.requests.cursorOf(to)
	if own := c.requests.cursorOf(asked); nextlink.SameTarget(next, own) {
		return at, nil
	}
	return next, nil
}

// stray is the fault of a next URL that is not followed. It names the host of
// the URL, never its query.
func (c *Client) stray(to *url.URL, format string, args ...any) *bridge.Fault {
	name := "next URL"
	if to != nil && to.Host != "" {
		name += " to host " + c.faults.clean(bridge.Position{}, hostPort(to))
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: codeNextURL, Reason: bridge.ReasonConfig, Err: fmt.Errorf(name+" "+format, args...),
		Hint: "the key is only sent to the scheme and host of EXPORT_URL, below its path: check EXPORT_URL and EXPORT_CURSOR_IN"}
}

// plainCause drops the URL that an error of package url quotes.
func plainCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok && u != nil {
		return errors.New("it is not a URL")
	}
	return err
}

// below reports whether a URL is on the path of EXPORT_URL or below it.
func (r *requests) below(u *url.URL) bool {
	base := strings.TrimRight(r.base, "/")
	return u.Path == base || strings.HasPrefix(u.Path, base+"/")
}

// cursorOf returns the path and query of a URL as they are, without the key
// and the values of EXPORT_PARAMS. Another value of such a parameter is the
// API's, such as the checkpoint that follows the first one.
func (r *requests) cursorOf(u *url.URL) string {
	pairs := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		name, errName := url.QueryUnescape(name)
		value, errValue := url.QueryUnescape(value)
		if pair == "" || errName != nil || name == r.cfg.keyParam() {
			return errName == nil
		}
		return errValue == nil && (value == "" && r.secretParams.Has(name) || slices.Contains(r.secretParams[name], value))
	})
	if len(pairs) == 0 {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + strings.Join(pairs, "&")
}

// target returns the URL of a cursor that cursorOf returned.
func (r *requests) target(cursor string) (*url.URL, error) {
	u, err := url.ParseRequestURI(cursor)
	if err == nil {
		err = nextlink.Check(cursor, u)
	}
	if err != nil || u.Host != "" || u.Scheme != "" || !r.below(u) {
		return nil, errors.New("the cursor is not a path below EXPORT_URL")
	}
	to := *r.endpoint
	to.Path, to.RawPath, to.RawQuery = u.Path, u.RawPath, u.RawQuery
	own := u.Query()
	secrets := maps.Clone(r.secretParams)
	maps.DeleteFunc(secrets, func(name string, _ []string) bool { return own.Has(name) })
	if secrets := secrets.Encode(); secrets != "" {
		to.RawQuery = strings.TrimPrefix(to.RawQuery+"&"+secrets, "&")
	}
	return &to, nil
}
