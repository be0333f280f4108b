// Package ops serves a running bridge over HTTP: probes, metrics, status and records
// as JSON, server-sent events, the web UI, and authorized actions.
package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"exportbridge/bridge/ops/door"
)

const (
	writeTimeout = 30 * time.Second
	// stopGrace is how long requests in progress may take when the server stops.
	stopGrace = 2 * time.Second
)

// Server is the HTTP server of one process, on one or two addresses.
type Server struct {
	main, probes *endpoint // each nil if it is off
	certificate  *door.Certificate
	issuer       *door.Issuer
	audit        *door.Audit
	denials      *denials           // nil if listen failed before
	stop         context.CancelFunc // cancels the requests
}

// AddrError means that the address of a setting could not be bound.
type AddrError struct {
	Setting string // HTTP_ADDR or HTTP_PROBE_ADDR
	err     error
}

// Error implements error.
func (e *AddrError) Error() string { return fmt.Sprintf("listen on %s: %v", e.Setting, e.err) }

// Unwrap returns the cause.
func (e *AddrError) Unwrap() error { return e.err }

// endpoint serves one address.
type endpoint struct {
	listener net.Listener
	http     *http.Server
}

// Listen binds the addresses: a wrong one fails before the bridge starts. The caller must
// call Serve or Close.
func Listen(ctx context.Context, cfg Config, parts Parts) (*Server, error) {
	if parts.Logger == nil {
		parts.Logger = slog.New(slog.DiscardHandler)
	}
	requests, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{stop: stop}
	if err := s.listen(ctx, requests, cfg, parts); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) listen(ctx, requests context.Context, cfg Config, parts Parts) (err error) {
	if cfg.AuditLog != "" {
		if s.audit, err = door.OpenAudit(cfg.AuditLog); err != nil {
			return err
		}
		parts.Audit = s.audit
	}
	s.denials = newDenials(parts)
	s.issuer = door.NewIssuer(cfg.OIDC, parts.Logger)
	parts.denials, parts.issuer = s.denials, s.issuer
	var secure *tls.Config
	if cfg.TLS() {
		pair := door.Pair{Cert: cfg.TLSCert, Key: cfg.TLSKey, CertFile: cfg.TLSCertFile, KeyFile: cfg.TLSKeyFile}
		if s.certificate, err = door.NewCertificate(pair, parts.Logger); err != nil {
			return err
		}
		secure = s.certificate.Config(cfg.clients())
	}
	if cfg.Addr != off {
		if s.main, err = bind(ctx, "HTTP_ADDR", cfg.Addr, secure); err != nil {
			return err
		}
		s.main.http = newHTTP(requests, Handler(cfg, parts), cfg, parts)
	}
	if cfg.ProbeAddr != "" {
		if s.probes, err = bind(ctx, "HTTP_PROBE_ADDR", cfg.ProbeAddr, nil); err != nil {
			return err
		}
		s.probes.http = newHTTP(requests, probeHandler(cfg, parts), cfg, parts)
	}
	return nil
}

// bind listens at the address of a setting, with TLS if secure is not nil.
func bind(ctx context.Context, setting, addr string, secure *tls.Config) (*endpoint, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &AddrError{setting, err}
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return &endpoint{listener: l}, nil
}

func newHTTP(requests context.Context, handler http.Handler, cfg Config, parts Parts) *http.Server {
	return &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTimeout,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog:  log.New(serverLog{parts}, "", 0),
		ConnState: (&connections{proxy: cfg.proxy()}).changed,
	}
}

// Addr returns the address of HTTP_ADDR that the server listens on, nil if it is off.
func (s *Server) Addr() net.Addr { return s.main.addr() }

// ProbeAddr returns the address of HTTP_PROBE_ADDR, nil if it is off.
func (s *Server) ProbeAddr() net.Addr { return s.probes.addr() }

func (e *endpoint) addr() net.Addr {
	if e == nil {
		return nil
	}
	return e.listener.Addr()
}

// Serve serves until ctx ends, or one of the addresses fails. Then it cancels all requests,
// and waits two seconds for their answers.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var errs [2]error
	for i, e := range []*endpoint{s.main, s.probes} {
		if e != nil {
			all.Go(func() {
				defer cancel()
				errs[i] = e.serve(ctx, s.stop)
			})
		}
	}
	if s.certificate != nil {
		all.Go(func() { s.certificate.Watch(ctx) })
	}
	if s.issuer != nil && s.main != nil {
		all.Go(func() { s.issuer.Watch(ctx) })
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

func (e *endpoint) serve(ctx context.Context, stop context.CancelFunc) error {
	stopped := make(chan error, 1)
	unwatch := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		stop()
		err := e.http.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = e.http.Close()
		}
		stopped <- err
	})
	err := e.http.Serve(e.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return <-stopped
	}
	unwatch()
	stop()
	return fmt.Errorf("serve %s: %w", e.addr(), err)
}

// Close releases the addresses and the audit log, whether or not Serve was called.
func (s *Server) Close() error {
	s.stop()
	var errs []error
	for _, e := range []*endpoint{s.main, s.probes} {
		if e != nil {
			errs = append(errs, e.listener.Close())
		}
	}
	if s.denials != nil {
		s.denials.flush()
	}
	return errors.Join(append(errs, s.audit.Close())...)
}

// clients returns the authorities of HTTP_TLS_CLIENT_CA, nil for none.
func (c Config) clients() *x509.CertPool {
	if c.TLSClientCA == "" {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(c.TLSClientCA)) // Validate returns the error
	return pool
}
