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

	"exportbridge/bridge"
)

// relay is the part that the fault proxies share. It accepts connections, opens one to the
// server for each, and can block or cut all of them. Its methods may be called
// concurrently.
type relay struct {
	work sync.WaitGroup // one for each listener and each connection

	mu        sync.Mutex // guards all below
	listeners []net.Listener
	links     map[*link]struct{}
	passing   chan struct{} // closed, except during a blackhole
	refusing  bool
	closed    bool
}

func newRelay() *relay {
	passing := make(chan struct{})
	close(passing)
	return &relay{links: make(map[*link]struct{}), passing: passing}
}

// Blackhole(true) keeps the connections open and blocks all data in both directions.
// Blackhole(false) delivers the blocked data, even if the sender has given up. A network
// that loses packets for a while does the same.
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

// Refuse(true) cuts all connections, and each new one at once. Refuse(false) ends that.
func (r *relay) Refuse(on bool) {
	r.mu.Lock()
	r.refusing = on
	r.mu.Unlock()
	if on {
		r.CutAll()
	}
}

// CutAll cuts all connections. Data in transit is lost, and so are late requests.
func (r *relay) CutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.cut()
	}
}

// Close closes the proxy and all its connections.
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

// forward listens at an address, and calls carry for each connection. It returns the
// address with its port.
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
				return // Close has closed the listener
			}
			r.work.Go(func() { r.connect(client, upstream, carry) })
		}
	})
	return front.Addr(), nil
}

// connect carries one connection until it ends. To the client, a missing server looks like
// one that closes the connection.
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

// release waits until a given time, and then until no blackhole blocks the data.
func (r *relay) release(ctx context.Context, at time.Time) error {
	if wait := time.Until(at); wait > 0 {
		bridge.Sleep(ctx, wait)
	}
	r.mu.Lock()
	passing := r.passing
	r.mu.Unlock()
	select {
	case <-passing:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// link is a client's connection with the connection to the server.
type link struct {
	client, server net.Conn
	cancel         context.CancelFunc
}

// cut closes both connections. It may be called several times.
func (l *link) cut() {
	l.cancel()
	l.client.Close()
	l.server.Close()
}

// deliver sends data to the client. It ignores errors: the link continues without the
// client, whose last request may still be in transit.
func (l *link) deliver(data []byte) { _, _ = l.client.Write(data) }

// piece is a frame, or the bytes of one read, with the time of arrival.
type piece struct {
	data []byte
	at   time.Time
}

// carriage is how a proxy forwards one connection.
type carriage struct {
	// read returns the next piece from one side. It uses the given memory if that is large
	// enough. The memory is reused after the piece was forwarded.
	read func(from io.Reader, memory []byte) ([]byte, error)
	// request and reply forward a piece. An error cuts the link.
	request, reply func(piece) error
	// settle runs when the client has ended and all its requests are forwarded. Then the
	// link is cut.
	settle func()
}

// readBuffer saves a system call per frame: that for the frame's size.
const readBuffer = 64 << 10

// carry forwards pieces both ways until one side ends or the link is cut. Data that the
// client sent before it ended is delivered.
func (l *link) carry(ctx context.Context, c carriage) {
	client, server := bufio.NewReaderSize(l.client, readBuffer), bufio.NewReaderSize(l.server, readBuffer)
	var requests sync.WaitGroup
	requests.Go(func() {
		l.flow(ctx, func(memory []byte) ([]byte, error) { return c.read(client, memory) }, c.request, c.settle)
	})
	l.flow(ctx, func(memory []byte) ([]byte, error) { return c.read(server, memory) }, c.reply, func() {})
	requests.Wait()
}

// flow forwards pieces in order, and then cuts the link. It keeps reading while a piece is
// delayed, so that delays do not add up.
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
