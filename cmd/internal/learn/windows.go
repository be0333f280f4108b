package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// backwards learns how a list is followed by windows that does not end with new events:
// the parameters of a start and an end must select the items between two times.
func (l *learner) backwards(ctx context.Context, why string) error {
	times := l.times()
	if len(times) == 0 {
		return &UnfollowableError{why + ", and its items have no time, so windows cannot be followed either", "look for a request without an end in the documentation"}
	}
	listed := slices.Sorted(slices.Values(times[0].Times))
	oldest, newest := listed[0], listed[len(listed)-1]
	l.byWindows(why, oldest)
	if l.whole.End == 0 {
		l.whole = bridge.Position{Start: max(0, oldest-3*(newest-oldest)-time.Hour.Milliseconds()), End: newest + 1000, Window: true}
	}
	from, to, room := between(listed)
	s := l.newSearch()
	if room {
		if found, err := l.search(ctx, s, from, to, mostRequests-forRange); err != nil {
			return err
		} else if found {
			return l.proveEnd(ctx, oldest)
		}
	}
	return l.halfBounded(s, why, room)
}

// byWindows sets that windows are followed, from before the oldest item on.
func (l *learner) byWindows(why string, oldest int64) {
	l.newest = true
	days := 30 + time.Since(time.UnixMilli(oldest))/(24*time.Hour)
	l.set("EXPORT_FOLLOW", "windows", why)
	l.set("EXPORT_START", fmt.Sprintf("-%dd", days), "")
	l.finding("EXPORT_START").why = ""
	l.ask("EXPORT_START", "how far back the first events are asked for")
}

// search tries parameters as the bounds of a range, until so many requests were sent.
func (l *learner) search(ctx context.Context, s *search, from, to int64, most int) (found bool, err error) {
	for l.asked < most {
		a, more := s.next()
		if !more {
			break
		}
		l.setBounds(a)
		limits, err := l.within(ctx, from, to)
		if err == nil {
			l.bind(a.start, a.end)
			l.set("EXPORT_START_PARAM", a.start, "proven: with "+a.end+" it lists the items between two times")
			l.ask("EXPORT_START_PARAM", "")
			l.ask("EXPORT_END_PARAM", "")
			return true, nil
		}
		if _, other := errors.AsType[config.Problems](err); other {
			continue // a name collides with another parameter
		}
		if f, ok := errors.AsType[*bridge.Fault](err); ok && !tryOther(f) || !ok && !errors.Is(err, errNoRange) {
			return false, err
		}
		s.learn(a, limits, err)
	}
	l.setStatic()
	return false, nil
}

// between returns two times with items before the first, behind the second, and between
// them, in whole seconds.
func between(listed []int64) (from, to int64, ok bool) {
	oldest, newest := listed[0], listed[len(listed)-1]
	fits := func(a, b int64) bool {
		from, to = a/1000*1000, b/1000*1000
		inside := func(at int64) bool { return at >= from && at <= to }
		return from > oldest+1000 && to < newest-1000 && from <= to && slices.ContainsFunc(listed, inside)
	}
	ok = fits(listed[len(listed)/3], listed[2*len(listed)/3]) || fits(oldest+2000, newest-1001)
	return from, to, ok
}

// halfBounded sets the bounds of windows that were found where both were not.
func (l *learner) halfBounded(s *search, why string, room bool) error {
	l.whole.End = 0
	question := l.askBounds(s, room)
	l.unbounded = newestFirst(why)
	l.unbounded.Why += "; " + question
	if l.finding("EXPORT_START_PARAM").value == none {
		l.ask("EXPORT_START_PARAM", "without a start, each listing reads from the newest event back to known ones")
		l.whole = bridge.Position{Window: true}
	}
	return nil
}

// askBounds sets what was found of the bounds, and asks for the rest.
func (l *learner) askBounds(s *search, room bool) (question string) {
	start, format := s.limited(func(a attempt) string { return a.start })
	question = "a parameter of the end was not found"
	if start == "" {
		question = "parameters of a start and an end were not found"
	}
	switch {
	case !room:
		question += ": the items of the page are within 2 s of each other, so none was tried." +
			" Take a curl command that lists more items, or wait for some"
	case len(s.tried) > 0:
		question += fmt.Sprintf(". In vain were tried: %s (%v)", s.vain(), s.last)
	}
	if left := s.left(); left != "" {
		question += ". Not tried: " + left
	}
	question += ". If the documentation names them, add both to the curl command," +
		" such as created_after=" + time.Now().UTC().Add(-24*time.Hour).Format("2006-01-02T00:00:00Z") + ", and learn again"
	l.set("EXPORT_END_PARAM", none, "")
	l.ask("EXPORT_END_PARAM", question+". Without an end, there is no backfill and no verify")
	if start == "" {
		l.set("EXPORT_START_PARAM", none, "")
		l.drop("EXPORT_TIME_FORMAT")
		return question
	}
	l.bind(start)
	l.set("EXPORT_START_PARAM", start, "proven: it lists the items since a time")
	l.ask("EXPORT_START_PARAM", "")
	l.set("EXPORT_TIME_FORMAT", format, "")
	return question
}

