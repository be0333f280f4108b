package ops

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"exportbridge/bridge"
)

// live answers the liveness probe.
func (h *handler) live(w http.ResponseWriter, _ *http.Request) {
	for _, s := range h.Streams() {
		if !s.Alive() {
			const why = ": commit loop stalled for 1m, or a request to the API that does not end"
			http.Error(w, "stream "+s.Status().Stream+why, http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

// ready answers the readiness probe, with a line per stream on request, first those that are
// not ready. An ended window is ready.
func (h *handler) ready(w http.ResponseWriter, r *http.Request) {
	code := http.StatusOK
	var failing, lines []string
	for _, s := range h.Streams() {
		st := s.Status()
		if st.State == bridge.StateBlocked || st.State == bridge.StateStopped && st.Ended == "" {
			code = http.StatusServiceUnavailable
			failing = append(failing, describe(st))
			continue
		}
		lines = append(lines, describe(st))
	}
	lines = append(failing, lines...) // healthcheck shows the first line
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if !r.URL.Query().Has("verbose") && code == http.StatusOK {
		fmt.Fprintln(w, "ok")
		return
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

func describe(s bridge.Status) string {
	line := fmt.Sprintf("stream %s: %s", s.Stream, s.State.Text())
	if s.Reason != "" {
		line += fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.Error != "" {
		line += ": " + s.Error
	}
	if s.Ended != "" {
		line += ": " + s.Ended
	}
	lines := []string{line}
	for _, w := range s.Warnings {
		lines = append(lines, "warning: "+w.Text)
	}
	for _, name := range s.Down() {
		d := s.Dependencies[name]
		lines = append(lines, fmt.Sprintf("%s %s since %s: %s", name, d.Trouble, d.Since.UTC().Format(time.RFC3339), d.Error))
	}
	return strings.Join(lines, "; ")
}
