package ops_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
)

// Each rejected request is logged with its caller, and counted by status.
func TestRejectedRequests(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var m *metrics.Metrics
	s := newSite(ops.Config{AdminToken: rightToken}, func(p *ops.Parts) {
		p.Logger, m = slog.New(slog.NewTextHandler(&log, nil)), p.Metrics
	})
	for n := range 20 {
		s.do(ask{line: pausePath, body: anyReason, peer: fmt.Sprintf("10.0.0.%d:1", n)})
	}
	for range 12 {
		s.do(ask{line: pausePath, body: anyReason, header: map[string]string{"Authorization": "Bearer wrong"}})
	}
	s.do(ask{line: "GET /api/v1/status", host: "evil.example"})
	s.do(ask{line: "GET /api/v1/status", header: map[string]string{"Sec-Fetch-Site": "cross-site"}})
	s.do(ask{line: "GET /api/v1/status"})
	if n := strings.Count(log.String(), "request rejected"); n != 34 ||
		!strings.Contains(log.String(), "caller=10.0.0.19 ") {
		t.Errorf("%d rejected requests are logged, want 34:\n%s", n, &log)
	}
	const want = `
# HELP exportbridge_http_rejected_total Rejected HTTP requests, by status: 401 and 429 (missing or wrong token), 403 (not local, or another site), 411 (chunked body), 421 (unknown Host name), 503 (tokens cannot be read), tls (failed handshake).
# TYPE exportbridge_http_rejected_total counter
exportbridge_http_rejected_total{status="401"} 30
exportbridge_http_rejected_total{status="403"} 1
exportbridge_http_rejected_total{status="411"} 0
exportbridge_http_rejected_total{status="421"} 1
exportbridge_http_rejected_total{status="429"} 2
exportbridge_http_rejected_total{status="503"} 0
exportbridge_http_rejected_total{status="tls"} 0
`
	if err := testutil.GatherAndCompare(m, strings.NewReader(want), "exportbridge_http_rejected_total"); err != nil {
		t.Error(err)
	}
}

// Whoever sends rejected requests without end gets few answers a second, so that the
// log has few lines.
func TestRejectedRequestsAreSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(ops.Config{AdminToken: rightToken})
		began, n := time.Now(), 0
		for ; time.Since(began) < 10*time.Second; n++ {
			s.do(ask{line: pausePath, body: anyReason})
		}
		if n > 1300 {
			t.Errorf("%d rejected requests in 10 s", n)
		}
		if began = time.Now(); s.do(ask{line: "GET /api/v1/status"}).Code != 200 || time.Since(began) > 0 {
			t.Errorf("another request waits for %s", time.Since(began))
		}
	})
}
