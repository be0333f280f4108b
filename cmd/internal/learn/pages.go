package learn

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/counter"
)

var (
	// errNoAdvance is the error of a cursor that does not lead to another page.
	errNoAdvance = errors.New("the cursor did not lead to other items")
	// errEnded is the error of a cursor that leads to an empty page. An API that ignored the
	// cursor would list the first page again.
	errEnded = fmt.Errorf("%w: "+onFirst, errNoAdvance)
)

// onFirst says why a next page was not proven.
const onFirst = "the page at the cursor is empty, as all items are on the first one"

// pages are the first page and the pages that one cursor after the other led to.
type pages []exportapi.Sample

// next returns the cursor of the last page.
func (ps pages) next() string { return ps[len(ps)-1].Next }

// leadTo returns an error unless page has other items than the last page.
func (ps pages) leadTo(page *exportapi.Sample) error {
	if len(page.Items) == 0 {
		return errEnded
	}
	last, before := &ps[len(ps)-1], make(map[string]bool)
	for i := range last.Items {
		before[last.Items[i].ID] = true
	}
	fresh := slices.ContainsFunc(page.Items, func(item exportapi.SampledItem) bool {
		return item.ID == "" || !before[item.ID]
	})
	if page.Repeats(last) || !fresh {
		return errNoAdvance
	}
	return nil
}

// counts reports whether the cursors are numbers of pages, or counts of the items before
// the page. It returns false if the last item of the list has the number.
func (ps pages) counts(l *listing) bool {
	number, ok := counter.Find(&ps[0], &ps[1])
	if !ok || number.Param != "" || ps[1].Next == "" {
		return false
	}
	return !slices.ContainsFunc(l.fields, func(f field) bool {
		return f.values[len(f.values)-1] == strconv.Itoa(number.Number)
	})
}

// compare returns how many items the pages have, how many of them repeat the id of an earlier
// item, and whether a page ends at an earlier time than the page before it.
func (ps pages) compare() (items, again int, back bool) {
	seen, latest := make(map[string]bool), bridge.NoTime
	for i, page := range ps {
		if i > 0 {
			border, _ := page.Border(&ps[i-1])
			again -= border // the bridge drops these
		}
		for _, item := range page.Items {
			if seen[item.ID] {
				again++
			}
			seen[item.ID] = item.ID != ""
		}
		n := len(page.Items)
		items += n
		if n == 0 || page.Items[n-1].Time == bridge.NoTime {
			continue
		}
		at := page.Items[n-1].Time
		back = back || latest != bridge.NoTime && at < latest
		latest = at
	}
	return items, again, back
}

// items returns the items of the pages in their order, without repeats.
func (ps pages) items() (all []map[string]any, err error) {
	seen := make(map[string]bool)
	for _, page := range ps {
		for _, item := range page.Items {
			var object map[string]any
			if err := decoder(item.Raw).Decode(&object); err != nil {
				return nil, fmt.Errorf("record an item: %w", err)
			}
			if !seen[string(item.Raw)] {
				all = append(all, object)
			}
			seen[string(item.Raw)] = true
		}
	}
	return all, nil
}
