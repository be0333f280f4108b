package exportapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/params"
	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/internal/secrets"
)

// errStoredLeak is the error of a stored cursor that contains a credential.
var errStoredLeak = errors.New("the stored cursor")

// paramEvents is the parameter of the event types.
const paramEvents = "events"

// requests builds a client's requests, for one goroutine at a time.
type requests struct {
	cfg      *Config
	urls     endpoints
	base     string // the path of EXPORT_URL, escaped
	auth     *credentials
	template *http.Request
	static   []params.Param // of EXPORT_PARAMS
	params   url.Values     // the same, for a query, without bounds
	bounded  bool           // some have a bound in them
	headers  []param        // of EXPORT_HEADERS
	// afterFirst is the query of a page with a cursor, before and after the cursor.
	afterFirst [2]string
	cursors    nextlink.Cursors
	leaks      *share.Value[string, secrets.Finder] // of what no cursor may have
	sound      string                               // the last cursor that has none of it
}

// newRequests returns the requests of a valid configuration.
func newRequests(cfg *Config, urls endpoints, auth *credentials) requests {
	r := requests{cfg: cfg, urls: urls, auth: auth, params: url.Values{}}
	if u, err := url.Parse(cfg.URL); err == nil {
		r.base = u.EscapedPath()
	}
	r.static, _ = cfg.static() // validated
	for _, p := range r.static {
		r.params.Add(p.Name, p.Value)
		r.bounded = r.bounded || p.Template != ""
	}
	r.headers, _ = parseHeaders(cfg.Headers.Reveal())
	r.prepare()
	return r
}

// secrets returns the values of static parameters and headers, and the password of a
// proxy, that must not be shown.
func (r *requests) secrets() (values []bridge.Secret) {
	var texts []string
	for _, p := range r.static {
		texts = append(texts, p.Texts()...)
	}
	for _, h := range r.headers {
		texts = append(texts, secretParts(h.value)...)
	}
	granted, _ := r.cfg.oauth2Params() // validated
	for _, values := range granted {
		texts = append(texts, values...)
	}
	if proxy, _ := r.cfg.proxy(); proxy != nil && proxy.User != nil { // validated
		password, _ := proxy.User.Password()
		texts = append(texts, password, basic(proxy.User.Username(), password))
	}
	for _, text := range texts {
		if len(text) >= shortCursor {
			values = append(values, bridge.Secret(text))
		}
	}
	return values
}

// credentials returns the values that authenticate, each with the name of its setting.
func (r *requests) credentials() (all []secrets.Secret) {
	for _, secret := range r.auth.secrets() {
		all = append(all, secrets.Secret{Name: "EXPORT_API_KEY or its token", Value: secret.Reveal()})
	}
	for _, h := range r.headers {
		if !secretHeader.MatchString(h.name) {
			continue
		}
		for _, part := range secretParts(h.value) {
			all = append(all, secrets.Secret{Name: "the header " + h.name + " of EXPORT_HEADERS", Value: part})
		}
	}
	for _, p := range r.static {
		if isCredential(p.Name) {
			all = append(all, secrets.Secret{Name: "the parameter " + p.Name + " of EXPORT_PARAMS", Value: p.Value})
		}
	}
	granted, _ := r.cfg.oauth2Params() // validated
	for name, values := range granted {
		for _, value := range values {
			if isCredential(name) || strings.HasSuffix(name, "assertion") {
				all = append(all, secrets.Secret{Name: "the parameter " + name + " of EXPORT_OAUTH2_PARAMS", Value: value})
			}
		}
	}
	return all
}

// leaked is the fault of a page whose cursor has a credential, which would be stored
// with it, or nil.
func (r *requests) leaked(cursor string) *bridge.Fault {
	if len(cursor) > bridge.MaxCursor { // is stored nowhere
		return nil
	}
	name := r.leak(cursor)
	if name == "" {
		return nil
	}
	hint := "check EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD; " +
		"an API that writes credentials into its cursors is not supported, " +
		"because whatever stores cursors would hold them in clear"
	if r.cfg.leads() && r.cfg.Scheme == authKey {
		hint = "if a parameter of the next URL has the key, set EXPORT_KEY_QUERY to its name, " +
			"which keeps it out of cursors; else " + hint
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: codeLeak, Reason: bridge.ReasonConfig, Hint: hint,
		Err: fmt.Errorf("the next cursor contains %s: it is not followed or stored", name)}
}

// LeakInCursor names the credential of the settings that a cursor contains, "" for none.
func (c *Config) LeakInCursor(cursor string) string {
	r := requests{cfg: c, auth: &credentials{cfg: c, secret: c.APIKey}}
	r.static, _ = c.static() // validated
	r.headers, _ = parseHeaders(c.Headers.Reveal())
	return secrets.NewFinder(r.credentials()).In(cursor)
}

// leak returns the name of the credential that a cursor has, "" without one.
func (r *requests) leak(cursor string) (name string) {
	if cursor != r.sound {
		if name = r.leaks.V.In(cursor); name == "" {
			r.sound = cursor
		}
	}
	return name
}

