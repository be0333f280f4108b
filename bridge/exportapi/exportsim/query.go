package exportsim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// query is what a request asks for.
type query struct {
	chain
	resource *resource
	from     int    // index of the first item
	to       int    // index after the last item of the window
	size     int    // items in a page
	skip     int    // items before the page, of an offset
	newest   bool   // newest first
	cursor   string // as received, empty without one
	values   url.Values
	host     string // scheme and host of the request
	raw      string // the query string as received
}

// refusal is the error of a request that the API refuses.
type refusal struct {
	status     int
	kind, text string
}

func (r refusal) Error() string { return r.text }

func invalid(format string, args ...any) error {
	return refusal{http.StatusBadRequest, "invalid-parameter", fmt.Sprintf(format, args...)}
}

// parseQuery reads the parameters. An opaque cursor has the bounds and the filter.
// Parameters beside it may be absent, but must not contradict it.
func (p *pages) parseQuery(res *resource, r *http.Request) (query, error) {
	values, err := p.parameters(r)
	if err != nil {
		return query{}, err
	}
	q := query{resource: res, chain: chain{resource: res.tag}, size: p.form.PageSize, values: values,
		raw: r.URL.RawQuery, host: hostOf(r)}
	if err := p.readParameters(&q, values); err != nil {
		return query{}, err
	}
	q.newest = p.form.newestFirst(values)
	q.to = res.among(p.world.limit)
	if values.Has(p.form.CursorParam) {
		if err := p.checkAlone(values); err != nil {
			return query{}, err
		}
		if q.cursor, err = single(values, p.form.CursorParam); err != nil {
			return query{}, err
		}
		if err := p.readCursor(&q, values); err != nil {
			return query{}, err
		}
	}
	if p.form.Late > 0 && q.end > 0 {
		return q, nil // from is an index in the order of the window
	}
	if q.end > 0 {
		q.to = min(q.to, res.from(q.end, p.world.limit))
	}
	if q.start > 0 && (q.cursor == "" || q.newest || p.form.CursorKind != kindOpaque) {
		q.from = max(q.from, res.from(q.start, p.world.limit))
	}
	return q, nil
}

func (p *pages) readParameters(q *query, values url.Values) error {
	var err error
	f := &p.form
	switch {
	case f.PhraseParam != "":
		err = readPhrase(q, values.Get(f.PhraseParam))
	case f.FilterField != "":
		err = readFilter(q, values.Get(filterParam), f.FilterField)
	default:
		err = p.readBounds(q, values)
	}
	if err != nil {
		return err
	}
	if values.Has(f.PageSizeParam) {
		size, err := integer(values, f.PageSizeParam)
		if err != nil || size < 1 || size > int64(f.MaxPageSize) {
			return invalid("The parameter %s must be an integer between 1 and %d.", f.PageSizeParam, f.MaxPageSize)
		}
		q.size = int(size)
	}
	if q.resource.kind == kindEvent {
		q.filter, err = p.world.types.filter(values["events"])
	}
	return err
}

func (p *pages) readBounds(q *query, values url.Values) error {
	var err error
	f := &p.form
	if q.start, err = p.instant(values, f.StartParam, f.StartExclusive); err != nil {
		return err
	}
	if q.end, err = p.instant(values, f.EndParam, f.EndInclusive); err != nil {
		return err
	}
	if values.Has(f.StartParam) && values.Has(f.EndParam) && q.start >= q.end {
		return invalid("The parameter %s must be before %s.", f.StartParam, f.EndParam)
	}
	if values.Has(f.EndParam) && q.end == 0 {
		return invalid("The parameter %s must be after the epoch.", f.EndParam)
	}
	return nil
}

// checkAlone refuses other parameters beside a cursor if the form has CursorAlone.
func (p *pages) checkAlone(values url.Values) error {
	for name := range values {
		if p.form.CursorAlone && name != p.form.CursorParam && name != p.form.KeyQuery {
			return invalid("The parameter %s must not be sent with %s.", name, p.form.CursorParam)
		}
	}
	return nil
}

func (p *pages) readCursor(q *query, values url.Values) error {
	altered := refusal{http.StatusBadRequest, "invalid-cursor", "The cursor is not valid."}
	f := &p.form
	if f.CursorKind == kindOffset {
		return q.readNumber(f.CursorIn == inPage)
	}
	if f.CursorKind != kindOpaque {
		if strings.ContainsFunc(q.cursor, func(r rune) bool { return r < '0' || r > '9' }) || q.cursor == "" {
			return altered
		}
		q.from = sort.Search(p.world.limit, func(i int) bool { return p.world.key(f.CursorKind, i) > q.cursor })
		if q.newest {
			q.from, q.to = 0, min(q.to, max(0, q.from-1))
		}
		return nil
	}
	at, err := p.cursors.decode(q.cursor, time.Now())
	if errors.Is(err, errCursorExpired) {
		return refusal{http.StatusGone, "cursor-expired", "The cursor has expired."}
	}
	other := refusal{http.StatusBadRequest, "invalid-cursor",
		"The cursor belongs to a request with other parameters."}
	both := values.Has(f.PhraseParam) || f.FilterField != "" && values.Has(filterParam)
	switch {
	case err != nil:
		return altered
	case at.resource != q.resource.tag,
		(values.Has(f.StartParam) || both) && at.start != q.start,
		(values.Has(f.EndParam) || both) && at.end != q.end,
		values.Has("events") && at.filter != q.filter:
		return other
	}
	q.chain, q.size = at.chain, cmp.Or(at.size, q.size)
	if q.newest {
		q.to = at.next
	} else {
		q.from = at.next
	}
	return nil
}

// single returns the value of a parameter that may occur only once.
func single(values url.Values, name string) (string, error) {
	if len(values[name]) > 1 {
		return "", invalid("The parameter %s is given more than once.", name)
	}
	return values.Get(name), nil
}

// integer returns the value of a parameter, or 0 if the parameter is absent.
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

// filter returns the bit set of the named types. No names select all types.
func (e eventTypes) filter(names []string) (uint64, error) {
	var set uint64
	for _, name := range names {
		kind := slices.IndexFunc(e, func(t eventType) bool { return t.name == name })
		if kind < 0 {
			return 0, invalid("The parameter events names %q, which is not a type of event.", name)
		}
		set |= 1 << kind
	}
	return set, nil
}
