package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
)

// sized reports a page with more items than requested.
func sized(page *exportapi.Sample, export *exportapi.Config) []finding {
	if len(page.Items) <= page.Asked || export.PageSizeParam == "none" {
		return nil
	}
	text := fmt.Sprintf("asked for %s (%s), the API lists %d: it ignores the page size",
		cli.Counted(page.Asked, "item"), export.PageSizeParam, len(page.Items))
	return []finding{warn(text, "set EXPORT_PAGE_SIZE_PARAM as the API names it, or to none")}
}

// capped reports two pages with the same number of items, fewer than requested, although
// more items follow.
func capped(first, second *exportapi.Sample, export *exportapi.Config) []finding {
	n := len(first.Items)
	short := n > 0 && n < first.Asked && n == len(second.Items)
	if export.PageSizeParam == "none" || !short || first.Next == "" || second.Next == "" {
		return nil
	}
	text := fmt.Sprintf("pages have %s where %d and %d were asked for: "+
		"is that the largest page, or does the API ignore %s?",
		cli.Counted(n, "item"), first.Asked, second.Asked, export.PageSizeParam)
	return []finding{info(text,
		fmt.Sprintf("if it is the largest, set EXPORT_PAGE_SIZE=%d and EXPORT_MAX_PAGE_SIZE=%[1]d", n),
		"else set EXPORT_PAGE_SIZE_PARAM as the API names it, or to none")}
}

// beyond requests the page at the cursor of a page that is the last by EXPORT_MORE_FIELD.
// Other items there contradict the setting.
func (s *sampler) beyond(ctx context.Context, at bridge.Position, first *exportapi.Sample) []finding {
	at.Cursor = first.Beyond
	page, f := s.read(ctx, at, first.Asked, "second page")
	fresh := 0
	for i := range page.Items {
		if !first.Has(&page.Items[i]) {
			fresh++
		}
	}
	if f != nil || fresh == 0 {
		return nil
	}
	field := s.st.Export.MoreField
	opposite, negated := strings.CutPrefix(field, "!")
	if !negated {
		opposite = "!" + field
	}
	text := "by EXPORT_MORE_FIELD=" + field + " nothing follows the first page, but the page at its cursor has " +
		cli.Counted(fresh, "other item")
	if len(page.Items) >= len(first.Items) {
		return []finding{fail(text, "set EXPORT_MORE_FIELD="+opposite+", if the member says the opposite, or to another one")}
	}
	return []finding{warn(text+": are they new, or does the member say the opposite?",
		"in the latter case set EXPORT_MORE_FIELD="+opposite)}
}

// ends checks a list whose second page is the last. The cursor may end with the results of
// its query: then a new query names another cursor after the same first page, and only that
// cursor leads to new items.
func (s *sampler) ends(ctx context.Context, at bridge.Position, first, last *exportapi.Sample) []finding {
	if last.Next != "" || len(last.Items) == 0 || first.Next == "" || s.st.Windows.Windows() {
		return nil
	}
	start := at
	start.Cursor = ""
	query, f := s.read(ctx, start, first.Asked, "page")
	if f != nil || query.Next == "" || query.Next == first.Next || !query.Begins(first) {
		return nil
	}
	start.Cursor = query.Next
	fresh, f := s.read(ctx, start, last.Asked, "page")
	if f != nil {
		return nil
	}
	again, f := s.read(ctx, at, last.Asked, "page")
	if f != nil {
		return nil
	}
	grown := slices.ContainsFunc(fresh.Items, func(item exportapi.SampledItem) bool {
		return !first.Has(&item) && !last.Has(&item) && !again.Has(&item)
	})
	if grown && again.Next == "" {
		return []finding{fail("the cursor ends with the results of its query: "+
			"a new query lists an item that the last page, asked again later, does not", hintFollow),
			s.ranges(ctx, first.Items)}
	}
	return []finding{info("does a cursor end with the results of its query? "+
		"Each query names another one for the same page, and no new item came that would show it",
		"if the API's documentation says so (locator, scroll, snapshot), "+hintFollow)}
}
