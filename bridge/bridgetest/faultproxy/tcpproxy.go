package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	mu             sync.Mutex // guards all below
	request, reply time.Duration
	cuts           []*replyCut
	failing        requestCut
}

// requestCut cuts the connections of the next requests that contain a text.
type requestCut struct {
	text      string
	left      int
	persisted bool // cut at the reply, not at the request
}

// replyCut cuts the connection of the next reply.
type replyCut struct {
	left int64 // bytes to forward before the cut
	link *link // nil until a reply begins
	hits *RuleStats
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
	p := &TCPProxy{relay: newRelay()}
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

// Delay delays data to the server and data from it. Data in transit keeps its delay.
func (p *TCPProxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request, p.reply = request, reply
}

// CutReply cuts the connection of the next reply after a number of its bytes, 0 for none.
// The server has executed the request, and the client does not know.
func (p *TCPProxy) CutReply(after int64) *RuleStats {
	c := &replyCut{left: after}
	c.hits = newRuleStats(fmt.Sprintf("cut a reply after %d bytes", after), func() { p.removeCut(c) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c.hits
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
	p.cuts = append(p.cuts, &replyCut{link: l, hits: newRuleStats("cut the reply to a request", func() {})})
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
	request, _ := p.delays()
	if err := p.release(ctx, b.at.Add(request)); err != nil {
		return err
	}
	if err := p.fail(l, b.data); err != nil {
		return err
	}
	_, err := l.server.Write(b.data)
	return err
}

func (p *TCPProxy) passReply(ctx context.Context, l *link, b piece) error {
	_, reply := p.delays()
	if err := p.release(ctx, b.at.Add(reply)); err != nil {
		return err
	}
	cut := p.cutOf(l)
	if cut == nil || int64(len(b.data)) < cut.left {
		if cut != nil {
			cut.left -= int64(len(b.data)) // no other goroutine uses this cut now
		}
		l.deliver(b.data)
		return nil
	}
	l.deliver(b.data[:cut.left])
	p.removeCut(cut)
	cut.hits.add(nil)
	return errCut
}

func (p *TCPProxy) delays() (request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.request, p.reply
}

// cutOf returns the replyCut for a connection that has a reply, or nil.
func (p *TCPProxy) cutOf(l *link) *replyCut {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.cuts {
		if c.link == l {
			return c
		}
	}
	for _, c := range p.cuts {
		if c.link == nil {
			c.link = l
			return c
		}
	}
	return nil
}

func (p *TCPProxy) removeCut(c *replyCut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = slices.DeleteFunc(p.cuts, func(other *replyCut) bool { return other == c })
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
