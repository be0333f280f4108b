package ops

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"exportbridge/bridge/ops/door"
)

// maxConnections bounds the open connections. It exceeds those of feeds, queries and
// probes by far, and is below the usual limit of 1,024 open files.
const maxConnections = 256

// maxOfClient bounds the connections of one client, which is no trusted proxy.
const maxOfClient = 64

// connections closes an old connection if there are too many: a new one, such as a
// probe's, is always served.
type connections struct {
	proxy door.Proxy // its addresses have many clients

	mu    sync.Mutex // guards all below
	open  map[net.Conn]connection
	count int64 // of changes
}

type connection struct {
	client netip.Addr // the zero Addr for a trusted proxy
	busy   bool       // a request is in progress
	since  int64      // number of the change that began this state
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
	client := c.open[conn].client
	if state == http.StateNew {
		client = c.clientOf(conn)
	}
	c.open[conn] = connection{client, state == http.StateActive, c.count}
	if len(c.open) > maxConnections {
		c.closeOldest(conn, netip.Addr{})
	} else if client.IsValid() && state == http.StateNew && c.countOf(client) > maxOfClient {
		c.closeOldest(conn, client)
	}
}

func (c *connections) clientOf(conn net.Conn) netip.Addr {
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // the zero AddrPort on errors
	if c.proxy.Trusts(peer.Addr()) {
		return netip.Addr{}
	}
	return clientOf(peer.Addr())
}

func (c *connections) countOf(client netip.Addr) (n int) {
	for _, other := range c.open {
		if other.client == client {
			n++
		}
	}
	return n
}

// closeOldest closes the connection of a client, the zero Addr for all, that has been idle
// longest, or, if all are busy, the one with the oldest request.
func (c *connections) closeOldest(but net.Conn, client netip.Addr) {
	var oldest net.Conn
	for conn, this := range c.open {
		best := c.open[oldest]
		older := oldest == nil || !this.busy && best.busy || this.busy == best.busy && this.since < best.since
		if conn != but && older && (!client.IsValid() || this.client == client) {
			oldest = conn
		}
	}
	delete(c.open, oldest)
	if secured, ok := oldest.(*tls.Conn); ok {
		oldest = secured.NetConn() // a client that does not read would delay the closing message of TLS
	}
	_ = oldest.Close() // its client reconnects
}
