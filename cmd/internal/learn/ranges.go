package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

var errNoRange = errors.New("the range lists other items")

// between returns two times in whole seconds such that items are before from, between both, and
// after to.
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

// run returns a profile with the bounds that limit the list. It stops when most requests were sent.
func (s *boundSearch) run(ctx context.Context, a *api, p profile, most int) (_ profile, found bool, err error) {
	for s.room && len(s.queue) > 0 && a.asked < most {
		next := s.queue[0]
		s.queue, s.tried = s.queue[1:], append(s.tried, next)
		trial := p.clone()
		trial.set("EXPORT_START_PARAM", next.start, "proven: with "+next.end+" it lists the items between two times")
		trial.set("EXPORT_END_PARAM", next.end, "")
		trial.set("EXPORT_TIME_FORMAT", next.format, "")
		page, err := a.sample(ctx, trial, bridge.Position{Start: s.from, End: s.to, Window: true})
		switch {
		case err == nil && s.limits(next, page.Items):
			trial.ask("EXPORT_START_PARAM", "")
			trial.ask("EXPORT_END_PARAM", "")
			return trial, true, nil
		case misfit(err): // the API has said nothing
		case wrongParam(err):
			s.useError(next, err)
		case err != nil:
			return p, false, err
		}
	}
	return p, false, nil
}

// describe is for a search that did not find both bounds. It sets the start if that was
// found. It adds a question about the other bound, and returns the question.
func (s *boundSearch) describe(p profile) (question string) {
	start := s.start()
	question = "a parameter of the end was not found"
	if start.name == "" {
		question = "parameters of a start and an end were not found"
	}
	switch {
	case !s.room:
		question += ": the items of the page are within 2 s of each other, so none was tried." +
			" Take a curl command that lists more items, or wait for some"
	case len(s.tried) > 0:
		question += fmt.Sprintf(". Tried without success: %s (%v)", s.failed(), s.last)
	}
	if untried := s.untried(); untried != "" {
		question += ". Not tried: " + untried
	}
	question += ". If the documentation names them, add both to the curl command," +
		" such as created_after=" + time.Now().UTC().Add(-24*time.Hour).Format("2006-01-02T00:00:00Z") + ", and learn again"
	p.set("EXPORT_END_PARAM", none, "")
	p.ask("EXPORT_END_PARAM", question+". Without an end, there is no backfill and no verify")
	if start.name != "" {
		p.set("EXPORT_START_PARAM", start.name, "proven: it lists the items since a time")
		p.ask("EXPORT_START_PARAM", "")
		p.set("EXPORT_TIME_FORMAT", start.format, "")
	}
	return question
}

// proveEnd requests a range that ends at the time of an item, to learn whether the API lists that item.
func (l *listing) proveEnd(ctx context.Context, a *api, p profile) error {
	unit := int64(1) // the smallest difference of two bounds, in milliseconds
	if format := p.value("EXPORT_TIME_FORMAT"); format == "s" || format == rfc3339Seconds {
		unit = 1000
	}
	from, at := slices.Min(l.times[0].Times), l.exactTime(unit)
	not := func(why string) error {
		p.ask("EXPORT_END_INCLUSIVE", why+" true if the API lists an item at the end itself")
		return nil
	}
	if at <= from || a.asked >= mostRequests {
		return not("not tried, no item has a time that a request can name: set")
	}
	page, err := a.sample(ctx, p, bridge.Position{Start: from, End: at, Window: true})
	if wrongParam(err) {
		return not(fmt.Sprintf("not proven (%v): set", err))
	} else if err != nil {
		return err
	}
	switch {
	case len(page.Items) == 0:
		return not("not proven, the range was empty: set")
	case listedAt(page, at):
		p.set("EXPORT_END_INCLUSIVE", "true", "proven: an item at the end itself is listed")
	case p.value("EXPORT_TIME_FORMAT") != "s" && wholeSeconds(l.times[0].Times):
		return not("not proven: the items have times in whole seconds, and the API may compare their fractions. Set")
	default:
		p.set("EXPORT_END_INCLUSIVE", "false", "proven: an item at the end itself is not listed")
	}
	end := slices.Max(l.times[0].Times)/unit*unit + unit
	return l.proveStart(ctx, a, p, bridge.Position{Start: at, End: end, Window: true})
}

// proveStart requests a range that begins at the time of an item. An API that does not list it at the start
// has it in one of two adjacent ranges already if it lists it at the end, else in none.
func (l *listing) proveStart(ctx context.Context, a *api, p profile, at bridge.Position) error {
	if a.asked >= mostRequests {
		return nil
	}
	page, err := a.sample(ctx, p, at)
	switch {
	case wrongParam(err):
		return nil
	case err != nil || len(page.Items) == 0 || listedAt(page, at.Start):
	case p.value("EXPORT_END_INCLUSIVE") == "false":
		p.set("EXPORT_START_EXCLUSIVE", "true", "proven: an item at the start itself is listed neither there nor at an end")
	default:
		p.set("EXPORT_END_INCLUSIVE", "false", "proven: an item at the end itself is listed, but none at the start")
	}
	return err
}

// listedAt reports whether a page has an item of a time.
func listedAt(page exportapi.Sample, at int64) bool {
	return slices.ContainsFunc(page.Items, func(item exportapi.SampledItem) bool { return item.Time == at })
}
