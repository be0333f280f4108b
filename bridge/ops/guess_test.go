package ops_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/ops"
)

// Guessing the token is slowed for the address that guesses, and for no other.
func TestGuessesAreSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(ops.Config{Addr: ":8080", AdminToken: rightToken})
		try := func(peer, token string) *httptest.ResponseRecorder {
			return s.do(ask{line: pausePath, body: anyReason, peer: peer, header: map[string]string{"Authorization": "Bearer " + token}})
		}
		const guesser, other, v6, v6neighbour = "10.0.0.1:1", "10.0.0.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1"
		for i := range 10 {
			w := try(guesser, fmt.Sprint(i))
			wantRefusal(t, w, 401, "is wrong")
			if after := w.Header().Get("Retry-After"); after != "" {
				t.Errorf("Retry-After %s", after)
			}
			wantRefusal(t, try(v6, fmt.Sprint(i)), 401, "is wrong")
		}
		for _, peer := range []string{guesser, "10.0.0.1:2", v6, v6neighbour} {
			for _, token := range []string{"x", rightToken} {
				w := try(peer, token)
				wantRefusal(t, w, 429, "too many wrong tokens")
				if w.Header().Get("Retry-After") == "" {
					t.Errorf("%s is not told when to retry", peer)
				}
			}
		}
		wantRefusal(t, s.do(ask{line: "GET /api/v1/session", peer: guesser, header: map[string]string{"Authorization": "Bearer x"}}), 429, "too many")
		if w := s.do(ask{line: "GET /api/v1/session", peer: guesser}); w.Code != 200 {
			t.Errorf("without a token: %d %s", w.Code, w.Body)
		}
		for range 100 {
			if w := try(other, rightToken); w.Code != 200 {
				t.Fatalf("the right token from another address: %d %s", w.Code, w.Body)
			}
		}
		<-time.After(time.Second)
		wantRefusal(t, try(guesser, "x"), 401, "is wrong")
		wantRefusal(t, try(guesser, "x"), 429, "too many wrong tokens")
		<-time.After(time.Second)
		if w := try(guesser, rightToken); w.Code != 200 {
			t.Errorf("the right token a second later: %d %s", w.Code, w.Body)
		}
		if w := try(guesser, rightToken); w.Code != 200 {
			t.Errorf("the right token once more: %d %s", w.Code, w.Body)
		}
	})
}
