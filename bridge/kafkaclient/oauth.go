package kafkaclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/grant"
	"exportbridge/bridge/internal/secrets"
)

const (
	// maxWords bounds what is shown of a server's text and of a token's claims, in bytes.
	maxWords = 300
	// failurePause is the least time between a request for a token that failed and the next.
	failurePause = time.Second
)

// tokenSource gives the token of a login to all clients with the same login, and requests
// one token at a time.
type tokenSource struct {
	grant *grant.Grant // nil: the password is the token
	turn  chan struct{}

	// The last request that failed; owned by who has the turn.
	failed error
	at     time.Time
}

// tokenSources are those of the process, by login.
var tokenSources = struct {
	mu sync.Mutex // guards of
	of map[string]*tokenSource
}{of: make(map[string]*tokenSource)}

// tokens returns the process's source of the token of a valid configuration.
func (c *Config) tokens() *tokenSource {
	if c.OAuthTokenURL == "" {
		return &tokenSource{}
	}
	login := fmt.Sprintf("%q", []string{
		c.OAuthTokenURL, c.SASLUsername, cmp.Or(c.SASLPasswordFile, c.SASLPassword.Reveal()),
		strings.Join(c.OAuthScopes, " "), strings.Join(c.OAuthParams, " "), cmp.Or(c.OAuthTLSCAFile, c.OAuthTLSCA),
	})
	tokenSources.mu.Lock()
	defer tokenSources.mu.Unlock()
	source := tokenSources.of[login]
	if source == nil {
		params := url.Values{}
		for _, param := range c.OAuthParams {
			name, value, _ := strings.Cut(param, "=")
			params.Add(name, value)
		}
		dial := dialTLS(c.oauthTLS(), false)
		source = &tokenSource{turn: make(chan struct{}, 1), grant: grant.New(&clientcredentials.Config{
			ClientID: c.SASLUsername, TokenURL: c.OAuthTokenURL, Scopes: c.OAuthScopes, EndpointParams: params,
		}, &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DialTLSContext: dial,
			DisableKeepAlives: true, // a token lasts longer than an idle connection
		}, loginTimeout)}
		tokenSources.of[login] = source
	}
	return source
}

// token returns the token of a new connection.
func (s *tokenSource) token(ctx context.Context, c *Config) (string, error) {
	secret, err := c.password()
	if err != nil || s.grant == nil {
		return secret, err
	}
	asked := time.Now()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.failed != nil && s.at.After(asked.Add(-failurePause)) { // meanwhile, or just before
		return "", s.failed
	}
	_, err = s.grant.Authorize(ctx, secret, time.Now())
	if ctx.Err() != nil {
		return "", ctx.Err() // this client is closed, the next one asks again
	}
	if s.failed = nil; err != nil {
		s.failed, s.at = c.tokenError(err, secret), time.Now()
		return "", s.failed
	}
	return s.grant.Token().AccessToken, nil
}

// refused makes the next login ask for another token, once a minute.
func (s *tokenSource) refused() {
	if s.grant != nil {
		s.grant.Reject(http.StatusForbidden, time.Now())
	}
}

// tokenError says why there is no token.
func (c *Config) tokenError(err error, secret string) error {
	e := &loginError{class: bridge.Transient, code: "token",
		hint: "check KAFKA_SASL_OAUTH_TOKEN_URL, DNS and the firewall, and with TLS KAFKA_SASL_OAUTH_TLS_CA"}
	words := err.Error()
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		code := answer.Response.StatusCode
		words = strings.TrimSpace(fmt.Sprintf("%d %s %s", code, answer.ErrorCode, answer.ErrorDescription))
		switch {
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
			e.hint = "if it persists, report it to the operator of the token endpoint: the failure is on its side"
			if seconds, err := strconv.Atoi(answer.Response.Header.Get("Retry-After")); err == nil && seconds > 0 {
				e.retryAfter = min(time.Duration(seconds)*time.Second, time.Hour)
			}
		default:
			e.class = bridge.Permanent
			e.hint = "check KAFKA_SASL_OAUTH_TOKEN_URL, KAFKA_SASL_USERNAME (the client ID), KAFKA_SASL_PASSWORD (its " +
				"secret), KAFKA_SASL_OAUTH_SCOPES and KAFKA_SASL_OAUTH_PARAMS"
		}
	} else if strings.HasPrefix(words, "oauth2: ") { // an answer that is no token
		e.class = bridge.Permanent
		e.hint = "check KAFKA_SASL_OAUTH_TOKEN_URL: its answer is no token"
	}
	if secrets.NewFinder([]secrets.Secret{{Name: "KAFKA_SASL_PASSWORD", Value: secret}}).In(words) != "" {
		words = "its answer repeats KAFKA_SASL_PASSWORD"
	}
	e.err = fmt.Errorf("request a token from %s: %s", tokenHost(c.OAuthTokenURL), printable(words))
	return e
}

