package kafkaclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/internal/grant"
)

// endpoint is a token endpoint without a network. Its source is used by one goroutine, or
// answers without fields of the test.
type endpoint struct {
	asked      int
	code       int
	retryAfter string
	body       func(asked int) string
}

func (e *endpoint) RoundTrip(*http.Request) (*http.Response, error) {
	e.asked++
	return &http.Response{StatusCode: e.code, Body: io.NopCloser(strings.NewReader(e.body(e.asked))),
		Header: http.Header{"Retry-After": {e.retryAfter}, "Content-Type": {"application/json"}}}, nil
}

func (e *endpoint) source() *tokenSource {
	return &tokenSource{turn: make(chan struct{}, 1),
		grant: grant.New(&clientcredentials.Config{
			ClientID: "a", TokenURL: "https://login.example.com/t", AuthStyle: oauth2.AuthStyleInHeader,
		}, e, loginTimeout)}
}

func numbered(asked int) string {
	return fmt.Sprintf(`{"access_token":"t%d","token_type":"bearer","expires_in":3600}`, asked)
}

func oauthClient() *Config {
	return &Config{SASL: SASL{SASLMechanism: saslOAuth, OAuthTokenURL: "https://login.example.com/t", SASLUsername: "a",
		SASLPassword: "b"}}
}

// TestTokenIsDroppedMeanwhile: a broker may refuse the token of one client while another
// takes it.
func TestTokenIsDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	e, c := &endpoint{code: http.StatusOK, body: numbered}, oauthClient()
	s, end := e.source(), time.Now().Add(time.Second/2)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for time.Now().Before(end) {
				if token, err := s.take(t.Context(), &c.SASL); err != nil || token == "" {
					t.Errorf("token %q, %v", token, err)
				}
			}
		})
	}
	clients.Go(func() {
		for time.Now().Before(end) {
			s.grant.Reject(http.StatusUnauthorized, time.Now())
			runtime.Gosched()
		}
	})
	clients.Wait()
}

// TestTokenWithoutLife: a JWT has its end in it.
func TestTokenWithoutLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{code: http.StatusOK, body: func(asked int) string {
			claims := fmt.Sprintf(`{"jti":"%d","exp":%d}`, asked, time.Now().Add(20*time.Minute).Unix())
			return fmt.Sprintf(`{"access_token":"e30.%s.s","token_type":"Bearer"}`, base64.RawURLEncoding.EncodeToString([]byte(claims)))
		}}
		s, c := e.source(), oauthClient()
		for range 60 {
			token, err := s.take(t.Context(), &c.SASL)
			if err != nil || strings.Contains(claims(token, time.Now()), "expired") {
				t.Fatalf("%s, %v", claims(token, time.Now()), err)
			}
			<-time.After(time.Minute)
		}
		if e.asked != 4 {
			t.Errorf("%d tokens in an hour", e.asked)
		}
	})
}

// TestFailedTokenRequests counts the requests of a process that asks for a token ten times a
// second.
func TestFailedTokenRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code       int
		retryAfter string
		in         time.Duration
		want       int
	}{
		"down":             {http.StatusServiceUnavailable, "", 10 * time.Second, 10},
		"throttled":        {http.StatusTooManyRequests, "600", 599 * time.Second, 1},
		"throttled before": {http.StatusTooManyRequests, "600", 601 * time.Second, 2},
		"refused":          {http.StatusUnauthorized, "", 59 * time.Second, 1},
		"refused before":   {http.StatusUnauthorized, "", 61 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &endpoint{code: test.code, retryAfter: test.retryAfter, body: func(int) string { return `{"error":"no"}` }}
			s, c := e.source(), oauthClient()
			for began := time.Now(); time.Since(began) < test.in; <-time.After(100 * time.Millisecond) {
				_, err := s.take(t.Context(), &c.SASL)
				f := c.Fault(err, "")
				if left := 600*time.Second - time.Since(began)%(600*time.Second); test.retryAfter != "" && f.RetryAfter != left {
					t.Fatalf("%s: retry after %s, want %s", name, f.RetryAfter, left)
				}
			}
			if e.asked != test.want {
				t.Errorf("%s: %d requests in %s, want %d", name, e.asked, test.in, test.want)
			}
			if c.SASLPassword = "another"; test.code == http.StatusUnauthorized {
				if _, _ = s.take(t.Context(), &c.SASL); e.asked != test.want+1 {
					t.Errorf("%s: another secret is not used", name)
				}
			}
		})
	}
}

