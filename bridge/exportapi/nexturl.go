package exportapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"exportbridge/bridge"
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
		err = checkReference(ref, to)
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
	case !sameHost(to, base):
		return "", c.stray(to, "is not on %s", hostPort(base))
	case !c.requests.below(to):
		return "", c.stray(to, "is not below the path of EXPORT_URL")
	}
	next := c.requests.cursorOf(to)
	if own := c.requests.cursorOf(asked); sameTarget(next, own) {
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

// checkReference rejects a URL, or a relative one, that another program could
// read as leading somewhere else.
func checkReference(text string, u *url.URL) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return errors.New("it has characters that must be escaped")
	}
	if u.Opaque != "" {
		return errors.New("it has no host and path")
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for i, segment := range segments {
		if segment == "" && i > 0 && i < len(segments)-1 {
			return errors.New("its path has an empty segment")
		}
		for { // escaped twice by some, unescaped twice by others
			name, _, _ := strings.Cut(segment, ";")
			if name == "." || name == ".." || strings.ContainsAny(segment, "/\\\x00") {
				return errors.New("its path has . or .. or an encoded slash")
			}
			plain, err := url.PathUnescape(segment)
			if err != nil || plain == segment {
				break
			}
			segment = plain
		}
	}
	return nil
}

// sameHost reports whether both have the same host and port.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		switch {
		case u.Port() != "":
			return u.Port()
		case strings.EqualFold(u.Scheme, "http"):
			return "80"
		}
		return "443"
	}
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// below reports whether a URL is on the path of EXPORT_URL or below it.
func (r *requests) below(u *url.URL) bool {
	base := strings.TrimRight(r.base, "/")
	return u.Path == base || strings.HasPrefix(u.Path, base+"/")
}

// cursorOf returns the path and query of a URL as they are, without the
// parameters that every request carries.
func (r *requests) cursorOf(u *url.URL) string {
	pairs := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		return pair == "" || err == nil && r.secretParams.Has(name)
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
		err = checkReference(cursor, u)
	}
	if err != nil || u.Host != "" || u.Scheme != "" || !r.below(u) {
		return nil, errors.New("the cursor is not a path below EXPORT_URL")
	}
	to := *r.endpoint
	to.Path, to.RawPath, to.RawQuery = u.Path, u.RawPath, u.RawQuery
	if secrets := r.secretParams.Encode(); secrets != "" {
		to.RawQuery = strings.TrimPrefix(to.RawQuery+"&"+secrets, "&")
	}
	return &to, nil
}

// sameTarget reports whether two cursors of next URLs ask for the same: the
// order of parameters does not matter.
func sameTarget(a, b string) bool {
	if a == b {
		return true
	}
	pathA, queryA, _ := strings.Cut(a, "?")
	pathB, queryB, _ := strings.Cut(b, "?")
	valuesA, errA := url.ParseQuery(queryA)
	valuesB, errB := url.ParseQuery(queryB)
	return pathA == pathB && errA == nil && errB == nil && maps.EqualFunc(valuesA, valuesB, slices.Equal[[]string])
}

// nextLink returns the target of the link with rel=next (RFC 8288), "" without
// one. Links about another page than this (anchor) do not count.
func nextLink(h http.Header) (next string, err error) {
	for _, rest := range h.Values("Link") {
		for rest != "" {
			var target string
			var params []param
			if target, params, rest, err = cutLink(rest); err != nil {
				return "", fmt.Errorf("%w: header Link is malformed (%s)", errNoPage, inSetting)
			}
			if !isNext(params) {
				continue
			}
			if target == "" || next != "" && next != target {
				return "", fmt.Errorf("%w: header Link has no or several targets with rel=next (%s)", errNoPage, inSetting)
			}
			next = target
		}
	}
	return next, nil
}

// param is a name with its value.
type param struct{ name, value string }

// isNext reports whether a link with these parameters leads to the next page.
// Of several rel parameters the first counts.
func isNext(params []param) bool {
	named := func(name string) func(param) bool {
		return func(p param) bool { return strings.EqualFold(p.name, name) }
	}
	rel := slices.IndexFunc(params, named("rel"))
	return rel >= 0 && !slices.ContainsFunc(params, named("anchor")) &&
		slices.ContainsFunc(strings.Fields(params[rel].value), func(r string) bool { return strings.EqualFold(r, "next") })
}

var errLink = errors.New("malformed link")

// cutLink cuts the first link off a list of links.
func cutLink(list string) (target string, params []param, rest string, err error) {
	const space = " \t"
	list = strings.TrimLeft(list, space+",") // a list may have empty elements
	if list == "" {
		return "", nil, "", nil
	}
	target, rest, ok := strings.Cut(list, ">")
	if !ok || !strings.HasPrefix(target, "<") {
		return "", nil, "", errLink
	}
	target = target[1:]
	for {
		rest = strings.TrimLeft(rest, space)
		if rest == "" || rest[0] == ',' {
			return target, params, rest, nil
		}
		if rest[0] != ';' {
			return "", nil, "", errLink
		}
		rest = strings.TrimLeft(rest[1:], space)
		end := strings.IndexAny(rest, space+"=;,")
		if end < 0 {
			end = len(rest)
		}
		p := param{name: rest[:end]}
		rest = strings.TrimLeft(rest[end:], space)
		if after, ok := strings.CutPrefix(rest, "="); ok {
			if p.value, rest, ok = cutValue(strings.TrimLeft(after, space)); !ok {
				return "", nil, "", errLink
			}
		}
		if p.name != "" {
			params = append(params, p)
		}
	}
}

// cutValue cuts a token or quoted string off the text.
func cutValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, " \t;,")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return "", "", false
			}
		}
		b.WriteByte(text[i])
	}
	return "", "", false
}
