package learn

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
)

var (
	secretHeader = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|session|password|signature`)
	identity     = regexp.MustCompile(`(?i)e-?mail|user(_?name)?$|account(_?id)?$`)
	secretParam  = named(`(x[-_])?(api_?key|((access|auth|api)_?)?token|key)`, `(client_?)?secret|password|sig|signature`)
	sizeParam    = named(`\$?(limit|count|take|size|top|first|rows|max_?results)`, `per_?page|page_?(size|limit)`, `page\[(limit|size)\]`)
	cursorParam  = named(`.*(cursor|(page|next|skip)_?token|continuation|marker|scroll_?id).*`, `.*stream_?position`, `(starting_)?after|next`, `page\[after\]`)
	numberParam  = named(`(page_?)?(no|num|number|index)`, `page|offset|skip|start`, `start_?(at|index)`, `page\[(number|offset)\]`)
	offsetParam  = named(`offset|skip|start`, `start_?(at|index)`, `page\[offset\]`)
	startParam   = named(`since|start|from|after|begin|oldest|min_?time|.*\[gte?\]`, `(after|since)_?(time|date)`, stamped(`start|starting|from`, `after|since|gte?`), `filter\[from\]`, `date_?(from|start)`)
	endParam     = named(`until|end|to|before|latest|max_?time|.*\[lte?\]`, `(before|until)_?(time|date)`, stamped(`end|ending|to`, `before|until|lte?`), `filter\[to\]`, `date_?(to|end)`)
)

// named matches the names of parameters.
func named(names ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(` + strings.Join(names, "|") + `)$`)
}

// stamped are names of bounds such as created_after and start_time.
func stamped(side, relation string) string {
	return `(` + side + `|created|occurred|published)_?(on|at|time|date|` + relation + `)`
}

// ownHeaders are set by the bridge itself.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host", "User-Agent"}

// param is a parameter of the request: of the query, or of the body by its name or
// JSON pointer.
type param struct {
	name, value string
	json        bool // value is a JSON value, not a text
}

// last is the last part of a name.
func (p param) last() string { return p.name[strings.LastIndexByte(p.name, '/')+1:] }

// describe turns the request into settings.
func (l *learner) describe(r *Request) error {
	base := *r.URL
	base.RawQuery, base.ForceQuery = "", false
	path := base.EscapedPath()
	base.Path, base.RawPath = "", ""
	l.set("EXPORT_URL", base.String(), "")
	l.set("EXPORT_PATH", strings.ReplaceAll("/"+strings.TrimPrefix(path, "/"), "//", "/"), "")
	params, err := paramsOf(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		l.set("EXPORT_METHOD", r.Method, "")
	}
	if params, err = l.authenticate(r, params); err != nil {
		return err
	}
	l.setParams(params)
	return nil
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
	d := json.NewDecoder(strings.NewReader(r.Body))
	d.UseNumber()
	if r.Body != "" && d.Decode(&body) != nil {
		return nil, errors.New("the data of the curl command are not a JSON object")
	}
	return members(body, ""), nil
}

// members returns the parameters inside of an object at a JSON pointer.
func members(object map[string]any, at string) (all []param) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		pointer := at + "/" + escape.Replace(name)
		switch value := object[name].(type) {
		case map[string]any:
			all = append(all, members(value, pointer)...)
		default:
			p := param{name: pointer, json: true}
			if at == "" && !strings.HasPrefix(name, "/") {
				p.name = name
			}
			text, _ := json.Marshal(value) // it was decoded
			if p.value = string(text); len(text) > 0 && text[0] == '"' {
				p.value, _ = value.(string)
				p.json = false
			}
			all = append(all, p)
		}
	}
	return all
}

// escape escapes a name for a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// isKey says where a credential goes.
const isKey = " is EXPORT_API_KEY, or in a file EXPORT_API_KEY_FILE"

