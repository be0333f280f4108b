//go:build unix

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// restPoll is how often a stream at rest asks.
const restPoll = 5 * time.Second

// asked counts the requests to a list by what they are for.
type asked struct {
	to http.Handler

	mu    sync.Mutex // guards all below
	polls int        // of the look-back
	late  int        // of the range of EXPORT_LATE
	more  int        // further pages of a listing
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	from, err := time.Parse(time.RFC3339, query.Get("start"))
	a.mu.Lock()
	switch age := time.Since(from); {
	case query.Has("cursor"):
		a.more++
	case err != nil || age < 0 || from.Year() < 2000: // whether the API heeds bounds
	case age > time.Hour:
		a.late++
	default:
		a.polls++
	}
	a.mu.Unlock()
	a.to.ServeHTTP(w, r)
}

// TestE2EProofRest counts the requests of a stream that follows windows and has nothing to
// do: one a poll, and one each 15 minutes for the range of EXPORT_LATE.
func TestE2EProofRest(t *testing.T) {
	t.Parallel()
	if os.Getenv("E2E_MINUTES") == "" {
		t.Skip("it takes minutes: run with E2E_MINUTES=10")
	}
	length := time.Duration(size(t, "E2E_MINUTES", 0, 0) * float64(time.Minute))
	if _, err := buildDev(); err != nil { // before the export begins to grow
		t.Fatal(err)
	}
	const events, every = 24, 10 * time.Minute
	form, _ := exportsim.FormNamed("audit-list")
	start := time.Now().Add(-events * every).Truncate(time.Second)
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Form: form, Events: events, Start: start,
		Rate: 1 / every.Seconds()})
	s.simulateForm(form.Name)
	api := must.Get(url.Parse(s.api))(t)
	count := &asked{to: httputil.NewSingleHostReverseProxy(api)}
	server := httptest.NewServer(count)
	t.Cleanup(server.Close)
	s.settings["EXPORT_URL"], s.settings["EXPORT_START"] = server.URL, start.UTC().Format(time.RFC3339)
	s.settings["EXPORT_LATE"] = "3h/15m" // the look-back has its default
	s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = restPoll.String(), restPoll.String()
	run := s.run()
	eventually(t, stepTimeout, "the end of the list", func() bool { return run.metric("caught_up") == 1 })
	count.mu.Lock()
	count.polls, count.late, count.more = 0, 0, 0
	count.mu.Unlock()
	began, had := time.Now(), run.published()
	passes(length)
	took, published := time.Since(began), run.published()-had
	count.mu.Lock()
	polls, late, more := count.polls, count.late, count.more
	count.mu.Unlock()
	run.stop()
	// What was published is listed once more, at once, for what came meanwhile.
	if most := int(took/restPoll) + 1 + published; polls == 0 || polls > most || more > 0 ||
		late > 1+int(took/(15*time.Minute)) {
		t.Errorf("%d requests of the look-back, at most %d polls, %d of the late range, %d further pages", polls, most,
			late, more)
	}
	t.Logf("e2e: proof, rest: %s, a poll each %s, EXPORT_LATE=3h/15m: %d requests of the look-back, %d of the late "+
		"range, %d further pages, %d events",
		took.Round(time.Second), restPoll, polls, late, more, published)
}
