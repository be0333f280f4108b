package exportapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// After ten minutes at one cursor the error changes, and its hint says how to skip the
// page.
func TestPageThatFailsForLong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cursor string
		status int
		advice bridge.Hint
	}{
		"at a cursor":     {"c", http.StatusInternalServerError, bridge.HintPageFails},
		"a time-out":      {"c", http.StatusGatewayTimeout, bridge.HintPageFails},
		"no JSON":         {"c", http.StatusOK, bridge.HintPageFails},
		"the first page":  {"", http.StatusInternalServerError, ""},
		"a limit":         {"c", http.StatusTooManyRequests, ""},
		"another refusal": {"c", http.StatusConflict, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.APIKey = "k3y"
			c := must.Get(New(cfg))(t)
			defer c.Close()
			c.http.RegisterProtocol("test", roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tc.status, Header: http.Header{"Content-Type": {"text/html"}},
					Body: io.NopCloser(strings.NewReader("<p>")), Request: r}, nil
			}))
			c.faults.urls.first.Scheme, c.faults.urls.first.Host = "test", "api.example" // all requests use this URL
			fetch := func() *bridge.Fault {
				_, err := c.Fetch(t.Context(), bridge.Position{Cursor: tc.cursor})
				f, ok := errors.AsType[*bridge.Fault](err)
				if !ok {
					t.Fatalf("%s: %v", name, err)
				}
				return f
			}
			first := fetch()
			for began := time.Now(); time.Since(began) < 9*time.Minute; {
				<-time.After(30 * time.Second)
				if f := fetch(); f.HintCode == bridge.HintPageFails || f.Hint != first.Hint {
					t.Fatalf("%s: %v, %s, after %s", name, f, f.Hint, time.Since(began))
				}
			}
			<-time.After(time.Minute)
			if f := fetch(); f.HintCode != tc.advice || (f.Error() == first.Error()) != (tc.advice == "") ||
				tc.advice != "" && f.Hint != "" {
				t.Errorf("%s: %v, advice %q", name, f, f.HintCode)
			}
		})
	}
}
