package ops

import (
	"net"
	"net/http"
	"net/netip"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/door"
)

// fakeConn is a connection of a peer that counts how often it is closed.
type fakeConn struct {
	net.Conn
	peer   string
	closed int
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.peer))
}
func (c *fakeConn) Close() error { c.closed++; return nil }

// A client with too many connections loses its own oldest idle one, and no other client does.
// A trusted proxy has many clients.
func TestConnectionsOfOneClient(t *testing.T) {
	t.Parallel()
	from := must.Get(door.ParseProxies([]string{"10.9.0.0/24"}))(t)
	c := &connections{proxy: door.Proxy{Header: "X-User", From: from}}
	open := func(peer string) *fakeConn {
		conn := &fakeConn{peer: peer}
		c.changed(conn, http.StateNew)
		return conn
	}
	other := open("10.0.0.2:1")
	c.changed(other, http.StateIdle)
	busy, idle := open("[2001:db8::1]:1"), open("[2001:db8::2]:1")
	c.changed(busy, http.StateActive)
	c.changed(idle, http.StateIdle)
	for range maxOfClient - 2 {
		open("[2001:db8::3]:1")
	}
	if idle.closed+busy.closed > 0 {
		t.Fatal("a connection is closed before there are too many")
	}
	open("[2001:db8::4]:1")
	if idle.closed != 1 || busy.closed+other.closed > 0 {
		t.Errorf("closed: idle %d, busy %d, of another %d", idle.closed, busy.closed, other.closed)
	}
	for range maxOfClient + 10 {
		if conn := open("10.9.0.7:1"); conn.closed > 0 {
			t.Fatal("a new connection is closed")
		}
	}
	if n := c.countOf(netip.Addr{}); n != maxOfClient+10 {
		t.Errorf("%d connections of the proxy, want %d", n, maxOfClient+10)
	}
}
