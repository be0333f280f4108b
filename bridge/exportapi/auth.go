package exportapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/delay"
	"exportbridge/bridge/internal/grant"
)

// Auth is how requests authenticate.
type Auth struct {
	// APIKeyFile is the file that APIKey was read from, if any. The client
	// reloads it whenever the API rejects the key.
	APIKeyFile string
	// TLSCertFile and TLSKeyFile are the files that TLSCert and TLSKey were read
	// from, if any. The client reads them again for every connection.
	TLSCertFile, TLSKeyFile string

	APIKey         bridge.Secret `env:"EXPORT_API_KEY" required:"yes" secret:"yes" stream:"yes" desc:"API key of the export API; with EXPORT_AUTH=basic the password, with oauth2 the client secret; not with EXPORT_AUTH=none"`
	Scheme         string        `env:"EXPORT_AUTH" stream:"yes" values:"key,none,basic,oauth2" desc:"how requests authenticate: with a key, not at all, with user and password, or with a token of the OAuth2 client credentials grant"`
	KeyHeader      string        `env:"EXPORT_KEY_HEADER" stream:"yes" desc:"header of the API key"`
	KeyQuery       string        `env:"EXPORT_KEY_QUERY" stream:"yes" desc:"query parameter of the API key, instead of the header" example:"api_key"`
	KeyPrefix      string        `env:"EXPORT_KEY_PREFIX" stream:"yes" desc:"authentication scheme sent before the key, or none; empty for Bearer in the header Authorization and for none elsewhere" example:"Bearer"`
	User           string        `env:"EXPORT_AUTH_USER" stream:"yes" desc:"user of EXPORT_AUTH=basic" example:"exporter"`
	OAuth2TokenURL string        `env:"EXPORT_OAUTH2_TOKEN_URL" stream:"yes" desc:"URL that issues tokens, for EXPORT_AUTH=oauth2" example:"https://login.example.com/oauth/token"`
	OAuth2ClientID string        `env:"EXPORT_OAUTH2_CLIENT_ID" stream:"yes" desc:"client ID for EXPORT_AUTH=oauth2; its secret is EXPORT_API_KEY" example:"exportbridge"`
	OAuth2Scopes   []string      `env:"EXPORT_OAUTH2_SCOPES" stream:"yes" desc:"scopes of the token" example:"read:logs"`
	OAuth2Params   []string      `env:"EXPORT_OAUTH2_PARAMS" secret:"yes" stream:"yes" desc:"further parameters of the token request" example:"audience=https://api.example.com/"`
	TLSCert        string        `env:"EXPORT_TLS_CERT" stream:"yes" desc:"client certificate (PEM), for mutual TLS with the host of EXPORT_URL"`
	TLSKey         bridge.Secret `env:"EXPORT_TLS_KEY" secret:"yes" stream:"yes" desc:"private key of the client certificate (PEM)"`
}

// Values of EXPORT_AUTH.
const (
	authKey    = "key"
	authNone   = "none"
	authBasic  = "basic"
	authOAuth2 = "oauth2"
)

// keyParam returns the query parameter of the key, or "".
func (a *Auth) keyParam() string {
	if a.Scheme == authKey {
		return a.KeyQuery
	}
	return ""
}

// authHeader returns the header that authenticates, or "".
func (a *Auth) authHeader() string {
	switch {
	case a.Scheme == authBasic, a.Scheme == authOAuth2:
		return "Authorization"
	case a.Scheme == authKey && a.KeyQuery == "":
		return http.CanonicalHeaderKey(a.KeyHeader)
	}
	return ""
}

