// Package ops shows a running bridge over HTTP: health for supervisors, and
// metrics. It changes nothing.
package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"exportbridge/bridge"
)

// Config is where the server listens.
type Config struct {
	// Addr is host:port, or "off".
	Addr string `env:"HTTP_ADDR, default=127.0.0.1:8080" desc:"address of metrics and probes, or off"`
}

// Off reports whether no server is wanted.
func (c Config) Off() bool { return c.Addr == "off" }

// Validate reports what is wrong with the configuration.
func (c Config) Validate() error {
	if c.Off() {
		return nil
	}
	if _, port, err := net.SplitHostPort(c.Addr); err != nil || port == "" {
		return fmt.Errorf("HTTP_ADDR: %q is not an address, for example 127.0.0.1:8080, or off", c.Addr)
	}
	return nil
}

// Stream is what the server asks of a bridge.
type Stream interface {
	Status() bridge.Status
	Turning() bool
}

// Server serves /livez, /readyz and /metrics.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address, so that a mistake in it shows before anything
// runs. Serve must be called, or Close.
func Listen(ctx context.Context, cfg Config, metrics *Metrics, streams []Stream) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on HTTP_ADDR: %w", err)
	}
	return &Server{listener: l, http: &http.Server{
		Handler:           Handler(metrics, streams),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until ctx ends, then lets the requests at hand finish.
func (s *Server) Serve(ctx context.Context) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		stopped <- s.http.Shutdown(grace)
	})
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return <-stopped
	}
	stop()
	return fmt.Errorf("serve %s: %w", s.Addr(), err)
}

// Close gives the address back without serving.
func (s *Server) Close() error { return s.listener.Close() }

// Handler returns the endpoints:
//
//	/livez    200 while every commit loop turns. Kafka, Redis or the API being
//	          away does not make a process dead: restarting it would not help.
//	/readyz   200 while no stream is blocked; ?verbose says what each one does.
//	/metrics  Prometheus.
func Handler(metrics *Metrics, streams []Stream) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		for _, s := range streams {
			if !s.Turning() {
				http.Error(w, "stream "+s.Status().Stream+": the commit loop has not turned for a minute", http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		lines := make([]string, 0, len(streams))
		for _, s := range streams {
			st := s.Status()
			if st.State == bridge.StateBlocked || st.State == bridge.StateStopped {
				code = http.StatusServiceUnavailable
			}
			lines = append(lines, describe(st))
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		if !r.URL.Query().Has("verbose") && code == http.StatusOK {
			fmt.Fprintln(w, "ok")
			return
		}
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return mux
}

func describe(s bridge.Status) string {
	line := fmt.Sprintf("stream %s: %s", s.Stream, s.State)
	if s.Reason != "" {
		line += fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.Error != "" {
		line += ": " + s.Error
	}
	lines := []string{line}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if d := s.Dependencies[name]; !d.Up {
			lines = append(lines, fmt.Sprintf("%s does not answer since %s: %s", name, d.Since.UTC().Format(time.RFC3339), d.Error))
		}
	}
	return strings.Join(lines, "; ")
}
