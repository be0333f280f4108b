// Package learn finds the settings for an export API from a request that works: it
// asks for a few pages, tries what they suggest, and keeps what was proven. It records
// the pages without what they say, and serves a recording.
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

// An UnfollowableError says why an API cannot be followed by a cursor.
type UnfollowableError struct{ Why, Hint string }

func (e *UnfollowableError) Error() string { return e.Why }

// A ThrottledError is the answer of an API that asks to wait.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("the API asked to wait for %s; nothing was learned", e.RetryAfter.Round(time.Second))
}

// Lesson is what was learned.
type Lesson struct {
	Profile   string
	recording func() (*Recording, error)
}

// Recording returns the pages that the profile was learned from, without what they say. Its
// error is that of a page that repeats the key.
func (l *Lesson) Recording() (*Recording, error) { return l.recording() }

// Learn returns the settings for the API that a request lists, as a profile. It sends at
// most 16 requests, to the request's host alone. Of the environment it takes how
// that host is reached. Its error is an UnfollowableError, a ThrottledError, a
// *bridge.Fault or one about the request.
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

// learner is the sequence of the steps, and what they found so far.
type learner struct {
	api     *api
	command *command
	profile profile
	page    *listing
	pages   pages

	origin   bridge.Position // of the first page: the bounds of all windows, or zero
	required bool            // a request without an end is refused
}

// learn finds the first page, what its items are, the next page, the page size and the bounds.
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

// lookFirst requests the first page as the curl command does, at last without milliseconds. Where
// the API requires the end that the command has, it says so: no cursor without an end leads on.
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

// look requests the first page, and finds its items.
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

// forRange is how many requests remain for the cursor and the page size after the bounds.
const forRange = 6

// backwards learns how a list is followed by windows that does not end with new events:
// the parameters of a start and an end must select the items between two times. Where one is
// missing, it says why the list cannot be followed unless a cursor leads back.
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

// byWindows sets that windows are followed, from before the oldest item on.
func (l *learner) byWindows(why string) {
	l.api.anyOrder = true
	days := 30 + time.Since(time.UnixMilli(slices.Min(l.page.times[0].Times)))/(24*time.Hour)
	l.profile.set("EXPORT_FOLLOW", "windows", why)
	l.profile.set("EXPORT_START", fmt.Sprintf("-%dd", days), "")
	l.profile.because("EXPORT_START", "")
	l.profile.ask("EXPORT_START", "how far back the first events are asked for")
}

// findNext finds the next page by a cursor or, in a window, by a number, and the page size.
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

// forBackfill is how many requests look for the bounds of a list that is followed by its
// cursor and needs none.
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

// proveOpen requests the first page without the end, if all requests until now had it as a
// static parameter. Where the API refuses that, the list is followed by windows.
func (l *learner) proveOpen(ctx context.Context) error {
	start, end := l.profile.value("EXPORT_START_PARAM"), l.profile.value("EXPORT_END_PARAM")
	for _, p := range l.command.times {
		if p.name == start {
			l.profile.set("EXPORT_START", since(p.at), "the start of the curl command; -90d, for example, is relative")
		}
	}
	if !slices.ContainsFunc(l.command.static, func(p param) bool { return p.name == end }) {
		return nil
	}
	if l.api.asked >= mostRequests {
		l.profile.ask("EXPORT_END_PARAM", "no request was sent without it: set EXPORT_FOLLOW=windows if the API requires it")
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

// refusesOpen says why a list is followed by windows that has to have an end, %s.
const refusesOpen = "the API refuses a request without %s: a range without an end cannot be followed"