// checkAuth checks the settings of authentication.
func (c *Config) checkAuth(p *bridge.Problems) {
	key := c.APIKey.Reveal()
	if c.Scheme == authNone {
		p.Check(key == "", "EXPORT_API_KEY", "is set, but EXPORT_AUTH=none sends no key; remove one of them")
	} else {
		p.Check(key != "", "EXPORT_API_KEY",
			"is not set, for example EXPORT_API_KEY_FILE=/run/secrets/export_api_key; "+
				"for an API without a key set EXPORT_AUTH=none")
		p.Check(printable(key), "EXPORT_API_KEY", "contains control characters such as a line break; "+
			"it must hold only the key")
	}
	switch c.Scheme {
	case authKey:
		p.Check(c.KeyQuery != "" || isToken(c.KeyHeader), "EXPORT_KEY_HEADER",
			"%q is not the name of a header, for example X-Api-Key", c.KeyHeader)
		p.Check(!slices.Contains(ownHeaders, c.authHeader()), "EXPORT_KEY_HEADER",
			"is %s, which is set by the program; set the API's header, for example X-Api-Key", c.KeyHeader)
		p.Check(printable(c.KeyPrefix), "EXPORT_KEY_PREFIX",
			"contains characters that are invalid in a header, for example Bearer")
	case authBasic:
		p.Check(c.User != "" && printable(c.User) && !strings.Contains(c.User, ":"), "EXPORT_AUTH_USER",
			"%q is not a user for EXPORT_AUTH=basic, for example exporter", c.User)
	case authOAuth2:
		_, err := c.remote("EXPORT_OAUTH2_TOKEN_URL", c.OAuth2TokenURL, "https://login.example.com/oauth/token")
		p.Add(err)
		p.Check(c.OAuth2ClientID != "", "EXPORT_OAUTH2_CLIENT_ID",
			"is not set, but EXPORT_AUTH=oauth2 needs it, for example exportbridge")
		params, err := c.oauth2Params()
		p.Add(err)
		p.Check(len(c.OAuth2Scopes) == 0 || !params.Has("scope"), "EXPORT_OAUTH2_PARAMS",
			"has scope, which EXPORT_OAUTH2_SCOPES sets; set it there only")
	}
	without := func(scheme, variable string, set bool) {
		p.Check(!set || c.Scheme == scheme, variable, "is set without EXPORT_AUTH=%s; "+
			"unset it, or set EXPORT_AUTH=%[1]s", scheme)
	}
	without(authKey, "EXPORT_KEY_QUERY", c.KeyQuery != "")
	without(authKey, "EXPORT_KEY_PREFIX", c.KeyPrefix != "")
	without(authBasic, "EXPORT_AUTH_USER", c.User != "")
	without(authOAuth2, "EXPORT_OAUTH2_TOKEN_URL", c.OAuth2TokenURL != "")
	without(authOAuth2, "EXPORT_OAUTH2_CLIENT_ID", c.OAuth2ClientID != "")
	without(authOAuth2, "EXPORT_OAUTH2_SCOPES", len(c.OAuth2Scopes) > 0)
	without(authOAuth2, "EXPORT_OAUTH2_PARAMS", len(c.OAuth2Params) > 0)
	p.Add(c.clientTLS().Validate())
}

func (c *Config) clientTLS() bridge.ClientTLS {
	return bridge.ClientTLS{
		Prefix: "EXPORT_TLS", Cert: c.TLSCert, Key: c.TLSKey, CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile,
	}
}

// oauth2Params returns EXPORT_OAUTH2_PARAMS.
func (c *Config) oauth2Params() (url.Values, error) {
	params := url.Values{}
	for i, param := range c.OAuth2Params {
		name, value, ok := strings.Cut(param, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, bridge.Problemf("EXPORT_OAUTH2_PARAMS",
				"has no name=value as parameter %d, for example audience=https://api.example.com/", i+1)
		}
		params.Add(name, strings.TrimSpace(value))
	}
	return params, nil
}

// credentials are what requests authenticate with. Errors are redacted with
// them: secrets may be called concurrently, the rest by one goroutine at a time.
type credentials struct {
	cfg   *Config
	grant *grant.Grant // nil without EXPORT_AUTH=oauth2

	mu     sync.Mutex // guards the rest
	secret bridge.Secret
}

// newCredentials returns the credentials of a valid configuration.
func newCredentials(cfg *Config, transport http.RoundTripper) *credentials {
	c := &credentials{cfg: cfg, secret: cfg.APIKey}
	if cfg.Scheme == authOAuth2 {
		params, _ := cfg.oauth2Params() // validated
		c.grant = grant.New(&clientcredentials.Config{
			ClientID: cfg.OAuth2ClientID, TokenURL: cfg.OAuth2TokenURL, Scopes: cfg.OAuth2Scopes, EndpointParams: params,
		}, transport, cfg.Timeout)
	}
	return c
}

// token returns the token, nil before the first and without EXPORT_AUTH=oauth2.
func (c *credentials) token() *oauth2.Token {
	if c.grant == nil {
		return nil
	}
	return c.grant.Token()
}

// sign sets the header that authenticates a request, if one does.
func (c *credentials) sign(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := c.token()
	switch {
	case c.cfg.Scheme == authBasic:
		header.Set("Authorization", "Basic "+basic(c.cfg.User, c.secret.Reveal()))
	case token != nil:
		header.Set("Authorization", token.Type()+" "+token.AccessToken)
	case c.cfg.Scheme == authKey && c.cfg.KeyQuery == "":
		header.Set(c.cfg.KeyHeader, c.prefixed())
	}
}

// key is the key as sent in requests.
func (c *credentials) key() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prefixed()
}

