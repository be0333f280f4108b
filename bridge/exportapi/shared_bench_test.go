package exportapi_test

import (
	"runtime"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

// BenchmarkClientMemory measures the live memory of one of many clients with the same
// settings: after New, and after a page over TLS. The latter includes the server's half of
// the connections.
func BenchmarkClientMemory(b *testing.B) {
	const clients = 200
	server, ca := listenTLS(b, answer(`{"items":[{"timestamp":1}],"nextCursor":"a"}`), nil)
	measure := func(use func(c *exportapi.Client)) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				all := make([]*exportapi.Client, clients)
				exportapi.TrimMemory()
				runtime.GC()
				runtime.ReadMemStats(&before)
				shared := new(exportapi.Shared)
				for i := range all {
					cfg := config(b, map[string]string{"EXPORT_URL": server.URL, "EXPORT_TLS_CA": ca})
					cfg.Shared = shared
					c := must.Get(exportapi.New(cfg))(b)
					use(c)
					all[i] = c
				}
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&after)
				grown := after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse
				b.ReportMetric(float64(grown)/clients, "B/client")
				for _, c := range all {
					c.Close()
				}
			}
		}
	}
	b.Run("new", measure(func(*exportapi.Client) {}))
	b.Run("page", measure(func(c *exportapi.Client) {
		p := must.Get(c.Fetch(b.Context(), bridge.Position{}))(b)
		must.Do(b, c.Decode(p))
		p.Release()
	}))
}
