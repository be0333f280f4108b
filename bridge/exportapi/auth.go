package exportapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/delay"
	"exportbridge/bridge/internal/grant"
)

// Auth configures how requests authenticate.
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
	KeyQuery       string        `env:"EXPORT_KEY_QUERY" stream:"yes" desc:"query parameter of the API key, instead of the header; none for the header" example:"api_key"`
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
	if a.Scheme == authKey && a.KeyQuery != none {
		return a.KeyQuery
	}
	return ""
}

// authHeader returns the header that authenticates, or "".
func (a *Auth) authHeader() string {
	switch {
	case a.Scheme == authBasic, a.Scheme == authOAuth2:
		return "Authorization"
	case a.Scheme == authKey && a.keyParam() == "":
		return http.CanonicalHeaderKey(a.KeyHeader)
	}
	return ""
}

// check reports all problems of the settings. servers are those that may receive secrets.
func (a *Auth) check(p *bridge.Problems, servers serverRules) {
	key := a.APIKey.Reveal()
	if a.Scheme == authNone {
		p.Check(key == "", "EXPORT_API_KEY", "is set, but EXPORT_AUTH=none sends no key; remove one of them")
	} else {
		p.Check(key != "", "EXPORT_API_KEY",
			"is not set, for example EXPORT_API_KEY_FILE=/run/secrets/export_api_key; "+
				"for an API without a key set EXPORT_AUTH=none")
		p.Check(printable(key), "EXPORT_API_KEY", "contains control characters such as a line break; "+
			"it must hold only the key")
	}
	switch a.Scheme {
	case authKey:
		p.Check(a.keyParam() != "" || isToken(a.KeyHeader), "EXPORT_KEY_HEADER",
			"%q is not the name of a header, for example X-Api-Key", a.KeyHeader)
		p.Check(!OwnHeader(a.authHeader()), "EXPORT_KEY_HEADER",
			"is %s, which is set by the program; set the API's header, for example X-Api-Key", a.KeyHeader)
		p.Check(printable(a.KeyPrefix), "EXPORT_KEY_PREFIX",
			"contains characters that are invalid in a header, for example Bearer")
	case authBasic:
		p.Check(a.User != "" && printable(a.User) && !strings.Contains(a.User, ":"), "EXPORT_AUTH_USER",
			"%q is not a user for EXPORT_AUTH=basic, for example exporter", a.User)
	case authOAuth2:
		const variable, example = "EXPORT_OAUTH2_TOKEN_URL", "https://login.example.com/oauth/token"
		p.Check(a.OAuth2TokenURL != "", variable, "is not set, but EXPORT_AUTH=oauth2 needs it, for example %s", example)
		if a.OAuth2TokenURL != "" {
			_, err := servers.parse(variable, a.OAuth2TokenURL, example)
			p.Add(err)
		}
		p.Check(a.OAuth2ClientID != "", "EXPORT_OAUTH2_CLIENT_ID",
			"is not set, but EXPORT_AUTH=oauth2 needs it, for example exportbridge")
		params, err := a.oauth2Params()
		p.Add(err)
		p.Check(len(a.OAuth2Scopes) == 0 || !params.Has("scope"), "EXPORT_OAUTH2_PARAMS",
			"has scope, which EXPORT_OAUTH2_SCOPES sets; set it there only")
	}
	without := func(scheme, variable string, set bool) {
		p.Check(!set || a.Scheme == scheme, variable, "is set without EXPORT_AUTH=%s; "+
			"unset it, or set EXPORT_AUTH=%[1]s", scheme)
	}
	without(authKey, "EXPORT_KEY_QUERY", a.KeyQuery != "" && a.KeyQuery != none)
	without(authKey, "EXPORT_KEY_PREFIX", a.KeyPrefix != "")
	without(authBasic, "EXPORT_AUTH_USER", a.User != "")
	without(authOAuth2, "EXPORT_OAUTH2_TOKEN_URL", a.OAuth2TokenURL != "")
	without(authOAuth2, "EXPORT_OAUTH2_CLIENT_ID", a.OAuth2ClientID != "")
	without(authOAuth2, "EXPORT_OAUTH2_SCOPES", len(a.OAuth2Scopes) > 0)
	without(authOAuth2, "EXPORT_OAUTH2_PARAMS", len(a.OAuth2Params) > 0)
	p.Add(a.clientTLS().Validate())
}

func (a *Auth) clientTLS() bridge.ClientTLS {
	return bridge.ClientTLS{
		Prefix: "EXPORT_TLS", Cert: a.TLSCert, Key: a.TLSKey, CertFile: a.TLSCertFile, KeyFile: a.TLSKeyFile,
	}
}

