package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// patience bounds the wait for EXPORT_RATE_LIMIT without --sample.
const patience = 5 * time.Second

// sampler reads the first pages of an export.
type sampler struct {
	client exportapi.Inspector
	st     *config.Stream
	show   int // how many items are shown
}

// look checks how the first items of the export are read, and that the API accepts the
// cursor of their page.
func (s *sampler) look(ctx context.Context) (found []finding) {
	origin := &s.st.Engine.Origin
	at := bridge.Position{Start: origin.Start, End: origin.End, Window: origin.End != 0}
	if w := &s.st.Windows; w.Windows() {
		at = w.Newest(time.Now(), origin.Start)
	}
	first, f := s.read(ctx, at, cmp.Or(s.show, exportapi.SampleSize), "items")
	switch {
	case f != nil && f.refused && s.st.Windows.Windows():
		return []finding{s.longest(ctx, at, f)}
	case f != nil && f.backwards:
		return []finding{*f, s.ranges(ctx, nil)}
	case f != nil:
		return []finding{*f}
	}
	switch items := first.Items; {
	case len(items) > 0:
		f := judged(items, s.st)
		if s.show > 0 {
			f.Items = sampleOf(items[:min(s.show, len(items))], s.st)
		}
		found = append(found, f)
		found = append(found, s.partial(&first)...)
		if f, ok := identities(items, s.st); ok {
			found = append(found, f)
		}
		found = append(found, unmatched(items, s.st)...)
		found = append(found, misplaced(items, s.st, time.Now())...)
		found = append(found, unrouted(items, s.st)...)
		found = append(found, s.unruled(ctx, at, len(items))...)
		found = append(found, sized(&first, &s.st.Export)...)
		found = append(found, late(items, s.st)...)
	case first.Elsewhere != "":
		found = []finding{warn("no items at EXPORT_ITEMS_FIELD, but a list of objects at "+first.Elsewhere,
			"if those are the items, set EXPORT_ITEMS_FIELD="+first.Elsewhere)}
	default:
		if format := s.listing(ctx, at); format != "" {
			return []finding{fail("no items from "+origin.StartText()+" on, but with EXPORT_TIME_FORMAT="+format+" there are",
				"set EXPORT_TIME_FORMAT="+format)}
		}
		found = []finding{warn(
			"no items from "+origin.StartText()+" on: how they are read is not checked",
			"set an earlier EXPORT_START to see some",
			"if there must be some, check EXPORT_URL, EXPORT_START_PARAM, EXPORT_TIME_FORMAT, EXPORT_EVENTS, "+
				"EXPORT_PARAMS and EXPORT_ITEMS_FIELD")}
	}
	found = append(found, s.follow(ctx, at, &first)...)
	if s.st.Windows.Windows() {
		f := s.bounds(ctx, first.Items)
		if f.Level == levelOK && len(first.Items) == 0 {
			f = info("no item shows whether ranges of time are bounded by a start and an end")
		}
		found = append(found, f)
	}
	if lacking := s.client.Lacking(); len(lacking) > 0 {
		found = append(found, warn(exportapi.TextLacking(lacking), exportapi.HintLacking))
	}
	return found
}

// partial reports a first page that lacks items, or may lack some.
func (s *sampler) partial(first *exportapi.Sample) (found []finding) {
	if n := len(first.Items); n < s.show && (first.Next != "" || first.Beyond != "") {
		text := fmt.Sprintf("%d of the %d items of --sample are shown: check shows those of the first page", n, s.show)
		found = append(found, info(text,
			"raise EXPORT_PAGE_SIZE if the API lists more on a page"))
	}
	switch {
	case first.Unread.Where != "":
		found = append(found, failure(first.Unread.Fault()))
	case first.EndsFull:
		found = append(found, warn("the first page is full and names no next page",
			"if more items follow, set EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD to where the next cursor is"))
	}
	return found
}

// follow requests the second page with the page size of the bridge: only such a request
// shows that the API accepts a cursor with that size. If the first page has no cursor and
// was smaller, follow requests the first page again.
func (s *sampler) follow(ctx context.Context, at bridge.Position, first *exportapi.Sample) []finding {
	size, export := cmp.Or(s.show, exportapi.SampleSize), &s.st.Export
	larger := export.PageSize > size && export.PageSizeParam != "none"
	switch {
	case first.Beyond != "" && len(first.Items) > 0:
		return append(s.beyond(ctx, at, first), s.form(ctx, *first)...)
	case first.Next == "" && (!larger || len(first.Items) == 0):
		return s.form(ctx, *first)
	}
	at.Cursor = first.Next
	second, f := s.read(ctx, at, export.PageSize, "second page")
	switch {
	case at.Cursor == "" && f == nil:
		return s.form(ctx, second)
	case at.Cursor == "" && f.Level != levelFail:
		return nil
	case f != nil:
		if larger && !export.CursorAlone && f.rejected {
			f.Hint += fmt.Sprintf("; or lower EXPORT_PAGE_SIZE=%d, if that is too large", export.PageSize)
		}
		if f.backwards {
			return []finding{*f, s.ranges(ctx, first.Items)}
		}
		return []finding{*f}
	case second.Repeats(first):
		f := fail("the second page has the same items as the first one", cli.EngineHints[bridge.HintCursorIgnored])
		if s.st.Windows.Windows() {
			return []finding{f}
		}
		return []finding{f, s.ranges(ctx, first.Items)}
	}
	found := []finding{fine("second page read by the first one's cursor, " + cli.Counted(len(second.Items), "item"))}
	found = append(found, s.border(first, &second)...)
	found = append(found, capped(first, &second, export)...)
	if more := s.numbers(ctx, at, first, &second); len(more) > 0 {
		return append(found, more...)
	}
	found = append(found, s.ends(ctx, at, first, &second)...)
	return append(found, s.form(ctx, *first, second)...)
}