// proveEnd asks for a range that ends at the time of an item: it is listed, or not.
func (l *learner) proveEnd(ctx context.Context, from int64) error {
	at := l.exactTime()
	if at <= from || l.asked >= mostRequests {
		l.ask("EXPORT_END_INCLUSIVE", "not tried, no item has a time that a request can name: set true if the API lists an item at the end itself")
		return nil
	}
	page, err := l.sampleAt(ctx, bridge.Position{Start: from, End: at, Window: true})
	if f, ok := errors.AsType[*bridge.Fault](err); ok && tryOther(f) {
		l.ask("EXPORT_END_INCLUSIVE", fmt.Sprintf("not proven (%v): set true if the API lists an item at the end itself", err))
		return nil
	} else if err != nil {
		return err
	}
	inclusive, not := slices.ContainsFunc(page.Items, func(item exportapi.SampledItem) bool { return item.Time == at }), " not"
	switch {
	case len(page.Items) == 0:
		l.ask("EXPORT_END_INCLUSIVE", "not proven, the range was empty: set true if the API lists an item at the end itself")
		return nil
	case inclusive:
		not = ""
	case l.unit() < 1000 && wholeSeconds(l.times()[0].Times):
		l.ask("EXPORT_END_INCLUSIVE", "not proven: the items have times in whole seconds, and the API may compare their fractions."+
			" Set true if the API lists an item at the end itself")
		return nil
	}
	l.set("EXPORT_END_INCLUSIVE", strconv.FormatBool(inclusive), "proven: an item at the end itself is"+not+" listed")
	return nil
}

// exactTime returns the latest time of an item that a bound can name without rounding and
// that has later items, 0 if there is none.
func (l *learner) exactTime() (exact int64) {
	times := l.times()[0]
	newest := slices.Max(times.Times)
	unit := l.unit()
	for _, f := range fields(l.items) {
		for i, text := range f.values {
			if at := times.Times[i]; f.pointer == times.Pointer && at < newest && at%unit == 0 && inMillis(text, times.Format) {
				exact = max(exact, at)
			}
		}
	}
	return exact
}

// unit is the smallest difference of two bounds, in milliseconds.
func (l *learner) unit() int64 {
	if l.finding("EXPORT_TIME_FORMAT").value == "s" {
		return 1000
	}
	return 1
}

// inMillis reports whether a time has no fraction of a millisecond.
func inMillis(text, format string) bool {
	if !strings.HasPrefix(format, "rfc3339") {
		return !strings.ContainsAny(text, ".eE") && (format != "us" || strings.HasSuffix(text, "000"))
	}
	_, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimRight(fraction[:len(fraction)-len(strings.TrimLeft(fraction, "0123456789"))], "0")
	return len(digits) <= 3
}

// none is the value of a setting for what an API does not have.
const none = "none"

func (l *learner) setBounds(a attempt) {
	l.set("EXPORT_START_PARAM", a.start, "")
	l.set("EXPORT_END_PARAM", a.end, "")
	l.set("EXPORT_TIME_FORMAT", a.format, "")
	l.setStatic(a.start, a.end)
}

// timeFormat is the format of a bound that suits the times of items.
func timeFormat(ofItems string) string {
	if strings.HasPrefix(ofItems, "rfc3339") {
		return "rfc3339"
	}
	return ofItems
}

var errNoRange = errors.New("the range lists other items")

// anyCursor sets where a cursor may be, if the page is an array, which has no members.
func (l *learner) anyCursor() {
	if l.list == "root" {
		l.set("EXPORT_CURSOR_IN", "link", "")
	}
}

// outcome says which bounds of a range limited what was listed.
type outcome struct{ start, end bool }

// within requests the items between two times, in milliseconds since the epoch, which must
// be some of those that were listed.
func (l *learner) within(ctx context.Context, from, to int64) (outcome, error) {
	page, err := l.sampleAt(ctx, bridge.Position{Start: from, End: to, Window: true})
	if err != nil {
		return outcome{}, err
	}
	limits := outcome{start: len(page.Items) > 0, end: len(page.Items) > 0}
	for _, item := range page.Items {
		limits.start = limits.start && item.Time >= from-1000
		limits.end = limits.end && item.Time <= to+1000
	}
	if !limits.start || !limits.end {
		return limits, errNoRange
	}
	return limits, nil
}

// numbering is a parameter that may number pages, and the number of the first one.
type numbering struct{ name, first string }

// in is EXPORT_CURSOR_IN, and the number that is its default.
func (n numbering) in() (in, first string) {
	if offsetParam.MatchString(n.name) {
		return "offset", "0"
	}
	return "page-number", "1"
}

