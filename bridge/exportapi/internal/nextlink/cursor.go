package nextlink

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge/exportapi/internal/params"
)

// mark begins a name in a cursor, and ends a cursor without names. A next URL has no mark,
// because a mark begins a fragment.
const mark = "#"

// ErrCredential is the error of a cursor that names a credential which requests do not send
// in their URL. In a URL the credential would appear in the logs of servers and proxies.
var ErrCredential = errors.New("the cursor names a credential, which must not be sent in a URL")

// Secret is a value that must not be in a cursor.
type Secret struct {
	Name  string // replaces the value in cursors; begins with a letter
	Value string
}

// Cursors turns next URLs into cursors and back. A cursor is the unchanged path and query
// of its URL, without the key. Names replace static parameters and secrets, which can
// change and must not be shown.
type Cursors struct {
	KeyParam, Key string     // query parameter of the key, "" for none
	Params        url.Values // static parameters
	Secrets       []Secret   // that requests send in their URL
	Known         *url.URL   // URL of the first page, see Parse
}

// Next returns the cursor of the URL that a page names. If the page names its own URL, Next
// returns at, the cursor of the page.
func (c *Cursors) Next(to, asked *url.URL, at string) string {
	next := c.of(to)
	if sameTarget(next, c.of(asked)) || sameTarget(strings.TrimSuffix(next, mark), strings.TrimSuffix(at, mark)) {
		return at
	}
	return next
}

func (c *Cursors) of(u *url.URL) string {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, segment := range segments {
		if value, err := url.PathUnescape(segment); err == nil {
			if name := c.name("", value); name != "" {
				segments[i] = mark + name
			}
		}
	}
	var pairs []string
	for _, pair := range c.pairs(u.RawQuery) {
		param, value, _ := strings.Cut(pair, "=")
		param, errParam := url.QueryUnescape(param)
		value, errValue := url.QueryUnescape(value)
		if errParam == nil && errValue == nil {
			if name := c.name(param, value); name != "" {
				pair = params.Escape(param) + "=" + mark + name
			}
		}
		pairs = append(pairs, pair)
	}
	cursor := join(segments, pairs)
	if len(c.Params) > 0 && !strings.Contains(cursor, mark) {
		cursor += mark
	}
	return cursor
}

// URL returns the path and query of a cursor, with the key. It drops static parameters that
// are no longer set. A cursor without a mark is not from Next: it gets all static
// parameters that it lacks.
func (c *Cursors) URL(cursor string) (*url.URL, error) {
	path, query, _ := strings.Cut(strings.TrimSuffix(cursor, mark), "?")
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if name, ok := strings.CutPrefix(segment, mark); ok {
			value, known := c.value("", name)
			if !known {
				return nil, ErrCredential // static parameters are in no path
			}
			segments[i] = url.PathEscape(value)
		}
	}
	var pairs []string
	for _, pair := range c.pairs(query) {
		param, name, _ := strings.Cut(pair, "=")
		if name, ok := strings.CutPrefix(name, mark); ok {
			plain, _ := url.QueryUnescape(param)
			value, known := c.value(plain, name)
			if _, err := strconv.Atoi(name); err != nil && !known {
				return nil, ErrCredential
			}
			if !known {
				continue
			}
			pair = param + "=" + params.Escape(value)
		}
		pairs = append(pairs, pair)
	}
	added := url.Values{}
	if !strings.Contains(cursor, mark) {
		has, _ := url.ParseQuery(query)
		for param, values := range c.Params {
			if !has.Has(param) {
				added[param] = values
			}
		}
	}
	if c.KeyParam != "" {
		added.Set(c.KeyParam, c.Key)
	}
	if len(added) > 0 {
		pairs = append(pairs, params.Encode(added))
	}
	text := join(segments, pairs)
	u, err := Parse(text, c.Known)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(text, "/") || strings.Contains(text, mark) {
		return nil, errors.New("it is not a path")
	}
	return u, nil
}

// Unset returns the names of the static parameters in a cursor that are no longer set.
func Unset(cursor string, static url.Values) (names []string) {
	_, query, _ := strings.Cut(cursor, "?")
	for pair := range strings.SplitSeq(query, "&") {
		param, value, _ := strings.Cut(pair, "=")
		number, marked := strings.CutPrefix(value, mark)
		n, err := strconv.Atoi(strings.TrimSuffix(number, mark))
		if param, _ = url.QueryUnescape(param); marked && err == nil && n > len(static[param]) {
			names = append(names, param)
		}
	}
	return names
}

// pairs splits a query, without the key.
func (c *Cursors) pairs(query string) []string {
	return slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		param, _, _ := strings.Cut(pair, "=")
		param, err := url.QueryUnescape(param)
		return pair == "" || c.KeyParam != "" && err == nil && param == c.KeyParam
	})
}

// name returns the name that replaces a parameter's value in cursors, or "". Static
// parameters are numbered, because one can have several values.
func (c *Cursors) name(param, value string) string {
	if i := slices.Index(c.Params[param], value); i >= 0 {
		return strconv.Itoa(i + 1)
	}
	if i := slices.IndexFunc(c.Secrets, func(s Secret) bool { return s.Value != "" && s.Value == value }); i >= 0 {
		return c.Secrets[i].Name
	}
	return ""
}

// value returns the value that a name replaces.
func (c *Cursors) value(param, name string) (value string, known bool) {
	if i, err := strconv.Atoi(name); err == nil && i >= 1 && i <= len(c.Params[param]) {
		return c.Params[param][i-1], true
	}
	if i := slices.IndexFunc(c.Secrets, func(s Secret) bool { return s.Name == name }); i >= 0 {
		return c.Secrets[i].Value, true
	}
	return "", false
}

func join(segments, pairs []string) string {
	path := strings.Join(segments, "/")
	if len(pairs) == 0 {
		return path
	}
	return path + "?" + strings.Join(pairs, "&")
}

// Parts returns the parts of a cursor that the API may repeat alone: segments that are not
// in firstPath, and values of parameters other than the page size.
func Parts(cursor, firstPath, pageSizeParam string) (parts []string) {
	path, query, _ := strings.Cut(cursor, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if !strings.Contains(firstPath, segment) {
			parts = append(parts, segment)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		if param, value, _ := strings.Cut(pair, "="); param != pageSizeParam {
			plain, _ := url.QueryUnescape(value)
			parts = append(parts, value, plain)
		}
	}
	return parts
}

// Quote returns the cursor for a string that an API takes back in a JSON body. It quotes a
// string that Unquote would take for a number.
func Quote(text string) string {
	if IsInteger(text) || strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

// Unquote is the inverse of Quote. It returns the cursor as a JSON value.
func Unquote(cursor string) any {
	if IsInteger(cursor) {
		return json.Number(cursor)
	}
	if text, err := strconv.Unquote(cursor); err == nil && strings.HasPrefix(cursor, `"`) {
		return text
	}
	return cursor
}

// IsInteger reports whether a number is an integer that its digits represent exactly.
func IsInteger[T []byte | string](number T) bool {
	digits := string(number)
	digits = strings.TrimPrefix(digits, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || string(number) == "0")
}
