package learn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/counter"
)

// common are usual names of the parameter of a cursor, and of a sequence number.
var (
	common   = []string{"cursor", "after", "next", "page_token"}
	sequence = []string{"since_id", "after", "starting_after"}
)

// itself matches members that are called as their parameter.
var itself = regexp.MustCompile(`(?i)cursor|token|marker|bookmark`)

// leading is what a cursor's member has before the name of its parameter.
var leading = regexp.MustCompile(`(?i)^(x-)?(next[_-]?|after[_-]?|end[_-]?)`)

// findNext finds the next cursor and the parameter that carries it: a page that is
// requested by it must list other items.
func (l *learner) findNext(ctx context.Context) error {
	var last error
	for _, at := range l.places() {
		if name := numberIn(at); name != "" {
			l.numbered = name
			continue
		}
		err := l.try(ctx, at)
		if l.ended == nil && errors.Is(err, errEnded) {
			l.ended = &ended{at, l.finding("EXPORT_CURSOR_PARAM").value}
			return l.shorten(ctx)
		}
		if err == nil && l.counts() {
			l.numbered = l.finding("EXPORT_CURSOR_PARAM").value
			continue
		}
		if err == nil {
			return l.third(ctx)
		}
		if last = err; errors.Is(err, errTooMany) {
			break
		}
		if f, ok := errors.AsType[*bridge.Fault](err); !errors.Is(err, errNoAdvance) && (!ok || !tryOther(f)) {
			return err
		}
	}
	return l.unfollowable(last)
}

// ended is a cursor that led to an empty page: where it is, and its parameter.
type ended struct {
	at    exportapi.NextPlace
	param string
}

// shorten asks for smaller pages, where all items may fit on the first one, and looks for
// the next page again. Without a smaller page, an opaque cursor is taken as it is.
func (l *learner) shorten(ctx context.Context) error {
	if err := l.findSize(ctx); err != nil {
		return err
	}
	if l.smaller > 0 {
		l.set("EXPORT_PAGE_SIZE", strconv.Itoa(min(l.smaller, max(1, len(l.items)/3))), "")
	}
	err := l.findNext(ctx)
	if _, none := errors.AsType[*UnfollowableError](err); !none || l.smaller > 0 {
		return err
	}
	if isNumber(l.ended.at.Value) {
		if l.numbered == "" && len(l.outline.Numbers) == 0 {
			err = &UnfollowableError{"no next page was reached: " + onFirst, moreItems + ", with a smaller page size"}
		}
		return err
	}
	l.drop("EXPORT_MORE_FIELD", "EXPORT_CURSOR_PARAM")
	l.set("EXPORT_CURSOR_IN", l.ended.at.In, "")
	if l.ended.at.In != "link" {
		l.set("EXPORT_CURSOR_FIELD", l.ended.at.Field, "")
	}
	if l.ended.param != "" {
		l.set("EXPORT_CURSOR_PARAM", l.ended.param, "")
	}
	l.setStatic(l.ended.param)
	l.ask("EXPORT_CURSOR_IN", "not proven: "+onFirst+". Take a smaller page size in the curl command, and learn again")
	return nil
}

// moreItems begins a hint.
const moreItems = "take a curl command that lists more items than one page has"

// unfollowable says why no next page was reached.
func (l *learner) unfollowable(last error) error {
	numbers := l.outline.Numbers
	if l.numbered != "" {
		numbers = append([]string{"the parameter " + l.numbered}, numbers...)
	}
	switch {
	case len(numbers) > 0:
		return &UnfollowableError{
			"the API numbers its pages (" + strings.Join(numbers, ", ") + "): a number is no cursor, so it cannot be followed",
			"look in its documentation for a cursor, a next URL, or a parameter such as after_id",
		}
	case errors.Is(last, errTooMany):
		return last
	case last != nil:
		return &UnfollowableError{
			fmt.Sprintf("no next page was reached: %v", last),
			moreItems + ", and look in the documentation for the parameter of the cursor",
		}
	}
	return &UnfollowableError{
		"the page names no next one, in its body, in a header or by its last item",
		moreItems + ", with the parameter of the page size",
	}
}

