package kafkaclient

import (
	"cmp"
	"context"
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
	"exportbridge/bridge/internal/delay"
	"exportbridge/bridge/internal/grant"
	"exportbridge/bridge/internal/secrets"
)

const (
	// maxWords bounds what is shown of a server's text and of a token's claims, in bytes.
	maxWords = 300
	// failurePause is the least time between a request for a token that failed and the next.
	failurePause = time.Second
	// refusalPause is that time after a permanent failure, unless the secret changes.
	refusalPause = time.Minute
	// newToken is how long a token is new: the refusal of a new one that never worked is
	// not a matter of its age.
	newToken = 10 * time.Second
)

// tokenSource gives the token of a login to all clients with the same login, and requests
// one token at a time.
type tokenSource struct {
	grant *grant.Grant // nil: the password is the token
	turn  chan struct{}

	// The last request that failed, its secret, and until when the failure holds; owned by
	// who has the turn.
	failed *loginError
	with   string
	until  time.Time

	mu       sync.Mutex // guards the rest
	token    string     // the last one
	got      time.Time  // when it was requested
	worked   bool       // a broker accepted it
	replaced string     // the last token whose refusal another token may mend
	refusals bool       // the last answer of a broker was a refusal
}

// tokenSources are those of the process, by login.
var tokenSources = struct {
	mu sync.Mutex // guards of
	of map[string]*tokenSource
}{of: make(map[string]*tokenSource)}

// tokens returns the process's source of the token of a valid configuration.
func (s *SASL) tokens() *tokenSource {
	if s.OAuthTokenURL == "" {
		return &tokenSource{}
	}
	login := fmt.Sprintf("%q", []string{
		s.OAuthTokenURL, s.SASLUsername, cmp.Or(s.SASLPasswordFile, s.SASLPassword.Reveal()),
		strings.Join(s.OAuthScopes, " "), strings.Join(s.OAuthParams, " "), cmp.Or(s.OAuthTLSCAFile, s.OAuthTLSCA),
	})
	tokenSources.mu.Lock()
	defer tokenSources.mu.Unlock()
	source := tokenSources.of[login]
	if source == nil {
		params := url.Values{}
		for _, param := range s.OAuthParams {
			name, value, _ := strings.Cut(param, "=")
			params.Add(name, value)
		}
		dial := dialTLS(s.oauthTLS(), false)
		source = &tokenSource{turn: make(chan struct{}, 1), grant: grant.New(&clientcredentials.Config{
			ClientID: s.SASLUsername, TokenURL: s.OAuthTokenURL, Scopes: s.OAuthScopes, EndpointParams: params,
		}, &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DialTLSContext: dial,
			DisableKeepAlives: true, // a token lasts longer than an idle connection
		}, loginTimeout)}
		tokenSources.of[login] = source
	}
	return source
}

// take returns the token of a new connection.
func (s *tokenSource) take(ctx context.Context, login *SASL) (string, error) {
	secret, err := login.password()
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
	if s.failed != nil && asked.Before(s.until) && (s.failed.class != bridge.Permanent || s.with == secret) {
		failed := *s.failed
		if failed.retryAfter > 0 {
			failed.retryAfter = max(time.Until(s.until), time.Millisecond)
		}
		return "", &failed
	}
	token, renewed, err := s.grant.Authorize(ctx, secret, time.Now())
	if ctx.Err() != nil {
		return "", ctx.Err() // this client is closed, the next one asks again
	}
	if s.failed = nil; err != nil {
		s.failed, s.with = login.tokenError(err, secret), secret
		pause := max(failurePause, s.failed.retryAfter)
		if s.failed.class == bridge.Permanent {
			pause = refusalPause
		}
		s.until = time.Now().Add(pause)
		return "", s.failed
	}
	if renewed {
		s.mu.Lock()
		s.token, s.got, s.worked = token.AccessToken, time.Now(), false
		s.mu.Unlock()
	}
	return token.AccessToken, nil
}

// accepted notes that a broker accepted a token.
func (s *tokenSource) accepted(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == s.token {
		s.worked, s.refusals = true, false
	}
}

// refused makes the next login ask for another token, once a minute. It reports whether the
// next login may succeed: the token worked or is not new, and does not replace a refused one.
func (s *tokenSource) refused(token string) (again bool) {
	if s.grant == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case token == s.replaced: // for another client
		return true
	case token != s.token: // renewed meanwhile
		return !s.refusals
	}
	old := s.worked || time.Since(s.got) >= newToken
	if s.grant.Reject(http.StatusForbidden, time.Now()) && old && !s.refusals {
		s.replaced, again = token, true
	}
	s.refusals = true
	return again
}

// refusedLogin is refused for a refusal that does not name its token.
func (s *tokenSource) refusedLogin() {
	s.mu.Lock()
	token := s.token
	s.mu.Unlock()
	s.refused(token)
}

// refusedToken is a broker's refusal of a token. If again is set, a login with another token
// follows.
type refusedToken struct {
	err   error
	again bool
}

func (e *refusedToken) Error() string { return e.err.Error() }

func (e *refusedToken) Unwrap() error { return e.err }

// Temporary tells kgo whether to retry.
func (e *refusedToken) Temporary() bool { return e.again }

