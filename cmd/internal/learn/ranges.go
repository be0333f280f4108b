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

var errNoRange = errors.New("the range lists other items")

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

// timeFormat is the format of a bound that suits the times of items.
func timeFormat(ofItems string) string {
	if strings.HasPrefix(ofItems, "rfc3339") {
		return "rfc3339"
	}
	return ofItems
}

// run returns a profile with the bounds that limit the list, until so many requests were sent.
func (s *boundSearch) run(ctx context.Context, a *api, p profile, most int) (_ profile, found bool, err error) {
	for s.room && a.asked < most {
		next, more := s.next()
		if !more {
			break
		}
		trial := p.clone()
		trial.set("EXPORT_START_PARAM", next.start, "proven: with "+next.end+" it lists the items between two times")
		trial.set("EXPORT_END_PARAM", next.end, "")
		trial.set("EXPORT_TIME_FORMAT", next.format, "")
		limits, err := s.within(ctx, a, trial)
		if err == nil {
			trial.ask("EXPORT_START_PARAM", "")
			trial.ask("EXPORT_END_PARAM", "")
			return trial, true, nil
		}
		if _, other := errors.AsType[config.Problems](err); other {
			continue // a name collides with another parameter
		}
		if f, ok := errors.AsType[*bridge.Fault](err); ok && !tryOther(f) || !ok && !errors.Is(err, errNoRange) {
			return p, false, err
		}
		s.learn(next, limits, err)
	}
	return p, false, nil
}

// outcome says which bounds of a range limited what was listed.
type outcome struct{ start, end bool }

// within requests the items between the two times.
func (s *boundSearch) within(ctx context.Context, a *api, p profile) (outcome, error) {
	page, err := a.sample(ctx, p, bridge.Position{Start: s.from, End: s.to, Window: true})
	if err != nil {
		return outcome{}, err
	}
	limits := outcome{start: len(page.Items) > 0, end: len(page.Items) > 0}
	for _, item := range page.Items {
		limits.start = limits.start && item.Time >= s.from-1000
		limits.end = limits.end && item.Time <= s.to+1000
	}
	if !limits.start || !limits.end {
		return limits, errNoRange
	}
	return limits, nil
}

// describe sets the bound that was found where both were not, asks for the rest, and returns
// the question.
func (s *boundSearch) describe(p profile) (question string) {
	start, format := s.limited(func(a attempt) string { return a.start })
	question = "a parameter of the end was not found"
	if start == "" {
		question = "parameters of a start and an end were not found"
	}
	switch {
	case !s.room:
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
	p.set("EXPORT_END_PARAM", none, "")
	p.ask("EXPORT_END_PARAM", question+". Without an end, there is no backfill and no verify")
	if start != "" {
		p.set("EXPORT_START_PARAM", start, "proven: it lists the items since a time")
		p.ask("EXPORT_START_PARAM", "")
		p.set("EXPORT_TIME_FORMAT", format, "")
	}
	return question
}

// proveEnd asks for a range that ends at the time of an item: it is listed, or not.
func (l *listing) proveEnd(ctx context.Context, a *api, p profile) error {
	unit := int64(1) // the smallest difference of two bounds, in milliseconds
	if p.value("EXPORT_TIME_FORMAT") == "s" {
		unit = 1000
	}
	from, at := slices.Min(l.times[0].Times), l.exactTime(unit)
	if at <= from || a.asked >= mostRequests {
		p.ask("EXPORT_END_INCLUSIVE", "not tried, no item has a time that a request can name: set true if the API lists an item at the end itself")
		return nil
	}
	page, err := a.sample(ctx, p, bridge.Position{Start: from, End: at, Window: true})
	if f, ok := errors.AsType[*bridge.Fault](err); ok && tryOther(f) {
		p.ask("EXPORT_END_INCLUSIVE", fmt.Sprintf("not proven (%v): set true if the API lists an item at the end itself", err))
		return nil
	} else if err != nil {
		return err
	}
	inclusive, not := slices.ContainsFunc(page.Items, func(item exportapi.SampledItem) bool { return item.Time == at }), " not"
	switch {
	case len(page.Items) == 0:
		p.ask("EXPORT_END_INCLUSIVE", "not proven, the range was empty: set true if the API lists an item at the end itself")
		return nil
	case inclusive:
		not = ""
	case unit < 1000 && wholeSeconds(l.times[0].Times):
		p.ask("EXPORT_END_INCLUSIVE", "not proven: the items have times in whole seconds, and the API may compare their fractions."+
			" Set true if the API lists an item at the end itself")
		return nil
	}
	p.set("EXPORT_END_INCLUSIVE", strconv.FormatBool(inclusive), "proven: an item at the end itself is"+not+" listed")
	return nil
}
