package command

import (
	"net"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// Servers that accept connections and never answer delay the page once, not one after the
// other.
func TestReportsWithoutAnswers(t *testing.T) {
	t.Parallel()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	addr := silent.Addr().String()
	a := &cli.App{Environ: []string{"KAFKA_BROKERS=" + addr, "REDIS_URL=redis://" + addr + "/0", "EXPORT_API_KEY=any"}}
	s := must.Get(a.Settings(config.UsesAll, nil))(t)
	client := must.Get(cursorstore.Open(s.Cursor))(t)
	defer client.Close()
	began := time.Now()
	r := controllers(client, s, nil)["events"].Status(t.Context())
	if took := time.Since(began); len(r.Notes) != 3 || took > 2*control.StatusTimeout {
		t.Errorf("after %s: %+v; want three notes", took, r)
	}
}