// numberIn returns the parameter of a next URL that numbers pages or items, if the URL has
// no cursor.
func numberIn(at exportapi.NextPlace) (name string) {
	u, err := url.Parse(at.Value)
	if err != nil || at.In != "link" && at.In != "next-url" {
		return ""
	}
	for param := range u.Query() {
		switch {
		case cursorParam.MatchString(param):
			return ""
		case numberParam.MatchString(param) && isNumber(u.Query().Get(param)):
			name = param
		}
	}
	return name
}

// counts reports whether the cursors are numbers of pages, or counts of the items before
// them: not a number that the last item has.
func (l *learner) counts() bool {
	number, ok := counter.Find(&l.first, &l.second)
	if !ok || number.Param != "" || l.second.Next == "" {
		return false
	}
	for _, f := range fields(l.items) {
		if f.values[len(f.values)-1] == strconv.Itoa(number.Number) {
			return false
		}
	}
	return true
}

// errNoAdvance is the error of a cursor that leads nowhere else.
var errNoAdvance = errors.New("the cursor did not lead to other items")

// onFirst says why a next page was not proven.
const onFirst = "the page at the cursor is empty, as all items are on the first one"

// errEnded is the error of a cursor that leads to an empty page. An API that did not know
// the cursor would list the first page again.
var errEnded = fmt.Errorf("%w: "+onFirst, errNoAdvance)

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// tryOther reports whether a fault may be that of a wrong parameter.
func tryOther(f *bridge.Fault) bool {
	return f.Class != bridge.Throttled && f.Reason != bridge.ReasonAuth && f.Class != bridge.Transient
}

// places lists where the next cursor may be, the likeliest first.
func (l *learner) places() []exportapi.NextPlace {
	all := slices.Clone(l.outline.Next)
	// A next URL in the body is last: it may be of another host.
	rank := func(p exportapi.NextPlace) int {
		return slices.Index([]string{"link", "header", "body", "next-url"}, p.In)
	}
	slices.SortStableFunc(all, func(a, b exportapi.NextPlace) int { return rank(a) - rank(b) })
	if len(all) > 0 || l.list == "" {
		return all
	}
	id := l.finding("EXPORT_ITEM_ID").value
	for _, f := range fields(l.items) {
		rising := f.numbers && f.unique() && slices.IsSortedFunc(f.values, compareNumbers)
		if rising && f.pointer != id && !l.isTime(f.pointer) {
			all = append(all, exportapi.NextPlace{In: "last-item", Field: f.pointer})
		}
	}
	if id != "none" {
		all = append(all, exportapi.NextPlace{In: "last-item", Field: id})
	}
	return all
}

func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func (l *learner) isTime(pointer string) bool {
	is := func(t exportapi.ItemTime) bool { return t.Pointer == pointer }
	return slices.ContainsFunc(l.times(), is)
}

