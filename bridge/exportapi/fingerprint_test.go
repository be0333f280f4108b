package exportapi

import (
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// The fingerprint has what selects the list, and nothing else.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	base := func(change func(c *Config)) bridge.Fingerprint {
		c := DefaultConfig()
		c.URL, c.Path, c.APIKey = "https://api.example.com/v1", "/items", "k"
		c.Params, c.Headers = "include=all,api_key=s1,author=a,keyword=k",
			"X-Tenant-Id: acme\nAccept: x/y\nAuthorization-Org: z"
		c.KeyHeader = "X-Key"
		if change != nil {
			change(&c)
		}
		f := c.Fingerprint(func(variable string) bool { return variable == "EXPORT_METHOD" })
		if !f.Known() {
			t.Fatalf("no fingerprint: %v", c.Validate())
		}
		return f
	}
	for name, c := range map[string]struct {
		change          func(c *Config)
		other, unproven []string
	}{
		"nothing":          {},
		"path":             {change: func(c *Config) { c.Path = "/orgs" }, other: []string{"path"}},
		"path of the base": {change: func(c *Config) { c.URL = "https://api.example.com/v2" }, other: []string{"path"}},
		"host": {change: func(c *Config) { c.URL = "https://eu.example.com/v1" },
			unproven: []string{"host"}},
		"case, default port": {change: func(c *Config) { c.URL = "https://API.example.com:443/v1" }},
		"scheme":             {change: func(c *Config) { c.URL, c.InsecureHTTP = "http://api.example.com/v1", true }},
		"another port": {change: func(c *Config) { c.URL = "https://api.example.com:8443/v1" },
			unproven: []string{"host"}},
		"named source": {change: func(c *Config) { c.Source = "x" }, unproven: []string{"host"}},
		"method": {change: func(c *Config) { c.Method = "POST" },
			unproven: []string{"method"}}, // a preset here
		"place of the cursor": {change: func(c *Config) { c.CursorIn = inLink }, other: []string{"place of the cursor"}},
		"parameter": {change: func(c *Config) { c.Params = "include=some,api_key=s1,author=a,keyword=k" },
			other: []string{"parameter include"}},
		"author, keyword": {change: func(c *Config) { c.Params = "include=all,api_key=s1,author=b,keyword=l" },
			other: []string{"parameter author", "parameter keyword"}},
		"parameter removed": {change: func(c *Config) { c.Params = "api_key=s1,author=a,keyword=k" },
			other: []string{"parameter include"}},
		"secret parameter": {change: func(c *Config) { c.Params = "include=all,api_key=s2,author=a,keyword=k" }},
		"tenant's header": {change: func(c *Config) { c.Headers = "X-Tenant-Id: other\nAuthorization-Org: z" },
			other: []string{"header X-Tenant-Id"}},
		"another header": {change: func(c *Config) {
			c.Headers = "X-Tenant-Id: acme\nAccept: z\nAuthorization-Org: z"
		}},
		"key": {change: func(c *Config) { c.APIKey = "other" }},
		"header of the key": {change: func(c *Config) { c.KeyHeader = "Authorization" },
			unproven: []string{"kind of credential"}},
		"timeout, form of items": {change: func(c *Config) { c.Timeout *= 2; c.ItemsField = "data" }},
	} {
		got := base(nil).Changed(base(c.change), "abc")
		if !slices.Equal(got.Other, c.other) || !slices.Equal(got.Unproven, c.unproven) {
			t.Errorf("%s: another list by %q, perhaps by %q; want %q and %q", name, got.Other, got.Unproven, c.other, c.unproven)
		}
	}
	typed := func(params string) bridge.Fingerprint {
		return base(func(c *Config) { c.Method, c.Params = "POST", bridge.Secret(params) })
	}
	for params, same := range map[string]bool{
		`f:={"b":[1,2.0],"a":"x y"}`: true, `f:={ "a" : "x y", "b" : [ 1, 2.0 ] }`: true,
		`f:={"b":[2.0,1],"a":"x y"}`: false, `f:={"b":[1,2.0],"a":"xy"}`: false, `f={"b":[1%2C2.0]%2C"a":"x y"}`: false,
		`f:={"b":["1",2.0],"a":"x y"}`: false,
	} {
		if c := typed(`f:={"b":[1,2.0],"a":"x y"}`).Changed(typed(params), ""); (c.String() == "") != same {
			t.Errorf("%s differs by %s", params, c)
		}
	}
	named := func(url string) bridge.Fingerprint { return base(func(c *Config) { c.URL, c.Source = url, "audit" }) }
	if c := named("https://eu.example.com/v1").Changed(named("https://us.example.com/v1"), ""); c.String() != "" {
		t.Errorf("a named source differs by %s", c)
	}
}

// A next URL is requested by its own path.
func TestStrayCursor(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.URL, c.Path, c.CursorIn = "https://api.example.com/v1", "/orgs/acme/log", inLink
	for cursor, stray := range map[string]bool{
		"/v1/orgs/acme/log?after=1": false, "/v1/orgs/acme/log#": false, "/v1/orgs/other/log?after=1": true,
		"/v1/orgs/acme": true,
	} {
		if err := c.StrayCursor(cursor); (err != nil) != stray {
			t.Errorf("%s: %v", cursor, err)
		}
	}
	for _, cursor := range []string{"/v1/t0ken-in-a-path/log", "/v1/" + strings.Repeat("x", 16000), "/v1/orgs/acme/log?" +
		strings.Repeat("x", 16000) + "=#1"} {
		if err := c.StrayCursor(cursor); err == nil || strings.Contains(err.Error(), "t0ken") || len(err.Error()) > 500 {
			t.Errorf("%.40s: %.600v", cursor, err)
		}
	}
	c.Params = "order=asc,tag=x,tag=y"
	for cursor, stray := range map[string]bool{
		"/v1/orgs/acme/log?after=1&order=#1": false, "/v1/orgs/acme/log?tag=#2": false, "/v1/orgs/acme/log?include=#1": true,
		"/v1/orgs/acme/log?tag=#3":      true,
		"/v1/orgs/acme/log?key=#auth.0": false,
	} {
		if err := c.StrayCursor(cursor); (err != nil) != stray {
			t.Errorf("%s: %v", cursor, err)
		}
	}
	c.CursorIn = inBody
	if err := c.StrayCursor("/anything"); err != nil {
		t.Error(err)
	}
}