// TestTokenThatWorked: a broker's refusal of a token that worked, or is not new, is followed
// by a login with another token; a refusal of that one blocks.
func TestTokenThatWorked(t *testing.T) {
	t.Parallel()
	refuse := []byte(`{"status":"invalid_token"}`)
	for name, test := range map[string]struct {
		accept bool
		wait   time.Duration
		want   bridge.Class
	}{
		"worked": {true, 0, bridge.Transient},
		"old":    {false, time.Minute, bridge.Transient},
		"new":    {false, 0, bridge.Permanent},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, c := &endpoint{code: http.StatusOK, body: numbered}, oauthClient()
			l := oauthLogin{&c.SASL, e.source()}
			answer := func(answer []byte) func() *bridge.Fault {
				session, _, err := l.Authenticate(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				return func() *bridge.Fault {
					_, _, err := session.Challenge(answer)
					if err == nil {
						return nil
					}
					refusedLogins(l.source.refusedLogin).OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, err)
					if again, ok := errors.AsType[interface {
						error
						Temporary() bool
					}](err); !ok || again.Temporary() != (c.Fault(err, "").Class == bridge.Transient) {
						t.Errorf("%s: kgo is told otherwise of %v", name, err)
					}
					return c.Fault(err, "")
				}
			}
			if test.accept {
				answer(nil)()
			}
			first, second := answer(refuse), answer(refuse) // of two clients with the same token
			<-time.After(test.wait)
			if f := first(); f.Class != test.want || f.Hint == "" {
				t.Errorf("%s: %+v", name, f)
			}
			third := answer(refuse)
			if f := second(); f.Class != test.want {
				t.Errorf("%s: the second of the same token: %+v", name, f)
			}
			for range 3 {
				if f := third(); f.Class != bridge.Permanent || f.Reason != bridge.ReasonAuth {
					t.Errorf("%s: a new token: %+v", name, f)
				}
				<-time.After(2 * time.Minute)
				third = answer(refuse)
			}
			answer(nil)() // recovers
			if f := answer(refuse)(); f.Class != bridge.Transient {
				t.Errorf("%s: worked again: %+v", name, f)
			}
			answer(nil)()
			last := answer(refuse)
			<-time.After(time.Hour)
			answer(nil)() // renewed
			if f := last(); f.Class != bridge.Transient {
				t.Errorf("%s: renewed meanwhile: %+v", name, f)
			}
		})
	}
}

// TestParameterIsRepeated: the parameters of a token request are secrets.
func TestParameterIsRepeated(t *testing.T) {
	t.Parallel()
	const key = "hunter2hunter2hunter2"
	e := &endpoint{code: http.StatusBadRequest, body: func(int) string {
		return `{"error":"invalid_request","error_description":"unknown api_key ` + key + `"}`
	}}
	c := oauthClient()
	c.OAuthParams = []string{"audience=kafka", "api_key=" + key}
	_, err := e.source().take(t.Context(), &c.SASL)
	if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "400 its answer repeats KAFKA_SASL_OAUTH_PARAMS") {
		t.Error(err)
	}
}

// TestEmptyPasswordFile: a file that is being replaced may be empty.
func TestEmptyPasswordFile(t *testing.T) {
	t.Parallel()
	e := &endpoint{code: http.StatusOK, body: numbered}
	for _, text := range []string{"", "\n", " \n"} {
		c := oauthClient()
		c.SASLPasswordFile = filepath.Join(t.TempDir(), "password")
		must.Do(t, os.WriteFile(c.SASLPasswordFile, []byte(text), 0o600))
		for _, mechanism := range []string{saslPlain, saslScram256, saslScram512, saslOAuth} {
			c.SASLMechanism = mechanism
			m, _ := c.mechanism()
			if mechanism == saslOAuth {
				m = oauthLogin{&c.SASL, e.source()}
			}
			_, _, err := m.Authenticate(context.Background(), "")
			if err == nil {
				t.Errorf("%s: logs in without a password", mechanism)
				continue
			}
			f := c.Fault(err, "")
			if f.Class != bridge.Transient || f.Code != "password" || !strings.Contains(f.Error(), "KAFKA_SASL_PASSWORD_FILE") ||
				!strings.Contains(f.Hint, "KAFKA_SASL_PASSWORD_FILE") {
				t.Errorf("%s: %+v", mechanism, f)
			}
		}
	}
	if e.asked != 0 {
		t.Errorf("%d requests without a secret", e.asked)
	}
}