// secretHeader matches the names of headers that authenticate.
var secretHeader = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|session|password|signature`)

// secretParts returns the value of a static header, and the parts of it that the
// API may repeat alone, such as a token without its scheme. Shorter ones occur in
// ordinary text.
func secretParts(value string) []string {
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,=\"", r) })
	return slices.DeleteFunc(append([]string{value}, parts...), func(part string) bool { return len(part) < shortCursor })
}

// page builds the request for one page of at most size items. Its error is that
// of a position that the API cannot be asked for.
func (r *requests) page(ctx context.Context, at bridge.Position, size int) (*http.Request, error) {
	target, err := r.urls.of(at), r.cfg.Refuse(at)
	var body []byte
	switch leak := r.leak(at.Cursor); {
	case err != nil:
	case leak != "":
		return nil, fmt.Errorf("%w contains %s: it is not requested, which would write it into the logs of servers",
			errStoredLeak, leak)
	case at.Cursor != "" && r.cfg.leads():
		target, err = r.target(at, size)
	case r.cfg.posts():
		target = r.url(target, url.Values{})
		body, err = r.body(at, size)
	case at.Cursor != "" && !at.Window && size == r.cfg.PageSize && !r.bounded:
		u := *target
		u.RawQuery = r.afterFirst[0] + params.Escape(at.Cursor) + r.afterFirst[1]
		target = &u
	default:
		target = r.url(target, r.query(at, size))
	}
	if err != nil {
		return nil, err
	}
	req := r.template.WithContext(ctx)
	req.URL = target
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return req, nil
}

// url returns a URL with the query, and the key if it belongs there.
func (r *requests) url(base *url.URL, query url.Values) *url.URL {
	u := *base
	if name := r.cfg.keyParam(); name != "" {
		query.Set(name, r.auth.key())
	}
	u.RawQuery = params.Encode(query)
	return &u
}

// query is the query of a page of at most size items, without the key, escaped
// so that the API receives the cursor byte for byte.
func (r *requests) query(at bridge.Position, size int) url.Values {
	query := url.Values{}
	if at.Cursor != "" {
		if query.Set(r.cfg.CursorParam, at.Cursor); r.cfg.CursorAlone {
			return query
		}
	}
	for _, b := range r.cfg.bounds(at) {
		query.Set(b.name, b.value)
	}
	// Whether a cursor carries these is not documented.
	if r.cfg.PageSizeParam != noParam {
		query.Set(r.cfg.PageSizeParam, strconv.Itoa(size))
	}
	if r.cfg.namesEvents() {
		query[paramEvents] = r.cfg.Events
	}
	if !r.bounded {
		maps.Copy(query, r.params)
		return query
	}
	for _, p := range r.cfg.filled(r.static, at) {
		query.Add(p.Name, p.Value)
	}
	return query
}

// body is the JSON object with the parameters of a page of at most size items.
func (r *requests) body(at bridge.Position, size int) ([]byte, error) {
	body := make(map[string]any)
	if at.Cursor != "" {
		if params.Set(body, r.cfg.CursorParam, nextlink.Unquote(at.Cursor)); r.cfg.CursorAlone {
			return params.Marshal(body)
		}
	}
	for _, b := range r.cfg.bounds(at) {
		if strings.HasPrefix(r.cfg.TimeFormat, rfc3339) {
			params.Set(body, b.name, b.value)
		} else {
			params.Set(body, b.name, json.Number(b.value))
		}
	}
	if r.cfg.PageSizeParam != noParam {
		params.Set(body, r.cfg.PageSizeParam, size)
	}
	if r.cfg.namesEvents() {
		body[paramEvents] = r.cfg.Events
	}
	values := make(map[string][]any)
	for _, p := range r.cfg.filled(r.static, at) {
		values[p.Name] = append(values[p.Name], p.Any())
	}
	for name, all := range values {
		if len(all) == 1 {
			params.Set(body, name, all[0])
		} else {
			params.Set(body, name, all)
		}
	}
	return params.Marshal(body)
}

// prepare builds the parts common to requests with the same credentials. They
// share the template's header, which is never modified.
func (r *requests) prepare() {
	r.cursors = nextlink.Cursors{KeyParam: r.cfg.keyParam(), Key: r.auth.key(), Params: r.params, Known: r.urls.first}
	if r.cfg.keyParam() != "" { // else it is in headers, and in no URL
		r.cursors.Secrets = []nextlink.Secret{{Name: "auth.0", Value: r.auth.key()},
			{Name: "auth.1", Value: r.auth.secrets()[0].Reveal()}}
	}
	before, all := r.leaks, r.credentials()
	r.sound = ""
	r.leaks = r.cfg.Shared.finders.Use(fmt.Sprintf("%q", all), func() secrets.Finder { return secrets.NewFinder(all) })
	if before != nil {
		before.Leave()
	}
	beside := r.query(bridge.Position{}, r.cfg.PageSize)
	if r.cfg.CursorAlone {
		clear(beside)
	}
	r.afterFirst = [2]string{params.Escape(r.cfg.CursorParam) + "=",
		strings.TrimSuffix("&"+r.url(r.urls.after, beside).RawQuery, "&")}
	header := http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {body.AcceptEncoding},
		"User-Agent":      {"exportbridge"},
	}
	method := http.MethodGet
	if r.cfg.posts() {
		method = http.MethodPost
		header.Set("Content-Type", "application/json")
		// Not sent, but tells the transport that the request may be repeated.
		header["Idempotency-Key"] = nil
	}
	for _, h := range r.headers {
		header.Set(h.name, h.value)
	}
	r.auth.sign(header)
	r.template = &http.Request{Method: method, Host: r.urls.first.Host, Header: header, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1}
}
