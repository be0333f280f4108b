package exportapi

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/linklocal"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/transport"
	"exportbridge/bridge/exportapi/redact"
	"exportbridge/bridge/seal"
)

// maxPageSize is the default of EXPORT_MAX_PAGE_SIZE.
const maxPageSize = 1000

// Config selects the export to read. Start from DefaultConfig.
type Config struct {
	// KeyPointer is the JSON pointer of Event.Key inside an item, or "none" for
	// events without a key. Empty means "/userId". New rejects a malformed one.
	KeyPointer string
	// Routes set Event.Route.
	Routes bridge.Routes
	// Report, if not nil, is called after every request: with nil if the API responded as
	// specified, otherwise with the error.
	Report func(error)
	// Warn, if not nil, is called by Fetch with a possible problem of a valid response, and
	// what to do about it. It is called once while the problem stays the same.
	Warn func(text, hint string)
	// Waited, if not nil, is called before every request under a RateLimit with
	// the time spent waiting for it.
	Waited func(time.Duration)
	// Shared holds what the clients of the process share. If nil, the client shares
	// nothing.
	Shared *Shared
	// AnyOrder allows items in any order, such as newest first. Decode then keeps events
	// whose time is outside the requested range, so the caller must drop them.
	AnyOrder bool
	// KeepItems makes Sample return the bytes of the items.
	KeepItems bool
	// Private has the rules for private data.
	Private redact.Config
	// Keys returns the keys of encrypted values, which the Client closes. It is required with
	// rules that encrypt; seal.None withholds the values, for those who publish nothing.
	Keys func() seal.Keys
	// Check, if not nil, sets Event.Mismatch of the decoded events of a page, as they are
	// published. Fetch and Decode call it, each on its own goroutine.
	Check func(*bridge.Page)
	// Beside marks a client of a job, which runs beside the streams. See Shared.
	Beside bool

	URL string `env:"EXPORT_URL" stream:"yes" desc:"base URL of the export API"`
	Auth
	Resource    string        `env:"EXPORT_RESOURCE" stream:"yes" values:"events,sessions,users" desc:"resource to export; a stream named after a resource exports that one; without meaning to profiles other than croct"`
	Events      []string      `env:"EXPORT_EVENTS" stream:"yes" desc:"event types to export, empty for all; only for the resource events" example:"orderPlaced,userSignedUp"`
	PageSize    int           `env:"EXPORT_PAGE_SIZE" stream:"yes" desc:"items per page, up to EXPORT_MAX_PAGE_SIZE"`
	Timeout     time.Duration `env:"EXPORT_TIMEOUT" stream:"yes" desc:"timeout of one request, from connecting to the last byte; a third of it for connecting, two thirds for the response header"`
	RateLimit   string        `env:"EXPORT_RATE_LIMIT" stream:"yes" desc:"maximum request rate per second, minute or hour, shared by the streams and jobs of the process with the same API key; jobs use at most half of it; empty for no limit" example:"10/s"`
	Path        string        `env:"EXPORT_PATH" stream:"yes" desc:"path below EXPORT_URL; empty for the resource's default" example:"/events"`
	ItemsField  string        `env:"EXPORT_ITEMS_FIELD" stream:"yes" desc:"member of the page with the items; a JSON pointer if it begins with /; root if the page is the array itself" example:"/data/items"`
	CursorField string        `env:"EXPORT_CURSOR_FIELD" stream:"yes" desc:"member of the page, or JSON pointer, with the next cursor or next URL; the header's name, or the pointer inside the last item, as EXPORT_CURSOR_IN says" example:"/paging/next"`
	PageMapping
	CursorParam   string `env:"EXPORT_CURSOR_PARAM" stream:"yes" desc:"parameter of the cursor"`
	PageSizeParam string `env:"EXPORT_PAGE_SIZE_PARAM" stream:"yes" desc:"parameter of the page size; none if the API has none"`
	RequestMapping
	SourceMapping
	InsecureHTTP bool          `env:"EXPORT_INSECURE_HTTP" stream:"yes" desc:"allow plain HTTP to remote hosts, which sends the key in clear text"`
	LinkLocal    bool          `env:"EXPORT_ALLOW_LINK_LOCAL" stream:"yes" desc:"allow link-local and other addresses where clouds serve instance metadata and credentials"`
	Proxy        bridge.Secret `env:"EXPORT_PROXY" secret:"yes" stream:"yes" desc:"proxy URL, or the word environment to use HTTPS_PROXY and NO_PROXY" example:"http://proxy.example:3128"`
	MaxResponse  int64         `env:"EXPORT_MAX_RESPONSE_BYTES" unit:"bytes" stream:"yes" desc:"maximum page size after decompression; by default at most an eighth of the memory limit (GOMEMLIMIT, or 90% of the container's), shared by the streams, or by the windows of a job that run at a time; a page has at most 10,000 items"`
	CA           string        `env:"EXPORT_TLS_CA" stream:"yes" desc:"trusted CA certificates (PEM); empty for the system's"`

	ItemMapping
}

