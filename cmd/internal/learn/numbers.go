package learn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// numberings returns the parameters that may number pages, with the number of the first page as
// their value. Their names are from the curl command, from the page, or common ones.
func (s *nextSearch) numberings() (all []param) {
	for _, p := range s.command.static {
		if p.name == s.number {
			return []param{p}
		}
	}
	if s.number != "" {
		return []param{{name: s.number}}
	}
	for _, at := range s.page.Numbers {
		if numberParam.MatchString(last(at)) {
			all = append(all, param{name: last(at), value: s.page.Text(at)})
		}
	}
	if strings.Contains(s.command.sizeParam, "[") { // page[size]
		all = append(all, param{name: "page[number]"})
	}
	return append(all, param{name: "page"}, param{name: "offset"})
}

// byNumber returns a profile that requests pages by their numbers. found is false if no number led
// to another page.
func (s *nextSearch) byNumber(ctx context.Context, p profile) (_ profile, found bool, err error) {
	p.drop("EXPORT_CURSOR_IN")
	var tried []string
	for _, n := range s.numberings() {
		in, first := "page-number", "1" // first is the default
		if offsetParam.MatchString(n.name) {
			in, first = "offset", "0"
		}
		if s.api.asked+2 > mostRequests || slices.Contains(tried, n.name) || in == "offset" && len(s.page.items) < 2 {
			continue
		}
		tried = append(tried, n.name)
		trial := p.clone()
		trial.set("EXPORT_CURSOR_IN", in, "")
		trial.set("EXPORT_CURSOR_PARAM", n.name, "tried: the second page lists other items")
		if n.value != first && (n.value == "0" || n.value == "1") {
			trial.set("EXPORT_CURSOR_FIRST", n.value, "")
		}
		if err = s.first(ctx, trial); err == nil && s.pages.next() != "" {
			err = s.second(ctx, trial)
		}
		if !wrongParam(err) {
			return trial, true, err
		}
	}
	s.page.anyCursor(p)
	p.ask("EXPORT_CURSOR_FIELD", "no next page was found, after "+strconv.Itoa(s.api.asked)+" requests: "+
		"ranges with more events than a page are read in halves. As numbers were tried: "+strings.Join(tried, ", ")+
		". If the documentation has a parameter for the next page, add it with its first value, and learn again")
	return p, false, nil
}

// usualSize is a page size that most APIs accept.
const usualSize = 100

// findSize proves the parameter of the page size: a request for fewer items must list fewer.
func (s *nextSearch) findSize(ctx context.Context, p profile) error {
	asked, names := s.command.size, []string{s.command.sizeParam}
	if asked == 0 {
		names = []string{"limit", "per_page", "page_size"}
	}
	s.largest = max(asked, len(s.page.items))
	for _, name := range names {
		if len(s.pages) == 0 || len(s.pages[0].Items) < 2 || s.api.asked >= mostRequests {
			break
		}
		half, largest := len(s.pages[0].Items)/2, s.largest
		if asked == 0 && half > usualSize { // the default may exceed the maximum of a request
			half, largest = usualSize, usualSize
		}
		p.set("EXPORT_PAGE_SIZE_PARAM", name, "")
		p.set("EXPORT_PAGE_SIZE", strconv.Itoa(half), "")
		page, err := s.api.outline(ctx, p, s.origin)
		if err != nil && !wrongParam(err) {
			return err
		}
		if err == nil && len(page.Items(s.page.list)) == half {
			p.set("EXPORT_PAGE_SIZE_PARAM", name, fmt.Sprintf("proven: a page of %d had %d items", half, half))
			p.ask("EXPORT_PAGE_SIZE", "the largest that was seen: set both to the limit in the documentation")
			p.setSize(largest)
			s.smaller, s.largest = half, largest
			return nil
		}
	}
	if p.setSize(s.largest); asked > 0 {
		p.ask("EXPORT_PAGE_SIZE_PARAM", "not proven: no smaller size has given a smaller page")
		return nil
	}
	p.set("EXPORT_PAGE_SIZE_PARAM", none, "")
	p.because("EXPORT_PAGE_SIZE", "not sent: how many items the first page had")
	p.because("EXPORT_MAX_PAGE_SIZE", "as EXPORT_PAGE_SIZE")
	p.ask("EXPORT_PAGE_SIZE_PARAM", "none was found; if the API has one, set it and EXPORT_PAGE_SIZE")
	return nil
}
