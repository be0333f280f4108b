package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/windows"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// patience is the longest that a check waits for a turn of EXPORT_RATE_LIMIT
// unless it is asked for items.
const patience = 5 * time.Second

// sampler reads the first pages of an export.
type sampler struct {
	client *exportapi.Client
	st     *config.Stream
	show   int // how many items are shown
}

// look judges how the first items of the export are read, and whether the API
// takes their cursor.
func (s *sampler) look(ctx context.Context) (found []finding) {
	origin := &s.st.Engine.Origin
	at := bridge.Position{Start: origin.Start, End: origin.End, Window: origin.End != 0}
	first, f := s.read(ctx, at, cmp.Or(s.show, exportapi.SampleSize), "items")
	if f != nil {
		return []finding{*f}
	}
	switch items := first.Items; {
	case len(items) > 0:
		f := judged(items, s.st)
		if s.show > 0 {
			f.Items = sampleOf(items, s.st)
		}
		found = append(found, f)
		switch {
		case first.Unread.Where != "":
			found = append(found, failure(first.Unread.Fault()))
		case first.EndsFull:
			found = append(found, finding{
				Level: levelWarn, Text: "the first page is full and names no next page",
				Hint: "if more items follow, set EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD to where the next cursor is",
			})
		}
		if f, ok := identities(items, s.st); ok {
			found = append(found, f)
		}
		found = append(found, unmatched(items, s.st)...)
		found = append(found, misplaced(items, s.st, time.Now())...)
	case first.Elsewhere != "":
		found = []finding{{
			Level: levelWarn, Text: "no items at EXPORT_ITEMS_FIELD, but a list of objects at " + first.Elsewhere,
			Hint: "if those are the items, set EXPORT_ITEMS_FIELD=" + first.Elsewhere,
		}}
	default:
		found = []finding{{
			Level: levelWarn, Text: "no items from " + origin.StartText() + " on: how they are read is not checked",
			Hint: "set an earlier EXPORT_START to see some; if there must be some, check EXPORT_URL, EXPORT_START_PARAM, EXPORT_TIME_FORMAT, EXPORT_EVENTS, EXPORT_PARAMS and EXPORT_ITEMS_FIELD",
		}}
	}
	found = append(found, s.follow(ctx, at, &first)...)
	if s.st.Windows.Windows() {
		found = append(found, s.bounds(ctx, first.Items))
	}
	if lacking := s.client.Lacking(); len(lacking) > 0 {
		found = append(found, finding{Level: levelWarn, Text: exportapi.TextLacking(lacking), Hint: exportapi.HintLacking})
	}
	return found
}

// follow asks for the page that the first one's cursor names, as large as the
// bridge asks for it: nothing else tells whether the API takes both. Where
// there is none, it asks for the first page once more if that was smaller.
func (s *sampler) follow(ctx context.Context, at bridge.Position, first *exportapi.Sample) []finding {
	size, export := cmp.Or(s.show, exportapi.SampleSize), &s.st.Export
	larger := export.PageSize > size && export.PageSizeParam != "none"
	if first.Next == "" && (!larger || len(first.Items) == 0) {
		return nil
	}
	at.Cursor = first.Next
	second, f := s.read(ctx, at, export.PageSize, "second page")
	switch {
	case at.Cursor == "" && f != nil && f.Level != levelFail, at.Cursor == "" && f == nil:
		return nil // nobody misses it
	case f != nil:
		if larger && !export.CursorAlone && f.rejected {
			f.Hint += fmt.Sprintf("; or lower EXPORT_PAGE_SIZE=%d, if that is too large", export.PageSize)
		}
		return []finding{*f}
	case second.Repeats(first):
		return []finding{{Level: levelFail, Text: "the second page has the same items as the first one", Hint: cli.EngineHints[bridge.HintCursorIgnored]}}
	}
	found := []finding{{Level: levelOK, Text: "second page read by the first one's cursor, " + cli.Counted(len(second.Items), "item")}}
	switch n, ids := second.Border(first); {
	case n > 0 && ids:
		found = append(found, finding{Level: levelInfo, Text: "pages overlap: the second one lists " + cli.Counted(n, "item") + " of the first one again, which the bridge drops"})
	case n > 0:
		found = append(found, finding{
			Level: levelWarn, Text: "pages overlap: the second one lists " + cli.Counted(n, "item") + " of the first one again; without ids they are published twice",
			Hint: "set EXPORT_ITEM_ID to where the id of an item is",
		})
	}
	return found
}