// DefaultConfig returns the default of every setting. APIKey is required and has none.
func DefaultConfig() Config {
	return Config{
		URL: "https://api.croct.io/export", Resource: "events", PageSize: 1000, Timeout: 30 * time.Second,
		ItemsField: "items", CursorField: "nextCursor", CursorParam: "cursor", PageSizeParam: "pageSize",
		Auth: Auth{Scheme: authKey, KeyHeader: "X-Api-Key"}, MaxResponse: 64 << 20,
		ItemMapping: ItemMapping{ItemTimeFormat: "ms"},
		PageMapping: PageMapping{CursorIn: inBody, OnPartial: partialRetried, MetadataField: metadataField},
		RequestMapping: RequestMapping{
			Method: http.MethodGet, StartParam: "start", EndParam: "end", TimeFormat: "ms", MaxPageSize: maxPageSize,
			NextURL: nextWhole, NextParams: nextWarn,
			CursorStatuses: []string{"400", "404", "410", "414", "422", "431"},
		},
	}
}

// Validate reports all problems of the settings, each with its variable and an example.
func (c *Config) Validate() error {
	var p bridge.Problems
	checkValues(&p, reflect.ValueOf(*c))
	c.Auth.check(&p, serverRules{c.InsecureHTTP, c.LinkLocal})
	for _, event := range c.Events {
		p.Check(strings.TrimSpace(event) != "", "EXPORT_EVENTS",
			"contains an empty event type, for example orderPlaced,userSignedUp")
	}
	p.Check(c.Timeout > 0, "EXPORT_TIMEOUT", "must be above 0, for example 30s")
	p.Check(c.MaxResponse > 0, "EXPORT_MAX_RESPONSE_BYTES", "must be above 0, for example 64MiB")
	_, errURL := c.endpoints(presets[c.Resource])
	_, errRate := ParseRate(c.RateLimit)
	_, errProxy := c.proxy()
	for _, err := range []error{errURL, errRate, errProxy} {
		p.Add(err)
	}
	_, trusted := transport.ParseRoots(c.CA)
	p.Check(trusted, "EXPORT_TLS_CA", "contains no PEM certificate, "+
		"for example EXPORT_TLS_CA_FILE=/etc/ssl/company-ca.pem")
	c.checkPages(&p)
	c.ItemMapping.check(&p)
	headers, err := c.headers()
	p.Add(err)
	c.checkRequests(&p, headers)
	c.SourceMapping.check(&p, headers)
	c.checkPrivate(&p)
	return p.Err()
}

// checkValues checks the settings whose tags list the allowed values. Empty means the
// default, except in EXPORT_RESOURCE and EXPORT_AUTH.
func checkValues(p *bridge.Problems, settings reflect.Value) {
	for field, value := range settings.Fields() {
		name, values := field.Tag.Get("env"), field.Tag.Get("values")
		switch {
		case field.Anonymous:
			checkValues(p, value)
		case values == "" || value.String() == "" && name != "EXPORT_RESOURCE" && name != "EXPORT_AUTH":
		default:
			p.Check(slices.Contains(strings.Split(values, ","), value.String()), name,
				"%q is not one of: %s", value, strings.ReplaceAll(values, ",", ", "))
		}
	}
}

func (c *Config) keyPointer() string {
	switch c.KeyPointer {
	case "":
		return "/userId"
	case none:
		return ""
	}
	return c.KeyPointer
}

// TimePointer returns the JSON pointers to the time of an item, for messages.
func (c *Config) TimePointer() string {
	return strings.Join(c.pointersOf(c.Resource).times, " or ")
}

// endpoints are the URLs, without query, of requests without and with a cursor. A next URL
// replaces the second.
type endpoints struct{ first, after *url.URL }

// of returns the URL of requests at a position.
func (e endpoints) of(at bridge.Position) *url.URL {
	if at.Cursor == "" {
		return e.first
	}
	return e.after
}

