// Package grant requests and renews tokens of the OAuth2 client credentials grant.
package grant

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	// maxLead is the longest time before its expiry that a token is renewed. A short-lived
	// token is renewed after three quarters of its life.
	maxLead = 5 * time.Minute
	// leastLife is the shortest time that a token is used, unless the API rejects it.
	leastLife = 10 * time.Second
	// retryRenewal is the pause between renewals of a token that still works.
	retryRenewal = 10 * time.Second
	// betweenForbidden is the shortest time between two renewals after a 403, which usually
	// means a missing permission.
	betweenForbidden = time.Minute
	// maxAnswer bounds how much of a response is read, in bytes.
	maxAnswer = 1 << 20
)

// Grant requests tokens and keeps the last one. Token and Forget may be called concurrently
// with all methods, the others by one goroutine at a time.
type Grant struct {
	cfg     *clientcredentials.Config // remembers how the server expects the secret
	http    *http.Client
	timeout time.Duration // of a request

	mu    sync.Mutex // guards the rest
	token *oauth2.Token
	// renewal is when the token must be renewed; zero for never.
	renewal   time.Time
	forbidden time.Time // when a 403 last dropped a token
}

// New returns a grant without a token. timeout is that of each request.
func New(cfg *clientcredentials.Config, transport http.RoundTripper, timeout time.Duration) *Grant {
	return &Grant{cfg: cfg, timeout: timeout, http: &http.Client{
		Transport: lenient{transport},
		// A redirect would send the client secret to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Token returns the token, nil without one. A nil Grant has none.
func (g *Grant) Token() *oauth2.Token {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token
}

// Forget drops the token.
func (g *Grant) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.token = nil
}

// Reject drops the token if the API's status may mean that it has expired, and reports
// whether it dropped one. It does so after every 401, and after a 403 at most once a
// minute.
func (g *Grant) Reject(status int, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.token == nil:
		return false
	case status == http.StatusUnauthorized:
	case status == http.StatusForbidden && (g.forbidden.IsZero() || now.Sub(g.forbidden) >= betweenForbidden):
		g.forbidden = now
	default:
		return false
	}
	g.token = nil
	return true
}

// Authorize returns a token, and reports whether it is new. It requests one if there is none
// or it expires soon. If a renewal fails, the token is used until it expires. Without
// expires_in, a JWT's exp is its expiry.
func (g *Grant) Authorize(
	ctx context.Context, secret string, now time.Time,
) (token *oauth2.Token, renewed bool, err error) {
	g.mu.Lock()
	current, renewal := g.token, g.renewal
	g.mu.Unlock()
	if current != nil && (renewal.IsZero() || now.Before(renewal)) {
		return current, false, nil
	}
	token, err = g.request(ctx, secret)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if current != nil && now.Before(current.Expiry) {
			g.renewal = now.Add(retryRenewal)
			return current, false, nil
		}
		return nil, false, err
	}
	if !token.Expiry.After(now) {
		token.Expiry = ReadClaims(token.AccessToken).Ends()
	}
	if !token.Expiry.After(now) { // unknown: the API rejects an expired token
		token.Expiry = time.Time{}
	}
	g.token, g.renewal = token, time.Time{}
	if left := token.Expiry.Sub(now); !token.Expiry.IsZero() {
		g.renewal = now.Add(max(left-min(left/4, maxLead), leastLife))
	}
	return token, true, nil
}

func (g *Grant) request(ctx context.Context, secret string) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, g.http), g.timeout)
	defer cancel()
	g.cfg.ClientSecret = secret
	token, err := g.cfg.Token(ctx)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the fault names the host
	}
	if err == nil && (!inHeader(token.AccessToken) || !inHeader(token.Type())) {
		err = errors.New(answerPrefix + "the token has characters that no header Authorization can have")
	}
	return token, err
}

// answerPrefix begins the errors of package oauth2 about an answer.
const answerPrefix = "oauth2: "

// IsAnswer reports whether an error of Authorize, which is no oauth2.RetrieveError, means that
// the server has answered with something else than a token.
func IsAnswer(err error) bool { return strings.HasPrefix(err.Error(), answerPrefix) }

// inHeader reports whether a text is one word of printable ASCII.
func inHeader(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// lenient speaks to servers that package oauth2 does not: those that take + in
// a form for itself, and those that call JSON text. It reads responses to their end, so
// that a connection that breaks before it fails the request: package oauth2 keeps only the
// text of that error.
type lenient struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l lenient) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		form, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		form = bytes.ReplaceAll(form, []byte("+"), []byte("%20")) // a + of a value is %2B
		req = req.Clone(req.Context())
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(form)), int64(len(form))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(form)), nil }
	}
	resp, err := l.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var text []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // a bare connection: no time-out ends a read of it
		if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			return nil, err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		resp.Header.Set("Content-Type", "application/json")
	}
	return resp, nil
}