// border reports whether the second page begins with items of the first one, or may leave out some
// between the two.
func (s *sampler) border(first, second *exportapi.Sample) []finding {
	n, ids := second.Border(first)
	switch text := "pages overlap: the second one lists " + cli.Counted(n, "item") + " of the first one again"; {
	case n > 0 && ids:
		return []finding{info(text + ", which the bridge drops")}
	case n > 0:
		return []finding{warn(text+"; without ids they are published twice",
			"set EXPORT_ITEM_ID to where the id of an item is")}
	case !isTimeOf(first.Next, first.Items[max(0, len(first.Items)-1):]):
		return nil
	}
	f := warn("the cursor is the time of the last item, and the second page begins after it: "+
		"items of the same time behind it are left out", "set EXPORT_CURSOR_FIELD to a cursor that no two items share")
	if !s.st.Windows.Windows() {
		f.Hint += "; if the API has none, set EXPORT_FOLLOW=windows, which lists recent times again"
	}
	return []finding{f}
}

// isTimeOf reports whether a cursor is the time of one of the items, in a usual unit.
func isTimeOf(cursor string, items []exportapi.SampledItem) bool {
	n, errNumber := strconv.ParseInt(cursor, 10, 64)
	at, errTime := time.Parse(time.RFC3339, cursor)
	return slices.ContainsFunc(timesOf(items), func(ms int64) bool {
		return errTime == nil && at.UnixMilli() == ms ||
			errNumber == nil && n != 0 && slices.Contains([]int64{ms, ms / 1000, ms * 1000}, n)
	})
}

// bounds checks that the API takes the bounds of a range, which windows require.
func (s *sampler) bounds(ctx context.Context, items []exportapi.SampledItem) finding {
	before := slices.Min(append(timesOf(items), time.Now().Add(-24*time.Hour).UnixMilli()))
	cfg := s.st.Windows
	cfg.Timeout = s.st.Engine.FetchTimeout
	if err := cfg.CheckBounds(ctx, s.client, before, nil); err != nil {
		f := failedRequest(err)
		fault, ok := errors.AsType[*bridge.Fault](err)
		if ok && fault.Reason == bridge.ReasonConfig && !cfg.NoStart && !cfg.NoEnd {
			if format := s.timeFormat(ctx, items); format != "" {
				f.Hint = "set EXPORT_TIME_FORMAT=" + format + ": with it, a second lists the items of that second"
			}
		}
		return f
	}
	const later = "set a later EXPORT_START if the first listing is long: each of its requests must succeed"
	switch {
	case cfg.NoStart:
		return info("the API lists no range of time: "+
			"each listing reads from the newest event back to known ones, the first one to EXPORT_START", later)
	case cfg.NoEnd:
		return info("the API takes a start and no end: "+
			"each listing reads all events since a time, the first one since EXPORT_START", later)
	}
	return fine("ranges of time are bounded by a start and an end")
}

// read reads a page, or returns a finding about the page that it could not read. what is
// the name of the page in that finding.
func (s *sampler) read(ctx context.Context, at bridge.Position, size int, what string) (exportapi.Sample, *finding) {
	longest := left(ctx)
	if s.show == 0 {
		longest = min(patience, longest)
	}
	if rate, err := exportapi.ParseRate(s.st.Export.RateLimit); err != nil || rate > 0 && rate*longest.Seconds() < 1 {
		text := fmt.Sprintf("no %s sampled: EXPORT_RATE_LIMIT=%s allows no other request within %s",
			what, s.st.Export.RateLimit, longest.Round(time.Second))
		return exportapi.Sample{}, new(info(text, "look at items with --sample 5 --timeout 1m"))
	}
	page, err := s.page(ctx, at, size)
	fault, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case err == nil:
		return page, nil
	case errors.Is(err, context.DeadlineExceeded):
		which := "second page"
		if at.Cursor == "" {
			which = "first items"
		}
		return page, new(warn("the "+which+" did not arrive in time", "raise --timeout"))
	case ok && fault.Class == bridge.Throttled:
		return page, new(warn(
			fmt.Sprintf("no %s sampled: the API asked to wait for %s", what, fault.RetryAfter.Round(time.Second)),
			"check again after that"))
	}
	f := failedRequest(err)
	f.refused = ok && at.Cursor == "" && fault.Class == bridge.Permanent && fault.Reason == bridge.ReasonConfig
	f.backwards = errors.Is(err, exportapi.ErrNewestFirst)
	if f.rejected = ok && fault.Class == bridge.BadCursor; f.rejected { // the cursor is fresh: another one would not help
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

// page requests a page. If the API throttles the request and there is time, page waits as
// long as the API asks, and tries once more: earlier requests may have used up the limit.
func (s *sampler) page(ctx context.Context, at bridge.Position, size int) (exportapi.Sample, error) {
	page, err := s.client.Sample(ctx, at, size)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Throttled && f.RetryAfter < left(ctx) {
		bridge.Sleep(ctx, f.RetryAfter)
		return s.client.Sample(ctx, at, size)
	}
	return page, err
}

// left is the remaining time of the check.
func left(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end)
	}
	return time.Hour
}