// endpoints returns the URLs of requests. Its errors never quote EXPORT_URL, which may
// contain a password.
func (c *Config) endpoints(preset resource) (e endpoints, err error) {
	e.first, err = c.endpoint("EXPORT_PATH", cmp.Or(c.Path, preset.path))
	if e.after = e.first; err == nil && c.CursorPath != "" {
		e.after, err = c.endpoint("EXPORT_CURSOR_PATH", c.CursorPath)
	}
	return e, err
}

// Address returns the host with its port, and the path, of requests without a cursor: several
// texts can name one. It returns the texts of a c that is not valid.
func (c *Config) Address() (host, path string) {
	urls, err := c.endpoints(presets[c.Resource])
	if err != nil {
		return c.URL, c.Path
	}
	u := urls.first
	return net.JoinHostPort(strings.ToLower(u.Hostname()), nextlink.Port(u)), strings.TrimSuffix(u.EscapedPath(), "/")
}

func (c *Config) endpoint(variable, path string) (*url.URL, error) {
	u, err := serverRules{c.InsecureHTTP, c.LinkLocal}.parse("EXPORT_URL", c.URL, "https://api.croct.io/export")
	switch {
	case err != nil:
		return nil, err
	case u.RawQuery != "" || u.ForceQuery:
		return nil, bridge.Problemf("EXPORT_URL",
			"must not contain a query; for a key as query parameter set EXPORT_KEY_QUERY")
	}
	if _, err := url.PathUnescape(path); err != nil || strings.ContainsAny(path, "?#") {
		return nil, bridge.Problemf(variable, "must be a path without query and fragment, for example /events; "+
			"a percent sign is %%25")
	}
	if u.Path == "" {
		u.Path = "/" // JoinPath would return a relative path
	}
	return u.JoinPath(path), nil
}

// serverRules decide which servers may receive secrets.
type serverRules struct{ plainHTTP, linkLocal bool }

// parse parses the URL of a server that secrets are sent to.
func (s serverRules) parse(variable, text, example string) (*url.URL, error) {
	u, err := url.Parse(text)
	// A slash in a password ends the host: url.Parse takes the user for the host, and the
	// part of the password before the slash for the port.
	login := err != nil && strings.Contains(text, "@") ||
		err == nil && (u.User != nil || u.Port() != "" && strings.Contains(u.EscapedPath(), "@"))
	switch {
	case login:
		return nil, bridge.Problemf(variable, "must not contain a user or password; "+
			"set EXPORT_AUTH=basic, EXPORT_AUTH_USER and EXPORT_API_KEY")
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, bridge.Problemf(variable, "is not a URL with a host, for example %s", example)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, bridge.Problemf(variable, "must begin with https://, for example %s", example)
	case u.Fragment != "":
		return nil, bridge.Problemf(variable, "must not contain a fragment, for example %s", example)
	case u.Scheme == "http" && !s.plainHTTP && !bridge.Loopback(u.Hostname()):
		return nil, bridge.Problemf(variable, "is plain HTTP to a remote host, which sends the key in clear text; "+
			"use https, or set EXPORT_INSECURE_HTTP=true")
	case !s.linkLocal && metadataHost(u.Hostname()):
		return nil, bridge.Problemf(variable,
			"is a link-local address, or another one that serves cloud instance metadata; "+
				"use the API's own host, or set EXPORT_ALLOW_LINK_LOCAL=true")
	}
	return u, nil
}

func metadataHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && linklocal.Has(addr)
}

// proxy returns the proxy's URL, or nil for none and for "environment".
func (c *Config) proxy() (*url.URL, error) {
	proxy, ok := transport.ParseProxy(c.Proxy.Reveal())
	if !ok {
		return nil, bridge.Problemf("EXPORT_PROXY", "is not the URL of a proxy, for example http://proxy.example:3128, "+
			"or environment; percent-encode special characters in its user and password: / is %%2F, @ is %%40")
	}
	return proxy, nil
}

// ParseRate parses a rate limit like RateLimit: "10/s", "600/m" or "100/h". It returns requests
// per second, 0 for no limit.
func ParseRate(text string) (perSecond float64, err error) {
	if text == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[strings.TrimSpace(unit)]
	perSecond = n / per.Seconds()
	// The limiter counts in float64 seconds. Less than one request a day is assumed to be a
	// mistake.
	if err != nil || per == 0 || !(perSecond > 1.0/86400) || perSecond > 1e6 {
		return 0, bridge.Problemf("EXPORT_RATE_LIMIT", "%q is not a rate, for example 10/s or 600/m", text)
	}
	return perSecond, nil
}

// printable reports whether s is valid as a header value.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isToken reports whether s is valid as a header name.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
