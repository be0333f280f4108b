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
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/params"
	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/exportapi/jsonpointer"
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
	carried  []params.Param // those that are more than a bound, so that next URLs have them
	bounded  bool           // some have a placeholder
	headers  []param        // of EXPORT_HEADERS
	// afterFirst is the query of requests with a cursor: the parts before and after the
	// cursor.
	afterFirst [2]string
	cursors    nextlink.Cursors                     // without Params, see cursorsAt
	leaks      *share.Value[string, secrets.Finder] // finds credentials
	sound      string                               // the last cursor without credentials
}

// newRequests returns the requests of a valid configuration.
func newRequests(cfg *Config, urls endpoints, auth *credentials) requests {
	r := requests{cfg: cfg, urls: urls, auth: auth}
	if u, err := url.Parse(cfg.URL); err == nil {
		r.base = u.EscapedPath()
	}
	r.static, _ = cfg.static() // validated
	r.carried = slices.DeleteFunc(slices.Clone(r.static), params.Param.Bound)
	r.bounded = slices.ContainsFunc(r.static, func(p params.Param) bool { return p.Template != "" })
	r.headers, _ = cfg.headers() // validated
	r.prepare()
	return r
}

// secrets returns the values that no error may show: of static parameters and headers, of
// the token request, and the password of the proxy.
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
	add := func(name string, values ...string) {
		for _, value := range values {
			all = append(all, secrets.Secret{Name: name, Value: value})
		}
	}
	for _, secret := range r.auth.secrets() {
		add("EXPORT_API_KEY or its token", secret.Reveal())
	}
	for _, h := range r.headers {
		if bridge.IsCredentialHeader(h.name) {
			add("the header "+h.name+" of EXPORT_HEADERS", secretParts(h.value)...)
		}
	}
	for _, p := range r.static {
		if bridge.IsCredential(p.Name) {
			add("the parameter "+p.Name+" of EXPORT_PARAMS", p.Value)
		}
	}
	granted, _ := r.cfg.oauth2Params() // validated
	for name, values := range granted {
		if bridge.IsCredential(name) || strings.HasSuffix(name, "assertion") {
			add("the parameter "+name+" of EXPORT_OAUTH2_PARAMS", values...)
		}
	}
	return all
}

// leaked returns the fault of a page whose cursor contains a credential, or nil. The
// credential would be stored with the cursor.
func (r *requests) leaked(cursor string) *bridge.Fault {
	if len(cursor) > bridge.MaxCursor { // it is never stored
		return nil
	}
	name := r.leak(cursor)
	if name == "" {
		return nil
	}
	hint := "check EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD; " +
		"an API that writes credentials into its cursors is not supported, " +
		"because cursors are stored in clear text"
	if r.cfg.leads() && r.cfg.Scheme == authKey {
		hint = "if a parameter of the next URL has the key, set EXPORT_KEY_QUERY to its name, " +
			"which keeps it out of cursors; else " + hint
	}
	return bridge.Blockf(codeLeak, bridge.ReasonConfig, hint,
		"the next cursor contains %s: it is not followed or stored", name)
}

// LeakInCursor returns the name of the credential that a cursor contains, "" for none.
func (c *Config) LeakInCursor(cursor string) string {
	r := requests{cfg: c, auth: &credentials{cfg: c, secret: c.APIKey}}
	r.static, _ = c.static()   // validated
	r.headers, _ = c.headers() // validated
	return secrets.NewFinder(r.credentials()).In(cursor)
}

// leak returns the name of the credential that a cursor contains, "" for none.
func (r *requests) leak(cursor string) (name string) {
	if cursor != r.sound {
		if name = r.leaks.V.In(cursor); name == "" {
			r.sound = cursor
		}
	}
	return name
}

// secretParts returns the value of a static header, and the parts that the API may repeat
// alone, such as a token without its scheme. It omits short parts, which occur in ordinary
// text.
func secretParts(value string) []string {
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,=\"", r) })
	return slices.DeleteFunc(append([]string{value}, parts...), func(part string) bool { return len(part) < shortCursor })
}

// page builds the request for one page of at most size items. It returns an error if no
// request can ask for the position.
func (r *requests) page(ctx context.Context, at bridge.Position, size int) (*http.Request, error) {
	target, err := r.urls.of(at), r.cfg.Refuse(at)
	var body []byte
	switch leak := r.leak(at.Cursor); {
	case err != nil:
	case leak != "":
		return nil, fmt.Errorf("%w contains %s: it is not requested, because servers log URLs",
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

// query returns the query of a page of at most size items, without the key.
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
	maps.Copy(query, r.common(r.static, at, size))
	return query
}

// common returns the query of what requests have besides cursor, bounds and key.
func (r *requests) common(static []params.Param, at bridge.Position, size int) url.Values {
	query := params.Query(r.cfg.filled(static, at))
	if r.cfg.PageSizeParam != none {
		query.Set(r.cfg.PageSizeParam, strconv.Itoa(size))
	}
	if r.cfg.namesEvents() {
		query[paramEvents] = r.cfg.Events
	}
	return query
}

// body returns the JSON object with the parameters of a page of at most size items.
func (r *requests) body(at bridge.Position, size int) ([]byte, error) {
	body := make(map[string]any)
	if at.Cursor != "" {
		if jsonpointer.Set(body, r.cfg.CursorParam, nextlink.Unquote(at.Cursor)); r.cfg.CursorAlone {
			return params.Marshal(body)
		}
	}
	for _, b := range r.cfg.bounds(at) {
		if strings.HasPrefix(r.cfg.TimeFormat, rfc3339) {
			jsonpointer.Set(body, b.name, b.value)
		} else {
			jsonpointer.Set(body, b.name, json.Number(b.value))
		}
	}
	if r.cfg.PageSizeParam != none {
		jsonpointer.Set(body, r.cfg.PageSizeParam, size)
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
			jsonpointer.Set(body, name, all[0])
		} else {
			jsonpointer.Set(body, name, all)
		}
	}
	return params.Marshal(body)
}

// prepare builds what requests with the same credentials have in common. They share the
// header of the template, which is never modified.
func (r *requests) prepare() {
	r.cursors = nextlink.Cursors{KeyParam: r.cfg.keyParam(), Key: r.auth.key(), Known: r.urls.first}
	if r.cfg.keyParam() != "" { // a key in a header is in no URL
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