// bounds checks that the API takes the bounds of a range, which windows rely on.
func (s *sampler) bounds(ctx context.Context, items []exportapi.SampledItem) finding {
	before := time.Now().Add(-24 * time.Hour).UnixMilli()
	for i := range items {
		if items[i].Time != bridge.NoTime && items[i].Defect == bridge.DefectNone {
			before = min(before, items[i].Time)
		}
	}
	if err := windows.CheckBounds(ctx, s.client, before, s.st.Engine.FetchTimeout, nil); err != nil {
		return failedRequest(err)
	}
	return finding{Level: levelOK, Text: "ranges of time are bounded by EXPORT_START_PARAM and EXPORT_END_PARAM"}
}

// read reads a page, or says why it could not: what names what is missing then.
func (s *sampler) read(ctx context.Context, at bridge.Position, size int, what string) (exportapi.Sample, *finding) {
	longest := left(ctx)
	if s.show == 0 {
		longest = min(patience, longest)
	}
	if rate, err := s.st.Export.Rate(); err != nil || rate > 0 && rate*longest.Seconds() < 1 {
		return exportapi.Sample{}, &finding{
			Level: levelInfo, Text: fmt.Sprintf("no %s sampled: EXPORT_RATE_LIMIT=%s allows no other request within %s", what, s.st.Export.RateLimit, longest.Round(time.Second)),
			Hint: "look at items with --sample 5 --timeout 1m",
		}
	}
	page, err := s.page(ctx, at, size)
	fault, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case err == nil:
		return page, nil
	case errors.Is(err, context.DeadlineExceeded) && at.Cursor == "":
		return page, &finding{Level: levelWarn, Text: "the first items did not arrive in time", Hint: "raise --timeout"}
	case errors.Is(err, context.DeadlineExceeded):
		return page, &finding{Level: levelWarn, Text: "the second page did not arrive in time", Hint: "raise --timeout"}
	case ok && fault.Class == bridge.Throttled:
		return page, &finding{
			Level: levelWarn, Text: fmt.Sprintf("no %s sampled: the API asked to wait for %s", what, fault.RetryAfter.Round(time.Second)),
			Hint: "check again after that",
		}
	}
	f := failedRequest(err)
	if f.rejected = ok && fault.Class == bridge.BadCursor; f.rejected { // fresh as it is: no other one would be better
		f.Hint = "check EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD and EXPORT_CURSOR_PARAM"
		if s.st.Export.CursorPath != "" {
			f.Hint += ", and EXPORT_CURSOR_PATH"
		}
		if fault.HintCode == bridge.HintCursorBeside {
			f.Hint = "set EXPORT_CURSOR_ALONE=true if the API takes nothing beside a cursor; else " + f.Hint
		}
	}
	return page, &f
}

// page requests a page. It waits once as long as the API asks for, if there is
// time: the request before may have been the last of an allowance.
func (s *sampler) page(ctx context.Context, at bridge.Position, size int) (exportapi.Sample, error) {
	page, err := s.client.Sample(ctx, at, size)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Throttled && f.RetryAfter < left(ctx) {
		bridge.Sleep(ctx, f.RetryAfter)
		return s.client.Sample(ctx, at, size)
	}
	return page, err
}

// left is how much time a check has left.
func left(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end)
	}
	return time.Hour
}
