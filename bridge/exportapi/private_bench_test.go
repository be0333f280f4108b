package exportapi

import (
	"slices"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// BenchmarkPrivateInTurn decodes a page without rules and with three in turn, and reports the
// median of how many times longer the latter takes. On a busy machine, only simultaneous work
// can be compared.
func BenchmarkPrivateInTurn(b *testing.B) {
	body := simulatorPage(b, exportsim.Schema08, "/events", 1000)
	cfg := DefaultConfig()
	cfg.URL, cfg.APIKey = "http://127.0.0.1:1", "k3y"
	plain := must.Get(New(cfg))(b)
	defer plain.Close()
	decoder := func(c *Client) func() {
		return func() {
			p := c.pageOf(body)
			must.Do(b, c.Decode(p))
			p.Release()
		}
	}
	without, with := decoder(plain), decoder(ruledClient(b))
	var times []float64
	for b.Loop() {
		start := time.Now()
		without()
		middle := time.Now()
		with()
		times = append(times, float64(time.Since(middle))/float64(middle.Sub(start)))
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "times-as-long")
	b.ReportMetric(0, "ns/op") // the sum of both means nothing
}
