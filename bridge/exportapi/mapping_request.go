package exportapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/itemtime"
	"exportbridge/bridge/exportapi/internal/params"
)

// RequestMapping configures the parameters and headers of requests.
type RequestMapping struct {
	Method         string        `env:"EXPORT_METHOD" stream:"yes" values:"GET,POST" desc:"method of requests; POST sends the parameters as a JSON object, where a name that begins with / is a JSON pointer"`
	StartParam     string        `env:"EXPORT_START_PARAM" stream:"yes" desc:"parameter of the start; none if the API has none: the export then begins at the earliest event, with EXPORT_FOLLOW=windows at EXPORT_START"`
	EndParam       string        `env:"EXPORT_END_PARAM" stream:"yes" desc:"parameter of the end; none if the API has none: then no backfill, replay, verify or EXPORT_END"`
	TimeFormat     string        `env:"EXPORT_TIME_FORMAT" stream:"yes" values:"ms,s,us,rfc3339,rfc3339-seconds" desc:"format of start and end: milliseconds, seconds or microseconds since the epoch, RFC 3339 with milliseconds, or without for an API that rejects them"`
	StartExclusive bool          `env:"EXPORT_START_EXCLUSIVE" stream:"yes" desc:"the API includes items neither at the start nor at the end itself: the bridge requests a start one unit of EXPORT_TIME_FORMAT earlier, and drops items whose own time is before the start"`
	EndInclusive   bool          `env:"EXPORT_END_INCLUSIVE" stream:"yes" desc:"the API includes items at the start and the end itself; items whose own time is the end of a window are dropped from it"`
	MaxPageSize    int           `env:"EXPORT_MAX_PAGE_SIZE" stream:"yes" desc:"largest page size of the API, up to 10000"`
	Params         bridge.Secret `env:"EXPORT_PARAMS" secret:"yes" stream:"yes" desc:"static parameters of each request, as name=value, separated by commas or line breaks and percent-encoded: %2C is a comma; name:=value is a JSON value, with EXPORT_METHOD=POST; {start} and {end} in a value are the bounds of the request, in EXPORT_TIME_FORMAT, in place of EXPORT_START_PARAM and EXPORT_END_PARAM" example:"include=actor,tenant=acme"`
	Headers        bridge.Secret `env:"EXPORT_HEADERS" secret:"yes" stream:"yes" desc:"static headers of each request, as Name: value, one per line" example:"Accept: application/vnd.example+json"`
	CursorPath     string        `env:"EXPORT_CURSOR_PATH" stream:"yes" desc:"path below EXPORT_URL of requests with a cursor; empty for that of the others" example:"/events/continue"`
	CursorAlone    bool          `env:"EXPORT_CURSOR_ALONE" stream:"yes" desc:"a request with a cursor has nothing beside it: no start, end, page size, EXPORT_EVENTS or EXPORT_PARAMS; the cursor carries them"`
	NextURL        string        `env:"EXPORT_NEXT_URL" stream:"yes" values:"whole,path" desc:"what is taken of a next URL: the whole, which must have the scheme, host and port of EXPORT_URL; or only path and query, for an API that a proxy makes name itself by another scheme or host"`
	NextParams     string        `env:"EXPORT_NEXT_PARAMS" stream:"yes" values:"warn,keep,add-missing" desc:"what is done about parameters of requests that a next URL lacks (EXPORT_PARAMS, page size, EXPORT_EVENTS, the bounds of a window): warn and request it as it is, keep it as it is, or add the missing ones"`
	CursorStatuses []string      `env:"EXPORT_CURSOR_STATUSES" stream:"yes" desc:"HTTP statuses that reject the cursor, where one was sent; empty for the default"`
}

const (
	// Values of EXPORT_NEXT_URL and EXPORT_NEXT_PARAMS.
	nextWhole, nextPath         = "whole", "path"
	nextWarn, nextKeep, nextAdd = "warn", "keep", "add-missing"

	// Values of EXPORT_TIME_FORMAT.
	seconds, micros, rfc3339, rfc3339Seconds = "s", "us", "rfc3339", "rfc3339-seconds"

	rfc3339Millis = "2006-01-02T15:04:05.000Z"
)

// param is a parameter or header with its value.
type param struct{ name, value string }

func (r *RequestMapping) posts() bool { return r.Method == http.MethodPost }

// timeFormats are the values of EXPORT_ITEM_TIME_FORMAT. The format of none is never used.
var timeFormats = map[string]itemtime.Format{
	"": itemtime.Millis, "ms": itemtime.Millis, "s": itemtime.Seconds, "us": itemtime.Micros,
	"rfc3339": itemtime.RFC3339, "rfc3339-utc": itemtime.RFC3339UTC, none: itemtime.Millis,
}

