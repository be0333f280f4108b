package learn

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// bounds are common names of the parameters of a start and an end, the likeliest first.
var bounds = [][2]string{
	{"start", "end"}, {"from", "to"}, {"since", "until"}, {"start_time", "end_time"}, {"startTime", "endTime"},
	{"created_after", "created_before"}, {"createdAfter", "createdBefore"}, {"after", "before"}, {"oldest", "latest"},
	{"start_date", "end_date"}, {"startDate", "endDate"}, {"since", "before"}, {"created[gte]", "created[lt]"},
	{"from_date", "to_date"}, {"fromDate", "toDate"}, {"occurredAfter", "occurredBefore"}, {"StartDate", "EndDate"},
	{"start_at", "end_at"}, {"min_time", "max_time"},
}

// attempt is a pair of parameters to try as the bounds of a range, and their format.
type attempt struct{ start, end, format string }

func (a attempt) String() string { return a.start + " and " + a.end }

// side is one bound of an attempt.
type side struct{ name, format string }

// boundSearch searches for the parameters that limit a list to the items between two times.
type boundSearch struct {
	command  *command
	from, to int64 // the times, in milliseconds since the epoch
	room     bool  // the list has items before from, between the times, and after to

	queue []attempt
	taken []string // names of other parameters
	tried []attempt
	seen  map[string]bool // names in the response or its URLs
	named map[string]bool // names in the curl command or in an error of the API
	holds map[side]bool   // whether a bound that was tried limited the list
	time  string          // name of the time of an item
	stem  string          // first part of time: created of created_at
	style style           // of names
	// brackets is set if another parameter has brackets, such as page[size].
	brackets bool
	last     error // of the last attempt
}

// A bound in rfc3339 has milliseconds, which some APIs reject.
const rfc3339, rfc3339Seconds = "rfc3339", "rfc3339-seconds"

