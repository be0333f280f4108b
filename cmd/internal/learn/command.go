package learn

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/jsonpointer"
)

var (
	sizeParam = named(`\$?(limit|count|take|size|top|first|rows|max_?results)`,
		`per_?page|page_?(size|limit)`, `page\[(limit|size)\]`)
	cursorParam = named(`.*(cursor|(page|next|skip)_?token|continuation|marker|scroll_?id).*`, `.*stream_?position`,
		`(starting_)?after|next`, `page\[after\]`)
	numberParam = named(`(page_?)?(no|num|number|index)`, `page|offset|skip|start`, `start_?(at|index)`,
		`page\[(number|offset)\]`)
	offsetParam = named(`offset|skip|start`, `start_?(at|index)`, `page\[offset\]`)
	startParam  = named(`since|start|from|after|begin|oldest|min_?time|.*\[gte?\]`, `(after|since)_?(time|date)`,
		stamped(`start|starting|from`, `after|since|gte?`), `filter\[from\]`, `date_?(from|start)`)
	endParam = named(`until|end|to|before|latest|max_?time|.*\[lte?\]`, `(before|until)_?(time|date)`,
		stamped(`end|ending|to`, `before|until|lte?`), `filter\[to\]`, `date_?(to|end)`)
)

// named matches the names of parameters.
func named(names ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(` + strings.Join(names, "|") + `)$`)
}

// stamped matches names of bounds such as created_after and start_time.
func stamped(side, relation string) string {
	return `(` + side + `|created|occurred|published)_?(on|at|time|date|` + relation + `)`
}

// param is a parameter of the request, in the query or in the body. Its name in the body may
// be a JSON pointer.
type param struct {
	name, value string
	json        bool   // value is a JSON value, not a text
	format      string // EXPORT_TIME_FORMAT of a value that is a time, else ""
	at          int64  // the time, in milliseconds since the epoch
}

// last is the last part of a name.
func (p param) last() string { return last(p.name) }

// last returns the last part of a JSON pointer.
func last(pointer string) string { return pointer[strings.LastIndexByte(pointer, '/')+1:] }

func (p param) isTime() bool { return p.format != "" }

// pair returns the parameter in the form of EXPORT_PARAMS.
func (p param) pair() string {
	if p.json { // brackets inside a text would count as those of a list
		return escaped(p.name) + ":=" + url.PathEscape(p.value)
	}
	return escaped(p.name) + "=" + escaped(p.value)
}

func escaped(text string) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	return strings.NewReplacer("%2F", "/", "%5B", "[", "%5D", "]").Replace(text)
}

// paramsOf returns the parameters of a request.
func paramsOf(r *Request) (all []param, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query of the URL cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			all = append(all, param{name: name, value: value})
		}
	}
	if r.Method != http.MethodPost {
		return all, nil
	}
	if len(all) > 0 {
		return nil, errors.New("a POST with a query is not supported: the bridge sends its parameters in the body")
	}
	var body map[string]any
	if r.Body != "" && decoder([]byte(r.Body)).Decode(&body) != nil {
		return nil, errors.New("the data of the curl command are not a JSON object")
	}
	return members(body, ""), nil
}

// decoder returns a decoder of JSON that keeps the digits of numbers.
func decoder(text []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d
}

// members returns the parameters in an object that is at a JSON pointer.
func members(object map[string]any, at string) (all []param) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		pointer := jsonpointer.Append(at, name)
		switch value := object[name].(type) {
		case map[string]any:
			all = append(all, members(value, pointer)...)
		default:
			p := param{name: pointer, json: true}
			if at == "" && !strings.HasPrefix(name, "/") {
				p.name = name
			}
			text, _ := json.Marshal(value) // cannot fail: the value was decoded
			if p.value = string(text); len(text) > 0 && text[0] == '"' {
				p.value, _ = value.(string)
				p.json = false
			}
			all = append(all, p)
		}
	}
	return all
}

// command is what the curl command says. It does not change.
type command struct {
	secrets    credentials
	sizeParam  string   // name of the parameter of the page size
	size       int      // value of sizeParam, 0 for none
	start, end param    // the bounds that are known by their names
	times      []param  // all parameters whose values are times
	static     []param  // parameters that each request repeats
	cursors    []string // names of parameters that may be the cursor
	number     string   // name of the parameter that numbers pages
}

// read sorts the parameters by their names and values. The first start, end and page size take their
// places, others are repeated by each request.
func (c *command) read(params []param) {
	for _, p := range params {
		format, at, isTime := timeOf(p.value)
		timed := p
		timed.format, timed.at = format, at
		starts, ends := isTime && startParam.MatchString(p.last()), isTime && endParam.MatchString(p.last())
		switch n, err := strconv.Atoi(p.value); {
		case c.size == 0 && sizeParam.MatchString(p.last()) && err == nil && n > 0 && n <= 10_000:
			c.sizeParam, c.size = p.name, n
			continue
		case starts && c.start.name == "":
			c.start, c.times = timed, append(c.times, timed)
			continue
		case ends && c.end.name == "":
			c.end, c.times = timed, append(c.times, timed)
			continue
		case starts, ends:
			p, c.times = timed, append(c.times, timed)
		case cursorParam.MatchString(p.last()):
			c.cursors = append(c.cursors, p.name)
			continue
		case numberParam.MatchString(p.last()) && isNumber(p.value):
			c.number = p.name
		case offsetParam.MatchString(p.last()) && !startParam.MatchString(p.last()):
			c.cursors = append(c.cursors, p.name)
			continue
		case isTime:
			p, c.times = timed, append(c.times, timed)
		}
		c.static = append(c.static, p)
	}
	// If the start has an unusual name, the first requests have both bounds.
	if c.start.name == "" && c.end.name != "" && len(c.assumed()) > 0 {
		c.static = append(c.static, c.end)
	}
}

// assumed returns the pairs of parameters whose values are times, unless the names of a start and
// an end are known. Pairs with a known name come first, then pairs whose names begin alike.
func (c *command) assumed() (all []attempt) {
	if c.start.name != "" && c.end.name != "" {
		return nil
	}
	for _, start := range c.times {
		for _, end := range c.times {
			if start.at < end.at && start.format == end.format {
				all = append(all, attempt{start.name, end.name, start.format})
			}
		}
	}
	alike := func(a attempt) (n int) {
		if a.start == c.start.name || a.end == c.end.name {
			return 1 << 10
		}
		for n < min(len(a.start), len(a.end)) && a.start[n] == a.end[n] {
			n++
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b attempt) int { return alike(b) - alike(a) })
	return all
}

// describe turns a request into the settings that it shows and the command that has the rest.
func describe(r *Request) (p profile, c command, err error) {
	p.findings = make(map[string]finding)
	for _, name := range []string{
		"EXPORT_METADATA_FIELD", "EXPORT_ITEM_INGESTED", "EXPORT_ITEM_TYPE", "EXPORT_ITEM_ID", "EXPORT_ITEM_SUBJECT",
		"KAFKA_KEY", "EXPORT_PAGE_SIZE_PARAM", "EXPORT_START_PARAM", "EXPORT_END_PARAM",
	} {
		p.set(name, none, "")
	}
	p.set("KAFKA_CE_TYPE_PREFIX", "event", "")
	base := *r.URL
	base.RawQuery, base.ForceQuery = "", false
	path := base.EscapedPath()
	base.Path, base.RawPath = "", ""
	p.set("EXPORT_URL", base.String(), "")
	p.set("EXPORT_PATH", strings.ReplaceAll("/"+strings.TrimPrefix(path, "/"), "//", "/"), "")
	if r.Method == http.MethodPost {
		p.set("EXPORT_METHOD", r.Method, "")
	}
	params, err := paramsOf(r)
	if err == nil {
		c.secrets, params, err = authenticate(p, r, params)
	}
	if err != nil {
		return p, c, err
	}
	if slices.ContainsFunc(strings.Split(r.URL.Path, "/"), likeToken) {
		p.ask("EXPORT_PATH", "a part of it looks like a token: if it is one, keep this file and a recording secret")
	}
	c.read(params)
	p.static = c.static
	if p.setSize(max(c.size, 1)); c.size > 0 {
		p.set("EXPORT_PAGE_SIZE_PARAM", c.sizeParam, "")
	}
	if c.start.name != "" {
		p.set("EXPORT_START_PARAM", c.start.name, "")
		p.set("EXPORT_TIME_FORMAT", c.start.format, "")
		p.set("EXPORT_START", bridge.InstantText(c.start.at), "the start of the curl command; -90d, for example, is relative")
	} else {
		p.ask("EXPORT_START_PARAM", "if the API has a parameter for the start, set it and EXPORT_TIME_FORMAT;"+
			" backfill and verify require EXPORT_END_PARAM too")
	}
	if c.end.name != "" {
		p.ask("EXPORT_END_PARAM", "not tried: if "+c.end.name+" is the end of a range, set EXPORT_END_PARAM="+c.end.name)
	}
	return p, c, nil
}

// timeOf reads a parameter's value as a time. It returns the format and the time, in milliseconds
// since the epoch and without the fraction of a second.
func timeOf(value string) (format string, at int64, ok bool) {
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return rfc3339, 1000 * t.Unix(), true
	}
	if ms, err := bridge.ParseInstant(value, time.Now()); err == nil && strings.Count(value, "-") == 2 {
		return rfc3339, ms / 1000 * 1000, true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return "", 0, false
	}
	for format, t := range map[string]time.Time{"s": time.Unix(n, 0), "ms": time.UnixMilli(n), "us": time.UnixMicro(n)} {
		if t.Year() >= 1990 && t.Year() < 2100 { // at most one of them
			return format, 1000 * t.Unix(), true
		}
	}
	return "", 0, false
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}