// authenticate takes the credentials out of the request, and returns the parameters
// that are none.
func (l *learner) authenticate(r *Request, params []param) ([]param, error) {
	var static []Header
	key := func(secret, header, prefix string) {
		l.secret = secret
		l.set("EXPORT_KEY_HEADER", header, "the key that curl sent in this header"+isKey)
		if header == "Authorization" && prefix != "Bearer" || header != "Authorization" && prefix != "" {
			l.set("EXPORT_KEY_PREFIX", prefix, "")
		}
	}
	user, password := r.User, r.Password
	other := func(h Header) bool { return h.Name != "Authorization" }
	inOrder := slices.Concat(slices.DeleteFunc(slices.Clone(r.Header), other), r.Header)
	for i, h := range inOrder {
		scheme, token, words := strings.Cut(h.Value, " ")
		switch {
		case slices.Contains(ownHeaders, h.Name), slices.Contains(inOrder[:i], h):
		case h.Name == "Accept" && (h.Value == "application/json" || h.Value == "*/*"):
		case h.Name == "Authorization" && strings.EqualFold(scheme, "Basic"):
			plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token))
			if err != nil {
				return nil, errors.New("the header Authorization has Basic, but no user and password in base64")
			}
			user, password, _ = strings.Cut(string(plain), ":")
		case h.Name == "Authorization" && words:
			key(strings.TrimSpace(token), h.Name, scheme)
		case h.Name == "Authorization":
			key(h.Value, h.Name, "none")
		case !secretName(h.Name) || l.secret != "" || user+password != "":
			static = append(static, h)
		default:
			key(h.Value, h.Name, "")
		}
	}
	l.setHeaders(static)
	switch i := slices.IndexFunc(params, func(p param) bool { return secretParam.MatchString(p.name) }); {
	case (user == "") != (password == ""):
		l.halfBasic(user, password)
	case user != "":
		l.secret = password
		l.drop("EXPORT_KEY_HEADER", "EXPORT_KEY_PREFIX")
		l.set("EXPORT_AUTH", "basic", "the password"+isKey)
		l.set("EXPORT_AUTH_USER", user, "")
	case l.secret == "" && i >= 0 && r.Method == http.MethodGet:
		l.secret = params[i].value
		l.set("EXPORT_KEY_QUERY", params[i].name, "the key that curl sent in this parameter"+isKey)
		params = slices.Delete(params, i, i+1)
	case l.secret == "":
		l.set("EXPORT_AUTH", "none", "the curl command has no key")
	}
	if slices.ContainsFunc(params, func(p param) bool { return secretParam.MatchString(p.last()) }) {
		return nil, errors.New("a parameter beside the key, or of a body, holds a credential, which the profile would have")
	}
	return params, nil
}

// halfBasic sets a key in place of the user or of the password: EXPORT_AUTH=basic has both.
func (l *learner) halfBasic(user, password string) {
	l.half = user + password
	l.secret = base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	format := "%s:"
	if user == "" {
		format = ":%s"
	}
	l.set("EXPORT_KEY_HEADER", "Authorization", "Basic with one of user and password, KEY: the output of printf '"+
		format+`' "$KEY" | base64 | tr -d '\n'`+isKey)
	l.set("EXPORT_KEY_PREFIX", "Basic", "")
}

// secretName reports whether a header of that name may hold a secret: X-Auth-Key, and not
// X-Auth-Email.
func secretName(header string) bool {
	return secretHeader.MatchString(header) && !identity.MatchString(header)
}

// setHeaders sets the static headers. One that may hold a secret keeps them all out of
// the profile.
func (l *learner) setHeaders(static []Header) {
	var lines, names []string
	secret := false
	for _, h := range static {
		secret = secret || secretName(h.Name)
		lines, names = append(lines, h.Name+": "+h.Value), append(names, h.Name+": ...")
	}
	switch text := strings.Join(lines, "\n"); {
	case text == "":
	case secret:
		l.headers = text
		l.finding("EXPORT_HEADERS").example = strings.Join(names, "\n")
		l.finding("EXPORT_HEADERS").why = "a further header holds a secret"
	default:
		l.set("EXPORT_HEADERS", text, "")
	}
}

// setParams sets the parameters that say how much, from where on, and what else.
func (l *learner) setParams(params []param) {
	l.set("EXPORT_PAGE_SIZE_PARAM", "none", "")
	l.set("EXPORT_START_PARAM", "none", "")
	l.set("EXPORT_END_PARAM", "none", "")
	l.ask("EXPORT_START_PARAM", "if the API has a parameter for the start, set it and EXPORT_TIME_FORMAT;"+
		" backfill and verify require EXPORT_END_PARAM too")
	for _, p := range params {
		n, errSize := strconv.Atoi(p.value)
		format, at, isTime := timeOf(p.value)
		switch {
		case sizeParam.MatchString(p.last()) && errSize == nil && n > 0 && n <= 10_000:
			l.set("EXPORT_PAGE_SIZE_PARAM", p.name, "")
			l.size = n
			continue
		case isTime && startParam.MatchString(p.last()):
			l.set("EXPORT_START_PARAM", p.name, "")
			l.set("EXPORT_TIME_FORMAT", format, "")
			l.set("EXPORT_START", at, "the start of the curl command; -90d, for example, is relative")
			l.ask("EXPORT_START_PARAM", "")
			l.moments = append(l.moments, newTimed(p, format, at))
			continue
		case isTime && endParam.MatchString(p.last()):
			l.end = p.name
			l.moments = append(l.moments, newTimed(p, format, at))
			l.endAt = l.moments[len(l.moments)-1].at
			l.ask("EXPORT_END_PARAM", "not tried: if "+p.name+" is the end of a range, set EXPORT_END_PARAM="+p.name)
			continue
		case cursorParam.MatchString(p.last()):
			l.cursors = append(l.cursors, p.name)
			continue
		case numberParam.MatchString(p.last()) && isNumber(p.value):
			l.numbered = p.name
		case offsetParam.MatchString(p.last()) && !startParam.MatchString(p.last()):
			l.cursors = append(l.cursors, p.name)
			continue
		case isTime:
			l.moments = append(l.moments, newTimed(p, format, at))
		}
		l.static = append(l.static, p)
	}
	// Where the start has another name, the first requests have both.
	if l.finding("EXPORT_START_PARAM").value == none && len(l.assumed()) > 0 {
		for _, t := range l.moments {
			if t.name == l.end {
				l.static = append(l.static, t.param)
			}
		}
	}
	l.setStatic()
	l.set("EXPORT_PAGE_SIZE", strconv.Itoa(max(l.size, 1)), "")
	l.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(max(l.size, 1)), "")
}

