package learn

import (
	"cmp"
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
)

// The common names of the parameter of a cursor, and of a sequence number.
var (
	cursorNames   = []string{"cursor", "after", "next", "page_token"}
	sequenceNames = []string{"since_id", "after", "starting_after"}
)

// sameName matches members that have the name of their parameter.
var sameName = regexp.MustCompile(`(?i)cursor|token|marker|bookmark`)

// nextPrefix matches the beginning of a member's name that the parameter of a cursor does not have.
var nextPrefix = regexp.MustCompile(`(?i)^(x-)?(next[_-]?|after[_-]?|end[_-]?)`)

// nextSearch searches for the way from a page to the next one.
type nextSearch struct {
	api     *api
	command *command
	page    *listing
	origin  bridge.Position // of the first page

	number string // a parameter that numbers pages, "" for none
	ended  *ended // the first cursor that led to an empty page, nil for none
	pages  pages  // the pages that were read last
	// smaller is a page size that was proven, 0 for none. largest is the page size to set, 0
	// before findSize.
	smaller, largest int
}

// ended is a cursor that led to an empty page: its place and its parameter.
type ended struct {
	at    exportapi.NextPlace
	param string
}

// byCursor returns a profile with the next cursor and its parameter. A page that is requested
// with the cursor must list other items.
func (s *nextSearch) byCursor(ctx context.Context, p profile) (profile, error) {
	var last error
	for _, at := range s.places(p) {
		if name := numberIn(at); name != "" {
			s.number = name
			continue
		}
		trial := p.clone()
		err := s.try(ctx, trial, at)
		switch param := trial.value("EXPORT_CURSOR_PARAM"); {
		case s.ended == nil && errors.Is(err, errEnded):
			s.ended = &ended{at, param}
			return s.shorten(ctx, p)
		case err == nil && s.pages.counts(s.page):
			s.number = param
			continue
		case err == nil:
			return trial, s.third(ctx, trial)
		}
		if last = err; errors.Is(err, errTooMany) {
			break
		} else if !wrongParam(err) {
			return p, err
		}
	}
	return p, s.unfollowable(last)
}

// shorten is for a first page that may have all items. It requests smaller pages and searches
// for the next page again. If the API has no smaller page, it takes an opaque cursor without proof.
func (s *nextSearch) shorten(ctx context.Context, p profile) (profile, error) {
	if err := s.findSize(ctx, p); err != nil {
		return p, err
	}
	if s.smaller > 0 {
		p.set("EXPORT_PAGE_SIZE", strconv.Itoa(min(s.smaller, max(1, len(s.page.items)/3))), "")
	}
	found, err := s.byCursor(ctx, p)
	if _, not := errors.AsType[*UnfollowableError](err); !not || s.smaller > 0 {
		return found, err
	}
	if isNumber(s.ended.at.Value) {
		if s.number == "" && len(s.page.Numbers) == 0 {
			err = &UnfollowableError{"no next page was reached: " + onFirst, moreItems + ", with a smaller page size"}
		}
		return p, err
	}
	setCursor(p, s.ended.at)
	if s.ended.param != "" {
		p.set("EXPORT_CURSOR_PARAM", s.ended.param, "")
	}
	p.ask("EXPORT_CURSOR_IN", "not proven: "+onFirst+". Take a smaller page size in the curl command, and learn again")
	return p, nil
}

// moreItems begins a hint.
const moreItems = "take a curl command that lists more items than one page has"