func tokenHost(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "KAFKA_SASL_OAUTH_TOKEN_URL"
	}
	return u.Host
}

// printable returns a foreign text as one short line.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "..."
	}
	return text
}

// oauthLogin is OAUTHBEARER. Package oauth reports a refused token as a protocol error.
type oauthLogin struct {
	cfg    *Config
	source *tokenSource
}

func (oauthLogin) Name() string { return saslOAuth }

// Authenticate implements sasl.Mechanism.
func (l oauthLogin) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	token, err := l.source.token(ctx, l.cfg)
	if err != nil {
		return nil, nil, err
	}
	auth := oauth.Auth{Token: token, Extensions: make(map[string]string)}
	for _, extension := range l.cfg.OAuthExtensions {
		name, value, _ := strings.Cut(extension, "=")
		auth.Extensions[name] = value
	}
	_, first, err := auth.AsMechanism().Authenticate(ctx, host)
	return oauthSession{token}, first, err
}

type oauthSession struct{ token string }

// Challenge implements sasl.Session. A broker that accepts the token has nothing to say
// (RFC 7628, section 3.2.2).
func (s oauthSession) Challenge(answer []byte) (done bool, next []byte, err error) {
	if len(answer) == 0 {
		return true, nil, nil
	}
	var why struct{ Status, Scope string }
	if err := json.Unmarshal(answer, &why); err != nil || why.Status == "" {
		why.Status = "unknown"
	}
	text := "the broker refused the token with status " + printable(why.Status)
	if why.Scope != "" {
		text += ", it requires the scope " + printable(why.Scope)
	}
	return false, nil, refusal("%s%s", text, claims(s.token, time.Now()))
}

// claims describes what brokers check in a token that is a JWT.
func claims(token string, now time.Time) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var c struct {
		Issuer   string  `json:"iss"`
		Audience any     `json:"aud"`
		Expiry   float64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return ""
	}
	audience, _ := json.Marshal(c.Audience) // was JSON
	said := fmt.Sprintf("; the token has issuer %q, audience %s", printable(c.Issuer), printable(string(audience)))
	if ended := now.Sub(time.Unix(int64(c.Expiry), 0)); c.Expiry > 0 && ended > 0 {
		said += fmt.Sprintf(", and expired %s ago", ended.Round(time.Second))
	}
	return said
}

func (c *Config) oauthTLS() bridge.ClientTLS {
	return bridge.ClientTLS{Prefix: "KAFKA_SASL_OAUTH_TLS", CA: c.OAuthTLSCA, CAFile: c.OAuthTLSCAFile}
}

func (c *Config) validateOAuth(p *bridge.Problems) {
	if c.SASLMechanism != saslOAuth {
		const only = "requires KAFKA_SASL_MECHANISM=OAUTHBEARER"
		p.Check(c.OAuthTokenURL == "", "KAFKA_SASL_OAUTH_TOKEN_URL", only)
		p.Check(len(c.OAuthExtensions) == 0, "KAFKA_SASL_OAUTH_EXTENSIONS", only)
	}
	for i, extension := range c.OAuthExtensions {
		name, value, ok := strings.Cut(extension, "=")
		letters := !strings.ContainsFunc(name, func(r rune) bool { return r|0x20 < 'a' || r|0x20 > 'z' })
		p.Check(ok && name != "" && letters && name != "auth" && value == printable(value), "KAFKA_SASL_OAUTH_EXTENSIONS",
			"has no name=value as extension %d, with letters as the name, for example logicalCluster=lkc-12345", i+1)
	}
	if c.OAuthTokenURL == "" {
		p.Check(len(c.OAuthScopes) == 0 && len(c.OAuthParams) == 0 && c.OAuthTLSCA == "", "KAFKA_SASL_OAUTH_TOKEN_URL",
			"is empty, but KAFKA_SASL_OAUTH_SCOPES, KAFKA_SASL_OAUTH_PARAMS or KAFKA_SASL_OAUTH_TLS_CA is set, "+
				"for example https://login.example.com/oauth/token")
		return
	}
	u, err := url.Parse(c.OAuthTokenURL)
	valid := err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == ""
	p.Check(valid && (u.Scheme == "https" || u.Scheme == "http" && bridge.Loopback(u.Hostname())),
		"KAFKA_SASL_OAUTH_TOKEN_URL", "must be an https URL without user and fragment; http only on this machine, "+
			"for example https://login.example.com/oauth/token")
	for i, param := range c.OAuthParams {
		name, _, ok := strings.Cut(param, "=")
		p.Check(ok && name != "", "KAFKA_SASL_OAUTH_PARAMS",
			"has no name=value as parameter %d, for example audience=kafka", i+1)
		p.Check(name != "scope" && name != "grant_type", "KAFKA_SASL_OAUTH_PARAMS",
			"has %s; scopes belong into KAFKA_SASL_OAUTH_SCOPES, and the grant is client_credentials", name)
	}
	p.Add(c.oauthTLS().Validate())
}
