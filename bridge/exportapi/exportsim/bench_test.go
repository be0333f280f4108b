package exportsim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// discard is a response that takes no time.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkPage serves pages of 1,000 events, each for the first time and without a
// network. It measures the simulator alone.
func BenchmarkPage(b *testing.B) {
	for _, encoding := range []string{"identity", "gzip", "zstd"} {
		b.Run(encoding, func(b *testing.B) {
			h := newHandler(b, exportsim.Config{Events: 1_000_000, Gzip: true, Zstd: true})
			page := recordStatus(h, "/events?pageSize=1000")
			b.SetBytes(int64(page.Body.Len()))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = (n + 1) % 900
				query := "pageSize=1000&start=" + millis(h.EventTime(n*1000))
				request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/events", RawQuery: query}}
				request.Header = http.Header{"Accept-Encoding": {encoding}}
				h.ServeHTTP(discard{http.Header{}}, request)
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkPageOverLoopback is BenchmarkPage for one client that only reads, over a real
// connection. No client can fetch faster.
func BenchmarkPageOverLoopback(b *testing.B) {
	h := newHandler(b, exportsim.Config{Events: 1_000_000})
	server := httptest.NewServer(h)
	defer server.Close()
	client := server.Client()
	n := 0
	var bytes int64
	for b.Loop() {
		n = (n + 1) % 900
		request := must.Get(http.NewRequestWithContext(b.Context(), http.MethodGet,
			fmt.Sprintf("%s/events?pageSize=1000&start=%s", server.URL, millis(h.EventTime(n*1000))), nil))(b)
		response := must.Get(client.Do(request))(b)
		read, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
		bytes += read
	}
	b.SetBytes(bytes / int64(b.N))
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "events/s")
}
