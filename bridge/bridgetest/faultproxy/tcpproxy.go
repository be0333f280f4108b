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
)

// errCut ends a link on purpose.
var errCut = errors.New("cut by the proxy")

// TCPProxy stands before a server, such as Redis or the export API, and breaks
// connections on demand. Its methods may be called concurrently.
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
	persisted bool // at the reply
}

// replyCut cuts the connection that gets the next reply.
type replyCut struct {
	left int64 // bytes that still pass
	link *link // nil until a reply comes
	hits *RuleStats
}

// StartTCPProxy starts a proxy to the server at upstream for the length of the
// test.
func StartTCPProxy(t testing.TB, upstream string) *TCPProxy {
	t.Helper()
	p, err := LaunchTCPProxy(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finishProxy(t, p.Close) })
	return p
}

// LaunchTCPProxy does the same outside a test. The caller must Close it.
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

// Addr is where clients connect.
func (p *TCPProxy) Addr() string { return p.addr }

// Delay lets bytes to the server and bytes from it pass so much later. What is
// on its way already keeps its delay.
func (p *TCPProxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request, p.reply = request, reply
}

// CutReply cuts the connection on which the server sends the next bytes, after
// so many of them, at 0 before the first: the server has done what it was
// asked, and the client does not get to know.
func (p *TCPProxy) CutReply(after int64) *RuleStats {
	c := &replyCut{left: after}
	c.hits = newRuleStats(fmt.Sprintf("cut a reply after %d bytes", after), func() { p.removeCut(c) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c.hits
}

// CutRequests cuts the connections of the next n requests that contain a text: the server
// does not get them. If persisted is set, it executes them, and the client does not get to know.
func (p *TCPProxy) CutRequests(text string, n int, persisted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = requestCut{text, n, persisted}
}

// fail reports errCut for a request that must not reach the server.
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
			cut.left -= int64(len(b.data)) // only this goroutine uses it now
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

// cutOf returns what is to cut this connection, which has a reply, if anything.
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
		return b[:n], nil // the error comes again
	}
	return nil, err
}