// unfollowable says why no next page was reached.
func (s *nextSearch) unfollowable(last error) error {
	numbers := s.page.Numbers
	if s.number != "" {
		numbers = append([]string{"the parameter " + s.number}, numbers...)
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

// numberIn returns the parameter of a next URL that numbers pages or items. It returns "" if the
// URL has a cursor.
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

// places lists the possible places of the next cursor, the likeliest first.
func (s *nextSearch) places(p profile) []exportapi.NextPlace {
	all := slices.Clone(s.page.Next)
	// A next URL in the body is last, because its host may be another one.
	rank := func(at exportapi.NextPlace) int {
		return slices.Index([]string{"link", "header", "body", "next-url"}, at.In)
	}
	slices.SortStableFunc(all, func(a, b exportapi.NextPlace) int { return rank(a) - rank(b) })
	if len(all) > 0 {
		return all
	}
	id := p.value("EXPORT_ITEM_ID")
	for _, f := range s.page.fields {
		rising := f.numbers && f.unique() && slices.IsSortedFunc(f.values, compareNumbers)
		if rising && f.pointer != id && !s.page.isTime(f.pointer) {
			all = append(all, exportapi.NextPlace{In: "last-item", Field: f.pointer})
		}
	}
	if id != none {
		all = append(all, exportapi.NextPlace{In: "last-item", Field: id})
	}
	return all
}

func compareNumbers(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }

// parameters lists possible names of the parameter of a cursor, the likeliest first.
func (s *nextSearch) parameters(p profile, at exportapi.NextPlace) []string {
	name := last(at.Field)
	names := slices.Clone(s.command.cursors)
	if s.ended != nil && s.ended.at == at {
		names = append([]string{s.ended.param}, names...)
	}
	switch bare := nextPrefix.ReplaceAllString(name, ""); {
	case slices.Contains(cursorNames, name) && at.In != "last-item":
		names = append(append(names, name), cursorNames...)
	case at.In == "last-item":
		names = append(names, "after_"+name, "since_"+name)
		names = append(names, sequenceNames...)
	case bare != "" && bare != name:
		names = append(names, strings.ToLower(bare[:1])+bare[1:], name)
		names = append(names, cursorNames...)
	case sameName.MatchString(name):
		names = append(names, name)
		names = append(names, cursorNames...)
	default:
		names = append(append(names, cursorNames[:2]...), name, sequenceNames[0])
		names = append(names, cursorNames[2:]...)
	}
	// The cursor is beside the page size: /page/limit, page[limit].
	size := p.value("EXPORT_PAGE_SIZE_PARAM")
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
		seen[p.value(name)] = true // the name of another parameter
	}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// setCursor sets the place of the next cursor.
func setCursor(p profile, at exportapi.NextPlace) {
	if p.set("EXPORT_CURSOR_IN", at.In, ""); at.In != "link" {
		p.set("EXPORT_CURSOR_FIELD", at.Field, "")
	}
}

// try reads the first page with the cursor at a place, and the page after it.
func (s *nextSearch) try(ctx context.Context, p profile, at exportapi.NextPlace) error {
	if len(s.command.cursors) > 0 {
		p.ask("EXPORT_CURSOR_IN", "the curl command had "+strings.Join(s.command.cursors, " and ")+
			", which may be a cursor: it was left out, to begin at the first page")
	}
	setCursor(p, at)
	if len(s.page.More) == 1 && s.page.list != root {
		p.set("EXPORT_MORE_FIELD", s.page.More[0], "by its name; the end of the results was not seen")
	} else if len(s.page.More) > 1 {
		p.ask("EXPORT_CURSOR_IN", "does one of these say whether more follow (EXPORT_MORE_FIELD)? "+
			strings.Join(s.page.More, ", "))
	}
	if err := s.first(ctx, p); err != nil {
		return err
	}
	if more := p.value("EXPORT_MORE_FIELD"); s.pages.next() == "" && more != "" {
		p.ask("EXPORT_CURSOR_IN", more+" says that nothing follows, and a page may follow: it was left out")
		p.drop("EXPORT_MORE_FIELD")
		if err := s.first(ctx, p); err != nil {
			return err
		}
	}
	if s.pages.next() == "" {
		if at.In == "link" { // it has results="false"
			return errEnded
		}
		return errNoAdvance
	}
	if at.In == "link" || at.In == "next-url" {
		return s.second(ctx, p)
	}
	err := errNoAdvance
	for i, name := range s.parameters(p, at) {
		p.set("EXPORT_CURSOR_PARAM", name, "tried: the second page lists other items")
		if err = s.second(ctx, p); err == nil || s.ended == nil && errors.Is(err, errEnded) {
			return err
		}
		f, rejected := errors.AsType[*bridge.Fault](err)
		if rejected && f.Class == bridge.BadCursor && i < 2 && s.alone(ctx, p) {
			return nil
		} else if !wrongParam(err) {
			return err
		}
	}
	return err
}

// alone tries a cursor without other parameters. For a POST it also tries the path that ends
// with /continue.
func (s *nextSearch) alone(ctx context.Context, p profile) bool {
	p.set("EXPORT_CURSOR_ALONE", "true", "tried: beside other parameters the cursor was rejected")
	if s.second(ctx, p) == nil {
		return true
	}
	if p.value("EXPORT_METHOD") != "" {
		p.set("EXPORT_CURSOR_PATH", p.value("EXPORT_PATH")+"/continue",
			"tried: at the path of the first page the cursor was rejected")
		if s.second(ctx, p) == nil {
			return true
		}
	}
	p.drop("EXPORT_CURSOR_ALONE", "EXPORT_CURSOR_PATH")
	return false
}

// first requests the first page.
func (s *nextSearch) first(ctx context.Context, p profile) error {
	page, err := s.api.sample(ctx, p, s.origin)
	s.pages = pages{page}
	return err
}

// second requests the page after the first one. That page must list other items.
func (s *nextSearch) second(ctx context.Context, p profile) error {
	s.pages = s.pages[:1]
	page, err := s.follow(ctx, p)
	if err == nil {
		err = s.pages.leadTo(&page)
	}
	if err == nil {
		s.pages = append(s.pages, page)
	}
	return err
}

// follow requests the page after the last one.
func (s *nextSearch) follow(ctx context.Context, p profile) (exportapi.Sample, error) {
	at := s.origin
	at.Cursor = s.pages.next()
	return s.api.sample(ctx, p, at)
}

// third reads one more page, if a request is left, and compares the ids of all pages.
func (s *nextSearch) third(ctx context.Context, p profile) error {
	if next := s.pages.next(); next != "" && next != s.pages[0].Next && s.api.asked < mostRequests {
		page, err := s.follow(ctx, p)
		if err != nil {
			return err
		}
		s.pages = append(s.pages, page)
	}
	items, again, back := s.pages.compare()
	if back && !s.origin.Window {
		return newestFirst("the pages lead into the past")
	}
	if again > 0 {
		p.because("EXPORT_ITEM_ID", "")
		p.ask("EXPORT_ITEM_ID", "an id came again on another page: set another member, or none"+
			" if an item comes again with each change")
	}
	p.because("EXPORT_CURSOR_IN", fmt.Sprintf("proven: %d pages with %d items were read by it", len(s.pages), items))
	return nil
}