// tokenError says why there is no token.
func (s *SASL) tokenError(err error, secret string) *loginError {
	e := &loginError{class: bridge.Transient, code: "token",
		hint: "check KAFKA_SASL_OAUTH_TOKEN_URL, DNS and the firewall, and with TLS KAFKA_SASL_OAUTH_TLS_CA"}
	code, words := "", err.Error()
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := answer.Response.StatusCode
		code, words = strconv.Itoa(status), strings.TrimSpace(answer.ErrorCode+" "+answer.ErrorDescription)
		switch {
		case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
			e.hint = "if it persists, report it to the operator of the token endpoint: the failure is on its side"
			e.retryAfter = delay.RetryAfter(answer.Response.Header, time.Now())
		default:
			e.class = bridge.Permanent
			e.hint = "check KAFKA_SASL_OAUTH_TOKEN_URL, KAFKA_SASL_USERNAME (the client ID), KAFKA_SASL_PASSWORD (its " +
				"secret), KAFKA_SASL_OAUTH_SCOPES and KAFKA_SASL_OAUTH_PARAMS"
		}
	} else if grant.IsAnswer(err) {
		e.class = bridge.Permanent
		e.hint = "check KAFKA_SASL_OAUTH_TOKEN_URL: its answer is no token"
	}
	hidden := []secrets.Secret{{Name: "KAFKA_SASL_PASSWORD", Value: secret}}
	for _, param := range s.OAuthParams {
		_, value, _ := strings.Cut(param, "=")
		hidden = append(hidden, secrets.Secret{Name: "KAFKA_SASL_OAUTH_PARAMS", Value: value})
	}
	if name := secrets.NewFinder(hidden).In(words); name != "" {
		words = "its answer repeats " + name
	}
	words = strings.TrimSpace(code + " " + words)
	e.err = fmt.Errorf("request a token from %s: %s", tokenHost(s.OAuthTokenURL), printable(words))
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
	cfg    *SASL
	source *tokenSource
}

func (oauthLogin) Name() string { return saslOAuth }

// Authenticate implements sasl.Mechanism.
func (l oauthLogin) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	token, err := l.source.take(ctx, l.cfg)
	if err != nil {
		return nil, nil, err
	}
	auth := oauth.Auth{Token: token, Extensions: make(map[string]string)}
	for _, extension := range l.cfg.OAuthExtensions {
		name, value, _ := strings.Cut(extension, "=")
		auth.Extensions[name] = value
	}
	_, first, err := auth.AsMechanism().Authenticate(ctx, host)
	return oauthSession{token, l.source}, first, err
}

type oauthSession struct {
	token  string
	source *tokenSource
}

// Challenge implements sasl.Session. A broker that accepts the token has nothing to say
// (RFC 7628, section 3.2.2).
func (s oauthSession) Challenge(answer []byte) (done bool, next []byte, err error) {
	if len(answer) == 0 {
		s.source.accepted(s.token)
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
	err = refusal("%s%s", text, claims(s.token, time.Now()))
	return false, nil, &refusedToken{err, s.source.refused(s.token)}
}

// claims describes what brokers check in a token that is a JWT.
func claims(token string, now time.Time) string {
	c := grant.ReadClaims(token)
	if c == nil {
		return ""
	}
	audience, _ := json.Marshal(c.Audience) // it was decoded from JSON
	said := fmt.Sprintf("; the token has issuer %q, audience %s", printable(c.Issuer), printable(string(audience)))
	if ended := now.Sub(c.Ends()); !c.Ends().IsZero() && ended > 0 {
		said += fmt.Sprintf(", and expired %s ago", ended.Round(time.Second))
	}
	return said
}

func (s *SASL) oauthTLS() bridge.ClientTLS {
	return bridge.ClientTLS{Prefix: "KAFKA_SASL_OAUTH_TLS", CA: s.OAuthTLSCA, CAFile: s.OAuthTLSCAFile}
}

func (s *SASL) validateOAuth(p *bridge.Problems) {
	if s.SASLMechanism != saslOAuth {
		const only = "requires KAFKA_SASL_MECHANISM=OAUTHBEARER"
		p.Check(s.OAuthTokenURL == "", "KAFKA_SASL_OAUTH_TOKEN_URL", only)
		p.Check(len(s.OAuthExtensions) == 0, "KAFKA_SASL_OAUTH_EXTENSIONS", only)
	}
	for i, extension := range s.OAuthExtensions {
		name, value, ok := strings.Cut(extension, "=")
		letters := !strings.ContainsFunc(name, func(r rune) bool { return r|0x20 < 'a' || r|0x20 > 'z' })
		p.Check(ok && name != "" && letters && name != "auth" && value == printable(value), "KAFKA_SASL_OAUTH_EXTENSIONS",
			"has no name=value as extension %d, with letters as the name, for example logicalCluster=lkc-12345", i+1)
	}
	if s.OAuthTokenURL == "" {
		p.Check(len(s.OAuthScopes) == 0 && len(s.OAuthParams) == 0 && s.OAuthTLSCA == "", "KAFKA_SASL_OAUTH_TOKEN_URL",
			"is empty, but KAFKA_SASL_OAUTH_SCOPES, KAFKA_SASL_OAUTH_PARAMS or KAFKA_SASL_OAUTH_TLS_CA is set, "+
				"for example https://login.example.com/oauth/token")
		return
	}
	u, err := url.Parse(s.OAuthTokenURL)
	p.Check(err == nil && bridge.SecureURL(u) && u.User == nil && u.Fragment == "",
		"KAFKA_SASL_OAUTH_TOKEN_URL", "must be an https URL without user and fragment; http only on this machine, "+
			"for example https://login.example.com/oauth/token")
	for i, param := range s.OAuthParams {
		name, _, ok := strings.Cut(param, "=")
		p.Check(ok && name != "", "KAFKA_SASL_OAUTH_PARAMS",
			"has no name=value as parameter %d, for example audience=kafka", i+1)
		p.Check(name != "scope" && name != "grant_type", "KAFKA_SASL_OAUTH_PARAMS",
			"has %s; scopes belong into KAFKA_SASL_OAUTH_SCOPES, and the grant is client_credentials", name)
	}
	p.Add(s.oauthTLS().Validate())
}
