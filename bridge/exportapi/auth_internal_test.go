package exportapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/internal/linklocal"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTokensOfADay polls for a day. A token is renewed before it expires, but not much
// earlier.
func TestTokensOfADay(t *testing.T) {
	t.Parallel()
	for life, most := range map[time.Duration]int{24 * time.Hour: 2, time.Hour: 28, time.Minute: 2000, 0: 1} {
		synctest.Test(t, func(t *testing.T) {
			issued := 0
			var ends time.Time
			cfg := DefaultConfig()
			cfg.Scheme, cfg.APIKey, cfg.OAuth2ClientID, cfg.OAuth2TokenURL = authOAuth2, "s", "c", "https://login.example.com/t"
			c := newCredentials(&cfg, roundTrip(func(*http.Request) (*http.Response, error) {
				issued++
				ends = time.Now().Add(life)
				body := fmt.Sprintf(`{"access_token":"t","token_type":"bearer","expires_in":%d}`, int(life.Seconds()))
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(body))}, nil
			}))
			for began := time.Now(); time.Since(began) < 24*time.Hour; <-time.After(15 * time.Second) {
				must.Get(c.authorize(t.Context(), time.Now()))(t)
				if life > 0 && !time.Now().Before(ends) {
					t.Fatalf("life %s: a request with a token that ended %s ago", life, time.Since(ends))
				}
			}
			if issued > most {
				t.Errorf("life %s: %d tokens in a day, want at most %d", life, issued, most)
			}
		})
	}
}

// If a renewal fails, the token is used until it expires.
func TestTokenOutlivesAFailedRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		cfg := DefaultConfig()
		cfg.Scheme, cfg.APIKey, cfg.OAuth2ClientID, cfg.OAuth2TokenURL = authOAuth2, "s", "c", "https://login.example.com/t"
		c := newCredentials(&cfg, roundTrip(func(*http.Request) (*http.Response, error) {
			if requests++; requests > 1 {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"access_token":"t","token_type":"bearer","expires_in":3600}`))}, nil
		}))
		for began := time.Now(); time.Since(began) < time.Hour; <-time.After(time.Second) {
			if _, err := c.authorize(t.Context(), time.Now()); err != nil {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
		}
		if _, err := c.authorize(t.Context(), time.Now()); err == nil {
			t.Error("the token has ended, and there is no error")
		}
		if most := 2 + int(5*time.Minute/(10*time.Second))*2; requests > most {
			t.Errorf("%d requests, want at most %d", requests, most)
		}
	})
}

// If the token URL leads to a refused address, the hint names the setting that allows it.
func TestTokenFromRefusedAddress(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Scheme, cfg.APIKey, cfg.OAuth2ClientID, cfg.OAuth2TokenURL = authOAuth2, "s", "c", "https://login.example.com/t"
	c := must.Get(New(cfg))(t)
	t.Cleanup(c.Close)
	fault := c.faults.token(bridge.Position{}, fmt.Errorf("dial tcp: %w", linklocal.ErrAddress))
	for _, setting := range []string{"EXPORT_OAUTH2_TOKEN_URL", "EXPORT_ALLOW_LINK_LOCAL=true"} {
		if !strings.Contains(fault.Hint, setting) {
			t.Errorf("the hint lacks %s: %s", setting, fault.Hint)
		}
	}
}
