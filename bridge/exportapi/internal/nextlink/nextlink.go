// Package nextlink reads Link headers, and judges the URLs that pages name.
package nextlink

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// The errors of Next.
var (
	ErrMalformed = errors.New("header Link is malformed")
	ErrSeveral   = errors.New("header Link has no or several targets with rel=next")
)

// Check rejects a URL, or a relative one, that another program could
// read as leading somewhere else. A segment with an encoded slash may be there
// if the path of known has it.
func Check(text string, u, known *url.URL) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return errors.New("it has characters that must be escaped")
	}
	if u.Opaque != "" {
		return errors.New("it has no host and path")
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for i, segment := range segments {
		if has(known, segment) {
			continue
		}
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

// has reports whether a path has a segment, which is not empty and does not
// lead to another one.
func has(u *url.URL, segment string) bool {
	plain, err := url.PathUnescape(segment)
	return err == nil && strings.Trim(plain, "./\\\x00") != "" && slices.ContainsFunc(strings.Split(u.EscapedPath(), "/"), func(s string) bool {
		known, err := url.PathUnescape(s)
		return err == nil && known == plain
	})
}

// Below reports whether a URL is on a path, given escaped, or below it.
func Below(u *url.URL, path string) bool {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, above := range strings.Split(strings.TrimRight(path, "/"), "/") {
		if i >= len(segments) {
			return false
		}
		a, errA := url.PathUnescape(above)
		b, errB := url.PathUnescape(segments[i])
		if errA != nil || errB != nil || a != b {
			return false
		}
	}
	return true
}

// SameHost reports whether both have the same host and port.
func SameHost(a, b *url.URL) bool {
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

// SameTarget reports whether two cursors of next URLs ask for the same: the
// order of parameters does not matter.
func SameTarget(a, b string) bool {
	if a == b {
		return true
	}
	pathA, queryA, _ := strings.Cut(a, "?")
	pathB, queryB, _ := strings.Cut(b, "?")
	valuesA, errA := url.ParseQuery(queryA)
	valuesB, errB := url.ParseQuery(queryB)
	return pathA == pathB && errA == nil && errB == nil && maps.EqualFunc(valuesA, valuesB, slices.Equal[[]string])
}

// Next returns the target of the link with rel=next (RFC 8288), "" without
// one. Links about another page than this (anchor) do not count.
func Next(h http.Header) (next string, err error) {
	for _, rest := range h.Values("Link") {
		for rest != "" {
			var target string
			var params []param
			if target, params, rest, err = cutLink(rest); err != nil {
				return "", ErrMalformed
			}
			if !isNext(params) {
				continue
			}
			if target == "" || next != "" && next != target {
				return "", ErrSeveral
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

// cutLink cuts the first link off a list of links.
func cutLink(list string) (target string, params []param, rest string, err error) {
	const space = " \t"
	list = strings.TrimLeft(list, space+",") // a list may have empty elements
	if list == "" {
		return "", nil, "", nil
	}
	target, rest, ok := strings.Cut(list, ">")
	if !ok || !strings.HasPrefix(target, "<") {
		return "", nil, "", ErrMalformed
	}
	target = target[1:]
	for {
		rest = strings.TrimLeft(rest, space)
		if rest == "" || rest[0] == ',' {
			return target, params, rest, nil
		}
		if rest[0] != ';' {
			return "", nil, "", ErrMalformed
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
				return "", nil, "", ErrMalformed
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
