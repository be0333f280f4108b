package nextlink

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// Names of members and headers. The others than those of leadsOn match names of members
// that say whether more follows.
var (
	// attribute matches the names of a link's members other than its URL.
	attribute = regexp.MustCompile(`(?i)^(rel|type|media_?type|content_?type|hreflang|media|title|name|method|profile)$`)
	more      = regexp.MustCompile(`(?i)^(has_?)?(more|next)(_?(page|results|items|data|available))?$|truncated$`)
	done      = regexp.MustCompile(`(?i)^(is_?)?(last(_?page)?|done|finished|completed?|end(_?of_?[a-z]+)?|exhausted)$`)
	pages     = regexp.MustCompile(`(?i)^((total|num)_?pages|pages?(_?count)?|last_?page)$`)
	totals    = regexp.MustCompile(
		`(?i)^(count|total(_?(count|items|results|records|events|entries|elements|hits|rows|size))?)$`)
)

// Contradicts reports whether a member has a name that says the opposite. ends is set if
// the member is true at the end of the results, else it is true before the end.
func Contradicts(name string, ends bool) bool {
	if ends {
		return more.MatchString(name)
	}
	return done.MatchString(name)
}

// unknownNext is the hint if a page says that more follow, but not where.
const unknownNext = "if it says that more items follow, " +
	"set EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD to where the next cursor is; " +
	"if the API only numbers its pages, EXPORT_FOLLOW=windows and EXPORT_CURSOR_IN=page-number or offset, " +
	"with their EXPORT_CURSOR_PARAM"

// maxUnreadDepth is the greatest depth at which a page is searched.
const maxUnreadDepth = 4

// Unread returns what looks like the next cursor, or says that more follow, in a valid page
// for which the settings find no next cursor. It returns the zero value if nothing does, or
// if a member says that nothing follows. items is the number of items, which a larger total
// contradicts; 0 if the request selects some items only.
func Unread(body []byte, h http.Header, items int) bridge.Unread {
	if next, empty, err := Next(h); err == nil && next != "" && !empty {
		return bridge.Unread{Where: "header Link with rel=next", Hint: "set EXPORT_CURSOR_IN=link"}
	}
	for _, name := range cursorHeaders(h) {
		return bridge.Unread{Where: "header " + name,
			Hint: "if it is the next cursor, set EXPORT_CURSOR_IN=header and EXPORT_CURSOR_FIELD=" + name}
	}
	s := search{items: items}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		s.count("header "+name, strings.ReplaceAll(strings.TrimPrefix(name, "X-"), "-", "_"), h.Get(name))
	}
	return s.page(body)
}

// Follows returns the member that says that more follow, in a valid page that names no next
// one but was named by another page. It returns the zero value if none does, or if a member
// says that nothing follows.
func Follows(body []byte) bridge.Unread {
	s := search{flags: true}
	u := s.page(body)
	if u.Where != "" {
		u.Hint = "if it says that more items follow, set EXPORT_MORE_FIELD=" + u.Where +
			": such a page is then requested again"
	}
	return u
}

// page searches a page.
func (s *search) page(body []byte) bridge.Unread {
	s.scan.Reset(body)
	if i := scan.SkipSpace(body, scan.SkipMark(body)); s.scan.KindAt(i) == scan.Object {
		if _, ok := s.object(i, "", 1); !ok || s.over {
			return bridge.Unread{}
		}
	}
	return s.found
}

// count judges a number of pages or items.
func (s *search) count(where, name, text string) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || s.found.Where != "":
	case pages.MatchString(name) && n > 1:
		s.found = bridge.Unread{Where: where, Says: "is " + text, Hint: unknownNext}
	case totals.MatchString(name) && s.items > 0 && n > s.items:
		s.found = bridge.Unread{Where: where, Says: fmt.Sprintf("is %s, and it has %d items", text, s.items),
			Hint: unknownNext}
	}
}

// search is a search in one page.
type search struct {
	scan  scan.Scanner
	items int
	flags bool // only members that say whether more follow count
	found bridge.Unread
	over  bool // a member says that nothing follows
}

// object searches the object at i, whose pointer is at.
func (s *search) object(i int, at string, depth int) (int, bool) {
	i, step := s.scan.Open(i)
	for step == scan.More {
		name, end, ok := s.scan.Name(i)
		if !ok {
			return end, false
		}
		if i, ok = scan.SkipColon(s.scan.Body, end); !ok {
			return i, false
		}
		text, _ := name.Text()
		pointer := jsonpointer.Append(at, string(text))
		if s.scan.KindAt(i) == scan.Object && depth < maxUnreadDepth {
			i, ok = s.object(i, pointer, depth+1)
		} else {
			var v scan.Value
			if v, i, ok = s.scan.Read(i); ok {
				s.judge(pointer, string(text), &v)
			}
		}
		if !ok {
			return i, false
		}
		i, step = s.scan.Next(i, '}')
	}
	return i, step == scan.Ended
}

// judge judges one member. A number is a cursor only if its name contains next. Other
// numbers are counts.
func (s *search) judge(pointer, name string, v *scan.Value) {
	text, _ := v.Text()
	switch {
	case v.Kind == scan.Boolean && (more.MatchString(name) || done.MatchString(name)):
		if follows := (text[0] == 't') == more.MatchString(name); !follows {
			s.over = true
		} else if s.found.Where == "" && text[0] == 't' {
			s.found = bridge.Unread{Where: pointer, Says: "is true", Hint: unknownNext}
		}
	case s.flags:
	case v.Kind == scan.Number && (pages.MatchString(name) || totals.MatchString(name)):
		s.count(pointer, name, string(text))
	case !leadsOn(pointer, string(text)) || attribute.MatchString(name):
	case v.Kind == scan.Number && text[0] != '-' && text[0] != '0' && strings.Contains(strings.ToLower(name), "next"):
		s.found = bridge.Unread{Where: pointer, Hint: "if it is the next cursor, set EXPORT_CURSOR_FIELD=" + pointer +
			"; if it is the number of a page, EXPORT_FOLLOW=windows, EXPORT_CURSOR_IN=page-number and EXPORT_CURSOR_PARAM"}
	case len(text) > 0 && (v.Kind == scan.String || v.Kind == scan.Escaped):
		in := ""
		plain := strings.ReplaceAll(string(text), `\/`, "/")
		if strings.Contains(plain, "://") || strings.HasPrefix(plain, "/") {
			in = "EXPORT_CURSOR_IN=next-url and "
		}
		s.found = bridge.Unread{Where: pointer,
			Hint: "if it is the next cursor, set " + in + "EXPORT_CURSOR_FIELD=" + pointer}
	}
}
