// Package ops serves a running bridge over HTTP: probes, metrics, status and records
// as JSON, server-sent events, the web UI, and authorized actions.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	writeTimeout = 30 * time.Second
	// stopGrace is how long requests in progress may take when the server stops.
	stopGrace = 2 * time.Second
)

// Server is the HTTP server of one process.
type Server struct {
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc // cancels the requests
}

// Listen binds the address: a wrong one fails before the bridge starts. The caller must
// call Serve or Close.
func Listen(ctx context.Context, cfg Config, parts Parts) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on HTTP_ADDR: %w", err)
	}
	var errorLog *log.Logger
	if parts.Logger != nil {
		errorLog = slog.NewLogLogger(parts.Logger.Handler(), slog.LevelWarn)
	}
	requests, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &Server{listener: l, stop: stop, http: &http.Server{
		Handler:           Handler(cfg, parts),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTimeout,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10, ErrorLog: errorLog,
		ConnState: new(connections).changed,
	}}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves until ctx ends. Then it cancels all requests, and waits two seconds for
// their answers.
func (s *Server) Serve(ctx context.Context) error {
	stopped := make(chan error, 1)
	unwatch := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		s.stop()
		err := s.http.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close()
		}
		stopped <- err
	})
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return <-stopped
	}
	unwatch()
	s.stop()
	return fmt.Errorf("serve %s: %w", s.Addr(), err)
}

// Close releases the address without serving.
func (s *Server) Close() error {
	s.stop()
	return s.listener.Close()
}
