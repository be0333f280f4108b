package nextlink

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge/exportapi/jsonpointer"
)

// Place is a possible place of the next cursor, in values of EXPORT_CURSOR_IN and
// EXPORT_CURSOR_FIELD, and the text there.
type Place struct{ In, Field, Value string }

// Candidates are the members of an unknown page that settings may select.
type Candidates struct {
	Next []Place // the likeliest first
	// More has values of EXPORT_MORE_FIELD.
	More []string
	// Numbers has the pointers to numbers of pages or items.
	Numbers []string
	// Lists has the pointers to arrays of objects, values of EXPORT_ITEMS_FIELD, the
	// longest first.
	Lists []string

	weak  []Place
	sizes map[string]int
}

var (
	// weakly matches names that some APIs use for a cursor and others for something else.
	weakly = regexp.MustCompile(
		`(?i)^((last|latest|max|newest|end)(_?(id|seq|position|event_?id))?|position|checkpoint|token)$`)
	// ended matches the names, apart from done, of members that are true at the end.
	ended = regexp.MustCompile(`(?i)^(is_?)?end_?of_?\w+$`)
	// number matches names of page numbers and offsets.
	number = regexp.MustCompile(`(?i)^(page|page_?(no|num|number|index)|current_?page|offset|skip|start_?(at|index))$`)
)

// Find returns the candidates of a decoded page with its header.
func Find(page any, h http.Header) Candidates {
	c := Candidates{sizes: make(map[string]int)}
	if next, _, err := Next(h); err == nil && next != "" {
		c.Next = append(c.Next, Place{"link", "", next})
	}
	for _, name := range cursorHeaders(h) {
		c.Next = append(c.Next, Place{"header", name, h.Get(name)})
	}
	c.search(page, "", "", 1)
	slices.SortStableFunc(c.Lists, func(a, b string) int { return c.sizes[b] - c.sizes[a] })
	c.Next = append(c.Next, c.weak...)
	return c
}

// cursorHeaders returns the names of the headers that may have the next cursor.
func cursorHeaders(h http.Header) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h)), func(name string) bool {
		return !leadsOn(name, h.Get(name)) || strings.HasPrefix(name, "Access-Control-") || h.Get(name) == ""
	})
}

// search searches a value. at is its pointer, name the last part of it.
func (c *Candidates) search(value any, at, name string, depth int) {
	switch v := value.(type) {
	case map[string]any:
		for _, inside := range slices.Sorted(maps.Keys(v)) {
			if depth <= maxUnreadDepth {
				c.search(v[inside], jsonpointer.Append(at, inside), inside, depth+1)
			}
		}
	case []any:
		if len(v) == 0 {
			break
		}
		if _, objects := v[0].(map[string]any); objects {
			field := at
			if at == "" {
				field = "root"
			}
			c.Lists, c.sizes[field] = append(c.Lists, field), len(v)
		}
	case bool:
		switch {
		case more.MatchString(name):
			c.More = append(c.More, at)
		case done.MatchString(name) || ended.MatchString(name):
			c.More = append(c.More, "!"+at)
		}
	case string:
		c.text(v, at, name)
	case json.Number:
		c.number(v.String(), at, name)
	}
}

func (c *Candidates) text(text, at, name string) {
	switch place := (Place{"body", at, text}); {
	case text == "" || attribute.MatchString(name):
	case leadsOn(at, text):
		if strings.Contains(text, "://") || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "?") {
			place.In = "next-url"
		}
		c.Next = append(c.Next, place)
	case weakly.MatchString(name):
		c.weak = append(c.weak, place)
	}
}

func (c *Candidates) number(text, at, name string) {
	integer := !strings.ContainsAny(text, ".eE-") && text != "0"
	switch {
	case number.MatchString(name) || pages.MatchString(name):
		c.Numbers = append(c.Numbers, at)
	case integer && leadsOn(at, text):
		c.Next = append(c.Next, Place{"body", at, text})
	case integer && weakly.MatchString(name):
		c.weak = append(c.weak, Place{"body", at, text})
	}
}

// Elsewhere returns the pointer to a list of objects on a page without items, or to the
// member of the items in another case; "" for none.
func Elsewhere(page map[string]any, items, metadata string) string {
	for _, name := range slices.Sorted(maps.Keys(page)) {
		if strings.EqualFold(name, items) {
			return "/" + name
		}
	}
	for _, list := range Find(page, nil).Lists {
		if !strings.HasPrefix(list+"/", "/"+metadata+"/") {
			return list
		}
	}
	return ""
}
