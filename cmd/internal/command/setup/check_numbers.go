package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/counter"
)

// numbers reports a cursor that counts pages or items: such a cursor leads elsewhere once
// items before it come or go. at is the position of the second page. One more request shows
// what the cursor is: a page number by another page size, an offset by a later start.
func (s *sampler) numbers(ctx context.Context, at bridge.Position, first, second *exportapi.Sample) []finding {
	number, ok := counter.Find(first, second)
	if !ok || s.st.Windows.Windows() {
		return nil
	}
	counts, proof := "page", s.pageNumber
	if number.In == "offset" {
		counts, proof = "item", s.offset
	}
	why, is := proof(ctx, at, &number, first, second)
	if is == no {
		return nil
	}
	name := cmp.Or(number.Param, s.st.Export.CursorParam)
	text := fmt.Sprintf("%s=%d, the next page, is a count of %ss, so it leads elsewhere once the list moves: %s",
		name, number.Number, counts, why)
	hint := "set EXPORT_FOLLOW=windows, EXPORT_START, for example -90d, EXPORT_CURSOR_IN=" + number.In +
		" and EXPORT_CURSOR_PARAM=" + name
	if number.Number == 1 && number.In == "page-number" {
		hint += ", and EXPORT_CURSOR_FIRST=0"
	}
	if field := s.st.Export.CursorField; field != "" && field != "nextCursor" {
		hint += "; unset EXPORT_CURSOR_FIELD"
	}
	if is == maybe {
		text = fmt.Sprintf("is %s=%d, the next page, a count of %ss? It looks like one, and %s",
			name, number.Number, counts, why)
		hint = "if it stays at its item when others are deleted or come late, change nothing; if it counts, " + hint
	}
	return []finding{warn(text, hint), s.ranges(ctx, first.Items)}
}

// answer is the result of a request that is to prove something.
type answer int

const (
	maybe answer = iota // the request proved nothing
	yes
	no
)

// pageNumber requests the second page with another page size: a page number then leads to
// other items. Two next URLs that differ in a number only need no request.
func (s *sampler) pageNumber(
	ctx context.Context, at bridge.Position, number *counter.Counter, first, second *exportapi.Sample,
) (why string, is answer) {
	export := &s.st.Export
	if number.Param != "" {
		return "two next URLs differ in nothing else", yes
	}
	size := first.Asked
	if size == second.Asked {
		size /= 2
	}
	if size < 1 || export.PageSizeParam == "none" || export.CursorAlone || len(second.Items) > second.Asked {
		return "no request shows more", maybe
	}
	third, f := s.read(ctx, at, size, "page")
	switch {
	case f != nil || len(third.Items) == 0 || len(third.Items) == len(second.Items):
		return "a page of another size does not show more", maybe
	case second.Begins(&third):
		return "", no
	}
	return fmt.Sprintf("with it, a page of %d items begins elsewhere than one of %d", size, second.Asked), yes
}

// offset requests the items from the latest time of the second page on: an offset then
// counts from 0 again.
func (s *sampler) offset(
	ctx context.Context, at bridge.Position, number *counter.Counter, first, second *exportapi.Sample,
) (why string, is answer) {
	last := slices.MaxFunc(second.Items, func(a, b exportapi.SampledItem) int { return cmp.Compare(a.Time, b.Time) })
	if s.st.Export.Starts() != nil || last.Time == bridge.NoTime || last.Time <= at.Start {
		return "no request shows more", maybe
	}
	at.Cursor, at.Start = "", last.Time
	later, f := s.read(ctx, at, first.Asked, "page")
	if f != nil || first.Begins(&later) {
		return "a later start does not show more", maybe
	}
	behind, _ := number.Of(second)
	switch n, ok := number.Of(&later); {
	case ok && n == number.Number-len(first.Items)+len(later.Items):
		return "with a later start it begins again", yes
	case ok && n >= behind:
		return "", no
	}
	return "a later start does not show more", maybe
}
