package ops

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConnections bounds the open connections. It exceeds those of feeds, queries and
// probes by far, and is below the usual limit of 1,024 open files.
const maxConnections = 256

// connections closes an old connection if there are too many: a new one, such as a
// probe's, is always served.
type connections struct {
	mu    sync.Mutex // guards all below
	open  map[net.Conn]connection
	count int64 // of changes
}

type connection struct {
	busy  bool  // a request is in progress
	since int64 // the number of the change that began this state
}

// changed is the server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	c.count++
	if c.open == nil {
		c.open = make(map[net.Conn]connection)
	}
	c.open[conn] = connection{busy: state == http.StateActive, since: c.count}
	if len(c.open) > maxConnections {
		c.closeOldest(conn)
	}
}

// closeOldest closes the connection that has been idle longest, or, if all are busy, the
// one with the oldest request.
func (c *connections) closeOldest(but net.Conn) {
	var oldest net.Conn
	for conn, this := range c.open {
		best := c.open[oldest]
		older := oldest == nil || !this.busy && best.busy || this.busy == best.busy && this.since < best.since
		if conn != but && older {
			oldest = conn
		}
	}
	delete(c.open, oldest)
	if secured, ok := oldest.(*tls.Conn); ok {
		oldest = secured.NetConn() // a client that does not read would delay the closing message of TLS
	}
	_ = oldest.Close() // its client reconnects
}