// oauth2Params parses EXPORT_OAUTH2_PARAMS.
func (a *Auth) oauth2Params() (url.Values, error) {
	params := url.Values{}
	for i, param := range a.OAuth2Params {
		name, value, ok := strings.Cut(param, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, bridge.Problemf("EXPORT_OAUTH2_PARAMS",
				"has no name=value as parameter %d, for example audience=https://api.example.com/", i+1)
		}
		params.Add(name, strings.TrimSpace(value))
	}
	return params, nil
}

// credentials authenticate requests. secrets may be called concurrently, because all errors
// are redacted; the other methods by one goroutine at a time.
type credentials struct {
	cfg   *Config
	grant *grant.Grant // nil without EXPORT_AUTH=oauth2

	mu     sync.Mutex // guards secret
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

// sign sets the header that authenticates a request, if one does.
func (c *credentials) sign(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := c.grant.Token()
	switch {
	case c.cfg.Scheme == authBasic:
		header.Set("Authorization", "Basic "+basic(c.cfg.User, c.secret.Reveal()))
	case token != nil:
		header.Set("Authorization", token.Type()+" "+token.AccessToken)
	case c.cfg.Scheme == authKey && c.cfg.keyParam() == "":
		header.Set(c.cfg.KeyHeader, c.prefixed())
	}
}

// key returns the key with its prefix, as requests send it.
func (c *credentials) key() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prefixed()
}

func (c *credentials) prefixed() string {
	prefix := strings.TrimRight(c.cfg.KeyPrefix, " ")
	key := c.secret.Reveal()
	// A key with a space has a prefix of its own.
	if prefix == "" && c.cfg.authHeader() == "Authorization" && !strings.Contains(key, " ") {
		prefix = "Bearer"
	}
	if prefix == "" || prefix == none {
		return key
	}
	return prefix + " " + key
}

// basic encodes a user and password for the Basic scheme.
func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// secrets returns the texts that no error may show.
func (c *credentials) secrets() []bridge.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []bridge.Secret{c.secret}
	if c.cfg.Scheme == authBasic {
		all = append(all, bridge.Secret(basic(c.cfg.User, c.secret.Reveal())))
	}
	if c.grant != nil { // its requests escape both
		all = append(all, bridge.Secret(basic(url.QueryEscape(c.cfg.OAuth2ClientID), url.QueryEscape(c.secret.Reveal()))))
	}
	if token := c.grant.Token(); token != nil {
		all = append(all, bridge.Secret(token.AccessToken))
	}
	return all
}

// renew replaces credentials that the API rejected with the status. changed is set if a
// retry may succeed: the key's file has changed, or another token can be requested.
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
	if strings.TrimSpace(key) == "" || !printable(key) {
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
	_, renewed, err = c.grant.Authorize(ctx, secret, now)
	return renewed, err
}

// token returns the fault of a failed token request.
func (f *faults) token(at bridge.Position, err error) *bridge.Fault {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		fault := &bridge.Fault{Class: bridge.Permanent, Code: codeSchema, Reason: bridge.ReasonAuth,
			Err: errors.New(f.clean(at, unquoted(err)))}
		if !grant.IsAnswer(err) {
			fault = f.connection(at, err, fmt.Sprintf("no token within %s", f.cfg.Timeout))
		}
		fault.Err = fmt.Errorf("request a token from %s: %w", f.tokenHost(), fault.Err)
		fault.Hint = strings.Replace(fault.Hint, "EXPORT_URL", "EXPORT_OAUTH2_TOKEN_URL", 1)
		if fault.Code != codeTLS && fault.Reason != bridge.ReasonConfig {
			fault.Hint = "check EXPORT_OAUTH2_TOKEN_URL, EXPORT_PROXY, DNS and the firewall"
		}
		return fault
	}
	code := refused.Response.StatusCode
	text := strings.TrimSpace(fmt.Sprintf("%d %s", code, f.clean(at, refused.ErrorCode+" "+refused.ErrorDescription)))
	fault := &bridge.Fault{Code: strconv.Itoa(code), Err: fmt.Errorf("request a token from %s: %s", f.tokenHost(), text)}
	switch {
	case code == http.StatusTooManyRequests:
		fault.Class, fault.RetryAfter = bridge.Throttled, delay.Of(refused.Response)
		fault.Hint = "wait for the requested delay"
	case code >= 500 || code == http.StatusRequestTimeout:
		fault.RetryAfter = delay.Of(refused.Response)
		fault.Hint = "if it persists, report it to the operator of the token endpoint: the failure is on its side"
	default:
		fault.Class, fault.Reason = bridge.Permanent, bridge.ReasonAuth
		fault.Hint = "check EXPORT_OAUTH2_TOKEN_URL, EXPORT_OAUTH2_CLIENT_ID, EXPORT_API_KEY (the client secret), " +
			"EXPORT_OAUTH2_SCOPES and EXPORT_OAUTH2_PARAMS"
	}
	return fault
}

func (f *faults) tokenHost() string {
	u, _ := url.Parse(f.cfg.OAuth2TokenURL) // validated
	return u.Host
}