var (
	// word matches a possible name of a parameter.
	word = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*(\[[A-Za-z_]+\])*`)
	// unknown matches an error about a parameter that the API does not have.
	unknown = regexp.MustCompile(`(?i)unknown|unexpected|unrecogni[sz]ed|unsupported|no such` +
		`|not (a )?(supported|allowed|valid|permitted)`)
	// timeSuffix matches the end of a time's name, after the stem.
	timeSuffix = regexp.MustCompile(`(_?(at|on|time|date|timestamp)|At|On|Time|Date|Timestamp)$`)
	sayRFC3339 = regexp.MustCompile(`(?i)iso.?8601|rfc.?3339|date.?time`)
	// formats are the formats of bounds, with the words of errors about them.
	formats = []struct {
		name string
		said *regexp.Regexp
	}{
		{rfc3339, sayRFC3339}, {rfc3339Seconds, sayRFC3339},
		{"ms", regexp.MustCompile(`(?i)milli`)},
		{"us", regexp.MustCompile(`(?i)micro`)},
		{"s", regexp.MustCompile(`(?i)epoch|unix|seconds`)},
	}
)

// newBoundSearch prepares a search. The response and the curl command decide the order of its attempts.
func newBoundSearch(p profile, page *listing, c *command) *boundSearch {
	s := &boundSearch{command: c, seen: make(map[string]bool), named: make(map[string]bool), holds: make(map[side]bool)}
	s.from, s.to, s.room = between(page.sorted())
	s.time = last(page.times[0].Pointer)
	s.stem = cmp.Or(strings.ToLower(timeSuffix.ReplaceAllString(s.time, "")), s.time)
	own := []string{p.value("EXPORT_PAGE_SIZE_PARAM")}
	for _, param := range c.static {
		if own = append(own, param.last()); !param.isTime() {
			s.taken = append(s.taken, param.name)
		}
	}
	s.taken = append(s.taken, own[0], p.value("EXPORT_CURSOR_PARAM"), p.value("EXPORT_KEY_QUERY"))
	names := page.Names(page.list)
	for _, name := range names {
		s.seen[name] = true
	}
	for _, place := range page.Next {
		if u, err := url.Parse(place.Value); err == nil && (place.In == "link" || place.In == "next-url") {
			for name := range u.Query() {
				s.seen[name] = true
			}
		}
	}
	for _, f := range page.fields {
		names = append(names, last(f.pointer))
	}
	// The style of other parameters says more than that of members.
	if s.style = styleOf(own); s.style == plain {
		s.style = styleOf(names)
	}
	for name := range s.seen {
		own = append(own, name)
	}
	s.brackets = slices.ContainsFunc(own, func(name string) bool { return strings.Contains(name, "[") })
	s.fill(cmp.Or(p.value("EXPORT_TIME_FORMAT"), strings.TrimSuffix(page.times[0].Format, "-utc")))
	return s
}

// fill adds the first attempts, in a format.
func (s *boundSearch) fill(format string) {
	for _, a := range s.command.assumed() {
		s.named[a.start], s.named[a.end] = true, true
		s.add(a)
	}
	pairs := s.command.pairs()
	if s.command.start.name == "" && s.command.end.name == "" {
		pairs = append(slices.Clone(pairs), [2]string{"filter[" + s.time + "][gte]", "filter[" + s.time + "][lt]"})
	}
	for _, pair := range pairs {
		s.add(attempt{pair[0], pair[1], format})
	}
	s.join(s.seen, format)
	s.sort()
	for _, a := range slices.Clone(s.queue) {
		if s.command.start.format == "" && (s.seen[a.start] && s.seen[a.end] || len(pairs) == 1) {
			s.reformat(a, "")
		}
	}
	s.sort()
}

// style is the spelling of a name of several words.
type style int

const (
	plain  style = iota // one word
	snake               // two_words
	camel               // twoWords
	pascal              // TwoWords
)

// styleOf returns the style of most names of several words.
func styleOf(names []string) style {
	var counts [pascal + 1]int
	for _, name := range names {
		switch {
		case name == "":
		case strings.Contains(name, "_"):
			counts[snake]++
		case name[:1] != strings.ToLower(name[:1]):
			counts[pascal]++
		case name != strings.ToLower(name):
			counts[camel]++
		}
	}
	return style(slices.Index(counts[:], slices.Max(counts[:])))
}

func (s *boundSearch) add(a attempt) {
	taken := slices.Contains(s.taken, a.start) || slices.Contains(s.taken, a.end)
	if !taken && !slices.Contains(s.queue, a) && !slices.Contains(s.tried, a) {
		s.queue = append(s.queue, a)
	}
}

// join adds pairs of names that look like a start and an end.
func (s *boundSearch) join(names map[string]bool, format string) {
	for _, start := range slices.Sorted(maps.Keys(names)) {
		for _, end := range slices.Sorted(maps.Keys(names)) {
			if startParam.MatchString(start) && endParam.MatchString(end) {
				s.add(attempt{start, end, format})
			}
		}
	}
}

// reformat adds a pair in the other formats, first in those that a text names.
func (s *boundSearch) reformat(a attempt, said string) {
	var named, others []attempt
	for _, f := range formats {
		if other := (attempt{a.start, a.end, f.name}); said != "" && f.said.MatchString(said) {
			named = append(named, other)
		} else {
			others = append(others, other)
		}
	}
	for _, other := range append(named, others...) {
		s.add(other)
	}
}

// sort puts the likeliest attempts first. Names that limited the list before count most.
func (s *boundSearch) sort() {
	score := func(a attempt) (n int) {
		for _, name := range []string{a.start, a.end} {
			if right, known := s.holds[side{name, a.format}]; right {
				n += 16
			} else if known {
				n -= 16
			}
			last := last(name)
			switch {
			case s.named[name]:
				n += 8
			case s.seen[last], s.brackets && strings.Contains(name, "["):
				n += 4
			case s.stem != "" && strings.HasPrefix(strings.ToLower(last), s.stem):
				n += 2
			}
			switch of := styleOf([]string{last}); {
			case s.style == pascal && of == pascal:
				n += 3
			case of != plain && of != s.style:
				n--
			}
		}
		return n
	}
	slices.SortStableFunc(s.queue, func(a, b attempt) int { return score(b) - score(a) })
}

// start returns the parameter that was proven to be a start, with its format.
func (s *boundSearch) start() side {
	for _, a := range s.tried {
		if at := (side{a.start, a.format}); s.holds[at] {
			return at
		}
	}
	return side{}
}

// limits reports whether both bounds of an attempt limited the list, and to at least one item. If one
// of them did, it adds attempts with that bound and other names.
func (s *boundSearch) limits(a attempt, listed []exportapi.SampledItem) bool {
	start, end := len(listed) > 0, len(listed) > 0
	for _, item := range listed {
		start = start && item.Time >= s.from-1000
		end = end && item.Time <= s.to+1000
	}
	s.last = errNoRange
	s.holds[side{a.start, a.format}], s.holds[side{a.end, a.format}] = start, end
	for _, pair := range bounds {
		if start {
			s.add(attempt{a.start, pair[1], a.format})
		}
		if end {
			s.add(attempt{pair[0], a.end, a.format})
		}
	}
	s.sort()
	return start && end
}

// useError adds attempts with the parameters, or the format, that the error of an attempt names.
func (s *boundSearch) useError(a attempt, err error) {
	s.last = err
	fault, _ := errors.AsType[*bridge.Fault](err)
	_, said, _ := strings.Cut(fault.Error(), ": ") // after the status
	words := word.FindAllString(said, -1)
	names := make(map[string]bool)
	for _, name := range words {
		if name != a.start && name != a.end && (startParam.MatchString(name) || endParam.MatchString(name)) {
			names[name] = true
			s.named[name] = true
		}
	}
	s.join(names, a.format)
	mentions := slices.Contains(words, a.start) || slices.Contains(words, a.end)
	if mentions && len(names) == 0 && !unknown.MatchString(said) {
		s.named[a.start], s.named[a.end] = true, true
		s.reformat(a, said)
	}
	s.sort()
}

// pairs returns the names of bounds to try: those of the curl command, if it has any.
func (c *command) pairs() (all [][2]string) {
	start, end := c.start.name, c.end.name
	switch {
	case start == "" && end == "":
		return bounds
	case start != "" && end != "":
		return [][2]string{{start, end}}
	}
	given, side := start+end, 0 // side is the place of given in a pair
	if start == "" {
		side = 1
	}
	above := strings.TrimSuffix(given, last(given))
	for _, alike := range []bool{true, false} { // first the pairs that have the given name
		for _, pair := range bounds {
			if !alike || strings.EqualFold(last(given), pair[side]) {
				pair[side], pair[1-side] = given, above+pair[1-side]
				all = append(all, pair)
			}
		}
	}
	return all
}

// untried lists the pairs that were not tried, "" for none.
func (s *boundSearch) untried() string {
	var names []string
	for _, a := range s.queue {
		tried := slices.ContainsFunc(s.tried, func(t attempt) bool { return t.String() == a.String() })
		if !tried && !slices.Contains(names, a.String()) {
			names = append(names, a.String())
		}
	}
	return strings.Join(names, ", ")
}

// failed lists the attempts. A pair without a format had that of the first attempt.
func (s *boundSearch) failed() string {
	var names []string
	for i, a := range s.tried {
		text := a.String()
		if i == 0 || a.format != s.tried[0].format {
			text += " as " + a.format
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}
