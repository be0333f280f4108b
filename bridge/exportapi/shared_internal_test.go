package exportapi

import (
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/must"
)

// Clients share everything except what their settings make different.
func TestSharedBySettings(t *testing.T) {
	t.Parallel()
	base := DefaultConfig()
	base.URL, base.APIKey, base.TLSCert = "https://a.example/v1", "k3y", "cert"
	var shared Shared
	decoders := shared.decodersOf(base.mapping())
	for name, tc := range map[string]struct {
		change                        func(*Config)
		connections, decoders, limits bool // differ
	}{
		"path":             {change: func(c *Config) { c.Path = "/other" }},
		"event types":      {change: func(c *Config) { c.Events = []string{"a"} }},
		"path of the URL":  {change: func(c *Config) { c.URL = "https://a.example/v2" }},
		"API key":          {change: func(c *Config) { c.APIKey = "other" }, limits: true},
		"host":             {change: func(c *Config) { c.URL = "https://b.example/v1" }, connections: true},
		"timeout":          {change: func(c *Config) { c.Timeout = time.Second }, connections: true},
		"authority":        {change: func(c *Config) { c.CA = "ca" }, connections: true},
		"proxy":            {change: func(c *Config) { c.Proxy = "http://u:p@proxy" }, connections: true},
		"link-local":       {change: func(c *Config) { c.LinkLocal = true }, connections: true},
		"certificate":      {change: func(c *Config) { c.TLSCert = "other" }, connections: true},
		"its key":          {change: func(c *Config) { c.TLSKey = "other" }, connections: true},
		"its file":         {change: func(c *Config) { c.TLSCertFile = "other" }, connections: true},
		"the file of both": {change: func(c *Config) { c.TLSKeyFile = "other" }, connections: true},
		"resource":         {change: func(c *Config) { c.Resource = "users" }, decoders: true},
		"items":            {change: func(c *Config) { c.ItemsField = "other" }, decoders: true},
		"cursor":           {change: func(c *Config) { c.CursorField = "other" }, decoders: true},
		"more":             {change: func(c *Config) { c.MoreField = "other" }, decoders: true},
		"id":               {change: func(c *Config) { c.ItemID = []string{"/other"} }, decoders: true},
		"key of records":   {change: func(c *Config) { c.KeyPointer = "/other" }, decoders: true},
	} {
		cfg := base
		tc.change(&cfg)
		others := [3]bool{
			connections(&cfg) != connections(&base), shared.decodersOf(cfg.mapping()) != decoders,
			limitKey(&cfg) != limitKey(&base),
		}
		if want := [3]bool{tc.connections, tc.decoders, tc.limits}; others != want {
			t.Errorf("another %s: other connections, decoders, limits: %v, want %v", name, others, want)
		}
	}
}

// A closed client no longer raises the limit of its key.
func TestClosedLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shared Shared
		client := func(limit string) *Client {
			cfg := DefaultConfig()
			cfg.URL, cfg.APIKey, cfg.RateLimit, cfg.Shared = "https://a.example/v1", "k3y", limit, &shared
			return must.Get(New(cfg))(t)
		}
		old, a, b := client("10/s"), client("1/s"), client("1/s")
		old.Close()
		began := time.Now()
		for range 10 {
			_, _ = a.turns.Wait(t.Context()), b.turns.Wait(t.Context())
		}
		if took := time.Since(began); took < 19*time.Second {
			t.Errorf("20 requests took %s, want 19 s", took)
		}
		a.Close()
		b.Close()
	})
}

// Clients without a key share a limit only if nothing else tells their tenants apart.
func TestTenantsWithoutKey(t *testing.T) {
	t.Parallel()
	keys := make(map[string]string)
	for name, tenant := range map[string]Config{
		"a URL": {URL: "https://x"}, "another": {URL: "https://y"},
		"a certificate": {URL: "https://x", Auth: Auth{TLSCert: "a"}},
		"headers":       {URL: "https://x", RequestMapping: RequestMapping{Headers: "X-Key: a"}},
		"other headers": {URL: "https://x", RequestMapping: RequestMapping{Headers: "X-Key: b"}},
		"parameters":    {URL: "https://x", RequestMapping: RequestMapping{Params: "a=b"}},
	} {
		if same, ok := keys[limitKey(&tenant)]; ok {
			t.Errorf("%s and %s have the same limit", same, name)
		}
		keys[limitKey(&tenant)] = name
	}
}

// Only the API gets the client certificate, and no connection with it serves another host.
func TestTokensWithoutCertificate(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.URL, cfg.TLSCert, cfg.OAuth2TokenURL = "https://api.example", "cert", "https://API.example/token"
	if tokenConnections(&cfg) != connections(&cfg) {
		t.Error("the API's own tokens have other connections")
	}
	plain := cfg
	plain.TLSCert = ""
	if cfg.OAuth2TokenURL = "https://login.example/token"; tokenConnections(&cfg) != connections(&plain) {
		t.Errorf("another host: %+v", tokenConnections(&cfg))
	}
}
