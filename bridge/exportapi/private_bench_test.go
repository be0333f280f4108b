package exportapi

import (
	"testing"

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
	inTurn(b, decoder(ruledClient(b)), decoder(plain), "times-as-long")
}
