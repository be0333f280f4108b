// Package counter finds page numbers and offsets among the cursors of a list.
package counter

import (
	"net/url"
	"strconv"
	"strings"

	"exportbridge/bridge/exportapi"
)

// The values of EXPORT_CURSOR_IN for numbers.
const (
	inPage   = "page-number"
	inOffset = "offset"
)

// Counter is a number in the cursors of a list. It counts pages or items.
type Counter struct {
	// In is the value of EXPORT_CURSOR_IN for the number.
	In string
	// Param is the parameter of the number in a next URL; "" if the cursor itself is the
	// number.
	Param string
	// Number is the number in the cursor of the first page.
	Number int
}

// Find returns the number in the next cursors of two consecutive pages: it grows by one per
// page, or by the items of the page. Without a second page, a first number of 1 or 2 is
// taken for the number of a page. Find returns false if there is no such number. The cursor
// may be opaque nevertheless: only further requests can tell.
func Find(first, second *exportapi.Sample) (Counter, bool) {
	param, from, to := "", strings.Trim(first.Next, `"`), strings.Trim(second.Next, `"`)
	if strings.Contains(from, "?") {
		if param, from, to = differing(from, to); param == "" {
			return Counter{}, false
		}
	}
	n, errFirst := strconv.Atoi(from)
	next, errSecond := strconv.Atoi(to)
	c := Counter{Param: param, Number: n}
	switch items := len(first.Items); {
	case errFirst == nil && items > 1 && n >= 1 && n <= 2 && second.Next == "":
		c.In = inPage
	case errFirst != nil || errSecond != nil || items < 2 || len(second.Items) < 2:
	case n >= 1 && n <= 2 && next == n+1:
		c.In = inPage
	case n >= items && n <= items+1 && next == n+len(second.Items):
		c.In = inOffset
	}
	return c, c.In != ""
}

// Of returns the number in the next cursor of a page.
func (c *Counter) Of(page *exportapi.Sample) (int, bool) {
	text := strings.Trim(page.Next, `"`)
	if c.Param != "" {
		_, query, _ := strings.Cut(text, "?")
		values, _ := url.ParseQuery(query)
		text = values.Get(c.Param)
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// differing returns the only parameter in which two URLs differ, and its two values; "" if
// they differ otherwise.
func differing(first, second string) (param, from, to string) {
	pathA, queryA, _ := strings.Cut(first, "?")
	pathB, queryB, _ := strings.Cut(second, "?")
	a, errA := url.ParseQuery(queryA)
	b, errB := url.ParseQuery(queryB)
	if errA != nil || errB != nil || pathA != pathB || len(a) != len(b) {
		return "", "", ""
	}
	for name := range a {
		switch {
		case len(a[name]) != 1 || len(b[name]) != 1 || a[name][0] == b[name][0]:
		case param != "":
			return "", "", ""
		default:
			param, from, to = name, a[name][0], b[name][0]
		}
	}
	return param, from, to
}
