package ops_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
)

// Clients that hold connections do not keep the probes from being answered: the
// server closes the oldest ones.
func TestHeldConnections(t *testing.T) {
	t.Parallel()
	const held = 700
	for name, request := range map[string]string{
		"silent": "", "idle": "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"half a header": "GET /livez HTTP/1.1\r\nHost: loc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFeed(t, new(movingStream), false)
			feed := f.connect(t, "")
			all := make([]net.Conn, held)
			for i := range all {
				all[i] = hold(t, f.url, request)
			}
			for _, path := range []string{"/livez", "/readyz"} {
				wantAnswer(t, f.url+path)
			}
			if open := countOpen(t, all); open > ops.MaxConnections {
				t.Errorf("%d of %d connections are open, want at most %d", open, held, ops.MaxConnections)
			}
			if name != "half a header" { // those are in progress as the feed is
				await(t, feed, "briefs", "")
				f.log.Info("after")
				await(t, feed, "log", "after")
			}
		})
	}
}

// hold opens a connection, sends a request and, if it is complete, reads its answer.
func hold(t *testing.T, url, request string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	t.Cleanup(func() { c.Close() })
	must.Get(io.WriteString(c, request))(t)
	if strings.HasSuffix(request, "\r\n\r\n") {
		res := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
		res.Body.Close()
	}
	return c
}

func wantAnswer(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))(t)
	res := must.Get((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
	if res.Body.Close(); res.StatusCode != 200 {
		t.Errorf("%s: %s", url, res.Status)
	}
}

// countOpen returns how many connections the server has not closed.
func countOpen(t *testing.T, all []net.Conn) (open int) {
	t.Helper()
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		switch _, err := c.Read(make([]byte, 1)); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			open++
		case err == nil:
			t.Fatal(fmt.Errorf("unexpected data"))
		}
	}
	return open
}
