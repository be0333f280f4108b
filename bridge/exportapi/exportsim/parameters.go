package exportsim

import (
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const maxParameters = 64 << 10 // bytes of a request's body

// parameters returns those of the query, or those of the JSON object in the body. There,
// numeric parameters must be numbers and all others strings.
func (p *pages) parameters(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("The query string cannot be read: %v.", err)
	}
	if p.form.Method != http.MethodPost {
		return values, nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, refusal{http.StatusUnsupportedMediaType, "invalid-body", "The body must be application/json."}
	}
	var members map[string]any
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxParameters))
	decoder.UseNumber() // keeps the digits
	if err := decoder.Decode(&members); err != nil {
		return nil, refusal{http.StatusBadRequest, "invalid-body", "The body is not a JSON object."}
	}
	return values, p.addMembers(values, "", members)
}

// addMembers adds the members of a body. The name of a member of an inner object is its
// JSON pointer.
func (p *pages) addMembers(values url.Values, above string, members map[string]any) error {
	for name, member := range members {
		if inside, ok := member.(map[string]any); ok {
			if err := p.addMembers(values, above+"/"+name, inside); err != nil {
				return err
			}
			continue
		}
		if above != "" {
			name = above + "/" + name
		}
		number, isNumber := member.(json.Number)
		text, isString := member.(string)
		if !isNumber && !isString || isNumber != p.numeric(name) {
			return invalid("The member %s has the wrong type.", name)
		}
		values.Set(name, text+number.String())
	}
	return nil
}

func (p *pages) numeric(name string) bool {
	f := &p.form
	isTime := name == f.StartParam || name == f.EndParam
	return name == f.PageSizeParam || name == f.CursorParam && f.CursorKind == kindSeq || isTime &&
		f.TimeFormat != formatRFC3339
}

// instant returns a bound, rounded up to milliseconds, or 0 if it is absent. With past, it
// returns the first millisecond after the bound.
func (p *pages) instant(values url.Values, name string, past bool) (int64, error) {
	text, err := single(values, name)
	if err != nil || !values.Has(name) {
		return 0, err
	}
	var micros int64
	if p.form.TimeFormat == formatRFC3339 {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || at.Before(time.UnixMilli(0)) {
			return 0, invalid("The parameter %s must be a time of RFC 3339.", name)
		}
		return bound(at.UnixMicro(), past), nil
	}
	if micros, err = integer(values, name); err != nil {
		return 0, err
	}
	unit := map[string]int64{formatMicros: 1, formatMillis: 1e3, formatSeconds: 1e6}[p.form.TimeFormat]
	return bound(min(micros, (math.MaxInt64-1e6)/unit)*unit, past), nil
}

func bound(micros int64, past bool) int64 {
	if past {
		return micros/1e3 + 1
	}
	return (micros + 999) / 1e3
}

// readPhrase reads created:>=TIME or created:FROM..TO in a search phrase. Both bounds are
// inclusive; a date is the whole day.
func readPhrase(q *query, phrase string) error {
	fields := strings.Fields(phrase)
	at := slices.IndexFunc(fields, func(s string) bool { return strings.HasPrefix(s, "created:") })
	if at < 0 {
		return nil
	}
	term := strings.TrimPrefix(fields[at], "created:")
	from, to, isRange := strings.Cut(term, "..")
	if open, ok := strings.CutPrefix(term, ">="); ok {
		from, to = open, "*"
	} else if !isRange {
		to = from
	}
	var err error
	read := func(text string, past bool) int64 {
		if text == "*" {
			return 0
		}
		if day, errDay := time.Parse(time.DateOnly, text); errDay == nil {
			if past {
				day = day.AddDate(0, 0, 1)
			}
			return day.UnixMilli()
		}
		instant, errTime := time.Parse(time.RFC3339Nano, text)
		if errTime != nil {
			err = invalid("The phrase has %q, which is no date or time.", text)
		}
		return bound(instant.UnixMicro(), past)
	}
	q.start, q.end = read(from, false), read(to, true)
	return err
}

// readFilter reads FIELD ge TIME and FIELD le TIME, both inclusive.
func readFilter(q *query, filter, field string) error {
	if filter == "" {
		return nil
	}
	for term := range strings.SplitSeq(filter, " and ") {
		words := strings.Fields(term)
		if len(words) != 3 || words[0] != field || words[1] != "ge" && words[1] != "le" {
			return invalid("The filter has %q, which is no comparison of %s.", term, field)
		}
		at, err := time.Parse(time.RFC3339Nano, words[2])
		if err != nil {
			return invalid("The filter has %q, which is no time.", words[2])
		}
		if words[1] == "ge" {
			q.start = bound(at.UnixMicro(), false)
		} else {
			q.end = bound(at.UnixMicro(), true)
		}
	}
	return nil
}
