package exportapi

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/params"
)

// SourceMapping configures what identifies the source that a cursor belongs to.
type SourceMapping struct {
	Source        string   `env:"EXPORT_SOURCE" stream:"yes" desc:"name of the source, in place of the host of EXPORT_URL, where several hosts serve the same export; another name blocks the stream until a page lists items published before, or a reset accepts it" example:"acme-audit"`
	SourceHeaders []string `env:"EXPORT_SOURCE_HEADERS" stream:"yes" desc:"headers of EXPORT_HEADERS that select the tenant, or none; empty for those with tenant, org, account, workspace or project in their name" example:"X-Tenant-Id"`
}

// tenantHeader matches the names of headers that select a tenant by default.
var tenantHeader = regexp.MustCompile(`(?i)tenant|org|account|workspace|project`)

// Fingerprint returns the parts of a request that select the list of items. It is unknown
// if c is not valid. preset reports whether a variable has the default of this release or
// of a profile.
func (c *Config) Fingerprint(preset func(variable string) bool) bridge.Fingerprint {
	urls, err := c.endpoints(presets[c.Resource])
	if err != nil {
		return ""
	}
	u, path := urls.first, urls.first.EscapedPath()
	if urls.after.EscapedPath() != path {
		path += " " + urls.after.EscapedPath()
	}
	host := strings.ToLower(u.Host)
	if u.Port() == nextlink.DefaultPort(u) {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	auth := c.Scheme + " " + c.authHeader() + c.keyParam()
	parts := []bridge.RequestPart{
		{Name: bridge.PartHost, Value: host, Preset: preset("EXPORT_URL")},
		{Name: bridge.PartPath, Value: path, Preset: preset("EXPORT_URL") && preset("EXPORT_PATH")},
		{Name: bridge.PartMethod, Value: cmp.Or(c.Method, http.MethodGet), Preset: preset("EXPORT_METHOD")},
		{Name: bridge.PartCursor, Value: c.cursorIn(), Preset: preset("EXPORT_CURSOR_IN")},
		{Name: bridge.PartAuth, Value: auth, Preset: preset("EXPORT_AUTH") && preset("EXPORT_KEY_HEADER")},
		{Name: bridge.PartPageSize, Value: strconv.Itoa(c.PageSize), Preset: preset("EXPORT_PAGE_SIZE")},
	}
	if c.Source != "" {
		parts[0] = bridge.RequestPart{Name: bridge.PartHost, Value: "source " + c.Source}
	}
	if token, err := url.Parse(c.OAuth2TokenURL); err == nil && c.Scheme == authOAuth2 {
		parts = append(parts, bridge.RequestPart{Name: bridge.PartToken, Value: token.EscapedPath(),
			Preset: preset("EXPORT_OAUTH2_TOKEN_URL")})
	}
	if rules, err := c.rules(); err == nil && rules != nil {
		parts = append(parts, bridge.RequestPart{Name: bridge.PartIdentity + rules.IdentityKeyID})
		if rules.Label != "" {
			parts = append(parts, bridge.RequestPart{Name: bridge.PartRules, Value: rules.Label})
		}
	}
	static, _ := c.static() // validated
	var values []param
	for _, p := range static {
		values = append(values, param{p.Name, p.Canonical()})
	}
	parts = appendParts(parts, bridge.PartParam, values, preset("EXPORT_PARAMS"))
	headers, _ := c.headers() // validated
	headers = slices.DeleteFunc(headers, func(h param) bool { return !c.selectsTenant(h.name) })
	return bridge.NewFingerprint(appendParts(parts, bridge.PartHeader, headers, preset("EXPORT_HEADERS")))
}

// appendParts appends a part for each name of a parameter or header. Several values of a
// name make one part.
func appendParts(parts []bridge.RequestPart, kind string, params []param, preset bool) []bridge.RequestPart {
	first := len(parts)
	for _, p := range params {
		name := kind + p.name
		if i := slices.IndexFunc(parts[first:], func(part bridge.RequestPart) bool { return part.Name == name }); i >= 0 {
			parts[first+i].Value += "\x00" + p.value
			continue
		}
		parts = append(parts, bridge.RequestPart{Name: name, Value: p.value, Credential: bridge.IsCredential(p.name),
			Preset: preset})
	}
	return parts
}

// selectsTenant reports whether a static header selects the tenant.
func (s *SourceMapping) selectsTenant(header string) bool {
	if len(s.SourceHeaders) == 0 {
		return tenantHeader.MatchString(header)
	}
	return slices.ContainsFunc(s.SourceHeaders, func(name string) bool { return strings.EqualFold(name, header) })
}

// check reports all problems of the settings. headers are those of EXPORT_HEADERS.
func (s *SourceMapping) check(p *bridge.Problems, headers []param) {
	for _, name := range s.SourceHeaders {
		set := slices.ContainsFunc(headers, func(h param) bool { return strings.EqualFold(h.name, name) })
		p.Check(set || isNone(s.SourceHeaders), "EXPORT_SOURCE_HEADERS",
			"%q is not one of the headers in EXPORT_HEADERS; list those that select the tenant, or none", name)
	}
}

// StrayCursor returns an error if a stored next URL may lead to another list than the
// settings select, because its path is not EXPORT_PATH, or because EXPORT_PARAMS lacks one
// of its parameters. A next URL is requested by its own path. The error does not contain
// the cursor, whose path may contain a token.
func (c *Config) StrayCursor(cursor string) error {
	urls, err := c.endpoints(presets[c.Resource])
	if err != nil || !c.leads() {
		return nil //nolint:nilerr // Validate reports it
	}
	static, _ := c.static() // validated
	if unset := nextlink.Unset(cursor, params.Query(static)); len(unset) > 0 {
		return fmt.Errorf("the stored next URL has the parameter %.200q, which EXPORT_PARAMS no longer sets: "+
			"it may be another list", strings.Join(unset, ", "))
	}
	path, _, _ := strings.Cut(cursor, "?")
	set := urls.first.EscapedPath()
	if strings.TrimSuffix(path, "#") == set {
		return nil
	}
	return fmt.Errorf("the stored next URL, cursor %s, leads to another path than EXPORT_PATH, which makes %s: "+
		"it may be another list", bridge.CursorHash(cursor), set)
}
