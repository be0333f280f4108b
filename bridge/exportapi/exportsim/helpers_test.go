package exportsim_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is a fixed time, so that tests can compare what the simulator serves.
var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func newHandler(t testing.TB, c exportsim.Config) *exportsim.Handler {
	t.Helper()
	if c.Start.IsZero() {
		c.Start = start
	}
	h := must.Get(exportsim.New(c))(t)
	t.Cleanup(h.Close)
	return h
}

// newServer serves a Handler on the loopback interface, and returns a client for it.
func newServer(t testing.TB, c exportsim.Config) (*exportsim.Handler, *api) {
	t.Helper()
	h := newHandler(t, c)
	server := httptest.NewServer(h)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(func() {
		h.Close()
		client.CloseIdleConnections()
		server.Close()
	})
	return h, &api{t: t, base: server.URL + c.BasePath, client: client}
}

// api is a simple client.
type api struct {
	t      testing.TB
	base   string
	client *http.Client
}

type page struct {
	Items []json.RawMessage `json:"items"`
	// Next is nil if the member is absent.
	Next     json.RawMessage   `json:"nextCursor"`
	Metadata map[string]string `json:"metadata"`
}

// cursor returns the cursor, empty if nextCursor is null, empty or absent.
func (p page) cursor() string {
	return strings.Trim(strings.TrimPrefix(string(p.Next), "null"), `"`)
}

func (a *api) do(pathAndQuery string) (*http.Response, []byte, error) {
	request := must.Get(http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.base+pathAndQuery, nil))(a.t)
	response, err := a.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

// get fetches a page. It fails the test on any other response.
func (a *api) get(path string, parameters url.Values) page {
	a.t.Helper()
	if len(parameters) > 0 {
		path += "?" + parameters.Encode()
	}
	response, body, err := a.do(path)
	if err != nil {
		a.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		a.t.Fatalf("GET %s: %s %s", path, response.Status, body)
	}
	return decodePage(a.t, body)
}

func decodePage(t testing.TB, body []byte) page {
	t.Helper()
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("page: %v", err)
	}
	if p.Items == nil {
		t.Fatal("page without items")
	}
	return p
}

// drain follows the cursor to the end under each contract. It returns the items and the
// last page.
func (a *api) drain(path string, parameters url.Values) ([]json.RawMessage, page) {
	a.t.Helper()
	query := url.Values{}
	maps.Copy(query, parameters)
	var all []json.RawMessage
	for range 100_000 {
		p := a.get(path, query)
		all = append(all, p.Items...)
		if p.cursor() == "" || p.cursor() == query.Get("cursor") {
			return all, p
		}
		query.Set("cursor", p.cursor())
	}
	a.t.Fatal("paging does not end")
	return nil, page{}
}

// recordStatus sends a request without a network.
func recordStatus(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder
}

// checkSequence fails the test unless the items are the events from..to-1 in order.
func checkSequence(t *testing.T, items []json.RawMessage, from, to int) {
	t.Helper()
	if len(items) != to-from {
		t.Fatalf("got %d items, want %d", len(items), to-from)
	}
	for i, item := range items {
		index, ok := exportsim.IndexOf(item)
		if !ok || index != from+i {
			t.Fatalf("item %d is event %d (%v), want %d: %s", i, index, ok, from+i, item)
		}
	}
}

func params(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