// WholeSeconds reports whether bounds have no fraction of a second.
func (r *RequestMapping) WholeSeconds() bool {
	return r.TimeFormat == seconds || r.TimeFormat == rfc3339Seconds
}

// namesEvents reports whether requests have the parameter of the event types.
func (c *Config) namesEvents() bool { return c.Resource == "events" && len(c.Events) > 0 }

// Bounded returns an error if the export cannot be read in bounded windows.
func (c *Config) Bounded() error {
	at := bridge.Position{End: 2, Window: true}
	if c.takesStart() {
		at.Start = 1
	}
	return c.Refuse(at)
}

// Bounds reports which bounds requests can have.
func (r *RequestMapping) Bounds() (start, end bool) { return r.takesStart(), r.takesEnd() }

// Starts returns an error if the export cannot begin at a given time.
func (r *RequestMapping) Starts() error {
	if !r.takesStart() {
		return errNoStart
	}
	return nil
}

var (
	errNoStart = errors.New("the API has no parameter for a start (EXPORT_START_PARAM=none), " +
		"so the export begins at the earliest event only")
	errNoEnd = errors.New("the API has no parameter for an end (EXPORT_END_PARAM=none), " +
		"so a bounded range cannot be read")
	errUnstarted = errors.New("the request has no start")
)

// takesStart and takesEnd report whether requests can have the bound, in any parameter.
func (r *RequestMapping) takesStart() bool { return r.StartParam != none || r.fills(params.Start) }
func (r *RequestMapping) takesEnd() bool   { return r.EndParam != none || r.fills(params.End) }

// fills reports whether EXPORT_PARAMS has a placeholder.
func (r *RequestMapping) fills(placeholder string) bool {
	static, _ := r.static() // validated
	return slices.ContainsFunc(static, func(p params.Param) bool { return p.Takes(placeholder) })
}

// Refuse returns an error if no request can ask for the position.
func (c *Config) Refuse(at bridge.Position) error {
	switch {
	case at.Cursor != "" && c.CursorAlone:
		return nil
	case at.Cursor != "" && !at.Window: // the cursor has the bounds
	case at.End != 0 && !c.takesEnd():
		return errNoEnd
	case at.Start != 0 && !c.takesStart():
		return errNoStart
	case at.Window && !c.AnyOrder && c.widens() && c.pointersOf(c.Resource).timeOptional:
		return errors.New("an event at the bound of two ranges is in both (EXPORT_START_EXCLUSIVE, EXPORT_END_INCLUSIVE, " +
			"EXPORT_TIME_FORMAT in whole seconds) and may have no time (EXPORT_ITEM_TIME) by which to drop it from one, " +
			"so a bounded range cannot be read")
	}
	static, _ := c.static() // validated
	for _, p := range static {
		switch {
		case p.Bound():
		case at.Start == 0 && p.Takes(params.Start):
			return fmt.Errorf("%w for {start} in %q of EXPORT_PARAMS", errUnstarted, p.Name)
		case at.End == 0 && p.Takes(params.End):
			return fmt.Errorf("the request has no end for {end} in %q of EXPORT_PARAMS", p.Name)
		}
	}
	return nil
}

// widens reports whether the API returns events outside a window.
func (r *RequestMapping) widens() bool {
	return r.StartExclusive || r.EndInclusive || r.WholeSeconds()
}

// asked returns the range that the API lists for a position, without the end itself.
func (r *RequestMapping) asked(at bridge.Position) (from, to int64) {
	unit := r.unit()
	from, to = at.Start/unit*unit, (at.End+unit-1)/unit*unit
	if r.StartExclusive && from > 0 {
		from -= unit
	}
	if r.EndInclusive {
		to += unit
	}
	return from, to
}

// unit is the smallest difference of two bounds, in milliseconds.
func (r *RequestMapping) unit() int64 {
	if r.WholeSeconds() {
		return 1000
	}
	return 1
}

// bounds returns the parameters of the position's bounds. Whole seconds make the range
// wider: timeline.Trim drops the excess.
func (r *RequestMapping) bounds(at bridge.Position) (bounds []param) {
	if at.Cursor != "" && !at.Window {
		return nil
	}
	if at.Start != 0 && !r.fills(params.Start) {
		bounds = append(bounds, param{r.StartParam, r.formatStart(at.Start)})
	}
	if at.End != 0 && !r.fills(params.End) {
		bounds = append(bounds, param{r.EndParam, r.formatEnd(at.End)})
	}
	return bounds
}

// formatEnd formats an end. If the format has whole seconds, the end is rounded up.
func (r *RequestMapping) formatEnd(ms int64) string {
	return r.formatTime(ms + r.unit() - 1)
}

