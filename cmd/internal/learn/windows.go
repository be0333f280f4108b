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
)

// bounds are usual names of the parameters of a start and an end, the likeliest first.
var bounds = [][2]string{
	{"start", "end"}, {"from", "to"}, {"since", "until"}, {"start_time", "end_time"}, {"startTime", "endTime"},
	{"created_after", "created_before"}, {"after", "before"}, {"oldest", "latest"}, {"start_date", "end_date"}, {"created[gte]", "created[lt]"},
}

// forRange is how many requests remain for the cursor and the page size after the bounds.
const forRange = 5

// backwards learns how a list is followed by windows that comes newest first: the
// parameters of a start and an end must select the items between two times.
func (l *learner) backwards(ctx context.Context, why string) error {
	listed := slices.Sorted(slices.Values(exportapi.ItemTimes(l.items)[0].Times))
	oldest, newest := listed[0], listed[len(listed)-1]
	from, to := listed[len(listed)/3]/1000*1000, listed[2*len(listed)/3]/1000*1000
	if oldest >= from-1000 || newest <= to+1000 { // else one of both is not tried
		return newestFirst(why)
	}
	l.newest = true
	l.whole = bridge.Position{Start: max(0, oldest-3*(newest-oldest)-time.Hour.Milliseconds()), End: newest + 1000, Window: true}
	days := 30 + time.Since(time.UnixMilli(oldest))/(24*time.Hour)
	l.set("EXPORT_FOLLOW", "windows", why)
	l.set("EXPORT_START", fmt.Sprintf("-%dd", days), "")
	l.ask("EXPORT_START", "how far back the first events are asked for")
	l.anyCursor()
	formats := []string{l.finding("EXPORT_ITEM_TIME_FORMAT").value}
	if f := l.finding("EXPORT_TIME_FORMAT").value; f != "" {
		formats = []string{f}
	}
	var last error
	var tried []string
	for _, pair := range l.pairs() {
		for _, format := range formats {
			if l.asked+forRange >= mostRequests {
				break
			}
			l.setBounds(pair, timeFormat(format))
			tried = append(tried, pair[0]+" and "+pair[1])
			if last = l.within(ctx, from, to); last == nil {
				l.set("EXPORT_START_PARAM", pair[0], "proven: with "+pair[1]+" it lists the items between two times")
				l.ask("EXPORT_START_PARAM", "")
				l.ask("EXPORT_END_PARAM", "")
				return nil
			}
			if f, ok := errors.AsType[*bridge.Fault](last); ok && !tryOther(f) {
				return last
			}
		}
	}
	no := newestFirst(why)
	no.Why += fmt.Sprintf("; as start and end of a range were tried, in vain: %s (%v)", strings.Join(tried, ", "), last)
	return no
}

// pairs are the bounds to try: those of the curl command, if it has any.
func (l *learner) pairs() (all [][2]string) {
	start, end := l.finding("EXPORT_START_PARAM").value, l.end
	switch {
	case start == none && end == "":
		return bounds
	case start != none && end != "":
		return [][2]string{{start, end}}
	}
	above := func(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }
	for _, pair := range bounds {
		switch {
		case start != none && strings.EqualFold(start[len(above(start)):], pair[0]):
			all = append([][2]string{{start, above(start) + pair[1]}}, all...)
		case start == none && strings.EqualFold(end[len(above(end)):], pair[1]):
			all = append([][2]string{{above(end) + pair[0], end}}, all...)
		}
	}
	if len(all) == 0 {
		return bounds
	}
	return all
}

// none is the value of a setting for what an API does not have.
const none = "none"

func (l *learner) setBounds(pair [2]string, format string) {
	l.set("EXPORT_START_PARAM", pair[0], "")
	l.set("EXPORT_END_PARAM", pair[1], "")
	l.set("EXPORT_TIME_FORMAT", format, "")
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

// within requests the items between two times, in milliseconds since the epoch, which must
// be some of those that were listed.
func (l *learner) within(ctx context.Context, from, to int64) error {
	page, err := l.sampleAt(ctx, bridge.Position{Start: from, End: to, Window: true})
	if err != nil {
		return err
	}
	for _, item := range page.Items {
		if item.Time < from-1000 || item.Time > to+1000 {
			return errNoRange
		}
	}
	if len(page.Items) == 0 {
		return errNoRange
	}
	return nil
}

// number learns that pages have numbers, where no cursor was found.
func (l *learner) number(ctx context.Context) error {
	name := l.numbered
	if name == "" && len(l.outline.Numbers) > 0 {
		name = "page"
	}
	l.drop("EXPORT_CURSOR_FIELD", "EXPORT_CURSOR_PARAM", "EXPORT_CURSOR_ALONE", "EXPORT_MORE_FIELD", "EXPORT_CURSOR_IN")
	if name != "" {
		in := "page-number"
		if strings.Contains(strings.ToLower(name), "offset") || strings.Contains(strings.ToLower(name), "skip") {
			in = "offset"
		}
		l.set("EXPORT_CURSOR_IN", in, "")
		l.set("EXPORT_CURSOR_PARAM", name, "tried: the second page lists other items")
		if i := slices.IndexFunc(l.static, func(p param) bool { return p.name == name }); i >= 0 && l.static[i].value == "0" && in == "page-number" {
			l.set("EXPORT_CURSOR_FIRST", "0", "")
		}
		l.setStatic(name)
		var err error
		if l.first, err = l.sample(ctx, ""); err == nil && l.first.Next != "" {
			err = l.advance(ctx)
		}
		if f, ok := errors.AsType[*bridge.Fault](err); err == nil || ok && !tryOther(f) {
			return err
		}
		l.drop("EXPORT_CURSOR_IN", "EXPORT_CURSOR_PARAM", "EXPORT_CURSOR_FIRST")
		l.setStatic("")
	}
	l.anyCursor()
	l.ask("EXPORT_CURSOR_FIELD", "no next page was found, after "+strconv.Itoa(l.asked)+" requests: "+
		"ranges with more events than a page are read in halves")
	return nil
}
