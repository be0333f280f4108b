package nextlink

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge/exportapi/internal/jsonpointer"
)

// Place is where a page may have its next cursor, as EXPORT_CURSOR_IN and
// EXPORT_CURSOR_FIELD name it, and the value there.
type Place struct{ In, Field, Value string }

// Candidates is what an unknown page has beside its items.
type Candidates struct {
	Next []Place // the likeliest first
	// More are values of EXPORT_MORE_FIELD.
	More []string
	// Numbers are members with a number of a page or of pages.
	Numbers []string
	// Lists are the arrays of objects, the longest first: values of EXPORT_ITEMS_FIELD.
	Lists []string

	weak  []Place
	sizes map[string]int
}

var (
	// weakly are names of cursors that others give to other things.
	weakly = regexp.MustCompile(`(?i)^((last|latest|max|newest|end)(_?(id|seq|position|event_?id))?|position|checkpoint|token)$`)
	// ended are names of what is true at the end, beside done.
	ended = regexp.MustCompile(`(?i)^(is_?)?end_?of_?\w+$`)
	// number are names of the number of a page.
	number = regexp.MustCompile(`(?i)^(page|page_?(no|num|number|index)|current_?page|offset|skip|start_?(at|index))$`)
)

// Find returns the candidates of a decoded page with its header.
func Find(page any, h http.Header) Candidates {
	c := Candidates{sizes: make(map[string]int)}
	if next, err := Next(h); err == nil && next != "" {
		c.Next = append(c.Next, Place{"link", "", next})
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if leadsOn(name) && !strings.HasPrefix(name, "Access-Control-") && h.Get(name) != "" {
			c.Next = append(c.Next, Place{"header", name, h.Get(name)})
		}
	}
	c.search(page, "", "", 1)
	slices.SortStableFunc(c.Lists, func(a, b string) int { return c.sizes[b] - c.sizes[a] })
	c.Next = append(c.Next, c.weak...)
	return c
}

func leadsOn(name string) bool { return leads.MatchString(name) && !elsewhere.MatchString(name) }

// search looks at a value, whose pointer and name are given.
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
	case leadsOn(at):
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
	switch lower := strings.ToLower(name); {
	case number.MatchString(name) || pages.MatchString(name):
		c.Numbers = append(c.Numbers, at)
	case integer && (strings.Contains(lower, "next") || strings.Contains(lower, "cursor")):
		c.Next = append(c.Next, Place{"body", at, text})
	case integer && weakly.MatchString(name):
		c.weak = append(c.weak, Place{"body", at, text})
	}
}