// formatStart formats a start. One that the API excludes is a unit earlier.
func (r *RequestMapping) formatStart(ms int64) string {
	if r.StartExclusive {
		ms -= r.unit()
	}
	return r.formatTime(ms)
}

// filled returns the static parameters with the position's bounds in place of their
// placeholders. A parameter that is only a placeholder is left out if the position lacks
// its bound.
func (r *RequestMapping) filled(static []params.Param, at bridge.Position) (all []params.Param) {
	for _, p := range static {
		if !p.Bound() || p.Template == params.Start && at.Start != 0 || p.Template == params.End && at.End != 0 {
			all = append(all, p.Fill(r.formatStart(at.Start), r.formatEnd(at.End)))
		}
	}
	return all
}

// beside returns the settings of all that a request has besides its cursor and
// EXPORT_PARAMS.
func (c *Config) beside(at bridge.Position) (settings []string) {
	if at.Cursor != "" && (c.CursorAlone || c.leads()) {
		return nil
	}
	bounds := c.bounds(at)
	add := func(has bool, names ...string) {
		if has {
			settings = append(settings, names...)
		}
	}
	add(len(bounds) > 0 && at.Start != 0, "EXPORT_START", "EXPORT_START_PARAM")
	add(len(bounds) > 0 && at.End != 0, "EXPORT_END_PARAM")
	add(len(bounds) > 0, "EXPORT_TIME_FORMAT")
	add(c.PageSizeParam != none, "EXPORT_PAGE_SIZE", "EXPORT_PAGE_SIZE_PARAM")
	add(c.namesEvents(), "EXPORT_EVENTS")
	return settings
}

// formatTime formats milliseconds since the epoch.
func (r *RequestMapping) formatTime(ms int64) string {
	switch at := time.UnixMilli(ms).UTC(); r.TimeFormat {
	case seconds:
		return strconv.FormatInt(at.Unix(), 10)
	case micros:
		return strconv.FormatInt(ms, 10) + "000"
	case rfc3339:
		return at.Format(rfc3339Millis)
	case rfc3339Seconds:
		return at.Format(time.RFC3339)
	}
	return strconv.FormatInt(ms, 10)
}

// checkRequests reports all problems of the settings of requests. headers are those of EXPORT_HEADERS.
func (c *Config) checkRequests(p *bridge.Problems, headers []param) {
	most := c.MaxPageSize
	p.Check(most >= 1 && most <= maxItems, "EXPORT_MAX_PAGE_SIZE",
		"%d is not within 1 to %d, for example 1000", most, maxItems)
	p.Check(c.PageSize >= 1 && c.PageSize <= most, "EXPORT_PAGE_SIZE",
		"%d is not within 1 to %d (EXPORT_MAX_PAGE_SIZE), for example %d", c.PageSize, most, most)
	for _, text := range c.CursorStatuses {
		status, err := strconv.Atoi(text)
		own := slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
			http.StatusTooManyRequests}, status)
		p.Check(err == nil && status >= 400 && status < 500 && !own, "EXPORT_CURSOR_STATUSES",
			"%q is not a status that can reject a cursor: 400 to 499 without 401, 403, 408 and 429, "+
				"for example 400,404,410", text)
	}
	p.Check(!c.CursorAlone || !c.leads(), "EXPORT_CURSOR_ALONE",
		"is true, but a next URL (EXPORT_CURSOR_IN=%s) is requested as it is; unset one of them", c.CursorIn)
	p.Check(!c.CursorAlone || !c.Numbered(), "EXPORT_CURSOR_ALONE",
		"is true, but a number (EXPORT_CURSOR_IN=%s) does not carry the bounds of its list; unset one of them", c.CursorIn)
	p.Check(c.CursorParam != none || c.leads(), "EXPORT_CURSOR_PARAM",
		"is none, but requests have the cursor of EXPORT_CURSOR_IN=%s as a parameter, for example cursor", c.cursorIn())
	needsURL := func(variable, value, usual string) {
		p.Check(value == "" || value == usual || c.leads(), variable,
			"is %s, but EXPORT_CURSOR_IN=%s has no next URL; unset it, or set EXPORT_CURSOR_IN=next-url or link",
			value, c.cursorIn())
	}
	needsURL("EXPORT_NEXT_URL", c.NextURL, nextWhole)
	needsURL("EXPORT_NEXT_PARAMS", c.NextParams, nextWarn)
	p.Check(c.CursorPath == "" || !c.leads(), "EXPORT_CURSOR_PATH",
		"is set, but a next URL (EXPORT_CURSOR_IN=%s) names its own path; unset it", c.CursorIn)
	c.checkParams(p)
	for _, h := range headers {
		p.Check(!OwnHeader(h.name), "EXPORT_HEADERS", "has %s, which is set by the program", h.name)
		p.Check(h.name != c.authHeader(), "EXPORT_HEADERS", "has %s, which EXPORT_AUTH=%s sets", h.name, c.Scheme)
	}
}

