package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
)

// errCut means that the proxy has cut a link on purpose.
var errCut = errors.New("cut by the proxy")

// TCPProxy is a proxy for a server such as Redis or the export API. It breaks connections
// on demand. Its methods may be called concurrently.
type TCPProxy struct {
	*relay
	addr string

	mu         sync.Mutex // guards all below
	delay      time.Duration
	failing    requestCut
	unanswered map[*link]bool // connections to cut instead of their next reply
}

// requestCut cuts the connections of the next requests that contain a text.
type requestCut struct {
	text      string
	left      int
	persisted bool // cut at the reply, not at the request
}

// StartTCPProxy starts a proxy to the server at upstream, which the end of the test closes.
func StartTCPProxy(t testing.TB, upstream string) *TCPProxy {
	t.Helper()
	p := must.Get(LaunchTCPProxy(upstream))(t)
	t.Cleanup(func() { finishProxy(t, p.Close) })
	return p
}

// LaunchTCPProxy is StartTCPProxy outside a test. The caller must Close the proxy.
func LaunchTCPProxy(upstream string) (*TCPProxy, error) {
	p := &TCPProxy{relay: newRelay(), unanswered: make(map[*link]bool)}
	addr, err := p.forward(anyPort, upstream, p.carry)
	if err != nil {
		return nil, err
	}
	p.addr = addr.String()
	return p, nil
}

func finishProxy(t testing.TB, end func() error) {
	if err := end(); err != nil {
		t.Errorf("end the proxy: %v", err)
	}
}

// Addr returns the address for clients.
func (p *TCPProxy) Addr() string { return p.addr }

// Delay delays data from the server. Data in transit keeps its delay.
func (p *TCPProxy) Delay(reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = reply
}

// CutRequests cuts the connections of the next n requests that contain a text. The server
// executes these requests if persisted is set; otherwise it does not get them.
func (p *TCPProxy) CutRequests(text string, n int, persisted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = requestCut{text, n, persisted}
}

// fail returns errCut for a request that must not reach the server.
func (p *TCPProxy) fail(l *link, request []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing.left == 0 || !bytes.Contains(request, []byte(p.failing.text)) {
		return nil
	}
	if p.failing.left--; !p.failing.persisted {
		return errCut
	}
	p.unanswered[l] = true
	return nil
}

func (p *TCPProxy) carry(ctx context.Context, l *link) {
	l.carry(ctx, carriage{
		read:    readSome,
		request: func(b piece) error { return p.pass(ctx, l, b) },
		reply:   func(b piece) error { return p.passReply(ctx, l, b) },
		settle:  func() {},
	})
}

func (p *TCPProxy) pass(ctx context.Context, l *link, b piece) error {
	if err := p.release(ctx, b.at); err != nil {
		return err
	}
	if err := p.fail(l, b.data); err != nil {
		return err
	}
	_, err := l.server.Write(b.data)
	return err
}

func (p *TCPProxy) passReply(ctx context.Context, l *link, b piece) error {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if err := p.release(ctx, b.at.Add(delay)); err != nil {
		return err
	}
	if !p.answers(l) {
		return errCut
	}
	l.deliver(b.data)
	return nil
}

// answers reports whether a connection may have its next reply.
func (p *TCPProxy) answers(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.unanswered[l]
	delete(p.unanswered, l)
	return !cut
}

// readSome returns what has arrived.
func readSome(from io.Reader, memory []byte) ([]byte, error) {
	b := slices.Grow(memory[:0], 16<<10)[:16<<10]
	n, err := from.Read(b)
	if n > 0 {
		return b[:n], nil // the next read returns the error again
	}
	return nil, err
}
