package exportapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
)

// scripted is an API whose answers a conformance suite selects.
type scripted struct {
	mu     sync.Mutex // guards answer
	answer func(bridge.Position) bridgetest.Answer
}

func (s *scripted) serve(answer func(bridge.Position) bridgetest.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	millis := func(name string) int64 {
		n, _ := strconv.ParseInt(query.Get(name), 10, 64) // absent is 0
		return n
	}
	s.mu.Lock()
	choose := s.answer
	s.mu.Unlock()
	switch a := choose(bridge.Position{Cursor: query.Get("cursor"), Start: millis("start"), End: millis("end")}); {
	case a.Hang:
		<-r.Context().Done()
	case a.Outage:
		w.WriteHeader(http.StatusServiceUnavailable)
	case a.Cut:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
		_, _ = strings.NewReader(a.Body[:len(a.Body)/2]).WriteTo(w)
		panic(http.ErrAbortHandler)
	default:
		answer(a.Body)(w, r)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.TestSource(t, func(t *testing.T) conformance.SourceFixture {
		api := new(scripted)
		server := listen(t, api)
		return conformance.SourceFixture{Source: connect(t, config(t, map[string]string{"EXPORT_URL": server.URL})),
			Serve: api.serve}
	})
}