// checkParams checks the names of all parameters. No name may occur twice.
func (c *Config) checkParams(p *bridge.Problems) {
	type named struct{ setting, name, example string }
	var all []named
	if c.namesEvents() {
		all = append(all, named{"EXPORT_EVENTS", paramEvents, ""})
	}
	check := func(param named, format string) {
		p.Add(prefixed(param.setting, params.CheckName(param.name, c.posts())))
		if i := slices.IndexFunc(all, func(other named) bool { return params.Collide(other.name, param.name) }); i >= 0 {
			p.Check(false, param.setting, format, param.name, all[i].setting, param.example)
		}
	}
	// own returns the parameter of a bound, or none if a placeholder takes the bound.
	own := func(setting, name, bound string) string {
		if !c.fills(bound) {
			return name
		}
		p.Check(name == none || "{"+name+"}" == bound, setting,
			"is %s, but EXPORT_PARAMS has %s; unset one of them", name, bound)
		return none
	}
	for _, param := range []named{
		{"EXPORT_START_PARAM", own("EXPORT_START_PARAM", c.StartParam, params.Start), "start"},
		{"EXPORT_END_PARAM", own("EXPORT_END_PARAM", c.EndParam, params.End), "end"},
		{"EXPORT_CURSOR_PARAM", c.CursorParam, "cursor"},
		{"EXPORT_PAGE_SIZE_PARAM", c.PageSizeParam, "pageSize"}, {"EXPORT_KEY_QUERY", c.KeyQuery, "api_key"},
	} {
		p.Check(param.name != "" || param.setting == "EXPORT_KEY_QUERY", param.setting, "is empty, for example %s",
			param.example)
		if param.name == "" || param.name == none {
			continue
		}
		if param.name == c.KeyQuery && params.Pointer(param.name) {
			p.Check(false, param.setting, "%q is a JSON pointer, but the key is sent in the query, for example %s",
				param.name, param.example)
			continue
		}
		check(param, "%q is already the parameter of %s, for example %s")
		all = append(all, param)
	}
	static, err := c.static()
	p.Add(err)
	for i, param := range static {
		check(named{"EXPORT_PARAMS", param.Name, ""}, "has %q, which is already the parameter of %s%s")
		p.Check(!param.JSON || c.posts(), "EXPORT_PARAMS",
			"has %q with := for a JSON value, but EXPORT_METHOD=GET sends text; write %[1]s=value", param.Name)
		bound := c.formatTime(1_700_000_000_000)
		filled := param.Fill(bound, bound)
		p.Check(!param.JSON || param.Template == "" || json.Valid([]byte(filled.Value)), "EXPORT_PARAMS",
			"has %q with :=, which is no JSON value after a time is inserted; "+
				"with EXPORT_TIME_FORMAT=%s write quotes around {start} and {end}", param.Name, c.TimeFormat)
		j := slices.IndexFunc(static[:i], func(other params.Param) bool {
			return other.Name != param.Name && params.Collide(other.Name, param.Name)
		})
		p.Check(j < 0 || !c.posts(), "EXPORT_PARAMS",
			"has %q inside another of its parameters; set one of the two", param.Name)
	}
}

// static parses EXPORT_PARAMS.
func (r *RequestMapping) static() ([]params.Param, error) {
	static, err := params.Parse(r.Params.Reveal())
	return static, prefixed("EXPORT_PARAMS", err)
}

// prefixed makes an error a problem of a setting. Nil stays nil.
func prefixed(setting string, err error) error {
	if err == nil {
		return nil
	}
	return bridge.Problemf(setting, "%s", err.Error())
}

// ownHeaders are the headers that the program sets.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Host", "Idempotency-Key", "Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// OwnHeader reports whether the program sets a header itself. The name is in canonical form.
func OwnHeader(name string) bool { return slices.Contains(ownHeaders, name) }

// headers parses EXPORT_HEADERS. Its errors quote no values.
func (r *RequestMapping) headers() (headers []param, err error) {
	lines := strings.FieldsFunc(r.Headers.Reveal(), func(r rune) bool { return r == '\n' || r == '\r' })
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !found || !isToken(name) || value == "" || !printable(value) {
			return nil, bridge.Problemf("EXPORT_HEADERS", "has no Name: value in line %d, "+
				"for example Accept: application/json; write one header per line", i+1)
		}
		if slices.ContainsFunc(headers, func(h param) bool { return h.name == name }) {
			return nil, bridge.Problemf("EXPORT_HEADERS", "has %s twice", name)
		}
		headers = append(headers, param{name, value})
	}
	return headers, nil
}
