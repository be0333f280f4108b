package exportapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/guess"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// NextPlace is where a page may have its next cursor.
type NextPlace = nextlink.Place

// itemDepth is the greatest depth at which Names searches.
const itemDepth = 5

// Outline is a page that was read without settings of its members.
type Outline struct {
	nextlink.Candidates
	page any
}

// Outline requests the page at a position. It uses only the settings of requests, and
// returns the errors of Fetch.
func (i Inspector) Outline(ctx context.Context, at bridge.Position) (*Outline, error) {
	o := new(Outline)
	read := func(c *Client, p *bridge.Page, _ *url.URL, resp *http.Response) *bridge.Fault {
		if fault := c.read(p, resp); fault != nil {
			return fault
		}
		d := json.NewDecoder(bytes.NewReader(p.Body))
		d.UseNumber()
		if err := d.Decode(&o.page); err != nil {
			return schemaFault(fmt.Errorf("%w: %w", errNoPage, err))
		}
		o.Candidates = nextlink.Find(o.page, resp.Header)
		return nil
	}
	page, err := i.ask(ctx, at, i.cfg.PageSize, read)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("read the first page: %w", err)
	}
	page.Release()
	return o, nil
}

// Items returns the decoded objects of a list. field is one of Lists.
func (o *Outline) Items(field string) (items []map[string]any) {
	list := o.page
	if field != rootField {
		list = jsonpointer.At(o.page, field)
	}
	elements, _ := list.([]any)
	for _, element := range elements {
		if item, ok := element.(map[string]any); ok {
			items = append(items, item)
		}
	}
	return items
}

// Page returns the decoded page, with numbers as json.Number.
func (o *Outline) Page() any { return o.page }

// Names returns the names of the page's members outside a list, and of the parameters of
// URLs there.
func (o *Outline) Names(list string) (names []string) {
	var search func(value any, at string, depth int)
	search = func(value any, at string, depth int) {
		switch v := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if inside := jsonpointer.Append(at, name); inside != list && depth < itemDepth {
					names = append(names, name)
					search(v[name], inside, depth+1)
				}
			}
		case string:
			if u, err := url.Parse(v); err == nil && u.RawQuery != "" {
				names = slices.AppendSeq(names, maps.Keys(u.Query()))
			}
		}
	}
	search(o.page, "", 0)
	return names
}

// Text returns the string or number at a JSON pointer, "" for none.
func (o *Outline) Text(field string) string {
	switch value := jsonpointer.At(o.page, field).(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// ItemTime is a member that may be the time of items: values of EXPORT_ITEM_TIME and
// EXPORT_ITEM_TIME_FORMAT, and the items' times in milliseconds since the epoch.
type ItemTime struct {
	Pointer, Format string
	Times           []int64
}

// ItemTimes returns the members that look like a time in all items, the likeliest first.
func ItemTimes(items []map[string]any) (found []ItemTime) {
	if len(items) == 0 {
		return nil
	}
	for _, f := range guess.Times(items[0]) {
		t := ItemTime{Pointer: f.Pointer, Format: f.Format.String()}
		for _, item := range items {
			if ms, ok := guess.ValueAt(item, f.Pointer).Millis(f.Format); ok && guess.Plausible(ms) {
				t.Times = append(t.Times, ms)
			}
		}
		if len(t.Times) == len(items) {
			found = append(found, t)
		}
	}
	return slices.Clip(found)
}
