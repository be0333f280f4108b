// Package learn finds the settings for an export API from a request that works. It
// requests a few pages, tries the settings that they suggest, and keeps those that were
// proven. It also records the pages without their texts, and serves a recording.
package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
)

// An UnfollowableError says why an API cannot be followed, and gives a hint.
type UnfollowableError struct{ Why, Hint string }

func (e *UnfollowableError) Error() string { return e.Why }

// A ThrottledError is the error of an API that asks the client to wait.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("the API asked to wait for %s; nothing was learned", e.RetryAfter.Round(time.Second))
}

// Lesson is the result of Learn.
type Lesson struct {
	Profile   string
	recording func() (*Recording, error)
}

// Recording returns the pages that the profile was learned from, without their texts. It
// fails if a page repeats a credential.
func (l *Lesson) Recording() (*Recording, error) { return l.recording() }

// Learn returns a profile with the settings for the API of a request. It sends at most 16
// requests, all to the host of that request. From the environment it takes only the settings
// of the connection. Its error is an UnfollowableError, a ThrottledError, a *bridge.Fault or
// an error about the request.
func Learn(ctx context.Context, r *Request, environ []string) (*Lesson, error) {
	p, c, err := describe(r)
	if err != nil {
		return nil, err
	}
	l := &learner{api: newAPI(environ, c.secrets), command: &c, profile: p}
	if err := c.secrets.hide(l.learn(ctx)); err != nil {
		if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Throttled {
			return nil, &ThrottledError{f.RetryAfter}
		}
		return nil, err
	}
	return &Lesson{c.secrets.hidden(l.profile.text(l.api.asked)), l.record}, nil
}

// learner runs the steps of learning and has their results.
type learner struct {
	api     *api
	command *command
	profile profile
	page    *listing
	pages   pages

	origin   bridge.Position // of the first page: the bounds of each window, or zero
	required bool            // the API rejects a request without an end
}

// learn finds the first page, its items, the next page, the page size and the bounds, in this order.
func (l *learner) learn(ctx context.Context) error {
	why, err := l.lookFirst(ctx)
	if err != nil {
		return err
	}
	// The first page may be the only one.
	if shorter := len(l.page.items) / 3; len(l.page.Next) == 0 && l.command.size > 0 && shorter > 0 {
		l.profile.set("EXPORT_PAGE_SIZE", strconv.Itoa(shorter), "")
		l.profile.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(max(l.command.size, shorter)), "")
		if err := l.look(ctx); err != nil {
			return err
		}
	}
	l.page.describe(l.profile)
	var unbounded *UnfollowableError // without a cursor
	if why = cmp.Or(l.page.forwards(l.profile), why); why != "" {
		if unbounded, err = l.backwards(ctx, why); err != nil {
			return err
		}
	}
	if err := l.findNext(ctx, unbounded); err != nil || l.origin.Window {
		return err
	}
	return l.findRange(ctx)
}

// lookFirst requests the first page with the start of the curl command. If the API rejects that
// request, it tries the end of the command too, and times without milliseconds. required says that the
// API requires an end, "" if it does not: then no cursor leads to new events.
func (l *learner) lookFirst(ctx context.Context) (required string, err error) {
	first := l.look(ctx)
	start, end := l.command.start, l.command.end
	if !wrongParam(first) || start.name == "" {
		return "", first
	}
	try := func(format, end string, at bridge.Position) bool {
		l.profile.set("EXPORT_TIME_FORMAT", format, "")
		l.profile.set("EXPORT_END_PARAM", cmp.Or(end, none), "")
		l.origin, l.required, l.api.anyOrder = at, at.Window, at.Window
		err = l.look(ctx)
		return !wrongParam(err)
	}
	bounded := bridge.Position{Start: start.at, End: end.at, Window: true}
	switch {
	case end.name != "" && try(start.format, end.name, bounded):
	case start.format == rfc3339 && try(rfc3339Seconds, "", bridge.Position{}):
	case end.name != "" && start.format == rfc3339 && try(rfc3339Seconds, end.name, bounded):
	default:
		return "", first
	}
	if l.required {
		required = fmt.Sprintf(refusesOpen, end.name)
	}
	return required, err
}

// look requests the first page and finds its items.
func (l *learner) look(ctx context.Context) error {
	outline, err := l.api.outline(ctx, l.profile, l.origin)
	if err != nil {
		return err
	}
	if l.page, err = newListing(outline); err != nil {
		return err
	}
	if l.command.size == 0 {
		l.profile.setSize(len(l.page.items))
	}
	l.profile.set("EXPORT_ITEMS_FIELD", l.page.list, fmt.Sprintf("a list of %d objects", len(l.page.items)))
	l.page.anyCursor(l.profile)
	if others := outline.Lists[1:]; len(others) > 0 {
		l.profile.ask("EXPORT_ITEMS_FIELD", "the longest list was taken; others are at "+strings.Join(others, ", "))
	}
	return nil
}

// forRange is how many requests the search for bounds leaves to the cursor and the page size.
const forRange = 6

