package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
)

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
func (s *nextSearch) numberings() (all []numbering) {
	if s.number != "" {
		n := numbering{name: s.number}
		if i := slices.IndexFunc(s.command.static, func(p param) bool { return p.name == s.number }); i >= 0 {
			n.first = s.command.static[i].value
		}
		return []numbering{n}
	}
	for _, at := range s.page.Numbers {
		n := numbering{name: last(at), first: s.page.Text(at)}
		if numberParam.MatchString(n.name) {
			all = append(all, n)
		}
	}
	return append(all, numbering{name: "page"}, numbering{name: "offset"})
}

// byNumber returns a profile whose pages have numbers, where no cursor was found; found is false
// if no number led to another page either.
func (s *nextSearch) byNumber(ctx context.Context, p profile) (_ profile, found bool, err error) {
	p.drop("EXPORT_CURSOR_IN")
	var tried []string
	for _, n := range s.numberings() {
		in, first := n.in()
		if s.api.asked+2 > mostRequests || slices.Contains(tried, n.name) || in == "offset" && len(s.page.items) < 2 {
			continue
		}
		tried = append(tried, n.name)
		trial := p.clone()
		trial.set("EXPORT_CURSOR_IN", in, "")
		trial.set("EXPORT_CURSOR_PARAM", n.name, "tried: the second page lists other items")
		if n.first != first && (n.first == "0" || n.first == "1") {
			trial.set("EXPORT_CURSOR_FIRST", n.first, "")
		}
		if err = s.first(ctx, trial); err == nil && s.pages.next() != "" {
			err = s.second(ctx, trial)
		}
		f, ok := errors.AsType[*bridge.Fault](err)
		if err == nil || ok && !tryOther(f) || !ok && !errors.Is(err, errNoAdvance) {
			return trial, true, err
		}
	}
	s.page.anyCursor(p)
	p.ask("EXPORT_CURSOR_FIELD", "no next page was found, after "+strconv.Itoa(s.api.asked)+" requests: "+
		"ranges with more events than a page are read in halves. As numbers were tried: "+strings.Join(tried, ", ")+
		". If the documentation has a parameter for the next page, add it with its first value, and learn again")
	return p, false, nil
}

// sizes of a page: one that is proven, 0 for none, and the one to set, 0 before findSize.
type sizes struct{ smaller, largest int }

// usualSize is a page size that most APIs take.
const usualSize = 100

// findSize proves the parameter of the page size: a smaller page must be smaller.
func (s *nextSearch) findSize(ctx context.Context, p profile) error {
	asked, names := s.command.size, []string{s.command.sizeParam}
	if asked == 0 {
		names = []string{"limit", "per_page", "page_size"}
	}
	s.size.largest = max(asked, len(s.page.items))
	for _, name := range names {
		if len(s.pages) == 0 || len(s.pages[0].Items) < 2 || s.api.asked >= mostRequests {
			break
		}
		half, largest := len(s.pages[0].Items)/2, s.size.largest
		if asked == 0 && half > usualSize { // the default may be more than a request may ask for
			half, largest = usualSize, usualSize
		}
		p.set("EXPORT_PAGE_SIZE_PARAM", name, "")
		p.set("EXPORT_PAGE_SIZE", strconv.Itoa(half), "")
		page, err := s.api.outline(ctx, p, s.whole)
		if f, ok := errors.AsType[*bridge.Fault](err); err != nil && (!ok || !tryOther(f)) {
			return err
		}
		if err == nil && len(page.Items(s.page.list)) == half {
			p.set("EXPORT_PAGE_SIZE_PARAM", name, fmt.Sprintf("proven: a page of %d had %d items", half, half))
			p.ask("EXPORT_PAGE_SIZE", "the largest that was seen: set both to the limit in the documentation")
			p.setSize(largest)
			s.size = sizes{half, largest}
			return nil
		}
	}
	if p.setSize(s.size.largest); asked > 0 {
		p.ask("EXPORT_PAGE_SIZE_PARAM", "not proven: a smaller size did not give a smaller page")
		return nil
	}
	p.set("EXPORT_PAGE_SIZE_PARAM", none, "")
	p.because("EXPORT_PAGE_SIZE", "not sent: how many items the first page had")
	p.because("EXPORT_MAX_PAGE_SIZE", "as EXPORT_PAGE_SIZE")
	p.ask("EXPORT_PAGE_SIZE_PARAM", "none was found; if the API has one, set it and EXPORT_PAGE_SIZE")
	return nil
}
