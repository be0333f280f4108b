package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// relay is what the fault proxies share: it accepts connections, opens one to
// the server for each, and can hold back or cut all of them. Its methods may
// be called concurrently.
type relay struct {
	work sync.WaitGroup // one for each listener and each connection

	mu        sync.Mutex // guards all below
	listeners []net.Listener
	links     map[*link]struct{}
	passing   chan struct{} // closed, but for the time of a blackhole
	refusing  bool
	closed    bool
}

func newRelay() *relay {
	passing := make(chan struct{})
	close(passing)
	return &relay{links: make(map[*link]struct{}), passing: passing}
}

// Blackhole holds back whatever is sent, in both directions, and keeps the
// connections open, until it is called with false. What was held back is
// delivered then, even if its sender has given up: as in a network that loses
// packets for a while.
func (r *relay) Blackhole(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch held := !isClosed(r.passing); {
	case on && !held:
		r.passing = make(chan struct{})
	case !on && held:
		close(r.passing)
	}
}

// Refuse cuts all connections and each new one at once, until it is called
// with false.
func (r *relay) Refuse(on bool) {
	r.mu.Lock()
	r.refusing = on
	r.mu.Unlock()
	if on {
		r.CutAll()
	}
}

// CutAll cuts all connections. What is on its way is lost, late requests
// included.
func (r *relay) CutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.cut()
	}
}

// Close ends the proxy with all its connections.
func (r *relay) Close() error {
	r.mu.Lock()
	r.closed, r.refusing = true, true
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	r.listeners = nil
	r.mu.Unlock()
	r.CutAll()
	r.work.Wait()
	return errors.Join(errs...)
}

// forward listens at an address and lets carry run for each connection there.
// It returns the address with its port.
func (r *relay) forward(at, upstream string, carry func(context.Context, *link)) (net.Addr, error) {
	front, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy to %s: %w", upstream, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(fmt.Errorf("listen for a proxy to %s: the proxy is closed", upstream), front.Close())
	}
	r.listeners = append(r.listeners, front)
	r.work.Go(func() {
		for {
			client, err := front.Accept()
			if err != nil {
				return // Close has closed it
			}
			r.work.Go(func() { r.connect(client, upstream, carry) })
		}
	})
	return front.Addr(), nil
}

// connect carries one connection until it ends. A server that is not there
// looks to the client like one that hangs up.
func (r *relay) connect(client net.Conn, upstream string, carry func(context.Context, *link)) {
	network := "tcp"
	if strings.HasPrefix(upstream, "/") {
		network = "unix"
	}
	server, err := net.DialTimeout(network, upstream, 2*time.Second)
	if err != nil {
		client.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{client: client, server: server, cancel: cancel}
	defer l.cut()
	if !r.admit(l) {
		return
	}
	defer r.forget(l)
	carry(ctx, l)
}

func (r *relay) admit(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusing {
		return false
	}
	r.links[l] = struct{}{}
	return true
}

func (r *relay) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// release waits until a time has come and nothing is held back.
func (r *relay) release(ctx context.Context, at time.Time) error {
	if err := sleepUntil(ctx, at); err != nil {
		return err
	}
	r.mu.Lock()
	passing := r.passing
	r.mu.Unlock()
	select {
	case <-passing:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// link is a client's connection with its connection to the server.
type link struct {
	client, server net.Conn
	cancel         context.CancelFunc
}

// cut ends both connections. It may be called more than once.
func (l *link) cut() {
	l.cancel()
	l.client.Close()
	l.server.Close()
}

// deliver sends to the client. A client that is gone gets nothing, but the link
// lives on: its last request may still be on its way.
func (l *link) deliver(data []byte) { _, _ = l.client.Write(data) }

// piece is what arrived at once, some bytes or a frame, and when.
type piece struct {
	data []byte
	at   time.Time
}

// carriage is how a proxy carries one connection.
type carriage struct {
	// read returns the next piece of what one side sends, in the given memory if
	// that is large enough. The memory is used again once the piece has passed.
	read func(from io.Reader, memory []byte) ([]byte, error)
	// request and reply pass a piece on. An error cuts the link.
	request, reply func(piece) error
	// settle runs when the client has ended and all its requests are passed.
	// The link is cut after it.
	settle func()
}

// readBuffer saves a system call for the size of each frame.
const readBuffer = 64 << 10

// carry moves pieces both ways until one side ends or the link is cut. What
// the client sent before it ended is delivered all the same.
func (l *link) carry(ctx context.Context, c carriage) {
	client, server := bufio.NewReaderSize(l.client, readBuffer), bufio.NewReaderSize(l.server, readBuffer)
	var requests sync.WaitGroup
	requests.Go(func() {
		l.flow(ctx, func(memory []byte) ([]byte, error) { return c.read(client, memory) }, c.request, c.settle)
	})
	l.flow(ctx, func(memory []byte) ([]byte, error) { return c.read(server, memory) }, c.reply, func() {})
	requests.Wait()
}

// flow passes pieces on in their order and then cuts the link. Reading goes on
// while a piece is delayed, so that its delay does not add to that of the next.
func (l *link) flow(
	ctx context.Context, next func(memory []byte) ([]byte, error), pass func(piece) error, settle func(),
) {
	queue, free := make(chan piece, 64), make(chan []byte, 4)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(queue)
		for {
			var memory []byte
			select {
			case memory = <-free:
			default:
			}
			data, err := next(memory)
			if err != nil {
				return
			}
			select {
			case queue <- piece{data: data, at: time.Now()}:
			case <-ctx.Done():
				return
			}
		}
	})
	defer reading.Wait()
	defer l.cut()
	for p := range queue {
		if pass(p) != nil {
			return
		}
		select {
		case free <- p.data:
		default:
		}
	}
	settle()
}

// anyPort is where the proxies listen.
const anyPort = "127.0.0.1:0"

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sleepUntil waits until at, or returns the context's error.
func sleepUntil(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