func (c *credentials) prefixed() string {
	prefix := strings.TrimRight(c.cfg.KeyPrefix, " ")
	key := c.secret.Reveal()
	if prefix == "" && c.cfg.authHeader() == "Authorization" && !strings.Contains(key, " ") { // else the key has its own
		prefix = "Bearer"
	}
	if prefix == "" || prefix == none {
		return key
	}
	return prefix + " " + key
}

// basic is what the Basic scheme sends.
func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// secrets are the texts that no error may show.
func (c *credentials) secrets() []bridge.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []bridge.Secret{c.secret}
	if c.cfg.Scheme == authBasic {
		all = append(all, bridge.Secret(basic(c.cfg.User, c.secret.Reveal())))
	}
	if c.grant != nil { // which escapes both
		all = append(all, bridge.Secret(basic(url.QueryEscape(c.cfg.OAuth2ClientID), url.QueryEscape(c.secret.Reveal()))))
	}
	if token := c.token(); token != nil {
		all = append(all, bridge.Secret(token.AccessToken))
	}
	return all
}

// renew replaces credentials that the API has rejected with the status, and
// reports whether there are others now: the key's file has changed, or there
// can be another token.
func (c *credentials) renew(status string) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant != nil {
		code, _ := strconv.Atoi(status)
		changed = c.grant.Reject(code, time.Now())
	}
	if c.cfg.APIKeyFile == "" {
		return changed, nil
	}
	key, err := bridge.ReadSecretFile(c.cfg.APIKeyFile)
	if err != nil {
		return changed, fmt.Errorf("reload the key: %w", err)
	}
	if key == "" || !printable(key) {
		return changed, errors.New("reload the key: " + c.cfg.APIKeyFile + " contains no key")
	}
	if bridge.Secret(key) != c.secret {
		if c.secret, changed = bridge.Secret(key), true; c.grant != nil {
			c.grant.Forget()
		}
	}
	return changed, nil
}

// authorize requests a token if one is needed, and reports whether it is new.
func (c *credentials) authorize(ctx context.Context, now time.Time) (renewed bool, err error) {
	if c.grant == nil {
		return false, nil
	}
	c.mu.Lock()
	secret := c.secret.Reveal()
	c.mu.Unlock()
	return c.grant.Authorize(ctx, secret, now)
}

// token is the fault of a token request.
func (e *faults) token(at bridge.Position, err error) *bridge.Fault {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		f := &bridge.Fault{Class: bridge.Permanent, Code: codeSchema, Reason: bridge.ReasonAuth,
			Err: errors.New(e.clean(at, unquoted(err)))}
		if !strings.HasPrefix(err.Error(), "oauth2: ") { // else an answer that is no token
			f = e.connection(at, err, fmt.Sprintf("no token within %s", e.cfg.Timeout))
		}
		f.Err = fmt.Errorf("request a token from %s: %w", e.tokenHost(), f.Err)
		if f.Hint = strings.Replace(f.Hint, "EXPORT_URL", "EXPORT_OAUTH2_TOKEN_URL", 1); f.Code != codeTLS {
			f.Hint = "check EXPORT_OAUTH2_TOKEN_URL, EXPORT_PROXY, DNS and the firewall"
		}
		return f
	}
	code := refused.Response.StatusCode
	text := strings.TrimSpace(fmt.Sprintf("%d %s", code, e.clean(at, refused.ErrorCode+" "+refused.ErrorDescription)))
	f := &bridge.Fault{Code: strconv.Itoa(code), Err: fmt.Errorf("request a token from %s: %s", e.tokenHost(), text)}
	switch {
	case code == http.StatusTooManyRequests:
		f.Class, f.RetryAfter = bridge.Throttled, delay.Of(refused.Response)
		f.Hint = "wait for the requested delay"
	case code >= 500 || code == http.StatusRequestTimeout:
		f.RetryAfter = delay.Of(refused.Response)
		f.Hint = "if it persists, report it to the operator of the token endpoint: the failure is on its side"
	default:
		f.Class, f.Reason = bridge.Permanent, bridge.ReasonAuth
		f.Hint = "check EXPORT_OAUTH2_TOKEN_URL, EXPORT_OAUTH2_CLIENT_ID, EXPORT_API_KEY (the client secret), " +
			"EXPORT_OAUTH2_SCOPES and EXPORT_OAUTH2_PARAMS"
	}
	return f
}

func (e *faults) tokenHost() string {
	u, err := url.Parse(e.cfg.OAuth2TokenURL)
	if err != nil {
		return "EXPORT_OAUTH2_TOKEN_URL"
	}
	return hostPort(u)
}