// parameters lists names for the parameter of a cursor, the likeliest first.
func (l *learner) parameters(at exportapi.NextPlace) []string {
	name := at.Field[strings.LastIndexByte(at.Field, '/')+1:]
	names := slices.Clone(l.cursors)
	if l.ended != nil && l.ended.at == at {
		names = append([]string{l.ended.param}, names...)
	}
	switch bare := leading.ReplaceAllString(name, ""); {
	case slices.Contains(common, name) && at.In != "last-item":
		names = append(append(names, name), common...)
	case at.In == "last-item":
		names = append(names, "after_"+name, "since_"+name)
		names = append(names, sequence...)
	case bare != "" && bare != name:
		names = append(names, strings.ToLower(bare[:1])+bare[1:], name)
		names = append(names, common...)
	case itself.MatchString(name):
		names = append(names, name)
		names = append(names, common...)
	default:
		names = append(append(names, common[:2]...), name, sequence[0])
		names = append(names, common[2:]...)
	}
	// The cursor is beside the page size: /page/limit, page[limit].
	size := l.finding("EXPORT_PAGE_SIZE_PARAM").value
	above, bracket := size[:strings.LastIndexByte(size, '/')+1], strings.IndexByte(size, '[')
	for i, name := range names {
		switch {
		case bracket > 0 && !strings.Contains(name, "["):
			names[i] = size[:bracket] + "[" + name + "]"
		case !strings.HasPrefix(name, "/"):
			names[i] = above + name
		}
	}
	seen := make(map[string]bool)
	for _, name := range []string{"EXPORT_START_PARAM", "EXPORT_END_PARAM", "EXPORT_PAGE_SIZE_PARAM", "EXPORT_KEY_QUERY"} {
		seen[l.finding(name).value] = true // no cursor
	}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// try reads the first page with a place for its cursor, and the one that follows.
func (l *learner) try(ctx context.Context, at exportapi.NextPlace) (err error) {
	l.drop("EXPORT_CURSOR_FIELD", "EXPORT_CURSOR_PARAM", "EXPORT_CURSOR_ALONE", "EXPORT_CURSOR_PATH", "EXPORT_MORE_FIELD")
	if len(l.cursors) > 0 {
		l.ask("EXPORT_CURSOR_IN", "the curl command had "+strings.Join(l.cursors, " and ")+
			", which may be a cursor: it was left out, to begin at the first page")
	}
	l.set("EXPORT_CURSOR_IN", at.In, "")
	if at.In != "link" {
		l.set("EXPORT_CURSOR_FIELD", at.Field, "")
	}
	if len(l.outline.More) == 1 && l.list != "root" {
		l.set("EXPORT_MORE_FIELD", l.outline.More[0], "by its name; the end of the results was not seen")
	} else if len(l.outline.More) > 1 {
		l.ask("EXPORT_CURSOR_IN", "does one of these say whether more follow (EXPORT_MORE_FIELD)? "+
			strings.Join(l.outline.More, ", "))
	}
	if l.first, err = l.sample(ctx, ""); err != nil {
		return err
	}
	if more := l.finding("EXPORT_MORE_FIELD"); l.first.Next == "" && more.value != "" {
		l.ask("EXPORT_CURSOR_IN", more.value+" says that nothing follows, and a page may follow: it was left out")
		l.drop(more.name)
		if l.first, err = l.sample(ctx, ""); err != nil {
			return err
		}
	}
	if l.first.Next == "" {
		return errNoAdvance
	}
	if at.In == "link" || at.In == "next-url" {
		return l.advance(ctx)
	}
	err = errNoAdvance
	for _, name := range l.parameters(at) {
		l.set("EXPORT_CURSOR_PARAM", name, "tried: the second page lists other items")
		l.setStatic(name)
		if err = l.advance(ctx); err == nil || l.ended == nil && errors.Is(err, errEnded) {
			return err
		}
		f, rejected := errors.AsType[*bridge.Fault](err)
		if rejected && f.Class == bridge.BadCursor && slices.Index(l.parameters(at), name) < 2 && l.alone(ctx) {
			return nil
		}
		if rejected && !tryOther(f) || !rejected && !errors.Is(err, errNoAdvance) {
			return err
		}
	}
	l.setStatic()
	return err
}

// alone tries a cursor without other parameters, and for a POST at the path that ends
// with /continue.
func (l *learner) alone(ctx context.Context) bool {
	l.set("EXPORT_CURSOR_ALONE", "true", "tried: beside other parameters the cursor was rejected")
	if l.advance(ctx) == nil {
		return true
	}
	if _, known := l.known("EXPORT_METHOD"); known {
		l.set("EXPORT_CURSOR_PATH", l.finding("EXPORT_PATH").value+"/continue", "tried: at the path of the first page the cursor was rejected")
		if l.advance(ctx) == nil {
			return true
		}
	}
	l.drop("EXPORT_CURSOR_ALONE", "EXPORT_CURSOR_PATH")
	return false
}

// advance requests the second page, which must list other items than the first.
func (l *learner) advance(ctx context.Context) error {
	second, err := l.sample(ctx, l.first.Next)
	if err != nil {
		return err
	}
	if len(second.Items) == 0 {
		return errEnded
	}
	before := make(map[string]bool)
	for i := range l.first.Items {
		before[l.first.Items[i].ID] = true
	}
	fresh := slices.ContainsFunc(second.Items, func(item exportapi.SampledItem) bool {
		return item.ID == "" || !before[item.ID]
	})
	if second.Repeats(&l.first) || !fresh {
		return errNoAdvance
	}
	l.second = second
	return nil
}

// third reads one more page, and compares the ids of all.
func (l *learner) third(ctx context.Context) error {
	pages := []exportapi.Sample{l.first, l.second}
	if l.second.Next != "" && l.second.Next != l.first.Next {
		page, err := l.sample(ctx, l.second.Next)
		if err != nil {
			return err
		}
		l.last, pages = page, append(pages, page)
	}
	seen, items, again, latest := make(map[string]bool), 0, 0, bridge.NoTime
	for i, page := range pages {
		if i > 0 {
			border, _ := page.Border(&pages[i-1])
			again -= border // which the bridge drops
		}
		for _, item := range page.Items {
			if seen[item.ID] {
				again++
			}
			seen[item.ID] = item.ID != ""
		}
		items += len(page.Items)
		n := len(page.Items)
		if n == 0 || page.Items[n-1].Time == bridge.NoTime {
			continue
		}
		if at := page.Items[n-1].Time; latest != bridge.NoTime && at < latest && !l.newest {
			return newestFirst("the pages lead into the past")
		}
		latest = page.Items[n-1].Time
	}
	if id := l.finding("EXPORT_ITEM_ID"); again > 0 {
		id.why, id.question = "", "an id came again on another page: set another member, or none"+
			" if an item comes again with each change"
	}
	f := l.finding("EXPORT_CURSOR_IN")
	f.why = fmt.Sprintf("proven: %d pages with %d items were read by it", len(pages), items)
	return nil
}

// findSize proves the parameter of the page size: a smaller page must be smaller.
func (l *learner) findSize(ctx context.Context) error {
	names := []string{l.finding("EXPORT_PAGE_SIZE_PARAM").value}
	if !l.sized() {
		names = []string{"limit", "per_page", "page_size"}
	}
	l.largest = max(l.size, len(l.items))
	for _, name := range names {
		if len(l.first.Items) < 2 || l.asked >= mostRequests {
			break
		}
		half, largest := len(l.first.Items)/2, l.largest
		if !l.sized() && half > usualSize { // the default may be more than a request may ask for
			half, largest = usualSize, usualSize
		}
		l.set("EXPORT_PAGE_SIZE_PARAM", name, "")
		l.set("EXPORT_PAGE_SIZE", strconv.Itoa(half), "")
		page, err := l.outlined(ctx)
		if f, ok := errors.AsType[*bridge.Fault](err); err != nil && (!ok || !tryOther(f)) {
			return err
		}
		if err == nil && len(page.Items(l.list)) == half {
			l.set("EXPORT_PAGE_SIZE_PARAM", name, fmt.Sprintf("proven: a page of %d had %d items", half, half))
			l.ask("EXPORT_PAGE_SIZE", "the largest that was seen: set both to the limit in the documentation")
			l.setSize(largest)
			l.smaller, l.largest = half, largest
			return nil
		}
	}
	if l.setSize(l.largest); l.sized() {
		l.ask("EXPORT_PAGE_SIZE_PARAM", "not proven: a smaller size did not give a smaller page")
	} else {
		l.set("EXPORT_PAGE_SIZE_PARAM", "none", "")
		l.set("EXPORT_PAGE_SIZE", strconv.Itoa(l.largest), "not sent: how many items the first page had")
		l.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(l.largest), "as EXPORT_PAGE_SIZE")
		l.ask("EXPORT_PAGE_SIZE_PARAM", "none was found; if the API has one, set it and EXPORT_PAGE_SIZE")
	}
	return nil
}

// usualSize is a page size that most APIs take.
const usualSize = 100

func (l *learner) setSize(n int) {
	l.set("EXPORT_PAGE_SIZE", strconv.Itoa(n), "")
	l.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(n), "")
}
