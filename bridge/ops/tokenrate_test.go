package ops_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/ops"
)

// An address that sends wrong tokens waits, and does not learn meanwhile that a token is
// right. Who was accepted from there before does not wait: others may send wrong tokens from
// the same address, behind one proxy.
func TestGuessesAreSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(ops.Config{Addr: ":8080", AdminToken: rightToken})
		try := func(line, peer, token string) *httptest.ResponseRecorder {
			return s.do(ask{line: line, body: anyReason, peer: peer, header: map[string]string{"Authorization": "Bearer " +
				token}})
		}
		const guesser, other, v6, v6neighbour, session = "10.0.0.1:1", "10.0.0.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1",
			"GET /api/v1/session"
		for _, peer := range []string{guesser, v6} {
			if w := try(session, peer, rightToken); w.Code != 200 {
				t.Errorf("the right token from %s: %d %s", peer, w.Code, w.Body)
			}
		}
		const newcomer = "10.0.0.3:1"
		for i := range 10 {
			wantRefusal(t, try(pausePath, newcomer, fmt.Sprint(i)), 401, "is wrong")
			w := try(pausePath, guesser, fmt.Sprint(i))
			wantRefusal(t, w, 401, "is wrong")
			if after := w.Header().Get("Retry-After"); after != "" {
				t.Errorf("Retry-After %s", after)
			}
			wantRefusal(t, try(pausePath, v6, fmt.Sprint(i)), 401, "is wrong")
		}
		for range 3 {
			wantRefusal(t, try(pausePath, newcomer, rightToken), 429, "too many wrong tokens")
		}
		for range 3 { // neither answer changes the other
			for _, peer := range []string{guesser, "10.0.0.1:2", v6, v6neighbour} {
				w := try(pausePath, peer, "x")
				wantRefusal(t, w, 429, "too many wrong tokens")
				if w.Header().Get("Retry-After") == "" {
					t.Errorf("%s is not told when to retry", peer)
				}
				wantRefusal(t, try(session, peer, "x"), 429, "too many wrong tokens")
				if w := try(pausePath, peer, rightToken); w.Code != 200 {
					t.Errorf("the right token from %s: %d %s", peer, w.Code, w.Body)
				}
				if w := try(session, peer, rightToken); w.Code != 200 || !strings.Contains(w.Body.String(), `"write":true`) {
					t.Errorf("the session of the right token from %s: %d %s", peer, w.Code, w.Body)
				}
			}
		}
		if w := s.do(ask{line: session, peer: guesser}); w.Code != 200 {
			t.Errorf("without a token: %d %s", w.Code, w.Body)
		}
		wantRefusal(t, try(pausePath, other, "x"), 401, "is wrong")
		<-time.After(time.Second)
		for range 2 {
			if w := try(pausePath, newcomer, rightToken); w.Code != 200 {
				t.Errorf("the right token from %s, a second later: %d %s", newcomer, w.Code, w.Body)
			}
		}
		wantRefusal(t, try(pausePath, guesser, "x"), 401, "is wrong")
		wantRefusal(t, try(pausePath, guesser, "x"), 429, "too many wrong tokens")
	})
}
