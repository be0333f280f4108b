//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// get asks the running bridge's HTTP server. The code is 0 while it does not
// listen.
func (s *stage) get(path string) (code int, body []byte) { return get(s.ops, path) }

func get(addr, path string) (code int, body []byte) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		Timeout: 5 * time.Second}
	res, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, body
}

// metric returns the sum of a metric's series that hold all the parts; 0 while
// nobody listens.
func (s *stage) metric(name string, parts ...string) float64 {
	return metric(s.t, s.ops, name, parts...)
}

func metric(t *testing.T, addr, name string, parts ...string) float64 {
	_, body := get(addr, "/metrics")
	sum := 0.0
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(series, "exportbridge_"+name+"{") {
			continue
		}
		if slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(series, part) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Errorf("metric %s: %v", lines.Text(), err)
		}
		sum += n
	}
	return sum
}

func (s *stage) published() int { return int(s.metric("events_published_total")) }

func (p *program) metric(name string, parts ...string) float64 {
	return metric(p.t, p.ops, name, parts...)
}

func (p *program) published() int { return int(p.metric("events_published_total")) }

// awaitPublished waits until this bridge process has published n events.
func (s *stage) awaitPublished(n int) {
	s.t.Helper()
	eventually(s.t, 5*time.Minute, fmt.Sprintf("%d published events", n), func() bool { return s.published() >= n })
}

// awaitState waits until the bridge is in the state.
func (s *stage) awaitState(state string) {
	s.t.Helper()
	eventually(s.t, stepTimeout, "state "+state, func() bool {
		return s.metric("state", fmt.Sprintf("state=%q", state)) == 1
	})
}