// timed is a parameter of the request whose value is a time.
type timed struct {
	param
	format string
	at     int64 // in milliseconds since the epoch
}

func newTimed(p param, format, at string) timed {
	ms, _ := bridge.ParseInstant(at, time.Now()) // timeOf wrote it
	return timed{p, format, ms}
}

// assumed are pairs of parameters whose values are times, unless the names of a start and
// an end are known: those with a known one first, then those whose names begin alike.
func (l *learner) assumed() (all []attempt) {
	if l.finding("EXPORT_START_PARAM").value != none && l.end != "" {
		return nil
	}
	for _, start := range l.moments {
		for _, end := range l.moments {
			if start.at < end.at && start.format == end.format {
				all = append(all, attempt{start.name, end.name, start.format})
			}
		}
	}
	alike := func(a attempt) (n int) {
		if a.start == l.finding("EXPORT_START_PARAM").value || a.end == l.end {
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

// hasTime reports whether a parameter of the request has a time.
func (l *learner) hasTime(name string) bool {
	return slices.ContainsFunc(l.moments, func(t timed) bool { return t.name == name })
}

// bind takes the parameters of bounds out of the static ones.
func (l *learner) bind(names ...string) {
	l.static = slices.DeleteFunc(l.static, func(p param) bool { return slices.Contains(names, p.name) })
	l.setStatic()
}

// setStatic sets the static parameters but some.
func (l *learner) setStatic(but ...string) {
	var pairs, times []string
	for _, p := range l.static {
		if slices.Contains(but, p.name) {
			continue
		}
		if l.hasTime(p.name) {
			times = append(times, p.name)
		}
		sign := "="
		if p.json {
			sign = ":="
		}
		pairs = append(pairs, escaped(p.name)+sign+escaped(p.value))
	}
	if l.drop("EXPORT_PARAMS"); len(pairs) > 0 {
		l.set("EXPORT_PARAMS", strings.Join(pairs, ","), "")
	}
	if len(times) > 0 {
		l.ask("EXPORT_PARAMS", strings.Join(times, ", ")+": their values look like times, and they were not proven to be"+
			" a start and an end: every request has them as they are")
	}
}

func escaped(text string) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	return strings.NewReplacer("%2F", "/", "%5B", "[", "%5D", "]").Replace(text)
}

// timeOf reads a parameter's value as a time, and returns its format and the time as
// EXPORT_START takes it.
func timeOf(value string) (format, at string, ok bool) {
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return "rfc3339", t.UTC().Format(time.RFC3339), true
	}
	if ms, err := bridge.ParseInstant(value, time.Now()); err == nil && strings.Count(value, "-") == 2 {
		return "rfc3339", time.UnixMilli(ms).UTC().Format(time.RFC3339), true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return "", "", false
	}
	for _, unit := range []struct {
		format string
		of     func(int64) time.Time
	}{{"s", func(n int64) time.Time { return time.Unix(n, 0) }}, {"ms", time.UnixMilli}, {"us", time.UnixMicro}} {
		if t := unit.of(n); t.Year() >= 1990 && t.Year() < 2100 {
			return unit.format, t.UTC().Format(time.RFC3339), true
		}
	}
	return "", "", false
}

// errTooMany ends what takes too many requests.
var errTooMany = &UnfollowableError{
	fmt.Sprintf("no next page was found within %d requests", mostRequests),
	"look in the documentation for the parameter of the cursor, and take a curl command that has it",
}
