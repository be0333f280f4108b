package exportapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
)

// codeNextURL is the Fault.Code of a next URL that is not followed.
const codeNextURL = "next_url"

// errForm: the cursor is no path that cursorOf returned for this EXPORT_URL.
var errForm = errors.New("the stored cursor is of another EXPORT_CURSOR_IN or EXPORT_URL: it is no path below EXPORT_URL")

// nextURL returns the cursor of a next URL. asked is the URL of the request. A
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
	return c.requests.cursors.Next(to, asked, at), nil
}

// stray is the fault of a next URL that is not followed. It names the host of
// the URL, never its query.
func (c *Client) stray(to *url.URL, format string, args ...any) *bridge.Fault {
	name := "next URL"
	if to != nil && to.Host != "" {
		name += " to host " + c.faults.clean(bridge.Position{}, hostPort(to))
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: codeNextURL, Reason: bridge.ReasonConfig, Err: fmt.Errorf("%s "+format, append([]any{name}, args...)...),
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

// target returns the URL of a cursor.
func (r *requests) target(cursor string) (*url.URL, error) {
	u, err := r.cursors.URL(cursor)
	if err != nil || !r.below(u) {
		return nil, errForm
	}
	to := *r.endpoint
	to.Path, to.RawPath, to.RawQuery = u.Path, u.RawPath, u.RawQuery
	return &to, nil
}
