package grant

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2/clientcredentials"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newGrant(kind, body string, status int, form *string) *Grant {
	cfg := &clientcredentials.Config{ClientID: "a client", TokenURL: "https://login.example.com/t",
		Scopes: []string{"a", "b+c"}, EndpointParams: url.Values{"audience": {"the api"}}}
	return New(cfg, roundTrip(func(r *http.Request) (*http.Response, error) {
		text, _ := io.ReadAll(r.Body)
		if r.ContentLength != int64(len(text)) {
			return nil, fmt.Errorf("%d bytes of %d", len(text), r.ContentLength)
		}
		*form = string(text)
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}},
			Body: io.NopCloser(strings.NewReader(body))}, nil
	}), time.Second)
}

// TestReadsTokens has tokens as servers write them, and escaped spaces.
func TestReadsTokens(t *testing.T) {
	t.Parallel()
	const token = `{"access_token":"t","token_type":"bearer","expires_in":3600}`
	for name, tc := range map[string]struct{ kind, body string }{
		"JSON":                 {"application/json; charset=utf-8", token},
		"JSON as text":         {"text/plain; charset=utf-8", "\n " + token},
		"JSON as a form":       {"application/x-www-form-urlencoded", token},
		"JSON as HTML":         {"text/html", token},
		"JSON without a type":  {"", token},
		"a form":               {"application/x-www-form-urlencoded", "access_token=t&token_type=bearer&expires_in=3600"},
		"a form as text":       {"text/plain", "access_token=t&token_type=bearer&expires_in=3600"},
		"the life as a string": {"text/plain", `{"access_token":"t","token_type":"bearer","expires_in":"3600"}`},
	} {
		var form string
		g := newGrant(tc.kind, tc.body, http.StatusOK, &form)
		if _, _, err := g.Authorize(t.Context(), "s", time.Now()); err != nil || g.Token().AccessToken != "t" ||
			g.Token().Expiry.IsZero() {
			t.Errorf("%s: %v, %v", name, g.Token(), err)
		}
		if form != "audience=the%20api&grant_type=client_credentials&scope=a%20b%2Bc" {
			t.Errorf("%s: sent %s", name, form)
		}
	}
	var form string
	g := newGrant("text/plain", `{"error":"invalid_scope"}`, http.StatusBadRequest, &form)
	if _, _, err := g.Authorize(t.Context(), "s", time.Now()); err == nil || !strings.Contains(err.Error(), "invalid_scope") {
		t.Errorf("a refusal as text: %v", err)
	}
}

// Each 401 requests a new token, a 403 at most one a minute.
func TestReject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var form string
		g := newGrant("", `{"access_token":"t"}`, http.StatusOK, &form)
		if g.Reject(http.StatusUnauthorized, time.Now()) {
			t.Error("no token was dropped")
		}
		for i, step := range []struct {
			after  time.Duration
			status int
			want   bool
		}{
			{0, http.StatusForbidden, true}, {59 * time.Second, http.StatusForbidden, false},
			{0, http.StatusUnauthorized, true}, {0, http.StatusUnauthorized, true},
			{time.Second, http.StatusForbidden, true}, {0, http.StatusForbidden, false}, {0, http.StatusBadRequest, false},
			{time.Hour, http.StatusForbidden, true},
		} {
			<-time.After(step.after)
			if _, _, err := g.Authorize(t.Context(), "s", time.Now()); err != nil {
				t.Fatal(err)
			}
			if got := g.Reject(step.status, time.Now()); got != step.want || (g.Token() == nil) != step.want {
				t.Errorf("step %d: %t, want %t", i, got, step.want)
			}
		}
	})
}

// A token that no header can have is an error at once, not a failure of each later request.
func TestUselessTokens(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"access_token":"t\r\n"}`, `{"access_token":"a\nX-Evil: 1"}`, `{"access_token":"a\u0000b"}`,
		`{"access_token":"t\u007f"}`, `{"access_token":"t\u0085"}`,
		`{"access_token":"t","token_type":"Bearer\r\nX: y"}`, `{"access_token":"a b"}`, `{"access_token":"tü"}`,
		`{"access_token":" "}`,
	} {
		var form string
		g := newGrant("application/json", body, http.StatusOK, &form)
		if _, _, err := g.Authorize(t.Context(), "s", time.Now()); err == nil || !strings.HasPrefix(err.Error(), "oauth2: ") ||
			g.Token() != nil {
			t.Errorf("%s: %v, %v", body, g.Token(), err)
		}
	}
}

// A token without a useful lifetime is used until the API rejects it. A short-lived one is
// not renewed for each page.
func TestLifeOfTokens(t *testing.T) {
	t.Parallel()
	for life, most := range map[string]int{"0": 1, "-1": 1, "-3600": 1, `"-5"`: 1, "9223372036": 1,
		"-9223372036854775808": 1, "1": 61, "5": 61, "60": 14, "null": 1} {
		synctest.Test(t, func(t *testing.T) {
			var form string
			issued := 0
			g := newGrant("application/json", `{"access_token":"t","expires_in":`+life+`}`, http.StatusOK, &form)
			for began := time.Now(); time.Since(began) < 10*time.Minute; <-time.After(100 * time.Millisecond) {
				_, renewed, err := g.Authorize(t.Context(), "s", time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if renewed {
					issued++
				}
			}
			if issued > most {
				t.Errorf("expires_in %s: %d tokens in ten minutes, want at most %d", life, issued, most)
			}
		})
	}
}