// numberings are parameters to try: of the curl command, or as the page names them.
func (l *learner) numberings() (all []numbering) {
	if l.numbered != "" {
		n := numbering{name: l.numbered}
		if i := slices.IndexFunc(l.static, func(p param) bool { return p.name == l.numbered }); i >= 0 {
			n.first = l.static[i].value
		}
		return []numbering{n}
	}
	for _, at := range l.outline.Numbers {
		n := numbering{name: at[strings.LastIndexByte(at, '/')+1:], first: l.outline.Text(at)}
		if numberParam.MatchString(n.name) {
			all = append(all, n)
		}
	}
	return append(all, numbering{name: "page"}, numbering{name: "offset"})
}

// number learns that pages have numbers, where no cursor was found.
func (l *learner) number(ctx context.Context) error {
	l.drop("EXPORT_CURSOR_FIELD", "EXPORT_CURSOR_PARAM", "EXPORT_CURSOR_ALONE", "EXPORT_MORE_FIELD", "EXPORT_CURSOR_IN", "EXPORT_CURSOR_PATH")
	if l.unbounded != nil && l.whole.Start == 0 {
		return l.unbounded
	}
	var tried []string
	for _, n := range l.numberings() {
		in, first := n.in()
		if l.asked+2 > mostRequests || slices.Contains(tried, n.name) || in == "offset" && len(l.items) < 2 {
			continue
		}
		tried = append(tried, n.name)
		l.set("EXPORT_CURSOR_IN", in, "")
		l.set("EXPORT_CURSOR_PARAM", n.name, "tried: the second page lists other items")
		if n.first != first && (n.first == "0" || n.first == "1") {
			l.set("EXPORT_CURSOR_FIRST", n.first, "")
		}
		l.setStatic(n.name)
		var err error
		if l.first, err = l.sample(ctx, ""); err == nil && l.first.Next != "" {
			err = l.advance(ctx)
		}
		f, ok := errors.AsType[*bridge.Fault](err)
		if err == nil || ok && !tryOther(f) || !ok && !errors.Is(err, errNoAdvance) {
			return err
		}
		l.drop("EXPORT_CURSOR_IN", "EXPORT_CURSOR_PARAM", "EXPORT_CURSOR_FIRST")
		l.setStatic()
	}
	if l.unbounded != nil {
		return l.unbounded
	}
	l.anyCursor()
	l.ask("EXPORT_CURSOR_FIELD", "no next page was found, after "+strconv.Itoa(l.asked)+" requests: "+
		"ranges with more events than a page are read in halves. As numbers were tried: "+strings.Join(tried, ", ")+
		". If the documentation has a parameter for the next page, add it with its first value, and learn again")
	return nil
}

// forBackfill is how many requests look for the bounds of a list that is followed by its
// cursor and needs none.
const forBackfill = 5

// findRange looks for the bounds that backfill and verify need, for a list that is followed
// by its cursor.
func (l *learner) findRange(ctx context.Context) error {
	given := l.finding("EXPORT_START_PARAM").value
	times := l.times()
	if len(times) == 0 {
		return nil
	}
	listed := slices.Sorted(slices.Values(times[0].Times))
	from, to, room := between(listed)
	l.outside = true
	s, format, static := l.newSearch(), l.finding("EXPORT_TIME_FORMAT").value, slices.Clone(l.static)
	if room {
		if found, err := l.search(ctx, s, from, to, min(l.asked+forBackfill, mostRequests-1)); err != nil {
			return err
		} else if found {
			if err := l.proveOpen(ctx, static, listed[0]); err != nil {
				return err
			}
			return l.proveEnd(ctx, listed[0])
		}
	}
	l.askBounds(s, room)
	if l.finding("EXPORT_START_PARAM").value == none && given != none {
		l.set("EXPORT_START_PARAM", given, "")
		l.ask("EXPORT_START_PARAM", "by the curl command, not proven")
		l.set("EXPORT_TIME_FORMAT", format, "")
	}
	return nil
}

// proveOpen requests the first page without the end, if all requests until now had it as a
// static parameter. Where the API refuses that, the list is followed by windows.
func (l *learner) proveOpen(ctx context.Context, static []param, oldest int64) error {
	start, end := l.finding("EXPORT_START_PARAM").value, l.finding("EXPORT_END_PARAM").value
	for _, t := range l.moments {
		if t.name == start {
			l.set("EXPORT_START", time.UnixMilli(t.at).UTC().Format(time.RFC3339), "the start of the curl command; -90d, for example, is relative")
		}
	}
	if !slices.ContainsFunc(static, func(p param) bool { return p.name == end }) {
		return nil
	}
	if l.asked >= mostRequests {
		l.ask("EXPORT_END_PARAM", "no request was sent without it: set EXPORT_FOLLOW=windows if the API requires it")
		return nil
	}
	_, err := l.sample(ctx, "")
	if f, ok := errors.AsType[*bridge.Fault](err); ok && tryOther(f) {
		l.required = true
		l.byWindows(refusesOpen(end), oldest)
		return nil
	}
	return err
}

// refusesOpen says why a list is followed by windows that has to have an end.
func refusesOpen(end string) string {
	return "the API refuses a request without " + end + ": a range without an end cannot be followed"
}
