package exportsim

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// query is what a request asks for.
type query struct {
	chain
	resource *resource
	from     int    // index of the first item
	to       int    // index after the last item of the window
	size     int    // items in a page
	cursor   string // as it came, empty without one
	issued   int64  // of the cursor
}

// refusal is a request that the API refuses.
type refusal struct {
	status     int
	kind, text string
}

func (r refusal) Error() string { return r.text }

func invalid(format string, args ...any) error {
	return refusal{http.StatusBadRequest, "invalid-parameter", fmt.Sprintf(format, args...)}
}

// parseQuery reads the parameters. Bounds and filter come from the cursor if
// there is one; parameters beside it may be absent, but must not say otherwise.
func (p *pages) parseQuery(res *resource, raw string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, invalid("The query string cannot be read: %v.", err)
	}
	q := query{resource: res, chain: chain{resource: res.tag}, size: defaultPageSize}
	if err := p.readParameters(&q, values); err != nil {
		return query{}, err
	}
	if values.Has("cursor") {
		if q.cursor, err = single(values, "cursor"); err != nil {
			return query{}, err
		}
		if err := p.readCursor(&q, values); err != nil {
			return query{}, err
		}
	} else if q.start > 0 {
		q.from = res.from(q.start, p.world.limit)
	}
	q.to = res.among(p.world.limit)
	if q.end > 0 {
		q.to = res.from(q.end, p.world.limit)
	}
	return q, nil
}

func (p *pages) readParameters(q *query, values url.Values) error {
	var err error
	if q.start, err = integer(values, "start"); err != nil {
		return err
	}
	if q.end, err = integer(values, "end"); err != nil {
		return err
	}
	if values.Has("start") && values.Has("end") && q.start >= q.end {
		return invalid("The parameter start must be before end.")
	}
	if values.Has("end") && q.end == 0 {
		return invalid("The parameter end must be after the epoch.")
	}
	if values.Has("pageSize") {
		size, err := integer(values, "pageSize")
		if err != nil || size < 1 || size > maxPageSize {
			return invalid("The parameter pageSize must be an integer between 1 and %d.", maxPageSize)
		}
		q.size = int(size)
	}
	if q.resource.kind == kindEvent {
		q.filter, err = p.world.types.filter(values["events"])
	}
	return err
}

func (p *pages) readCursor(q *query, values url.Values) error {
	at, err := p.cursors.decode(q.cursor, time.Now())
	if errors.Is(err, errCursorExpired) {
		return refusal{p.config.CursorExpired, "cursor-expired", "The cursor has expired."}
	}
	altered := refusal{http.StatusBadRequest, "invalid-cursor", "The cursor is not valid."}
	other := refusal{http.StatusBadRequest, "invalid-cursor",
		"The cursor belongs to a request with other parameters."}
	switch {
	case err != nil:
		return altered
	case at.resource != q.resource.tag,
		values.Has("start") && at.start != q.start,
		values.Has("end") && at.end != q.end,
		values.Has("events") && at.filter != q.filter:
		return other
	}
	q.chain, q.from, q.issued = at.chain, at.next, at.issued
	return nil
}

// single returns the value of a parameter that must not be repeated.
func single(values url.Values, name string) (string, error) {
	if len(values[name]) > 1 {
		return "", invalid("The parameter %s is given more than once.", name)
	}
	return values.Get(name), nil
}

// integer returns a parameter, or 0 if it is absent.
func integer(values url.Values, name string) (int64, error) {
	text, err := single(values, name)
	if err != nil || !values.Has(name) {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("The parameter %s must be a non-negative integer.", name)
	}
	return n, nil
}

// filter returns the bit set of the named types; no names are all types.
func (t eventTypes) filter(names []string) (uint64, error) {
	var set uint64
	for _, name := range names {
		bit, found := uint64(0), false
		for kind := range t {
			if t[kind].name == name {
				bit, found = 1<<kind, true
			}
		}
		if !found {
			return 0, invalid("The parameter events names %q, which is not a type of event.", name)
		}
		set |= bit
	}
	return set, nil
}