// backwards learns how to follow a list by windows if it does not end with its newest events. The
// parameters of a start and an end must select the items between two times. If a parameter is missing,
// only a cursor that leads back helps: unbounded is the error for a list without one.
func (l *learner) backwards(ctx context.Context, why string) (unbounded *UnfollowableError, err error) {
	if len(l.page.times) == 0 {
		return nil, &UnfollowableError{
			why + ", and its items have no time, so windows cannot be followed either",
			"look for a request without an end in the documentation",
		}
	}
	listed := l.page.sorted()
	oldest, newest := listed[0], listed[len(listed)-1]
	l.byWindows(why)
	if !l.origin.Window {
		start := max(0, oldest-3*(newest-oldest)-time.Hour.Milliseconds())
		l.origin = bridge.Position{Start: start, End: newest + 1000, Window: true}
	}
	s := newBoundSearch(l.profile, l.page, l.command)
	found := false
	if l.profile, found, err = s.run(ctx, l.api, l.profile, mostRequests-forRange); err != nil {
		return nil, err
	} else if found {
		return nil, l.page.proveEnd(ctx, l.api, l.profile)
	}
	l.profile.set("EXPORT_START_PARAM", none, "")
	l.profile.drop("EXPORT_TIME_FORMAT")
	unbounded = newestFirst(why)
	unbounded.Why += "; " + s.describe(l.profile)
	if l.origin.End = 0; l.profile.value("EXPORT_START_PARAM") == none {
		l.profile.ask("EXPORT_START_PARAM", "without a start, each listing reads from the newest event back to known ones")
		l.origin.Start = 0
	}
	return unbounded, nil
}

// byWindows makes the settings follow the list by windows, from a start before the oldest
// item.
func (l *learner) byWindows(why string) {
	l.api.anyOrder = true
	days := 30 + time.Since(time.UnixMilli(slices.Min(l.page.times[0].Times)))/(24*time.Hour)
	l.profile.set("EXPORT_FOLLOW", "windows", why)
	l.profile.set("EXPORT_START", fmt.Sprintf("-%dd", days), "")
	l.profile.because("EXPORT_START", "")
	l.profile.ask("EXPORT_START", "how far back the first events are requested")
}

// findNext finds the next page, by a cursor or, in a window, by a number. It finds the page size too.
func (l *learner) findNext(ctx context.Context, unbounded *UnfollowableError) error {
	s := &nextSearch{api: l.api, command: l.command, page: l.page, origin: l.origin, number: l.command.number}
	p, err := s.byCursor(ctx, l.profile)
	if _, none := errors.AsType[*UnfollowableError](err); none && l.origin.Window {
		if unbounded != nil && l.origin.Start == 0 {
			return unbounded
		}
		found := false
		if p, found, err = s.byNumber(ctx, l.profile); !found && unbounded != nil {
			return unbounded
		}
	}
	if err != nil {
		return err
	}
	if l.profile, l.pages = p, s.pages; s.largest > 0 {
		p.setSize(s.largest)
		return nil
	}
	return s.findSize(ctx, p)
}

// forBackfill is how many requests the search for bounds takes if only backfill and verify
// need them.
const forBackfill = 5

// findRange looks for the bounds that backfill and verify need, for a list that is followed
// by its cursor.
func (l *learner) findRange(ctx context.Context) error {
	if len(l.page.times) == 0 {
		return nil
	}
	l.api.anyOrder = true
	s := newBoundSearch(l.profile, l.page, l.command)
	p, found, err := s.run(ctx, l.api, l.profile, min(l.api.asked+forBackfill, mostRequests-1))
	if l.profile = p; err != nil {
		return err
	}
	if !found {
		if l.command.start.name != "" {
			p.ask("EXPORT_START_PARAM", "by the curl command, not proven")
		}
		s.describe(p)
		return nil
	}
	if err := l.proveOpen(ctx); err != nil {
		return err
	}
	return l.page.proveEnd(ctx, l.api, l.profile)
}

// proveOpen requests the first page without the end, if all requests so far had the end as a
// static parameter. If the API rejects that request, the list is followed by windows.
func (l *learner) proveOpen(ctx context.Context) error {
	start, end := l.profile.value("EXPORT_START_PARAM"), l.profile.value("EXPORT_END_PARAM")
	for _, p := range l.command.times {
		if p.name == start {
			l.profile.set("EXPORT_START", bridge.InstantText(p.at), "the start of the curl command; -90d, for example, is relative")
		}
	}
	if !slices.ContainsFunc(l.command.static, func(p param) bool { return p.name == end }) {
		return nil
	}
	if l.api.asked >= mostRequests {
		l.profile.ask("EXPORT_END_PARAM", "each request had an end: set EXPORT_FOLLOW=windows if the API requires it")
		return nil
	}
	_, err := l.api.sample(ctx, l.profile, bridge.Position{})
	if !wrongParam(err) {
		return err
	}
	l.required = true
	l.byWindows(fmt.Sprintf(refusesOpen, end))
	return nil
}

// refusesOpen says why a list is followed by windows if the API requires the end %s.
const refusesOpen = "the API refuses a request without %s: a range without an end cannot be followed"
