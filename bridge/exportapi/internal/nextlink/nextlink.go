// Package nextlink finds the part of a page that names the next page, and checks the URLs
// that pages name.
package nextlink

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"exportbridge/bridge"
)

// The errors of Next.
var (
	errMalformed = errors.New("header Link is malformed")
	errSeveral   = errors.New("header Link has no or several targets with rel=next")
)

// maxURL is the longest URL that is checked, in bytes: a cursor, and the host and the
// path of EXPORT_URL. escapes is how often a segment may be escaped: some
// programs escape twice, others unescape twice.
const (
	maxURL  = 2 * bridge.MaxCursor
	escapes = 4
)

// The errors of a path that servers may read in different ways.
var (
	errElsewhere    = errors.New("its path has . or .. or an encoded slash")
	errEscapedOften = fmt.Errorf("its path is escaped more than %d times", escapes)
)

// Parse parses an absolute or relative URL. It rejects a URL that another program could
// take for a URL of another place. Of segments with an encoded slash it accepts those that
// base has too. Its errors quote no part of the URL. With an error it returns the URL if
// that could be parsed.
func Parse(text string, base *url.URL) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return u, errors.New("it has characters that must be escaped")
	case u.Opaque != "":
		return u, errors.New("it has no host and path")
	}
	segments, known := strings.Split(u.EscapedPath(), "/"), names(base)
	for i, segment := range segments {
		if plain, err := url.PathUnescape(segment); err == nil && slices.Contains(known, plain) {
			continue
		}
		if segment == "" && i > 0 && i < len(segments)-1 {
			return u, errors.New("its path has an empty segment")
		}
		if err := judge(segment); err != nil {
			return u, err
		}
	}
	return u, nil
}

// judge rejects a segment that leads elsewhere if it is unescaped once or several times.
func judge(segment string) error {
	for range escapes + 1 {
		if leadsElsewhere(segment) {
			return errElsewhere
		}
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == segment {
			return nil
		}
		segment = plain
	}
	return errEscapedOften
}

// leadsElsewhere reports whether a server may read a segment as . or .., or as several
// segments. Servers drop the text after ; or ? or #, and some drop spaces and control
// characters.
func leadsElsewhere(segment string) bool {
	segment = lookalikes.Replace(segment)
	name := segment
	if i := strings.IndexAny(name, ";?#"); i >= 0 {
		name = name[:i]
	}
	rest := strings.TrimFunc(name, func(r rune) bool {
		return r == '.' || r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsGraphic(r)
	})
	return rest == "" && strings.Contains(name, ".") || strings.ContainsAny(segment, "/\\\x00")
}

// lookalikes are overlong forms of UTF-8, and characters that some servers replace by dots
// and slashes.
var lookalikes = strings.NewReplacer(append(overlong(`./\`),
	"\uff0e", ".", "\ufe52", ".", "\u2024", ".", "\u2025", "..", "\u2026", "...", "\ufe19", "...",
	"\uff0f", "/", "\u2044", "/", "\u2215", "/", "\uff3c", "\\", "\ufe68", "\\", "\u2216", "\\")...)

// overlong returns pairs for lookalikes: each form of two to six bytes of a character, and
// the character.
func overlong(ascii string) (pairs []string) {
	for _, c := range []byte(ascii) {
		last := string([]byte{0x80 | c&0x3f})
		pairs = append(pairs, string([]byte{0xc0 | c>>6})+last, string(c))
		for _, lead := range []string{"\xe0", "\xf0\x80", "\xf8\x80\x80", "\xfc\x80\x80\x80"} {
			pairs = append(pairs, lead+string([]byte{0x80 | c>>6})+last, string(c))
		}
	}
	return pairs
}

// names returns the unescaped segments of a path. It leaves out segments of only dots and
// slashes.
func names(u *url.URL) (names []string) {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err == nil && strings.Trim(plain, "./\\\x00") != "" {
			names = append(names, plain)
		}
	}
	return names
}

// Below reports whether a URL has an escaped path, or a path below it.
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

// SameHost reports whether two URLs have the same host and port.
func SameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && Port(a) == Port(b)
}

// Port returns the port of a URL, also of one that names none.
func Port(u *url.URL) string { return cmp.Or(u.Port(), DefaultPort(u)) }

// DefaultPort returns the port of a URL that names none.
func DefaultPort(u *url.URL) string {
	if strings.EqualFold(u.Scheme, "http") {
		return "80"
	}
	return "443"
}

// sameTarget reports whether two cursors of next URLs ask for the same page. The order of
// parameters does not matter.
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

// Next returns the target of the link with rel=next (RFC 8288), "" without one. It ignores
// links about another page (anchor). empty is set if the link says that its page has no
// results: some APIs name a next page always.
func Next(h http.Header) (next string, empty bool, err error) {
	for _, rest := range h.Values("Link") {
		for rest != "" {
			var target string
			var params []param
			if target, params, rest, err = cutLink(rest); err != nil {
				return "", false, errMalformed
			}
			if !isNext(params) {
				continue
			}
			if target == "" || next != "" && next != target {
				return "", false, errSeveral
			}
			next, empty = target, slices.Contains(params, param{"results", "false"})
		}
	}
	return next, empty, nil
}

// param is a name with its value.
type param struct{ name, value string }

// isNext reports whether a link with these parameters leads to the next page. Of several
// rel parameters the first counts.
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
		return "", nil, "", errMalformed
	}
	target = target[1:]
	for {
		rest = strings.TrimLeft(rest, space)
		if rest == "" || rest[0] == ',' {
			return target, params, rest, nil
		}
		if rest[0] != ';' {
			return "", nil, "", errMalformed
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
				return "", nil, "", errMalformed
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

// Missing returns the parameters of want that a query lacks. If the query has some of the
// values of a parameter, the others are missing. If it has only other values, they replace
// those of want.
func Missing(query string, want url.Values) url.Values {
	has, _ := url.ParseQuery(query) // what cannot be read is not there
	missing := url.Values{}
	for name, values := range want {
		ours := func(value string) bool { return slices.Contains(values, value) }
		if len(has[name]) > 0 && !slices.ContainsFunc(has[name], ours) {
			continue
		}
		for _, value := range values {
			if !slices.Contains(has[name], value) {
				missing.Add(name, value)
			}
		}
	}
	return missing
}
